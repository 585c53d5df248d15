//! Commit and rollback: at most what was held, and once.

use serde_json::json;

use crate::harness::Server;
use crate::ledger::Ledger;
use crate::reply::Reply;
use crate::shape::State::{self, Committed, Held, RolledBack};
use crate::shape::state;

/// 404 `OperationNotFound` that tells in which state the operation is.
#[track_caller]
fn not_found_but(reply: Reply, expected: State) {
    let reply = reply.refused(404, "OperationNotFound");
    assert_eq!(state(&reply.body["state"]), expected, "{}", reply.text);
}

#[test]
fn a_commit_takes_what_was_held_or_less() {
    let server = Server::fresh();
    let ledger = server.ledger();
    for (n, &(held, committed)) in
        [(100, 100), (100, 60), (100, 0), (-100, -100), (-100, -1), (-100, 0), (0, 0), (1, 1), (-1, 0)]
            .iter()
            .enumerate()
    {
        let (limit, operation) = (format!("limit-{n}"), format!("op-{n}"));
        ledger.create(&limit);
        ledger.hold(&operation, &[(&limit, held)]).ok();
        let done = ledger.commit(&operation, &[(&limit, committed)]).ok();
        let done =
            done.has("operation_id", operation.as_str()).values_are_of(&[&limit]).value(&limit, committed, 0);
        assert_eq!(
            ledger.states(&operation),
            [(limit.clone(), Committed)],
            "held {held}, committed {committed}"
        );
        ledger.commit(&operation, &[(&limit, committed)]).ok().same_view_as(&done);
    }
}

#[test]
fn a_commit_of_more_or_of_the_other_sign_is_refused() {
    let server = Server::fresh();
    let ledger = server.ledger();
    let cases = [
        (100, 101),
        (100, -1),
        (100, -100),
        (-100, -101),
        (-100, 1),
        (0, 1),
        (0, -1),
        (100, i64::MAX),
        (100, i64::MIN),
        (-100, i64::MIN),
        (i64::MIN, i64::MAX),
        (i64::MIN, 1),
        (i64::MAX, i64::MIN),
    ];
    for (n, &(held, committed)) in cases.iter().enumerate() {
        let (limit, operation) = (format!("limit-{n}"), format!("op-{n}"));
        ledger.create(&limit);
        ledger.hold(&operation, &[(&limit, held)]).ok();
        ledger.commit(&operation, &[(&limit, committed)]).refused(409, "CommitExceedsHold");
        ledger.values(&[&limit]).ok().value(&limit, 0, held);
        assert_eq!(ledger.states(&operation), [(limit.clone(), Held)], "held {held}, committed {committed}");
        ledger.commit_all(&operation).ok().value(&limit, held, 0);
    }
}

#[test]
fn a_commit_of_several_limits_is_all_or_nothing() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b", "c"]);
    ledger.hold("op", &[("a", 10), ("b", 10)]).ok();

    ledger.commit("op", &[("a", 10), ("b", 11)]).refused(409, "CommitExceedsHold");
    ledger.commit("op", &[("a", 10), ("c", 1)]).refused(404, "OperationNotFound");
    ledger.commit("op", &[("a", 10), ("absent", 1)]).refused(404, "LimitNotFound").naming(&["absent"]);
    ledger.rollback_of("op", &["a", "c"]).refused(404, "OperationNotFound");
    ledger.rollback_of("op", &["a", "absent"]).refused(404, "LimitNotFound").naming(&["absent"]);
    ledger.values(&["a", "b"]).ok().value("a", 0, 10).value("b", 0, 10);

    // The order of errors is that of the hold's.
    ledger.commit("op", &[("b", 11), ("c", 1), ("absent", 1)]).refused(404, "LimitNotFound");
    ledger.commit("op", &[("b", 11), ("c", 1)]).refused(404, "OperationNotFound");
    ledger.commit("op", &[("a", 10), ("b", 4)]).ok().value("a", 10, 0).value("b", 4, 0);
}

#[test]
fn a_rollback_frees_everything() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    ledger.hold("op", &[("a", 10), ("b", -10)]).ok();
    ledger.hold("other", &[("a", 1)]).ok();

    let undone = ledger.rollback_all("op").ok().has("operation_id", "op").values_are_of(&["a", "b"]);
    undone.value("a", 0, 1).value("b", 0, 0);
    assert_eq!(ledger.states("op"), [("a".into(), RolledBack), ("b".into(), RolledBack)]);
    ledger.values(&["a", "b"]).ok().value("a", 0, 1).value("b", 0, 0);

    // With changes: those limits only; a value that was held may be told.
    ledger.hold("part", &[("a", 5), ("b", 6)]).ok();
    ledger.rollback_of("part", &["a"]).ok().values_are_of(&["a"]).value("a", 0, 1);
    assert_eq!(ledger.states("part"), [("a".into(), RolledBack), ("b".into(), Held)]);
    let told = json!({"operation_id": "part", "changes": [{"limit_name": "b", "value": 6}]});
    ledger.post("/rollback", told).ok().value("b", 0, 0);
}

