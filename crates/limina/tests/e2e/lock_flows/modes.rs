//! Exclusive and shared, and when two locks are the same one.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::locks::{Grant, exclusive, several, shared};

#[test]
fn shared_goes_with_shared_and_nothing_else() {
    let server = Server::fresh();
    let locks = server.locks();
    for (held, asked, granted) in [
        ("exclusive", "exclusive", false),
        ("exclusive", "shared", false),
        ("shared", "exclusive", false),
        ("shared", "shared", true),
    ] {
        let request = |mode: &str| match mode {
            "shared" => shared(json!({"a": 1})),
            _ => exclusive(json!({"a": 1})),
        };
        let holder = locks.grant(request(held));
        match granted {
            true => locks.free(request(asked)),
            false => locks.taken(request(asked)),
        }
        // The same in a list of one, and among others.
        for more in [&[][..], &[(json!({"b": 1}), "exclusive")], &[(json!({"0": 1}), "shared")]] {
            let mut wanted = vec![(json!({"a": 1}), asked)];
            wanted.extend(more.iter().cloned());
            match granted {
                true => locks.free(several(&wanted)),
                false => locks.taken(several(&wanted)),
            }
        }
        locks.let_go(&holder);
        locks.free(request(asked));
    }
}

#[test]
fn many_share_and_the_last_one_frees_it() {
    let server = Server::fresh();
    let locks = server.locks();
    let mut holders: Vec<Grant> = (0..20).map(|_| locks.grant(shared(json!({"a": 1})))).collect();
    assert_eq!(locks.all(7).len(), 20);
    while let Some(holder) = holders.pop() {
        locks.taken(exclusive(json!({"a": 1})));
        locks.let_go(&holder);
    }
    locks.free(exclusive(json!({"a": 1})));
}

/// The owner is a word for people: it gives no second entry.
#[test]
fn an_owner_is_refused_like_anybody() {
    let server = Server::fresh();
    let locks = server.locks();
    let request = json!({"key_values": {"a": 1}, "mode": "exclusive", "ttl": "1h", "owner": "ann"});
    let grant = locks.grant(request.clone());
    locks.taken(request);
    locks.let_go(&grant);
}

/// A lock is one exact set of key-values: each of these is another one.
#[test]
fn every_set_of_key_values_is_a_lock_of_its_own() {
    let server = Server::fresh();
    let locks = server.locks();
    let sets: Vec<Value> = vec![
        json!({"a": 1}),
        json!({"a": 2}),
        json!({"a": -1}),
        json!({"a": 1.5}),
        json!({"a": "1"}),
        json!({"a": true}),
        json!({"a": false}),
        json!({"a": "true"}),
        json!({"a": ""}),
        json!({"a": 0}),
        json!({"a": "ü"}),
        json!({"a": "u\u{308}"}),
        json!({"a": i64::MAX}),
        json!({"a": i64::MIN}),
        json!({"a": "x".repeat(1024)}),
        json!({"A": 1}),
        json!({"b": 1}),
        json!({"a": 1, "b": 1}),
        json!({"a": 1, "b": 2}),
        json!({"a": 1, "b": 1, "c": 1}),
        json!({"a b": 1}),
        json!({"k".repeat(256): 1}),
        (0..64).map(|n| (n.to_string(), json!(n))).collect::<serde_json::Map<_, _>>().into(),
    ];
    let grants: Vec<Grant> = sets.iter().map(|set| locks.grant(exclusive(set.clone()))).collect();
    for (set, grant) in sets.iter().zip(&grants) {
        assert_eq!(grant.locks[0].0, set.to_string(), "as it was asked for");
        locks.taken(exclusive(set.clone()));
        locks.taken(shared(set.clone()));
    }
    assert_eq!(locks.ids().len(), sets.len());
}

#[test]
fn the_same_set_is_the_same_lock() {
    let server = Server::fresh();
    let locks = server.locks();
    for (first, second) in [
        (r#"{"a": 1, "b": "x"}"#, r#"{"b": "x", "a": 1}"#),
        (r#"{"a": "taco"}"#, r#"{"\u0061": "\u0074aco"}"#),
        (r#"{"a": 0.0}"#, r#"{"a": -0.0}"#),
        (r#"{"a": 1.5}"#, r#"{"a": 15e-1}"#),
    ] {
        let body = |set: &str| format!(r#"{{"key_values": {set}, "mode": "exclusive", "ttl": "1h"}}"#);
        let grant = locks.ask_text("", &body(first)).granted();
        locks.ask_text("", &body(second)).refused(409, "LockHeld");
        locks.let_go(&grant);
        let grant = locks.ask_text("", &body(second)).granted();
        locks.ask_text("", &body(first)).refused(409, "LockHeld");
        locks.let_go(&grant);
    }
}
