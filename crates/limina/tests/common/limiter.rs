//! The requests to the limiter, and checks of its verdicts, in as few words as the tests need.

use std::collections::BTreeMap;

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::encode;
use crate::reply::{Reply, all_pages};

/// A window that does not end while a test runs: windows begin at multiples of 360 days since the epoch.
pub(crate) const LONG: &str = "360d";

/// One namespace's limiter at one running server.
#[derive(Clone)]
pub(crate) struct Limiter {
    http: Client,
    base: String,
}

impl Server {
    /// The limiter of the namespace `default`.
    pub(crate) fn limiter(&self) -> Limiter {
        Limiter { http: self.http().clone(), base: self.url("/v1/limiter") }
    }

    pub(crate) fn limiter_of(&self, namespace: &str) -> Limiter {
        let base = self.url(&format!("/v1/ns/{}/limiter", encode(namespace)));
        Limiter { http: self.http().clone(), base }
    }
}

pub(crate) fn fixed(per: &str) -> Value {
    json!({"type": "fixed", "per": per})
}

pub(crate) fn sliding(per: &str) -> Value {
    json!({"type": "sliding", "per": per})
}

pub(crate) fn bucket(per: &str, burst: i64) -> Value {
    json!({"type": "bucket", "per": per, "burst": burst})
}

pub(crate) fn checks(checks: Vec<Value>) -> Value {
    json!({"checks": checks})
}

/// A lease that this client has taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lease {
    pub(crate) id: String,
    pub(crate) session: String,
}

impl Lease {
    /// The path that releases it.
    pub(crate) fn release_path(&self) -> String {
        format!("/leases/{}?session_id={}", encode(&self.id), encode(&self.session))
    }
}

