//! Counters: what is in use, taken and given back.

use serde_json::json;

use crate::harness::Server;
use crate::limiter::{LONG, fixed};

#[test]
fn what_is_taken_is_given_back() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 3);
    limiter.counters(json!({"a": 1}), 2).ok();
    limiter.check(json!({"a": 1})).allowed().uses("r", 3);
    limiter.counters(json!({"a": 1}), 1).not_counted(&["r"]).uses("r", 3);
    limiter.counters(json!({"a": 1}), -1).ok();
    limiter.look(json!({"a": 1})).uses("r", 2);
    limiter.counters(json!({"a": 1}), 2).not_counted(&["r"]).uses("r", 2);
    // PUT is the same call.
    limiter.put("/counters", json!({"key_values": {"a": 1}, "counters": 1})).ok();
    limiter.put("/counters", json!({"key_values": {"a": 1}, "counters": 1})).not_counted(&["r"]);
    limiter.put("/counters", json!({"key_values": {"a": 1}, "counters": -3})).ok();
    limiter.look(json!({"a": 1})).uses("r", 0);
}

#[test]
fn more_than_is_there_leaves_zero() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 5);
    limiter.counters(json!({"a": 1, "b": 1}), 2).ok();
    limiter.counters(json!({"a": 1, "b": 2}), 2).ok();
    // Of exactly these key-values: the group's other counter is not theirs to give.
    limiter.counters(json!({"a": 1, "b": 1}), -100).ok();
    limiter.look(json!({"a": 1})).uses("r", 2);
    limiter.counters(json!({"a": 1}), -100).ok();
    limiter.counters(json!({"a": 2}), -100).ok();
    limiter.look(json!({"a": 1})).uses("r", 2);
    limiter.look(json!({"a": 2})).uses("r", 0);
    limiter.take(json!({"a": 2}), 5).allowed();
    limiter.check(json!({"a": 2})).denied(&["r"]);
}

#[test]
fn counters_are_always_counted_and_checks_where_a_limit_has_no_window() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("window", &["w"], 100, fixed(LONG));
    limiter.check(json!({"w": 1})).allowed();
    limiter.check(json!({"none": 1})).allowed();
    assert_eq!(limiter.in_use().len(), 0, "no limit without a window applied");
    limiter.counters(json!({"w": 1}), 2).ok();
    limiter.counters(json!({"none": 1}), 3).ok();
    assert_eq!(
        limiter.in_use().into_iter().collect::<Vec<_>>(),
        [(r#"{"none":1}"#.into(), 3), (r#"{"w":1}"#.into(), 2)]
    );
    limiter.look(json!({"w": 1})).uses("window", 3);
    limiter.rule("in use", &[], -1);
    limiter.check(json!({"w": 1})).allowed().uses("window", 4).uses("in use", 6);
}

/// A window tells what happened, and that cannot be taken back.
#[test]
fn giving_back_leaves_windows_alone() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("window", &["a"], 3, fixed(LONG));
    limiter.rule("in use", &["a"], 9);
    limiter.take(json!({"a": 1}), 3).allowed();
    limiter.counters(json!({"a": 1}), -3).ok();
    limiter.check(json!({"a": 1})).denied(&["window"]).uses("window", 3).uses("in use", 0);
    limiter.counters(json!({"a": 1}), 1).not_counted(&["window"]);
}

#[test]
fn a_counter_is_set_and_no_rule_asked() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 3);
    limiter.window("window", &["a"], 3, fixed(LONG));
    limiter.set(json!({"a": 1}), 10).ok();
    limiter.check(json!({"a": 1})).denied(&["r"]).uses("r", 10).uses("window", 0);
    limiter.set(json!({"a": 1}), 2).ok();
    limiter.check(json!({"a": 1})).allowed().uses("r", 3).uses("window", 1);
    for nothing in [0, -5] {
        limiter.set(json!({"a": 1}), 4).ok();
        limiter.set(json!({"a": 1}), nothing).ok();
        assert_eq!(limiter.all("/counters/query", Some(&json!({})), 10).len(), 0, "removed");
        limiter.look(json!({"a": 1})).uses("r", 0);
    }
    limiter.set(json!({"unmatched": 1}), 5).ok();
    assert_eq!(limiter.in_use()[r#"{"unmatched":1}"#], 5);
}

#[test]
fn what_a_lease_holds_cannot_be_given_back_by_others() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 5);
    let lease = limiter.lease(json!({"a": 1}), 2, "1h").created().lease_id();
    limiter.check(json!({"a": 1})).allowed().uses("r", 3);
    for method in ["POST", "PUT"] {
        limiter.send(method, "/counters", &json!({"key_values": {"a": 1}, "counters": -100})).ok();
        limiter.look(json!({"a": 1})).uses("r", 2);
    }
    limiter.set(json!({"a": 1}), 0).ok();
    limiter.look(json!({"a": 1})).uses("r", 2);
    // Only the unleased part is set.
    limiter.set(json!({"a": 1}), 3).ok();
    limiter.look(json!({"a": 1})).uses("r", 5);
    limiter.release(&lease).is(204);
    limiter.look(json!({"a": 1})).uses("r", 3);
    limiter.counters(json!({"a": 1}), -3).ok();
    limiter.look(json!({"a": 1})).uses("r", 0);
}
