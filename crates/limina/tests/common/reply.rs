//! An answer, and the checks that a test can make of it.

use reqwest::blocking::{RequestBuilder, Response};
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::ledger::encode;

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// Null if the body is empty or not JSON.
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Reply {
    /// Sends the request. Fails the test if no answer comes.
    #[track_caller]
    pub(crate) fn to(request: RequestBuilder) -> Reply {
        match Reply::try_to(request) {
            Ok(reply) => reply,
            Err(e) => panic!("no answer: {e:?}"),
        }
    }

    /// Sends the request. For tests that kill the server meanwhile.
    pub(crate) fn try_to(request: RequestBuilder) -> reqwest::Result<Reply> {
        Reply::from_response(request.send()?)
    }

    fn from_response(response: Response) -> reqwest::Result<Reply> {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = String::from_utf8_lossy(&response.bytes()?).into_owned();
        Ok(Reply::of(status, headers, text))
    }

    pub(crate) fn of(status: u16, headers: HeaderMap, text: String) -> Reply {
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        let reply = Reply { status, headers, body, text };
        assert_ne!(reply.status, 500, "never a 500 for anything a client can send: {reply:?}");
        reply
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "status; the whole answer: {}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Reply {
        self.is(200)
    }

    #[track_caller]
    pub(crate) fn created(self) -> Reply {
        self.is(201)
    }

    /// Requires a refusal with this status and code, and a complete problem document.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Reply {
        assert_eq!((self.status, self.code()), (status, code), "the whole answer: {}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        check_problem(&self.body, status, code);
        assert_eq!(self.body["request_id"], self.header("x-request-id"), "{}", self.text);
        if status == 503 {
            let after = self.header("retry-after");
            assert!(after.parse::<u64>().is_ok(), "Retry-After of a 503: {after:?}");
        }
        self
    }

    /// Requires 400 `InvalidRequest` with the name of the field.
    #[track_caller]
    pub(crate) fn invalid(self, field: &str) -> Reply {
        let reply = self.refused(400, "InvalidRequest");
        let named = reply.body["field"].as_str().unwrap_or_default();
        assert!(named.contains(field), "`field` should name {field:?}, but is {named:?}: {}", reply.text);
        reply
    }

    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap_or("<not text>"))
    }

    /// Requires that the answer contains all of these names, in any field.
    #[track_caller]
    pub(crate) fn naming(self, names: &[&str]) -> Reply {
        for name in names {
            assert!(self.text.contains(name), "{name:?} is not named: {}", self.text);
        }
        self
    }

    #[track_caller]
    pub(crate) fn not_naming(self, names: &[&str]) -> Reply {
        for name in names {
            assert!(!self.text.contains(&format!("\"{name}\"")), "{name:?} is named: {}", self.text);
        }
        self
    }

    #[track_caller]
    pub(crate) fn position(&self) -> u64 {
        match self.body["position"].as_u64() {
            Some(position) => position,
            None => panic!("no position: {}", self.text),
        }
    }

    /// Requires one limit's `commit_value` and `hold_value`, and a total that is their sum.
    #[track_caller]
    pub(crate) fn value(self, limit: &str, commit: i64, hold: i64) -> Reply {
        let values = values_of(&self.body);
        let found = values.iter().find(|(name, ..)| name == limit);
        match found {
            Some(&(_, c, h)) => {
                assert_eq!((c, h), (commit, hold), "(commit, hold) of {limit}: {}", self.text)
            }
            None => panic!("no value of {limit}: {}", self.text),
        }
        self
    }

    /// Requires the same position and values as in an earlier answer.
    #[track_caller]
    pub(crate) fn same_view_as(self, earlier: &Reply) -> Reply {
        assert_eq!(self.position(), earlier.position(), "position; {} is not {}", self.text, earlier.text);
        assert_eq!(values_of(&self.body), values_of(&earlier.body), "values");
        self
    }

    /// Requires that a field of the body has this value.
    #[track_caller]
    pub(crate) fn has(self, field: &str, value: impl Into<Value>) -> Reply {
        assert_eq!(self.body[field], value.into(), "{field}: {}", self.text);
        self
    }

    /// The items of a page.
    #[track_caller]
    pub(crate) fn items(&self) -> &Vec<Value> {
        match self.body["items"].as_array() {
            Some(items) => items,
            None => panic!("not a page: {}", self.text),
        }
    }

    /// The `next` of a page.
    #[track_caller]
    pub(crate) fn next(&self) -> Option<&str> {
        match self.body.get("next") {
            Some(Value::Null) => None,
            Some(Value::String(next)) => Some(next),
            _ => panic!("`next` is neither a string nor null: {}", self.text),
        }
    }
}

/// All items of a list, page by page.
#[track_caller]
pub(crate) fn all_pages(path: &str, page: usize, ask: impl Fn(&str) -> Reply) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut path = format!("{path}{joint}limit={page}");
        if let Some(after) = &after {
            path += &format!("&after={}", encode(after));
        }
        let reply = ask(&path).ok();
        let found = reply.items();
        assert!(found.len() <= page, "{} items on a page of {page}", found.len());
        items.extend(found.iter().cloned());
        match reply.next() {
            Some(next) => {
                assert_ne!(Some(next), after.as_deref(), "a page leads to itself");
                after = Some(next.to_owned());
            }
            None => return items,
        }
    }
}

/// Checks every member that a problem document must have.
#[track_caller]
pub(crate) fn check_problem(body: &Value, status: u16, code: &str) {
    for member in ["type", "title", "detail", "code"] {
        let text = body[member].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "no `{member}` in the problem document {body}");
    }
    assert_eq!(body["status"], status, "`status` in {body}");
    assert_eq!(body["code"], code, "`code` in {body}");
}

/// The values of several limits: (limit, commit, hold).
pub(crate) type Values = Vec<(String, i64, i64)>;

/// The values in the answer, sorted by limit. Fails unless every total is the sum.
#[track_caller]
pub(crate) fn values_of(body: &Value) -> Values {
    let Some(list) = body["values"].as_array() else { panic!("no `values` in {body}") };
    let number = |value: &Value, field: &str| match value[field].as_i64() {
        Some(number) => number,
        None => panic!("`{field}` is not an i64 in {value}"),
    };
    let mut values: Values = list
        .iter()
        .map(|value| {
            let (commit, hold) = (number(value, "commit_value"), number(value, "hold_value"));
            assert_eq!(Some(number(value, "total_value")), commit.checked_add(hold), "total in {value}");
            assert!(value.get("limit_id").is_some(), "no `limit_id` in {value}");
            (value["limit_name"].as_str().expect("`limit_name`").to_owned(), commit, hold)
        })
        .collect();
    values.sort();
    let mut names: Vec<&str> = values.iter().map(|(name, ..)| name.as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), values.len(), "a limit twice in {body}");
    values
}