impl Limiter {
    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.http.request(method, format!("{}{path}", self.base))
    }

    #[track_caller]
    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        Reply::to(self.request(method, path).json(body))
    }

    #[track_caller]
    pub(crate) fn keyed(&self, method: &str, path: &str, key: &str, body: &Value) -> Reply {
        Reply::to(self.request(method, path).header("idempotency-key", key).json(body))
    }

    /// Sends any text as a JSON body.
    #[track_caller]
    pub(crate) fn text(&self, method: &str, path: &str, body: &str) -> Reply {
        let request = self.request(method, path).header("content-type", "application/json");
        Reply::to(request.body(body.to_owned()))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        Reply::to(self.request("GET", path))
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, &body)
    }

    #[track_caller]
    pub(crate) fn put(&self, path: &str, body: Value) -> Reply {
        self.send("PUT", path, &body)
    }

    #[track_caller]
    pub(crate) fn patch(&self, path: &str, body: Value) -> Reply {
        self.send("PATCH", path, &body)
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Reply {
        Reply::to(self.request("DELETE", path))
    }

    /// Creates a rule without a window, which limits what is in use.
    #[track_caller]
    pub(crate) fn rule(&self, name: &str, group_by: &[&str], limit: i64) {
        self.post("/rules", json!({"name": name, "group_by": group_by, "limit": limit})).created();
    }

    #[track_caller]
    pub(crate) fn window(&self, name: &str, group_by: &[&str], limit: i64, window: Value) {
        let rule = json!({"name": name, "group_by": group_by, "limit": limit, "window": window});
        self.post("/rules", rule).created();
    }

    #[track_caller]
    pub(crate) fn override_of(&self, rule: &str, name: &str, key_values: Value, limit: i64) {
        self.override_as(rule, name, key_values, limit).created();
    }

    #[track_caller]
    pub(crate) fn override_as(&self, rule: &str, name: &str, key_values: Value, limit: i64) -> Reply {
        let body = json!({"name": name, "key_values": key_values, "limit": limit});
        self.post(&format!("/rules/{}/overrides", encode(rule)), body)
    }

    #[track_caller]
    pub(crate) fn set_limit(&self, rule: &str, limit: i64) {
        self.patch(&format!("/rules/{}", encode(rule)), json!({"limit": limit})).ok();
    }

    #[track_caller]
    pub(crate) fn check(&self, key_values: Value) -> Reply {
        self.post("/check", json!({"key_values": key_values}))
    }

    #[track_caller]
    pub(crate) fn take(&self, key_values: Value, hits: i64) -> Reply {
        self.post("/check", json!({"key_values": key_values, "hits": hits}))
    }

    /// Makes a check that takes nothing.
    #[track_caller]
    pub(crate) fn look(&self, key_values: Value) -> Reply {
        let reply = self.take(key_values, 0);
        assert!([200, 429].contains(&reply.status), "{} {}", reply.status, reply.text);
        reply
    }

    /// The `used` of the limit named `rule` or `rule/override`, for these key-values.
    #[track_caller]
    pub(crate) fn used(&self, limit: &str, key_values: Value) -> i64 {
        self.look(key_values).limit(limit)["used"].as_i64().expect("`used`")
    }

    #[track_caller]
    pub(crate) fn counters(&self, key_values: Value, counters: i64) -> Reply {
        self.post("/counters", json!({"key_values": key_values, "counters": counters}))
    }

    #[track_caller]
    pub(crate) fn set(&self, key_values: Value, counters: i64) -> Reply {
        self.put("/counters/set", json!({"key_values": key_values, "counters": counters}))
    }

    #[track_caller]
    pub(crate) fn lease(&self, key_values: Value, hits: i64, ttl: &str) -> Reply {
        self.post("/leases", json!({"key_values": key_values, "hits": hits, "ttl": ttl}))
    }

    #[track_caller]
    pub(crate) fn heartbeat(&self, lease: &Lease) -> Reply {
        self.post(&format!("/leases/{}/heartbeat", encode(&lease.id)), json!({"session_id": lease.session}))
    }

    #[track_caller]
    pub(crate) fn release(&self, lease: &Lease) -> Reply {
        self.delete(&lease.release_path())
    }

    #[track_caller]
    pub(crate) fn held(&self, lease: &Lease) -> Reply {
        self.get(&format!("/leases/{}", encode(&lease.id)))
    }

    /// All items of a list (GET without a body) or a query (POST with one), page by page.
    #[track_caller]
    pub(crate) fn all(&self, path: &str, query: Option<&Value>, page: usize) -> Vec<Value> {
        all_pages(path, page, |path| match query {
            None => self.get(path),
            Some(query) => self.send("POST", path, query),
        })
    }

    /// The name of each item that a list returns, sorted. None may occur twice.
    #[track_caller]
    pub(crate) fn names(&self, path: &str, query: Option<&Value>, page: usize) -> Vec<String> {
        let items = self.all(path, query, page);
        let name =
            |item: &Value| item["name"].as_str().unwrap_or_else(|| panic!("no name: {item}")).to_owned();
        let mut names: Vec<String> = items.iter().map(name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "an item came twice in {path}");
        names
    }

    /// Every counter that is not zero, by its key-values as text.
    #[track_caller]
    pub(crate) fn in_use(&self) -> BTreeMap<String, i64> {
        let mut in_use = BTreeMap::new();
        for item in self.all("/counters/query", Some(&json!({})), 1000) {
            let before = in_use.insert(item["key_values"].to_string(), counter(&item));
            assert_eq!(before, None, "a counter came twice: {item}");
        }
        in_use.retain(|_, value| *value != 0);
        in_use
    }
}

/// The value of a counter. The contract names the field of a request, but not that of a reply.
#[track_caller]
pub(crate) fn counter(item: &Value) -> i64 {
    let fields = ["counters", "used", "value", "counter", "count"];
    let value = fields.iter().find_map(|field| item[field].as_i64());
    value.unwrap_or_else(|| panic!("a counter without a value: {item}"))
}

/// A verdict's answer.
impl Reply {
    /// Requires a check that passed, with a complete verdict.
    #[track_caller]
    pub(crate) fn allowed(self) -> Reply {
        assert_eq!((self.status, &self.body["allowed"]), (200, &json!(true)), "{}", self.text);
        assert_eq!(self.body.get("retry_after_ms"), Some(&Value::Null), "{}", self.text);
        check_limits(&self.body);
        assert_eq!(refusing(&self.body), [""; 0], "allowed, yet refused: {}", self.text);
        self
    }

    /// Requires a check that exactly these limits refused, each named `rule` or `rule/override`, in order.
    #[track_caller]
    pub(crate) fn denied(self, by: &[&str]) -> Reply {
        self.denied_as(429, by)
    }

    /// As `denied`, for an answer of `POST /counters`.
    #[track_caller]
    pub(crate) fn not_counted(self, by: &[&str]) -> Reply {
        self.denied_as(409, by)
    }

    #[track_caller]
    fn denied_as(self, status: u16, by: &[&str]) -> Reply {
        let reply = self.refused(status, "LimitReached");
        check_denied(&reply.body, by);
        reply
    }

