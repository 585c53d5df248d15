//! Holding: all or nothing, once for each pair of limit and operation.

use serde_json::json;

use crate::harness::Server;
use crate::ledger::{hold, with};
use crate::shape::State::{Committed, Held};

#[test]
fn a_hold_answers_the_values_of_its_moment() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);

    let first = ledger.hold("op-1", &[("a", 10)]).ok().has("operation_id", "op-1").skipped(&[]);
    let first = first.values_are_of(&["a"]).value("a", 0, 10);
    let second = ledger.hold("op-2", &[("a", 5), ("b", -3)]).ok().values_are_of(&["a", "b"]);
    let second = second.value("a", 0, 15).value("b", 0, -3);
    let third = ledger.hold("op-3", &[("b", 0)]).ok().values_are_of(&["b"]).value("b", 0, -3);
    assert!(first.position() < second.position() && second.position() < third.position());

    ledger.commit_all("op-1").ok().value("a", 10, 5);
    ledger.hold("op-4", &[("a", 1)]).ok().value("a", 10, 6);
}

#[test]
fn one_missing_limit_of_several_refuses_the_whole_hold() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["here-1", "here-2"]);
    let changes = [("here-1", 1), ("gone-1", 1), ("here-2", 1), ("gone-2", 1)];

    let refused = ledger.hold("op", &changes).refused(404, "LimitNotFound");
    refused.naming(&["gone-1", "gone-2"]).not_naming(&["here-1", "here-2"]);
    ledger.values(&["here-1", "here-2"]).ok().value("here-1", 0, 0).value("here-2", 0, 0);
    ledger.operation("op").refused(404, "OperationNotFound");
    ledger.create_all(&["gone-1", "gone-2"]);
    ledger.hold("op", &changes).ok();
}

#[test]
fn a_pair_of_limit_and_operation_is_held_once() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    ledger.hold("op", &[("a", 10)]).ok();

    ledger.hold("op", &[("a", 10)]).refused(409, "DuplicateOperation");
    ledger.hold("op", &[("a", 11)]).refused(409, "DuplicateOperation");
    ledger.hold("op", &[("b", 1), ("a", 10)]).refused(409, "DuplicateOperation");
    ledger.values(&["a", "b"]).ok().value("a", 0, 10).value("b", 0, 0);

    // The pair counts, not the operation: another limit may join it.
    ledger.hold("op", &[("b", 1)]).ok().value("b", 0, 1);
    assert_eq!(ledger.states("op"), [("a".into(), Held), ("b".into(), Held)]);
}

#[test]
fn a_finished_pair_is_not_held_again() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    ledger.hold("done", &[("a", 10)]).ok();
    ledger.commit_all("done").ok();
    ledger.hold("undone", &[("a", 10)]).ok();
    ledger.rollback_all("undone").ok();

    for operation in ["done", "undone"] {
        for changes in [&[("a", 10)][..], &[("b", 1), ("a", 10)]] {
            ledger.hold(operation, changes).refused(409, "OperationAlreadyInFinalState");
            ledger.hold_skipping(operation, changes).refused(409, "OperationAlreadyInFinalState");
        }
        ledger.hold(operation, &[("b", 1)]).ok();
    }
    ledger.values(&["a", "b"]).ok().value("a", 10, 0).value("b", 0, 2);
    assert_eq!(ledger.states("done"), [("a".into(), Committed), ("b".into(), Held)]);
}

#[test]
fn existing_holds_are_skipped_if_asked() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b", "c"]);
    let first = ledger.hold("op", &[("a", 10)]).ok();
    ledger.hold("other", &[("a", 100), ("b", 100)]).ok();

    // Nothing new: the view of the hold that did something.
    let repeat = ledger.hold_skipping("op", &[("a", 10)]).ok().skipped(&["a"]).same_view_as(&first);
    repeat.value("a", 0, 10).has("operation_id", "op");

    // The rest is held, at a view of its own, and that is the operation's view from now on.
    let second = ledger.hold_skipping("op", &[("a", 10), ("b", 1), ("c", 2)]).ok().skipped(&["a"]);
    let second = second.value("a", 0, 110).value("b", 0, 101).value("c", 0, 2);
    assert!(second.position() > first.position());
    ledger.hold("later", &[("a", 1000), ("b", 1000), ("c", 1000)]).ok();
    let view = |server: &Server| {
        let ledger = server.ledger();
        ledger.values_as_of("op", &["a", "b", "c"]).ok().same_view_as(&second);
        let all = ledger.hold_skipping("op", &[("c", 2), ("b", 1), ("a", 10)]).ok();
        all.skipped(&["a", "b", "c"]).same_view_as(&second);
    };
    view(&server);

    // Without anything to skip it is a hold like any other.
    ledger.hold_skipping("fresh", &[("a", 1)]).ok().skipped(&[]).value("a", 0, 1111);
    view(&server);
    server.crash_and_restart();
    view(&server);
}

