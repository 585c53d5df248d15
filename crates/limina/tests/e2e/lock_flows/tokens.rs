//! Fencing tokens: every grant has a higher token than all earlier grants of its namespace.

use std::sync::Mutex;

use serde_json::json;

use crate::concurrency::race;
use crate::harness::Server;
use crate::locks::{PATIENT, exclusive, shared, waiting};

/// Grants right after a crash, when no other change was written in between.
#[test]
fn crashes_never_repeat_a_token() {
    let mut server = Server::fresh();
    let mut last = 0;
    for _ in 0..6 {
        let grant = server.locks().grant(exclusive(json!({"a": 1})));
        assert!(grant.token > last, "{} after {last}", grant.token);
        last = grant.token;
        server.locks().let_go(&grant);
        server.crash_and_restart();
    }
}

/// Many clients acquire and release locks: no token occurs twice, and the tokens of each client grow.
#[test]
fn no_two_grants_have_the_same_token() {
    let server = Server::fresh();
    let locks = server.locks();
    let seen = Mutex::new(Vec::new());
    race(16, |client| {
        let mut last = 0;
        for n in 0..15 {
            let grant = locks.grant(waiting(shared(json!({"n": (client + n) % 3})), PATIENT));
            assert!(grant.token > last, "{} after {last}", grant.token);
            last = grant.token;
            seen.lock().unwrap().push(grant.token);
            locks.let_go(&grant);
        }
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    let count = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), count, "a token came twice");
}
