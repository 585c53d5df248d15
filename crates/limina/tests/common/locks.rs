//! The requests for locks, and checks of grants, in as few words as the tests need.

use std::collections::BTreeSet;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::harness::{Server, eventually};
use crate::ledger::{encode, with};
use crate::reply::{Reply, all_pages};

/// A wait that does not end while a test runs.
pub(crate) const PATIENT: &str = "5m";

/// The error of times that both sides measure in whole milliseconds.
pub(crate) const SLACK: Duration = Duration::from_millis(10);

/// The deadline for everything that must happen at once, or at a given instant. Only a stalled machine takes longer.
pub(crate) const PROMPT: Duration = Duration::from_secs(15);

/// One namespace's locks at one running server.
#[derive(Clone)]
pub(crate) struct Locks {
    http: Client,
    base: String,
}

impl Server {
    /// The locks of the namespace `default`.
    pub(crate) fn locks(&self) -> Locks {
        Locks { http: self.http().clone(), base: self.url("/v1/locks") }
    }

    pub(crate) fn locks_of(&self, namespace: &str) -> Locks {
        let base = self.url(&format!("/v1/ns/{}/locks", encode(namespace)));
        Locks { http: self.http().clone(), base }
    }
}

/// A request that does not wait, with a `ttl` that does not end while a test runs.
pub(crate) fn exclusive(key_values: Value) -> Value {
    json!({"key_values": key_values, "mode": "exclusive", "ttl": "1h"})
}

pub(crate) fn shared(key_values: Value) -> Value {
    json!({"key_values": key_values, "mode": "shared", "ttl": "1h"})
}

/// A request for several locks, each with its mode.
pub(crate) fn several(locks: &[(Value, &str)]) -> Value {
    let locks: Vec<Value> =
        locks.iter().map(|(key_values, mode)| json!({"key_values": key_values, "mode": mode})).collect();
    json!({"locks": locks, "ttl": "1h"})
}

pub(crate) fn waiting(request: Value, wait: &str) -> Value {
    with(request, json!({"wait": wait}))
}

pub(crate) fn lasting(request: Value, ttl: &str) -> Value {
    with(request, json!({"ttl": ttl}))
}

impl Locks {
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.http.request(method, format!("{}{path}", self.base))
    }

    #[track_caller]
    pub(crate) fn ask(&self, request: &Value) -> Reply {
        Reply::to(self.request("POST", "").json(request))
    }

    #[track_caller]
    pub(crate) fn ask_keyed(&self, key: &str, request: &Value) -> Reply {
        Reply::to(self.request("POST", "").header("idempotency-key", key).json(request))
    }

    /// Sends any text as a JSON body.
    #[track_caller]
    pub(crate) fn ask_text(&self, path: &str, body: &str) -> Reply {
        let request = self.request("POST", path).header("content-type", "application/json");
        Reply::to(request.body(body.to_owned()))
    }

    #[track_caller]
    pub(crate) fn grant(&self, request: Value) -> Grant {
        self.ask(&request).granted()
    }

    /// Sends the request from its own thread, because the answer may take as long as the request's `wait`.
    pub(crate) fn wait(&self, request: Value) -> Waiter {
        Waiter::of(self.request("POST", "").json(&request))
    }

    pub(crate) fn wait_keyed(&self, key: &str, request: Value) -> Waiter {
        Waiter::of(self.request("POST", "").header("idempotency-key", key).json(&request))
    }

    #[track_caller]
    pub(crate) fn heartbeat(&self, grant: &Grant) -> Reply {
        self.heartbeat_as(&grant.lock_id, &grant.session_id)
    }

    #[track_caller]
    pub(crate) fn heartbeat_as(&self, lock_id: &str, session_id: &str) -> Reply {
        let path = format!("/{}/heartbeat", encode(lock_id));
        Reply::to(self.request("POST", &path).json(&json!({"session_id": session_id})))
    }

    #[track_caller]
    pub(crate) fn release(&self, grant: &Grant) -> Reply {
        self.release_as(&grant.lock_id, &grant.session_id)
    }

    #[track_caller]
    pub(crate) fn release_as(&self, lock_id: &str, session_id: &str) -> Reply {
        Reply::to(self.request("DELETE", &release_path(lock_id, session_id)))
    }

    /// Releases the lock as an operator.
    #[track_caller]
    pub(crate) fn force(&self, lock_id: &str) -> Reply {
        Reply::to(self.request("DELETE", &format!("/{}?force=true", encode(lock_id))))
    }

    /// Releases a lock. The release must succeed.
    #[track_caller]
    pub(crate) fn let_go(&self, grant: &Grant) {
        self.release(grant).is(204);
    }

    #[track_caller]
    pub(crate) fn get(&self, lock_id: &str) -> Reply {
        Reply::to(self.request("GET", &format!("/{}", encode(lock_id))))
    }

    /// All grants, page by page.
    #[track_caller]
    pub(crate) fn all(&self, page: usize) -> Vec<Value> {
        all_pages("", page, |path| Reply::to(self.request("GET", path)))
    }

    /// All grants that a query finds, page by page.
    #[track_caller]
    pub(crate) fn query(&self, query: &Value, page: usize) -> Vec<Value> {
        all_pages("/query", page, |path| Reply::to(self.request("POST", path).json(query)))
    }

    /// The ids of all grants. None may occur twice.
    #[track_caller]
    pub(crate) fn ids(&self) -> BTreeSet<String> {
        ids(&self.all(1000))
    }

    /// Waits until this many requests wait for the locks of this grant.
    #[track_caller]
    pub(crate) fn await_queue(&self, held: &Grant, length: u64) {
        let mut last = Value::Null;
        let reached = eventually(|| {
            last = self.get(&held.lock_id).ok().body;
            (waiting_in(&last) == length).then_some(())
        });
        assert!(reached.is_some(), "{length} never waited: {last}");
    }

    /// Requires that the locks cannot be granted now: they are held, or earlier requests wait for them.
    #[track_caller]
    pub(crate) fn taken(&self, request: Value) {
        self.ask(&request).refused(409, "LockHeld");
    }

    /// Requires that the locks can be granted now.
    #[track_caller]
    pub(crate) fn free(&self, request: Value) {
        let grant = self.grant(request);
        self.let_go(&grant);
    }
}

