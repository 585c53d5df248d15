//! The requests to the ledger, in as few words as the tests need.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Map, Value, json};

use crate::harness::eventually;
use crate::reply::Reply;
use crate::shape;

/// One namespace's ledger at one running server.
#[derive(Clone)]
pub(crate) struct Ledger {
    http: Client,
    base: String,
    is_patient: bool,
}

/// A request that a test composes before it is sent.
pub(crate) fn hold(operation: &str, changes: &[(&str, i64)]) -> Value {
    let changes: Vec<Value> =
        changes.iter().map(|&(name, value)| json!({"limit_name": name, "value": value})).collect();
    json!({"operation_id": operation, "changes": changes})
}

/// Adds fields to `request`.
pub(crate) fn with(mut request: Value, more: Value) -> Value {
    let (Some(request_fields), Value::Object(more)) = (request.as_object_mut(), more) else {
        panic!("both must be objects")
    };
    request_fields.extend(more);
    request
}

pub(crate) fn encode(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

impl Ledger {
    pub(crate) fn new(http: Client, base: String) -> Ledger {
        Ledger { http, base, is_patient: false }
    }

    /// Repeats each request after a 503: on a busy machine, a node with a short tenure may lose its shards for a
    /// moment. Use it only for requests that may be repeated.
    pub(crate) fn patient(&self) -> Ledger {
        Ledger { is_patient: true, ..self.clone() }
    }

    #[track_caller]
    pub(crate) fn send(&self, request: RequestBuilder) -> Reply {
        if !self.is_patient {
            return Reply::to(request);
        }
        let again = || request.try_clone().expect("a body that is no stream");
        eventually(|| Some(Reply::to(again())).filter(|reply| reply.status != 503))
            .expect("an answer other than 503")
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.http.request(method, format!("{}{path}", self.base))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send(self.request("GET", path))
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: Value) -> Reply {
        self.send(self.request("POST", path).json(&body))
    }

    /// Sends any text as a JSON body.
    #[track_caller]
    pub(crate) fn post_text(&self, path: &str, body: impl Into<Vec<u8>>) -> Reply {
        self.send(self.request("POST", path).header("content-type", "application/json").body(body.into()))
    }

    #[track_caller]
    pub(crate) fn post_keyed(&self, path: &str, key: &str, body: &Value) -> Reply {
        self.send(self.request("POST", path).header("idempotency-key", key).json(body))
    }

    #[track_caller]
    pub(crate) fn create(&self, name: &str) {
        self.post("/limits", json!({"name": name})).created();
    }

    #[track_caller]
    pub(crate) fn create_all(&self, names: &[&str]) {
        for name in names {
            self.create(name);
        }
    }

    #[track_caller]
    pub(crate) fn create_with_ceiling(&self, name: &str, ceiling: i64) {
        self.post("/limits", json!({"name": name, "ceiling": ceiling})).created();
    }

    #[track_caller]
    pub(crate) fn limit(&self, name: &str) -> Reply {
        self.get(&format!("/limits/{}", encode(name)))
    }

    #[track_caller]
    pub(crate) fn patch(&self, name: &str, body: Value) -> Reply {
        self.send(self.request("PATCH", &format!("/limits/{}", encode(name))).json(&body))
    }

    #[track_caller]
    pub(crate) fn delete(&self, name: &str) -> Reply {
        self.send(self.request("DELETE", &format!("/limits/{}", encode(name))))
    }

    #[track_caller]
    pub(crate) fn hold(&self, operation: &str, changes: &[(&str, i64)]) -> Reply {
        self.post("/hold", hold(operation, changes))
    }

    #[track_caller]
    pub(crate) fn hold_skipping(&self, operation: &str, changes: &[(&str, i64)]) -> Reply {
        self.post("/hold", with(hold(operation, changes), json!({"skip_existing_holds": true})))
    }

    #[track_caller]
    pub(crate) fn commit(&self, operation: &str, changes: &[(&str, i64)]) -> Reply {
        self.post("/commit", hold(operation, changes))
    }

    #[track_caller]
    pub(crate) fn commit_all(&self, operation: &str) -> Reply {
        self.post("/commit", json!({"operation_id": operation}))
    }

    #[track_caller]
    pub(crate) fn rollback_of(&self, operation: &str, limits: &[&str]) -> Reply {
        self.post("/rollback", without_values(operation, limits))
    }

    #[track_caller]
    pub(crate) fn rollback_all(&self, operation: &str) -> Reply {
        self.post("/rollback", json!({"operation_id": operation}))
    }

    #[track_caller]
    pub(crate) fn values(&self, limits: &[&str]) -> Reply {
        self.post("/values", json!({"limit_names": limits}))
    }

    #[track_caller]
    pub(crate) fn values_as_of(&self, operation: &str, limits: &[&str]) -> Reply {
        self.post("/values", json!({"limit_names": limits, "operation_id": operation}))
    }

    #[track_caller]
    pub(crate) fn values_at(&self, position: u64, limits: &[&str]) -> Reply {
        self.post("/values", json!({"limit_names": limits, "position": position}))
    }

    #[track_caller]
    pub(crate) fn operation(&self, operation: &str) -> Reply {
        self.get(&format!("/operations/{}", encode(operation)))
    }

    /// The operation's state in every limit, sorted by limit. Empty if the operation is unknown.
    #[track_caller]
    pub(crate) fn states(&self, operation: &str) -> Vec<(String, shape::State)> {
        let reply = self.operation(operation);
        if reply.status == 404 {
            reply.refused(404, "OperationNotFound");
            return Vec::new();
        }
        shape::states(&reply.ok().body)
    }

    /// All items of a list, page by page. Fails if an item occurs twice.
    #[track_caller]
    pub(crate) fn all(&self, path: &str, page: usize) -> Vec<Value> {
        let mut items: Vec<Value> = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut query = format!("{path}{}limit={page}", if path.contains('?') { '&' } else { '?' });
            if let Some(after) = &after {
                query += &format!("&after={}", encode(after));
            }
            let reply = self.get(&query).ok();
            let found = reply.items();
            assert!(found.len() <= page, "{} items on a page of {page}", found.len());
            items.extend(found.iter().cloned());
            match reply.next() {
                Some(next) => {
                    assert_ne!(Some(next), after.as_deref(), "a page leads to itself");
                    after = Some(next.to_owned());
                }
                None => break,
            }
        }
        let mut seen: Vec<String> = items.iter().map(Value::to_string).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), items.len(), "an item came twice in {path}");
        items
    }

    #[track_caller]
    pub(crate) fn entries(&self, limit: &str) -> Vec<Value> {
        self.all(&format!("/limits/{}/entries", encode(limit)), 1000)
    }

    /// The names in the list of limits.
    #[track_caller]
    pub(crate) fn limit_names(&self, page: usize) -> Vec<String> {
        self.all("/limits", page)
            .iter()
            .map(|limit| limit["name"].as_str().expect("`name`").to_owned())
            .collect()
    }
}

fn without_values(operation: &str, limits: &[&str]) -> Value {
    let changes: Vec<Value> = limits.iter().map(|name| json!({"limit_name": name})).collect();
    json!({"operation_id": operation, "changes": changes})
}

/// The results of a batch, each with its `status`.
#[track_caller]
pub(crate) fn results(reply: &Reply) -> &Vec<Value> {
    match reply.body["results"].as_array() {
        Some(results) => results,
        None => panic!("no `results`: {}", reply.text),
    }
}

pub(crate) fn batch(operations: Vec<Value>) -> Value {
    let mut body = Map::new();
    body.insert("operations".into(), operations.into());
    body.into()
}
