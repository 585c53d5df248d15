//! Holds that expire, across a crash.

use serde_json::json;

use crate::harness::{Server, eventually};
use crate::ledger::{Ledger, hold, with};
use crate::shape::State::{Held, RolledBack};

#[track_caller]
fn hold_for(ledger: &Ledger, operation: &str, changes: &[(&str, i64)], time: &str) {
    ledger.post("/hold", with(hold(operation, changes), json!({"expires_after": time}))).ok();
}

#[track_caller]
fn await_end(ledger: &Ledger, operation: &str) {
    let done = eventually(|| ledger.states(operation).iter().all(|(_, state)| *state != Held).then_some(()));
    assert!(done.is_some(), "{operation} never expired: {}", ledger.operation(operation).text);
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
    assert_eq!(ledger.operation("short").ok().body["holds"][0]["expired"], true);
    let entries = ledger.entries("a");
    let types: Vec<_> = entries.iter().map(|entry| entry["type"].as_str().expect("`type`")).collect();
    assert_eq!(types, ["hold", "hold", "hold", "expiry"]);
}
