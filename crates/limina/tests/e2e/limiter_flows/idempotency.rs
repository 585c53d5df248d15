//! The same `Idempotency-Key` never charges twice.

use serde_json::{Value, json};

use crate::concurrency::race;
use crate::harness::Server;
use crate::limiter::{LONG, checks, fixed, sliding};
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
    // Relaxed, but what bears a key is durable.
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
fn a_refused_check_is_evaluated_afresh() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &[], 1);
    limiter.check(json!({})).allowed();
    let body = json!({"key_values": {}});
    for _ in 0..2 {
        limiter.keyed("POST", "/check", "key", &body).denied(&["r"]);
    }
    limiter.counters(json!({}), -1).ok();
    let first = limiter.keyed("POST", "/check", "key", &body).allowed();
    limiter.counters(json!({}), -1).ok();
    same(&limiter.keyed("POST", "/check", "key", &body), &first, "the check");
    limiter.look(json!({})).uses("r", 0);
    limiter.keyed("POST", "/check", "another", &body).allowed();
}

#[test]
fn every_write_can_be_repeated() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("all", &[], -1);
    let writes: Vec<(&str, &str, Value)> = vec![
        ("POST", "/rules", json!({"name": "r", "group_by": ["a"], "limit": 100})),
        ("PUT", "/rules/r", json!({"group_by": ["a"], "limit": 50})),
        ("PUT", "/rules/new", json!({"group_by": ["a"], "limit": 50})),
        ("POST", "/rules/r/overrides", json!({"name": "o", "key_values": {"a": 1}, "limit": 60})),
        ("PUT", "/rules/r/overrides/p", json!({"key_values": {"a": 2}, "limit": 60})),
        ("POST", "/check", json!({"key_values": {"a": 1}, "hits": 3})),
        ("POST", "/counters", json!({"key_values": {"a": 1}, "counters": 4})),
        ("PUT", "/counters", json!({"key_values": {"a": 1}, "counters": -2})),
        ("PUT", "/counters/set", json!({"key_values": {"a": 2}, "counters": 7})),
        (
            "POST",
            "/check/batch",
            checks(vec![json!({"key_values": {"a": 1}}), json!({"key_values": {"a": 2}, "hits": 99})]),
        ),
    ];
    let key = |n: usize| format!("key-{n}");
    let send = |server: &Server, n: usize| {
        let (method, path, body) = &writes[n];
        server.limiter().keyed(method, path, &key(n), body)
    };
    let replies: Vec<Reply> = (0..writes.len()).map(|n| send(&server, n)).collect();
    for (reply, (method, path, _)) in replies.iter().zip(&writes) {
        assert!([200, 201].contains(&reply.status), "{method} {path} → {}", reply.text);
    }
    let in_use = limiter.in_use();
    let check = |server: &Server| {
        for n in (0..writes.len()).rev() {
            same(&send(server, n), &replies[n], &format!("{} {}", writes[n].0, writes[n].1));
        }
        let limiter = server.limiter();
        assert_eq!(limiter.in_use(), in_use);
        limiter.get("/rules/r").ok().has("limit", 50);
        limiter.look(json!({"a": 1})).uses("r/o", 6).uses("all", 13);
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
}

#[test]
fn a_repeated_lease_is_the_same_lease() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &[], 2);
    let body = json!({"key_values": {}, "hits": 1, "ttl": "1h", "owner": "me"});
    let first = limiter.keyed("POST", "/leases", "key", &body).created();
    let check = |server: &Server| {
        let limiter = server.limiter();
        for _ in 0..3 {
            let again = limiter.keyed("POST", "/leases", "key", &body).created();
            assert_eq!(again.body["lease_id"], first.body["lease_id"]);
            assert_eq!(again.body["fencing_token"], first.body["fencing_token"]);
        }
        let other = json!({"key_values": {}, "hits": 1, "ttl": "2h", "owner": "me"});
        limiter.keyed("POST", "/leases", "key", &other).refused(422, "IdempotencyKeyReused");
        limiter.look(json!({})).uses("slots", 1);
        assert_eq!(limiter.all("/leases", None, 10).len(), 1);
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
}

#[test]
fn a_raced_key_charges_once() {
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
