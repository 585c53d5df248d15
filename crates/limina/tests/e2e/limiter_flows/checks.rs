//! A check: takes from every limit that applies, or from none, and says why.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::limiter::{LONG, Limiter, bucket, fixed, limits_of, sliding};

const KINDS: [&str; 4] = ["bucket", "fixed", "in use", "sliding"];

/// One rule of each kind, all of 5 for the key `a`.
#[track_caller]
fn one_of_each_kind(limiter: &Limiter) {
    limiter.rule("in use", &["a"], 5);
    limiter.window("fixed", &["a"], 5, fixed(LONG));
    limiter.window("sliding", &["a"], 5, sliding(LONG));
    limiter.window("bucket", &["a"], 5, bucket(LONG, 5));
}

#[track_caller]
fn all_used(limiter: &Limiter, used: i64) {
    let mut reply = limiter.look(json!({"a": 1}));
    for kind in KINDS {
        reply = reply.uses(kind, used);
    }
}

#[test]
fn a_refused_check_moves_nothing() {
    let server = Server::fresh();
    let limiter = server.limiter();
    one_of_each_kind(&limiter);
    limiter.take(json!({"a": 1}), 2).allowed().applied(&KINDS);
    all_used(&limiter, 2);
    for window in [None, Some(fixed(LONG)), Some(sliding(LONG))] {
        let mut shut = json!({"name": "shut", "group_by": ["a", "b"], "limit": 0});
        if let Some(window) = window {
            shut["window"] = window;
        }
        limiter.post("/rules", shut).created();
        for hits in [1, 3] {
            limiter.take(json!({"a": 1, "b": 1}), hits).denied(&["shut"]);
        }
        limiter.counters(json!({"a": 1, "b": 1}), 1).not_counted(&["shut"]);
        limiter.lease(json!({"a": 1, "b": 1}), 1, "1h").denied(&["shut"]);
        all_used(&limiter, 2);
        limiter.delete("/rules/shut").is(204);
    }
    assert_eq!(limiter.in_use().len(), 1, "no counter of a refused check");
    limiter.take(json!({"a": 1}), 3).allowed();
    limiter.check(json!({"a": 1})).denied(&KINDS);
}

#[test]
fn the_kind_that_refuses_does_not_matter() {
    let server = Server::fresh();
    for tight in KINDS {
        let limiter = server.limiter_of(tight);
        one_of_each_kind(&limiter);
        let window = match tight {
            "fixed" => fixed(LONG),
            "sliding" => sliding(LONG),
            "bucket" => bucket(LONG, 1),
            _ => Value::Null,
        };
        let mut rule = json!({"name": "tight", "group_by": ["a"], "limit": 1});
        if !window.is_null() {
            rule["window"] = window;
        }
        limiter.post("/rules", rule).created();
        limiter.check(json!({"a": 1})).allowed();
        for _ in 0..7 {
            limiter.check(json!({"a": 1})).denied(&["tight"]).uses("tight", 1);
        }
        all_used(&limiter, 1);
        limiter.check(json!({"a": 2})).allowed().uses("in use", 1);
    }
}

#[test]
fn more_hits_than_are_left_are_refused() {
    let server = Server::fresh();
    let limiter = server.limiter();
    one_of_each_kind(&limiter);
    limiter.take(json!({"a": 1}), 6).denied(&KINDS);
    limiter.take(json!({"a": 1}), 3).allowed();
    limiter.take(json!({"a": 1}), 3).denied(&KINDS);
    all_used(&limiter, 3);
    limiter.take(json!({"a": 1}), 2).allowed();
    all_used(&limiter, 5);
    limiter.take(json!({"a": 1}), (1 << 53) - 1).denied(&KINDS);
    all_used(&limiter, 5);
}

#[test]
fn looking_takes_nothing() {
    let server = Server::fresh();
    let limiter = server.limiter();
    one_of_each_kind(&limiter);
    for _ in 0..10 {
        limiter.take(json!({"a": 1}), 0).allowed().applied(&KINDS);
        let dry = json!({"key_values": {"a": 1}, "hits": 5, "dry_run": true});
        let reply = limiter.post("/check", dry).ok();
        assert_eq!(reply.body["allowed"], true, "{}", reply.text);
        limiter.post("/check", json!({"key_values": {"a": 1}, "hits": 6, "dry_run": true})).denied(&KINDS);
        all_used(&limiter, 0);
    }
    assert_eq!(limiter.in_use().len(), 0);
    limiter.post("/check", json!({"key_values": {"a": 1}, "hits": 5, "dry_run": false})).allowed();
    limiter.post("/check", json!({"key_values": {"a": 1}, "dry_run": true})).denied(&KINDS);
    all_used(&limiter, 5);
}

