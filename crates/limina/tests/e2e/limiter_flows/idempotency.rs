//! Repeated requests with the same `Idempotency-Key` are charged once.

use serde_json::json;

use crate::concurrency::race;
use crate::harness::Server;
use crate::limiter::{LONG, fixed, sliding};
use crate::reply::Reply;

#[track_caller]
fn same(reply: &Reply, first: &Reply, request: &str) {
    assert_eq!(
        (reply.status, &reply.body),
        (first.status, &first.body),
        "the first reply again, of {request}"
    );
}

#[test]
fn a_repeated_check_charges_once() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("in use", &["a"], 5);
    // The rule is relaxed, but a request with a key is durable.
    limiter.window("fixed", &["b"], 5, fixed(LONG));
    limiter.window("sliding", &["c"], 5, sliding(LONG));
    let rules = [("in use", "a"), ("fixed", "b"), ("sliding", "c")];
    let body = |key: &str| json!({"key_values": {key: 1}, "hits": 2});
    let firsts: Vec<Reply> =
        rules.iter().map(|(rule, key)| limiter.keyed("POST", "/check", rule, &body(key)).allowed()).collect();
    let check = |server: &Server| {
        let limiter = server.limiter();
        for ((rule, key), first) in rules.iter().zip(&firsts) {
            for _ in 0..3 {
                same(&limiter.keyed("POST", "/check", rule, &body(key)), first, rule);
            }
            limiter.look(json!({*key: 1})).uses(rule, 2);
            let other = json!({"key_values": {*key: 1}, "hits": 1});
            limiter.keyed("POST", "/check", rule, &other).refused(422, "IdempotencyKeyReused");
            limiter.look(json!({*key: 1})).uses(rule, 2);
        }
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
    server.restart();
    check(&server);
}

#[test]
fn concurrent_requests_with_one_key_charge_once() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("in use", &["a"], -1);
    limiter.window("window", &["b"], 1000, fixed(LONG));
    for round in 0..10 {
        for (rule, key) in [("in use", "a"), ("window", "b")] {
            let body = json!({"key_values": {key: 1}, "hits": 3});
            let name = format!("{rule} {round}");
            let replies = race(12, |_| limiter.keyed("POST", "/check", &name, &body));
            let mut first = None;
            for reply in replies {
                if reply.status == 200 {
                    same(&reply, first.get_or_insert(reply.clone()), rule);
                } else {
                    reply.refused(409, "IdempotencyKeyInUse");
                }
            }
            assert!(first.is_some(), "nobody did it");
            limiter.look(json!({key: 1})).uses(rule, 3 * (round + 1));
        }
    }
}