#[test]
fn the_same_finalization_again_answers_as_the_first_time() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let mut first: Vec<(&str, Reply)> = Vec::new();
    let again = |ledger: &Ledger, how: &str| match how {
        "commit all" => ledger.commit_all(how),
        "commit less" => ledger.commit(how, &[("a", 6)]),
        "commit of" => ledger.commit_of(how, &["a"]),
        "rollback all" => ledger.rollback_all(how),
        "rollback of" => ledger.rollback_of(how, &["a"]),
        _ => unreachable!(),
    };
    for how in ["commit all", "commit less", "commit of", "rollback all", "rollback of"] {
        ledger.hold(how, &[("a", 10)]).ok();
        first.push((how, again(&ledger, how).ok()));
    }
    ledger.hold("later", &[("a", 1000)]).ok();
    let check = |server: &Server| {
        let ledger = server.ledger();
        let before = ledger.values(&["a"]).ok();
        for (how, earlier) in &first {
            again(&ledger, how).ok().same_view_as(earlier).has("operation_id", *how);
        }
        ledger.values(&["a"]).ok().same_view_as(&before).value("a", 26, 1000);
    };
    check(&server);
    server.restart();
    check(&server);
    server.crash_and_restart();
    check(&server);
}

#[test]
fn the_other_finalization_or_another_value_finds_no_operation() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    ledger.hold("done", &[("a", 10)]).ok();
    ledger.commit("done", &[("a", 6)]).ok();
    ledger.hold("undone", &[("a", 10)]).ok();
    ledger.rollback_all("undone").ok();

    not_found_but(ledger.rollback_all("done"), Committed);
    not_found_but(ledger.rollback_of("done", &["a"]), Committed);
    not_found_but(ledger.commit("done", &[("a", 7)]), Committed);
    not_found_but(ledger.commit("done", &[("a", 10)]), Committed);
    not_found_but(ledger.commit_all("undone"), RolledBack);
    not_found_but(ledger.commit("undone", &[("a", 10)]), RolledBack);
    not_found_but(ledger.commit("undone", &[("a", 0)]), RolledBack);
    ledger.values(&["a"]).ok().value("a", 6, 0);
}

#[test]
fn what_was_never_held_is_not_found() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    ledger.hold("op", &[("a", 1)]).ok();

    for operation in ["unknown", "op"] {
        let changes = [("b", 1)];
        let reply = ledger.commit(operation, &changes).refused(404, "OperationNotFound");
        assert!(reply.body["state"].is_null(), "never held, but has a state: {}", reply.text);
        ledger.rollback_of(operation, &["b"]).refused(404, "OperationNotFound");
    }
    ledger.commit_all("unknown").refused(404, "OperationNotFound").naming(&["unknown"]);
    ledger.rollback_all("unknown").refused(404, "OperationNotFound");
    ledger.operation("unknown").refused(404, "OperationNotFound");
    ledger.commit("unknown", &[("absent", 1)]).refused(404, "LimitNotFound");
}

#[test]
fn without_changes_every_open_hold_is_finished() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b", "c"]);
    ledger.hold("op", &[("a", 1), ("b", 2), ("c", 3)]).ok();

    ledger.commit("op", &[("a", 1)]).ok().values_are_of(&["a"]).value("a", 1, 0);
    assert_eq!(ledger.states("op"), [("a".into(), Committed), ("b".into(), Held), ("c".into(), Held)]);
    ledger.rollback_of("op", &["b"]).ok();
    let last = ledger.commit_all("op").ok().value("c", 3, 0);
    assert_eq!(
        ledger.states("op"),
        [("a".into(), Committed), ("b".into(), RolledBack), ("c".into(), Committed)]
    );
    ledger.values(&["a", "b", "c"]).ok().value("a", 1, 0).value("b", 0, 0).value("c", 3, 0);
    assert_eq!(ledger.commit_all("op").ok().position(), last.position());

    // A hold that joins later is open again.
    ledger.create("d");
    ledger.hold("op", &[("d", 4)]).ok();
    ledger.rollback_all("op").ok().value("d", 0, 0);
    ledger.values(&["a", "c"]).ok().value("a", 1, 0).value("c", 3, 0);
}