pub(crate) fn release_path(lock_id: &str, session_id: &str) -> String {
    format!("/{}?session_id={}", encode(lock_id), encode(session_id))
}

#[track_caller]
pub(crate) fn ids(items: &[Value]) -> BTreeSet<String> {
    let ids: BTreeSet<String> =
        items.iter().map(|item| item["lock_id"].as_str().expect("`lock_id`").to_owned()).collect();
    assert_eq!(ids.len(), items.len(), "a grant came twice");
    ids
}

/// The number of waiting requests. The contract names the field, but not its type.
#[track_caller]
pub(crate) fn waiting_in(item: &Value) -> u64 {
    match &item["waiting"] {
        Value::Array(waiters) => waiters.len() as u64,
        number => number.as_u64().unwrap_or_else(|| panic!("no `waiting` in {item}")),
    }
}

/// What a client knows of its grant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grant {
    pub(crate) lock_id: String,
    pub(crate) session_id: String,
    pub(crate) token: u64,
    pub(crate) expires_in_ms: u64,
    /// Sorted, because the contract specifies no order.
    pub(crate) locks: Vec<(String, String)>,
}

impl Reply {
    /// Requires a complete grant.
    #[track_caller]
    pub(crate) fn granted(&self) -> Grant {
        assert_eq!(self.status, 200, "status; the whole answer: {}", self.text);
        let text = |field: &str| match self.body[field].as_str() {
            Some(text) if !text.is_empty() => text.to_owned(),
            _ => panic!("no `{field}`: {}", self.text),
        };
        let number =
            |field: &str| self.body[field].as_u64().unwrap_or_else(|| panic!("no `{field}`: {}", self.text));
        let grant = Grant {
            lock_id: text("lock_id"),
            session_id: text("session_id"),
            token: number("fencing_token"),
            expires_in_ms: number("expires_in_ms"),
            locks: locks_in(&self.body),
        };
        assert_ne!(grant.lock_id, grant.session_id, "everybody may see the id: {}", self.text);
        grant
    }
}

/// The key-values as text and the mode of each lock, sorted.
#[track_caller]
pub(crate) fn locks_in(body: &Value) -> Vec<(String, String)> {
    let locks = body["locks"].as_array().unwrap_or_else(|| panic!("no `locks`: {body}"));
    assert!(!locks.is_empty(), "{body}");
    let mut locks: Vec<(String, String)> = locks
        .iter()
        .map(|lock| {
            assert!(lock["key_values"].is_object(), "{body}");
            (lock["key_values"].to_string(), lock["mode"].as_str().expect("`mode`").to_owned())
        })
        .collect();
    locks.sort();
    locks
}

/// A request that waits for its answer.
pub(crate) struct Waiter(JoinHandle<(reqwest::Result<Reply>, Instant, Instant)>);

pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
}

impl Answer {
    pub(crate) fn took(&self) -> Duration {
        self.answered - self.asked
    }
}

impl Waiter {
    fn of(request: RequestBuilder) -> Waiter {
        Waiter(std::thread::spawn(move || {
            let asked = Instant::now();
            (Reply::try_to(request), asked, Instant::now())
        }))
    }

    #[track_caller]
    pub(crate) fn answer(self) -> Answer {
        let (reply, asked, answered) = self.0.join().expect("the waiter's thread");
        match reply {
            Ok(reply) => Answer { reply, asked, answered },
            Err(e) => panic!("no answer after {:?}: {e:?}", answered - asked),
        }
    }

    #[track_caller]
    pub(crate) fn granted(self) -> Grant {
        self.answer().reply.granted()
    }

    /// The answer when the server ends, which may be a 503. `None` if the connection broke without an answer.
    #[track_caller]
    pub(crate) fn ended(self) -> Option<Reply> {
        self.0.join().expect("the waiter's thread").0.ok()
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_finished()
    }
}
