//! Values: now, as of an operation, as of a position.

use serde_json::json;

use crate::harness::Server;
use crate::reply::values_of;

#[test]
fn values_are_of_the_limits_asked_for() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b", "c"]);
    ledger.hold("op", &[("a", 1), ("b", 2)]).ok();

    ledger.values(&["b"]).ok().values_are_of(&["b"]).value("b", 0, 2);
    let three = ledger.values(&["c", "a", "b"]).ok().values_are_of(&["a", "b", "c"]);
    three.value("a", 0, 1).value("b", 0, 2).value("c", 0, 0);
    let refused = ledger.values(&["a", "gone-1", "gone-2"]).refused(404, "LimitNotFound");
    refused.naming(&["gone-1", "gone-2"]);
    ledger.values_as_of("op", &["gone-1"]).refused(404, "LimitNotFound");
    ledger.values_as_of("unknown", &["a"]).refused(404, "OperationNotFound").naming(&["unknown"]);
    ledger.values_as_of("unknown", &["gone-1"]).refused(404, "LimitNotFound");
}

#[test]
fn an_operations_view_can_be_read_again_at_any_time() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b", "other"]);
    ledger.hold("before", &[("other", 7)]).ok();
    ledger.hold("zero", &[("a", 1), ("b", 1)]).ok();
    ledger.commit_all("zero").ok();
    let held = ledger.hold("op", &[("a", 10), ("b", 20)]).ok().value("a", 1, 10).value("b", 1, 20);
    ledger.hold("after", &[("a", 100), ("other", 100)]).ok();
    ledger.commit_all("op").ok();
    ledger.create("late");
    ledger.hold("after-2", &[("late", 5)]).ok();

    let check = |server: &Server| {
        let ledger = server.ledger();
        ledger.values_as_of("op", &["a", "b"]).ok().same_view_as(&held);
        // Any limits: one the operation never touched, and one that did not exist yet.
        let wider = ledger.values_as_of("op", &["late", "other", "b"]).ok();
        let wider = wider.value("other", 0, 7).value("late", 0, 0).value("b", 1, 20);
        assert_eq!(wider.position(), held.position());
        ledger.values(&["a", "b"]).ok().value("a", 11, 100).value("b", 21, 0);
    };
    check(&server);
    server.restart();
    check(&server);
    server.crash_and_restart();
    check(&server);
}

#[test]
fn every_position_shows_what_was_then() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let mut seen = Vec::new();
    for n in 0..40 {
        let operation = format!("op-{n}");
        let held = ledger.hold(&operation, &[("a", n)]).ok();
        seen.push((held.position(), values_of(&held.body)));
        let done = match n % 3 {
            0 => ledger.commit(&operation, &[("a", n / 2)]).ok(),
            1 => ledger.rollback_all(&operation).ok(),
            _ => continue,
        };
        seen.push((done.position(), values_of(&done.body)));
    }
    ledger.create("late");
    assert!(seen.is_sorted_by(|(a, _), (b, _)| a < b), "positions grow");

    let check = |server: &Server| {
        let ledger = server.ledger();
        for (position, values) in &seen {
            let then = ledger.values_at(*position, &["a"]).ok();
            assert_eq!((then.position(), &values_of(&then.body)), (*position, values));
        }
        ledger.values_at(seen[0].0 - 1, &["a", "late"]).ok().value("a", 0, 0).value("late", 0, 0);
    };
    check(&server);
    server.restart();
    check(&server);
}

#[test]
fn a_position_must_have_been_reached() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    ledger.hold("op", &[("a", 1)]).ok();
    let now = ledger.values(&["a"]).ok().position();

    ledger.values_at(now, &["a"]).ok().value("a", 0, 1);
    ledger.values_at(now + 1, &["a"]).invalid("position");
    ledger.values_at(u64::MAX, &["a"]).invalid("position");
    ledger.post("/values", json!({"limit_names": ["a"], "position": -1})).invalid("position");
    let both = json!({"limit_names": ["a"], "position": now, "operation_id": "op"});
    ledger.post("/values", both).refused(400, "InvalidRequest");
}

#[test]
fn reading_changes_nothing() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let held = ledger.hold("op", &[("a", 1)]).ok();
    for _ in 0..3 {
        ledger.values(&["a"]).ok().same_view_as(&held);
        ledger.operation("op").ok();
        ledger.entries("a");
        ledger.hold("op", &[("a", 1)]).refused(409, "DuplicateOperation");
        ledger.values(&["nope"]).refused(404, "LimitNotFound");
    }
    assert_eq!(ledger.values(&["a"]).ok().position(), held.position());
}
