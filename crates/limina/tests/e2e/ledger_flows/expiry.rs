//! Holds that roll themselves back.

use serde_json::json;

use crate::harness::{Server, eventually};
use crate::ledger::{Ledger, hold, with};
use crate::reply::Reply;
use crate::shape;
use crate::shape::State::{Committed, Held, RolledBack};

#[track_caller]
fn hold_for(ledger: &Ledger, operation: &str, changes: &[(&str, i64)], time: &str) -> Reply {
    ledger.post("/hold", with(hold(operation, changes), json!({"expires_after": time}))).ok()
}

#[track_caller]
fn await_end(ledger: &Ledger, operation: &str) {
    let done = eventually(|| ledger.states(operation).iter().all(|(_, state)| *state != Held).then_some(()));
    assert!(done.is_some(), "{operation} never expired: {}", ledger.operation(operation).text);
}

#[test]
fn an_unfinished_hold_expires() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    let held = hold_for(&ledger, "op", &[("a", 5), ("b", -7)], "200ms").value("a", 0, 5).value("b", 0, -7);
    ledger.hold("stays", &[("a", 1)]).ok();

    await_end(&ledger, "op");
    assert_eq!(ledger.states("op"), [("a".into(), RolledBack), ("b".into(), RolledBack)]);
    let now = ledger.values(&["a", "b"]).ok().value("a", 0, 1).value("b", 0, 0);
    assert!(now.position() > held.position());
    ledger.values_as_of("op", &["a", "b"]).ok().same_view_as(&held);

    // Its history says so, and a rollback that was asked for says otherwise.
    ledger.hold("undone", &[("a", 1)]).ok();
    ledger.rollback_all("undone").ok();
    let entries = ledger.entries("a");
    let last_type = |operation: &str| {
        let of_it = entries.iter().filter(|entry| entry["operation_id"] == operation);
        shape::in_order(&of_it.cloned().collect::<Vec<_>>()).last().expect("an entry")["type"].clone()
    };
    assert_ne!(last_type("op"), last_type("undone"));
    for limit in ["a", "b"] {
        let entries = ledger.entries(limit);
        let of_op: Vec<_> = entries.iter().filter(|entry| entry["operation_id"] == "op").collect();
        let types: Vec<_> = of_op.iter().map(|entry| entry["type"].as_str().expect("`type`")).collect();
        assert!(
            types.len() == 2 && types.iter().any(|kind| kind.starts_with("expir")),
            "no word of expiry: {of_op:?}"
        );
        assert!(
            entries.iter().filter(|entry| entry["operation_id"] == "stays").count()
                == usize::from(limit == "a")
        );
    }
    assert_eq!(shape::sum(&ledger.entries("a")), (0, 1));

    // And it is final.
    let refused = ledger.commit_all("op").refused(404, "OperationNotFound");
    assert_eq!(shape::state(&refused.body["state"]), RolledBack, "{}", refused.text);
    ledger.hold("op", &[("a", 5)]).refused(409, "OperationAlreadyInFinalState");
}

#[test]
fn a_finished_hold_does_not_expire() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    hold_for(&ledger, "done", &[("a", 5)], "3s");
    ledger.commit("done", &[("a", 4)]).ok();
    hold_for(&ledger, "undone", &[("a", 5)], "3s");
    let undone = ledger.rollback_all("undone").ok();
    hold_for(&ledger, "long", &[("a", 50)], "24h");
    // The last to expire: when it has, the others' time is over too.
    hold_for(&ledger, "clock", &[("a", 500)], "3s");

    await_end(&ledger, "clock");
    assert_eq!(ledger.states("done"), [("a".into(), Committed)]);
    ledger.rollback_all("undone").ok().same_view_as(&undone);
    ledger.values(&["a"]).ok().value("a", 4, 50);
    assert_eq!(shape::sum(&ledger.entries("a")), (4, 50));
}

#[test]
fn a_partly_finished_operation_expires_in_the_rest() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    hold_for(&ledger, "op", &[("a", 5), ("b", 7)], "3s");
    ledger.commit_of("op", &["a"]).ok();
    await_end(&ledger, "op");
    assert_eq!(ledger.states("op"), [("a".into(), Committed), ("b".into(), RolledBack)]);
    ledger.values(&["a", "b"]).ok().value("a", 5, 0).value("b", 0, 0);
}

#[test]
fn an_expiry_makes_room_under_a_ceiling() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_with_ceiling("tight", 10);
    hold_for(&ledger, "op", &[("tight", 10)], "300ms");
    let held = eventually(|| Some(ledger.hold("next", &[("tight", 10)])).filter(|reply| reply.status == 200));
    held.expect("room after the expiry").value("tight", 0, 10);
    assert_eq!(ledger.states("op"), [("tight".into(), RolledBack)]);
}

#[test]
fn a_hold_expires_across_a_crash() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    hold_for(&ledger, "short", &[("a", 5)], "1s");
    hold_for(&ledger, "long", &[("a", 50)], "1h");
    ledger.hold("for ever", &[("a", 500)]).ok();
    server.crash_and_restart();
    await_end(&server.ledger(), "short");
    server.restart();
    let ledger = server.ledger();
    ledger.values(&["a"]).ok().value("a", 0, 550);
    assert_eq!(ledger.states("short"), [("a".into(), RolledBack)]);
}

#[test]
fn many_holds_expire_at_once() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let holds = (0..2000)
        .map(|n| with(hold(&format!("op-{n}"), &[("a", 1)]), json!({"expires_after": 400})))
        .collect();
    ledger.post("/hold/batch", crate::ledger::batch(holds)).ok();
    let empty = eventually(|| {
        let now = ledger.values(&["a"]).ok();
        (now.body["values"][0]["hold_value"] == 0).then_some(now)
    });
    empty.expect("all expired").value("a", 0, 0);
    assert_eq!(ledger.all("/operations?state=held", 100).len(), 0);
}