#[test]
fn the_reply_says_why() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("a", &["x", "y"], 9);
    limiter.rule("b", &["x"], 2);
    limiter.window("c", &[], 1, fixed(LONG));
    limiter.override_of("b", "two", json!({"x": 1, "z": 0}), 7);
    limiter.override_of("b", "one", json!({"x": 1, "y": true}), 7);
    limiter.window("d", &["other"], 0, fixed(LONG));
    let reply = limiter.check(json!({"x": 1, "y": true, "z": 0})).allowed().applied(&["a", "b", "c"]);
    let reply = reply.uses("a", 1).uses("b/one", 1).uses("b/two", 1).uses("c", 1);
    let a = reply.limit("a");
    assert_eq!(a["group"], json!({"x": 1, "y": true}));
    assert_eq!((&a["limit"], &a["remaining"], &a["reset_ms"]), (&json!(9), &json!(8), &Value::Null));
    assert!(reply.limit("c")["reset_ms"].as_u64().is_some_and(|ms| ms > 0), "{}", reply.text);
    assert_eq!(reply.limit("c")["group"], json!({}));

    let reply = limiter.check(json!({"x": 1, "y": true, "z": 0})).denied(&["c"]).applied(&["a", "b", "c"]);
    let reply = reply.uses("a", 1).uses("b/one", 1).uses("b/two", 1).uses("c", 1);
    assert_eq!(reply.limit("a")["exceeded"], false);
    assert_eq!(reply.retry_after_ms(), reply.limit("c")["reset_ms"].as_u64());
    // The same of `POST /counters` and of a lease.
    let counted = limiter.counters(json!({"x": 1, "y": true, "z": 0}), 1).not_counted(&["c"]);
    assert_eq!(limits_of(&counted.body).len(), limits_of(&reply.body).len());
    limiter.lease(json!({"x": 1, "y": true, "z": 0}), 1, "1h").denied(&["c"]);
}

#[test]
fn several_limits_refuse_together() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("one", &["a"], 1);
    limiter.rule("two", &["b"], 1);
    limiter.rule("wide", &["a", "b"], 10);
    limiter.check(json!({"a": 1, "b": 1})).allowed();
    let reply = limiter.check(json!({"a": 1, "b": 1})).denied(&["one", "two"]);
    assert_eq!(reply.body["violated-policies"].as_array().map(Vec::len), Some(2), "{}", reply.text);
    assert_eq!(reply.retry_after_ms(), None, "nobody knows when it is given back: {}", reply.text);
    limiter.check(json!({"a": 2, "b": 1})).denied(&["two"]);
    limiter.check(json!({"a": 2, "b": 2})).allowed();
}

/// The latest of those that refuse decides; one that is not known makes it unknown.
#[test]
fn retry_after_is_that_of_all_who_refuse() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("long", &["a"], 1, sliding("2h"));
    limiter.window("short", &["a"], 1, sliding("1h"));
    limiter.check(json!({"a": 1})).allowed();
    let reply = limiter.check(json!({"a": 1})).denied(&["long", "short"]);
    let after = reply.retry_after_ms().expect("known");
    assert!((3_600_001..=7_200_000).contains(&after), "{}", reply.text);
    let never = limiter.take(json!({"a": 1}), 2).denied(&["long", "short"]);
    assert_eq!(never.retry_after_ms(), None, "2 of 1 never pass: {}", never.text);
    limiter.rule("in use", &["a"], 1);
    limiter.counters(json!({"a": 2}), 1).ok();
    let unknown = limiter.check(json!({"a": 2})).denied(&["in use", "long", "short"]);
    assert_eq!(unknown.retry_after_ms(), None, "{}", unknown.text);
}

#[test]
fn groups_are_apart() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("pair", &["a", "b"], 1);
    limiter.window("window", &["a", "b"], 1, fixed(LONG));
    // Values that run together must not: "x" + "yz" is not "xy" + "z".
    for (a, b) in [("x", "yz"), ("xy", "z"), ("", "xyz"), ("xyz", ""), ("x\u{0}", "y"), ("x", "\u{0}y")] {
        limiter.check(json!({"a": a, "b": b})).allowed().uses("pair", 1).uses("window", 1);
        limiter.check(json!({"a": a, "b": b})).denied(&["pair", "window"]);
    }
    limiter.check(json!({"b": "x", "a": "yz"})).allowed();
    limiter.check(json!({"a": "yz", "b": "x", "c": 1})).denied(&["pair", "window"]);
}