    /// The status of one limit in the answer.
    #[track_caller]
    pub(crate) fn limit(&self, name: &str) -> &Value {
        let found = limits_of(&self.body).iter().find(|limit| name_of(limit) == name);
        found.unwrap_or_else(|| panic!("no limit {name}: {}", self.text))
    }

    /// The `used` of one limit in the answer.
    #[track_caller]
    pub(crate) fn uses(self, name: &str, used: i64) -> Reply {
        assert_eq!(self.limit(name)["used"], used, "used of {name}: {}", self.text);
        self
    }

    /// The rules of all limits that applied, each once.
    #[track_caller]
    pub(crate) fn applied(self, rules: &[&str]) -> Reply {
        let mut found: Vec<&str> =
            limits_of(&self.body).iter().map(|limit| limit["rule"].as_str().expect("`rule`")).collect();
        found.dedup();
        assert_eq!(found, rules, "{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        match self.body.get("retry_after_ms") {
            Some(Value::Null) => None,
            Some(value) if value.is_u64() => value.as_u64(),
            _ => panic!("no `retry_after_ms`: {}", self.text),
        }
    }

    /// The lease that the answer grants.
    #[track_caller]
    pub(crate) fn lease(&self) -> Lease {
        let text = |field: &str| {
            self.body[field].as_str().unwrap_or_else(|| panic!("no `{field}`: {}", self.text)).to_owned()
        };
        Lease { id: text("lease_id"), session: text("session_id") }
    }

    #[track_caller]
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.body[field].as_u64().unwrap_or_else(|| panic!("no `{field}`: {}", self.text))
    }
}

#[track_caller]
pub(crate) fn check_denied(body: &Value, by: &[&str]) {
    assert_eq!(body["allowed"], false, "{body}");
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded", "{body}");
    check_limits(body);
    assert_eq!(refusing(body), by, "refused by: {body}");
    let policies = body["violated-policies"].as_array().unwrap_or_else(|| panic!("no policies: {body}"));
    let named: Vec<&str> = policies.iter().map(|name| name.as_str().expect("a policy's name")).collect();
    assert!(!named.is_empty(), "{body}");
    for rule in by.iter().map(|name| name.split('/').next().unwrap_or_default()) {
        assert!(named.iter().any(|name| name.contains(rule)), "{rule} is not among the policies: {body}");
    }
}

/// `rule`, or `rule/override`.
fn name_of(limit: &Value) -> String {
    let rule = limit["rule"].as_str().unwrap_or_else(|| panic!("no `rule` in {limit}"));
    match limit["override"].as_str() {
        Some(name) => format!("{rule}/{name}"),
        None => rule.to_owned(),
    }
}

#[track_caller]
pub(crate) fn limits_of(body: &Value) -> &Vec<Value> {
    body["limits"].as_array().unwrap_or_else(|| panic!("no `limits` in {body}"))
}

/// The enforced limits that were exceeded.
fn refusing(body: &Value) -> Vec<String> {
    let refuses = |limit: &&Value| limit["exceeded"] == true && limit["shadow"] == false;
    limits_of(body).iter().filter(refuses).map(name_of).collect()
}

/// Checks that every limit is complete and consistent, and that the list is sorted.
#[track_caller]
pub(crate) fn check_limits(body: &Value) {
    let limits = limits_of(body);
    for limit in limits {
        for field in [
            "rule",
            "override",
            "group",
            "limit",
            "used",
            "remaining",
            "reset_ms",
            "shadow",
            "exceeded",
            "waiting",
        ] {
            assert!(limit.get(field).is_some(), "no `{field}` in {limit}");
        }
        let (most, used) =
            (limit["limit"].as_i64().expect("`limit`"), limit["used"].as_i64().expect("`used`"));
        assert!(used >= 0, "{limit}");
        match limit["remaining"].as_i64() {
            Some(remaining) => assert_eq!(remaining, (most - used).max(0), "`remaining` in {limit}"),
            None => assert!(limit["remaining"].is_null() && most == -1, "`remaining` in {limit}"),
        }
        assert!(limit["shadow"].is_boolean() && limit["exceeded"].is_boolean(), "{limit}");
    }
    let order = |limit: &Value| {
        (limit["rule"].as_str().map(str::to_owned), limit["override"].as_str().map(str::to_owned))
    };
    assert!(limits.is_sorted_by(|a, b| order(a) < order(b)), "not sorted by rule, then override: {body}");
}
