//! Ceilings and the ends of i64, judged by the worst that open holds can become.

use serde_json::json;

use crate::harness::Server;
use crate::ledger::Ledger;

#[track_caller]
fn exceeded(ledger: &Ledger, limit: &str, value: i64) {
    ledger.hold("refused", &[(limit, value)]).refused(409, "LimitExceeded").naming(&[limit]);
}

#[track_caller]
fn overflow(ledger: &Ledger, limit: &str, value: i64) {
    ledger.hold("refused", &[(limit, value)]).refused(409, "ValueOverflow");
}

#[test]
fn a_ceiling_is_reached_and_not_passed() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_with_ceiling("tight", 100);

    exceeded(&ledger, "tight", 101);
    ledger.hold("1", &[("tight", 60)]).ok();
    exceeded(&ledger, "tight", 41);
    ledger.hold("2", &[("tight", 40)]).ok().value("tight", 0, 100);
    exceeded(&ledger, "tight", 1);
    ledger.hold("zero", &[("tight", 0)]).ok();

    // What is committed counts as what is held; what is freed does not.
    ledger.commit("1", &[("tight", 50)]).ok().value("tight", 50, 40);
    exceeded(&ledger, "tight", 11);
    ledger.rollback_all("2").ok();
    ledger.hold("3", &[("tight", 50)]).ok().value("tight", 50, 50);
    exceeded(&ledger, "tight", 1);
}

#[test]
fn a_negative_hold_makes_no_room_until_it_is_committed() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_with_ceiling("tight", 100);

    ledger.hold("back", &[("tight", -50)]).ok();
    ledger.hold("1", &[("tight", 100)]).ok().value("tight", 0, 50);
    // The total is 50, but a rollback would make it 100.
    exceeded(&ledger, "tight", 1);
    ledger.commit_all("back").ok().value("tight", -50, 100);
    ledger.hold("2", &[("tight", 50)]).ok().value("tight", -50, 150);
    exceeded(&ledger, "tight", 1);
    ledger.commit_all("1").ok();
    ledger.commit_all("2").ok().value("tight", 100, 0);

    ledger.hold("back-2", &[("tight", -50)]).ok();
    exceeded(&ledger, "tight", 1);
    ledger.rollback_all("back-2").ok();
    exceeded(&ledger, "tight", 1);
}

#[test]
fn a_lowered_ceiling_refuses_only_what_raises() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    ledger.hold("1", &[("a", 100)]).ok();
    ledger.patch("a", json!({"ceiling": 10})).ok();

    exceeded(&ledger, "a", 1);
    ledger.hold("zero", &[("a", 0)]).ok();
    ledger.hold("back", &[("a", -95)]).ok();
    exceeded(&ledger, "a", 1);
    ledger.commit_all("1").ok().value("a", 100, -95);
    ledger.commit_all("back").ok().value("a", 5, 0);
    exceeded(&ledger, "a", 6);
    ledger.hold("2", &[("a", 5)]).ok();
}

#[test]
fn all_exceeded_limits_are_named_and_none_moves() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_with_ceiling("tight-1", 1);
    ledger.create_with_ceiling("tight-2", 2);
    ledger.create_with_ceiling("roomy", 1000);
    let changes = [("roomy", 5), ("tight-1", 5), ("tight-2", 5)];
    let refused = ledger.hold("op", &changes).refused(409, "LimitExceeded");
    refused.naming(&["tight-1", "tight-2"]).not_naming(&["roomy"]);
    let now = ledger.values(&["roomy", "tight-1", "tight-2"]).ok();
    now.value("roomy", 0, 0).value("tight-1", 0, 0).value("tight-2", 0, 0);
    ledger.operation("op").refused(404, "OperationNotFound");
}

#[test]
fn ceilings_may_be_any_i64() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_with_ceiling("zero", 0);
    exceeded(&ledger, "zero", 1);
    ledger.hold("z", &[("zero", -1)]).ok();

    ledger.create_with_ceiling("below", -10);
    exceeded(&ledger, "below", 1);
    ledger.hold("b-1", &[("below", -20)]).ok();
    exceeded(&ledger, "below", 1);
    ledger.commit_all("b-1").ok();
    exceeded(&ledger, "below", 11);
    ledger.hold("b-2", &[("below", 10)]).ok();

    ledger.create_with_ceiling("highest", i64::MAX);
    ledger.hold("h", &[("highest", i64::MAX)]).ok();
    ledger.create_with_ceiling("lowest", i64::MIN);
    exceeded(&ledger, "lowest", 1);
    ledger.hold("l", &[("lowest", i64::MIN)]).ok().value("lowest", 0, i64::MIN);
}

#[test]
fn near_the_ends_of_i64_nothing_overflows() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["up", "down", "both"]);

    ledger.hold("u-1", &[("up", i64::MAX)]).ok().value("up", 0, i64::MAX);
    overflow(&ledger, "up", 1);
    overflow(&ledger, "up", i64::MAX);
    ledger.hold("u-2", &[("up", -1)]).ok().value("up", 0, i64::MAX - 1);
    // The hold of -1 may be rolled back yet.
    overflow(&ledger, "up", 1);
    ledger.commit_all("u-1").ok().value("up", i64::MAX, -1);
    overflow(&ledger, "up", 1);
    ledger.commit_all("u-2").ok().value("up", i64::MAX - 1, 0);
    ledger.hold("u-3", &[("up", 1)]).ok().value("up", i64::MAX - 1, 1);
    overflow(&ledger, "up", 1);
    ledger.commit_all("u-3").ok().value("up", i64::MAX, 0);
    overflow(&ledger, "up", 1);

    ledger.hold("d-1", &[("down", i64::MIN)]).ok().value("down", 0, i64::MIN);
    overflow(&ledger, "down", -1);
    overflow(&ledger, "down", i64::MIN);
    ledger.commit_all("d-1").ok().value("down", i64::MIN, 0);
    overflow(&ledger, "down", -1);
    ledger.hold("d-2", &[("down", 1)]).ok();
    // The hold of 1 may be rolled back yet.
    overflow(&ledger, "down", -1);
    ledger.commit_all("d-2").ok();
    ledger.hold("d-3", &[("down", -1)]).ok().value("down", i64::MIN + 1, -1);
    ledger.commit_all("d-3").ok().value("down", i64::MIN, 0);

    ledger.hold("b-1", &[("both", i64::MIN)]).ok();
    ledger.hold("b-2", &[("both", i64::MAX)]).ok().value("both", 0, -1);
    overflow(&ledger, "both", 1);
    overflow(&ledger, "both", -1);
    ledger.commit("b-1", &[("both", i64::MIN + 1)]).ok().value("both", i64::MIN + 1, i64::MAX);
    ledger.commit_all("b-2").ok().value("both", 0, 0);
}

#[test]
fn one_overflow_refuses_the_whole_hold() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    ledger.hold("1", &[("a", i64::MAX)]).ok();
    ledger.hold("2", &[("b", 1), ("a", 1)]).refused(409, "ValueOverflow");
    ledger.values(&["b"]).ok().value("b", 0, 0);
}