#[test]
fn missing_limits_are_made_if_asked() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let request = with(
        json!({"operation_id": "op", "changes": [
            {"limit_name": "a", "value": 1},
            {"limit_name": "new", "value": 2, "limit_id": "id-9", "context": {"provider": "p"}},
            {"limit_name": "plain", "value": -3},
        ]}),
        json!({"create_missing": true}),
    );
    let held = ledger.post("/hold", request.clone()).ok().values_are_of(&["a", "new", "plain"]);
    held.value("a", 0, 1).value("new", 0, 2).value("plain", 0, -3);
    let check = |server: &Server| {
        let read = server.ledger().limit("new").ok().has("name", "new");
        read.has("limit_id", "id-9").has("context", json!({"provider": "p"}));
        server.ledger().limit("plain").ok();
    };
    check(&server);
    ledger.post("/limits", json!({"name": "new"})).refused(409, "DuplicateLimitName");
    ledger.post("/hold", request).refused(409, "DuplicateOperation");
    server.crash_and_restart();
    check(&server);
}

#[test]
fn a_refused_hold_makes_no_limits() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_with_ceiling("tight", 1);
    ledger.create("held");
    ledger.hold("op", &[("held", 1)]).ok();
    let create = json!({"create_missing": true});

    let exceeded = with(hold("op-2", &[("new", 1), ("tight", 2)]), create.clone());
    ledger.post("/hold", exceeded).refused(409, "LimitExceeded");
    let duplicate = with(hold("op", &[("new", 1), ("held", 1)]), create.clone());
    ledger.post("/hold", duplicate).refused(409, "DuplicateOperation");
    let overflow = with(hold("op-3", &[("new", 1), ("held", i64::MAX)]), create);
    ledger.post("/hold", overflow).refused(409, "ValueOverflow");
    ledger.limit("new").refused(404, "LimitNotFound");
}

#[test]
fn of_several_errors_the_first_in_order_is_told() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["final", "held", "full"]);
    ledger.create_with_ceiling("tight", 1);
    ledger.hold("op", &[("final", 1)]).ok();
    ledger.commit_all("op").ok();
    ledger.hold("op", &[("held", 1)]).ok();
    ledger.hold("filler", &[("full", i64::MAX)]).ok();

    let (missing, finished, duplicate) = (("missing", 1), ("final", 1), ("held", 1));
    let (exceeded, overflow) = (("tight", 2), ("full", 1));
    // The latest error first in the request, so that the order cannot come from the list's.
    for (changes, status, code) in [
        (&[overflow, exceeded, duplicate, finished, missing][..], 404, "LimitNotFound"),
        (&[overflow, exceeded, duplicate, finished], 409, "OperationAlreadyInFinalState"),
        (&[overflow, exceeded, duplicate], 409, "DuplicateOperation"),
        (&[overflow, exceeded], 409, "LimitExceeded"),
        (&[overflow], 409, "ValueOverflow"),
    ] {
        ledger.hold("op", changes).refused(status, code);
    }
    // Those passed over are not judged again.
    ledger.hold_skipping("op", &[duplicate, exceeded]).refused(409, "LimitExceeded");
    let all = ledger.hold_skipping("op", &[overflow, exceeded, duplicate, finished]);
    all.refused(409, "OperationAlreadyInFinalState");
    // A request that is not valid is not looked at.
    ledger.hold("op", &[missing, missing]).refused(400, "InvalidRequest");
    let now = ledger.values(&["final", "held", "full", "tight"]).ok();
    now.value("final", 1, 0).value("held", 0, 1).value("full", 0, i64::MAX).value("tight", 0, 0);
}

#[test]
fn an_operation_holds_up_to_64_limits() {
    let server = Server::fresh();
    let ledger = server.ledger();
    let names: Vec<String> = (0..65).map(|n| format!("limit-{n}")).collect();
    let changes: Vec<(&str, i64)> =
        names.iter().zip(1..).map(|(name, value)| (name.as_str(), value)).collect();
    let create = json!({"create_missing": true});

    ledger.post("/hold", with(hold("op", &changes), create.clone())).invalid("changes");
    let held = ledger.post("/hold", with(hold("op", &changes[..64]), create)).ok();
    held.value("limit-0", 0, 1).value("limit-63", 0, 64);
    assert_eq!(ledger.states("op").len(), 64);
    ledger.commit_all("op").ok().value("limit-0", 1, 0).value("limit-63", 64, 0);
    ledger.values(&["limit-31"]).ok().value("limit-31", 32, 0);
}
