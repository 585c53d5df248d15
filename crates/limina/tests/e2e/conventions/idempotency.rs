//! `Idempotency-Key`: a repeated request gets the first reply again, and changes nothing.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::{batch, hold, with};
use crate::raw;
use crate::reply::Reply;

#[track_caller]
fn same(reply: &Reply, first: &Reply) {
    assert_eq!((reply.status, &reply.body), (first.status, &first.body), "the first reply again");
}

#[test]
fn every_write_can_be_repeated() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let finish = |n: i32| json!({"operation_id": format!("op-{n}")});
    // In this order. Without its key, the second attempt of each would be refused or get another reply.
    let writes: Vec<(&str, Value)> = vec![
        ("/limits", json!({"name": "b", "ceiling": 1000})),
        ("/hold", hold("op-1", &[("a", 1), ("b", 2)])),
        ("/hold", with(hold("op-2", &[("new", 1)]), json!({"create_missing": true}))),
        ("/hold", hold("op-3", &[("a", 5)])),
        ("/commit", hold("op-1", &[("a", 1)])),
        ("/commit", finish(1)),
        ("/rollback", finish(3)),
        (
            "/hold/batch",
            batch(vec![hold("op-4", &[("a", 7)]), hold("op-1", &[("a", 1)]), hold("op-5", &[("b", 1)])]),
        ),
        ("/commit/batch", batch(vec![finish(4), finish(9)])),
        ("/rollback/batch", batch(vec![finish(5), finish(4)])),
    ];
    let replies: Vec<Reply> = writes
        .iter()
        .enumerate()
        .map(|(n, (path, body))| ledger.post_keyed(path, &format!("key-{n}"), body))
        .collect();
    for (reply, (path, body)) in replies.iter().zip(&writes) {
        assert!([200, 201].contains(&reply.status), "POST {path} {body} → {}", reply.text);
    }
    let now = ledger.values(&["a", "b", "new"]).ok().value("a", 8, 0).value("b", 2, 0).value("new", 0, 1);

    let check = |server: &Server| {
        let ledger = server.ledger();
        for (n, (path, body)) in writes.iter().enumerate().rev() {
            same(&ledger.post_keyed(path, &format!("key-{n}"), body), &replies[n]);
        }
        ledger.values(&["a", "b", "new"]).ok().same_view_as(&now);
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
    server.restart();
    check(&server);
}

#[test]
fn a_key_with_another_body_is_refused() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let first = ledger.post_keyed("/hold", "key", &hold("op-1", &[("a", 1)])).ok();
    let check = |server: &Server| {
        let ledger = server.ledger();
        for other in [hold("op-2", &[("a", 1)]), hold("op-1", &[("a", 2)])] {
            ledger.post_keyed("/hold", "key", &other).refused(422, "IdempotencyKeyReused");
        }
        same(&ledger.post_keyed("/hold", "key", &hold("op-1", &[("a", 1)])), &first);
        ledger.values(&["a"]).ok().value("a", 0, 1);
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
}

#[test]
fn a_key_belongs_to_its_namespace() {
    let server = Server::fresh();
    let (red, blue) = (server.ledger_of("red"), server.ledger_of("blue"));
    let limit = json!({"name": "a"});
    red.post_keyed("/limits", "key", &limit).created();
    blue.post_keyed("/limits", "key", &limit).created();
    blue.limit("a").ok();
    // The paths with and without the prefix name the same namespace.
    let made = server.ledger().post_keyed("/limits", "key", &limit).created();
    same(&server.ledger_of("default").post_keyed("/limits", "key", &limit), &made);
}

/// The contract does not say whether a key may be used for another path. If it may, the answer must not be that of the
/// first path.
#[test]
fn a_key_does_not_answer_for_another_path() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    ledger.hold("op", &[("a", 5)]).ok();
    let finish = json!({"operation_id": "op"});
    let first = ledger.post_keyed("/commit", "key", &finish).ok();
    let other = ledger.post_keyed("/rollback", "key", &finish);
    match other.status {
        422 => other.refused(422, "IdempotencyKeyReused"),
        _ => other.refused(404, "OperationNotFound"),
    };
    same(&ledger.post_keyed("/commit", "key", &finish), &first);
    ledger.values(&["a"]).ok().value("a", 5, 0);
}

#[test]
fn quotes_around_a_key_are_stripped() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let request = hold("op", &[("a", 1)]);
    let first = ledger.post_keyed("/hold", "\"8e03978e-40d5\"", &request).ok();
    same(&ledger.post_keyed("/hold", "8e03978e-40d5", &request), &first);
    same(&ledger.post_keyed("/hold", "\"8e03978e-40d5\"", &request), &first);
    ledger.post_keyed("/hold", "another", &request).refused(409, "DuplicateOperation");
}

#[test]
fn keys_have_1_to_256_bytes() {
    let server = Server::fresh();
    let ledger = server.ledger();
    let make = |name: &str| json!({"name": name}).to_string();
    let longest = "k".repeat(256);
    ledger.post_keyed("/limits", &longest, &json!({"name": "longest"})).created();
    ledger.post_keyed("/limits", &format!("\"{longest}\""), &json!({"name": "longest"})).created();
    ledger.post_keyed("/limits", "a key, with; punctuation = fine", &json!({"name": "odd"})).created();
    for key in ["", "\"\"", "   ", &"k".repeat(257)] {
        let headers = format!("Idempotency-Key: {key}\r\n");
        let reply = raw::ask(
            server.address(),
            raw::request("POST", "/v1/ledger/limits", &headers, make("bad").as_bytes()),
        );
        assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "key {key:?} → {}", reply.text);
    }
    ledger.limit("bad").refused(404, "LimitNotFound");
    // A read ignores the key.
    Reply::to(ledger.request("GET", "/limits").header("idempotency-key", "x")).ok();
    let values = json!({"limit_names": ["odd"]});
    ledger.post_keyed("/values", "read", &values).ok();
    ledger.post_keyed("/values", "read", &json!({"limit_names": ["longest"]})).ok();
}

/// Many concurrent requests with one key: one is executed, and the others get its reply or `IdempotencyKeyInUse`.
#[test]
fn concurrent_requests_with_one_key_are_executed_once() {
    let server = Server::fresh();
    let ledger = server.ledger();
    for round in 0..10 {
        let (key, request) = (format!("key-{round}"), json!({"name": format!("raced-{round}")}));
        let replies: Vec<Reply> = std::thread::scope(|scope| {
            let racers: Vec<_> =
                (0..16).map(|_| scope.spawn(|| ledger.post_keyed("/limits", &key, &request))).collect();
            racers.into_iter().map(|racer| racer.join().expect("a racer")).collect()
        });
        let mut bodies = BTreeSet::new();
        for reply in replies {
            if reply.status == 201 {
                bodies.insert(reply.text);
            } else {
                reply.refused(409, "IdempotencyKeyInUse");
            }
        }
        assert_eq!(bodies.len(), 1, "round {round}: {bodies:?}");
    }
}
