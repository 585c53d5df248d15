//! The requests about events, and checks of their answers, in as few words as the tests need.

use std::collections::BTreeMap;

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::harness::{Server, eventually};
use crate::ledger::encode;
use crate::reply::{Reply, all_pages};

/// A duration that does not end while a test runs.
pub(crate) const LONG: &str = "24h";

/// One namespace's streams at one running server.
#[derive(Clone)]
pub(crate) struct Events {
    http: Client,
    base: String,
}

impl Server {
    /// The events of the namespace `default`.
    pub(crate) fn events(&self) -> Events {
        Events { http: self.http().clone(), base: self.url("/v1/events") }
    }

    pub(crate) fn events_of(&self, namespace: &str) -> Events {
        let base = self.url(&format!("/v1/ns/{}/events", encode(namespace)));
        Events { http: self.http().clone(), base }
    }

    /// Submits an event as a plain body, to one of the two paths `/only-once-event` and `/strictly-once-event`.
    #[track_caller]
    pub(crate) fn post_plain(&self, path: &str, body: impl Into<Vec<u8>>) -> Reply {
        Reply::to(self.http().post(self.url(path)).body(body.into()))
    }
}

impl Events {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.http.request(method, self.url(path))
    }

    #[track_caller]
    pub(crate) fn put(&self, stream: &str, body: &Value) -> Reply {
        Reply::to(self.request("PUT", &format!("/{}", encode(stream))).json(body))
    }

    #[track_caller]
    pub(crate) fn only_once(&self, stream: &str, duration: &str) {
        self.put(stream, &setting("only_once", duration)).created();
    }

    #[track_caller]
    pub(crate) fn strictly_once(&self, stream: &str, duration: &str) {
        self.put(stream, &setting("strictly_once", duration)).created();
    }

    #[track_caller]
    pub(crate) fn read(&self, stream: &str) -> Reply {
        Reply::to(self.request("GET", &format!("/{}", encode(stream))))
    }

    #[track_caller]
    pub(crate) fn clock(&self, stream: &str) -> u64 {
        number(&self.read(stream).ok().body, "clock")
    }

    #[track_caller]
    pub(crate) fn delete(&self, stream: &str) -> Reply {
        Reply::to(self.request("DELETE", &format!("/{}", encode(stream))))
    }

    #[track_caller]
    pub(crate) fn submit(&self, stream: &str, event: &str) -> Reply {
        Reply::to(self.submission(stream, event))
    }

    #[track_caller]
    pub(crate) fn submit_keyed(&self, key: &str, stream: &str, event: &str) -> Reply {
        Reply::to(self.submission(stream, event).header("idempotency-key", key))
    }

    pub(crate) fn submission(&self, stream: &str, event: &str) -> RequestBuilder {
        self.request("POST", &format!("/{}", encode(stream))).json(&json!({"event": event}))
    }

    /// Submits an event that must be accepted.
    #[track_caller]
    pub(crate) fn accept(&self, stream: &str, event: &str) -> Submitted {
        self.submit(stream, event).submitted()
    }

    #[track_caller]
    pub(crate) fn incubating(&self, stream: &str) -> Incubating {
        let reply = Reply::to(self.request("GET", &format!("/{}/incubating", encode(stream)))).ok();
        Incubating::of(&reply.body)
    }

    /// Waits until no event is incubating any more.
    #[track_caller]
    pub(crate) fn await_none(&self, stream: &str) -> Incubating {
        let mut last = None;
        let found = eventually(|| {
            let now = self.incubating(stream);
            let none = now.events.is_empty();
            last = Some(now.clone());
            none.then_some(now)
        });
        found.unwrap_or_else(|| panic!("still incubating: {last:?}"))
    }

    /// All streams, page by page.
    #[track_caller]
    pub(crate) fn all(&self, page: usize) -> Vec<Value> {
        all_pages("", page, |path| Reply::to(self.request("GET", path)))
    }

    #[track_caller]
    pub(crate) fn names(&self, page: usize) -> Vec<String> {
        let mut names: Vec<String> = self.all(page).iter().map(name).collect();
        names.sort();
        names
    }
}

pub(crate) fn setting(mode: &str, duration: &str) -> Value {
    json!({"mode": mode, "duration": duration, "max_events": 10_000, "key_frame_every": "1h"})
}

/// The stream that an item is about. The contract does not name the field.
#[track_caller]
pub(crate) fn name(item: &Value) -> String {
    let name = ["stream", "name"].into_iter().find_map(|field| item[field].as_str());
    name.unwrap_or_else(|| panic!("a stream without a name: {item}")).to_owned()
}

#[track_caller]
pub(crate) fn number(body: &Value, field: &str) -> u64 {
    body[field].as_u64().unwrap_or_else(|| panic!("no `{field}`: {body}"))
}

/// The answer to an accepted submission.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Submitted {
    pub(crate) event: String,
    pub(crate) time: u64,
    pub(crate) clock: u64,
    pub(crate) publishes_at: u64,
}

impl Reply {
    /// Requires 201 and a complete answer.
    #[track_caller]
    pub(crate) fn submitted(&self) -> Submitted {
        assert_eq!(self.status, 201, "status; the whole answer: {}", self.text);
        assert_eq!(self.body["status"], "submitted", "{}", self.text);
        Submitted {
            event: self.body["event"].as_str().expect("`event`").to_owned(),
            time: number(&self.body, "time"),
            clock: number(&self.body, "clock"),
            publishes_at: number(&self.body, "publishes_at"),
        }
    }

    /// Requires 409 `EventConflict`. Returns the time of the event that caused the conflict.
    #[track_caller]
    pub(crate) fn conflict(&self, invalidated: bool) -> u64 {
        let reply = self.clone().refused(409, "EventConflict");
        assert_eq!(reply.body["invalidated"], invalidated, "`invalidated`: {}", reply.text);
        number(&reply.body, "conflicting_time")
    }
}

/// The answer to `GET …/incubating`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Incubating {
    pub(crate) clock: u64,
    /// When each event is published, by event.
    pub(crate) events: BTreeMap<String, u64>,
    pub(crate) publishes_at: BTreeMap<String, u64>,
}

impl Incubating {
    #[track_caller]
    pub(crate) fn of(body: &Value) -> Incubating {
        let list = body["events"].as_array().unwrap_or_else(|| panic!("no `events`: {body}"));
        let event = |item: &Value| item["event"].as_str().expect("`event`").to_owned();
        let by = |field: &str| list.iter().map(|item| (event(item), number(item, field))).collect();
        let found =
            Incubating { clock: number(body, "clock"), events: by("time"), publishes_at: by("publishes_at") };
        assert_eq!(found.events.len(), list.len(), "an event twice: {body}");
        found
    }
}

/// This process's clock, in epoch milliseconds. The server runs on the same machine.
pub(crate) fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).expect("before the end of time")
}

/// Sleeps until that instant. Waiting for a given time is the only reason for which a test may sleep.
pub(crate) fn wait_until(instant: u64) {
    while let left @ 1.. = instant.saturating_sub(now()) {
        std::thread::sleep(std::time::Duration::from_millis(left));
    }
}

/// The largest difference between the clocks of the test and of the server, for the same moment.
pub(crate) const SLACK: u64 = 20;
