//! Waiting for slots and locks, and clients that go away.

use super::{actual, call, gateway, used};
use crate::harness::{Server, eventually};
use crate::ledger::with;
use crate::raw;
use serde_json::json;

#[test]
fn a_waiting_decision_is_made_when_its_slot_and_lock_are_free() {
    let server = Server::fresh();
    let decisions = gateway(&server, 1_000, 1, 1_000);
    let locked = |id: &str| {
        with(call(id, 100, 10), json!({"wait": "5m", "locks": [{"key_values": {"session": "s"}}]}))
    };
    decisions.decide(&locked("first")).ok();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| decisions.decide(&locked("second")));
        // A waiting request holds nothing, and cannot be committed.
        let waits = eventually(|| {
            let reply = decisions.commit("second", &json!({}));
            (reply.body["state"] == "waiting").then_some(())
        });
        assert!(waits.is_some(), "the second does not wait");
        assert_eq!(used(&server), (100, 1, 0, 10));
        decisions.commit("first", &actual(90, 9)).ok();
        second.join().expect("a client").ok().has("state", "open");
    });
    assert_eq!(used(&server), (190, 1, 9, 10));
    // A part that cannot be waited for refuses at once. At the end of its wait, a request is refused too.
    decisions.decide(&with(locked("third"), json!({"wait": "50ms"}))).refused(429, "Refused");
    decisions.decide(&with(call("fourth", 901, 1), json!({"wait": "5m"}))).refused(429, "Refused");
    decisions.commit("second", &json!({})).ok();
}

/// A client that hangs up while it waits gets nothing. A decision that was made remains, even if its client hangs up.
#[test]
fn a_hang_up_ends_a_wait_but_no_decision() {
    let server = Server::fresh();
    let decisions = gateway(&server, 1_000, 1, 1_000);
    decisions.decide(&call("first", 100, 10)).ok();
    let waiting = |id: &str| with(call(id, 100, 10), json!({"wait": "5m"})).to_string();
    let mut connection = raw::Connection::open(server.address());
    connection.send(raw::request("POST", "/v1/decisions", "", waiting("second").as_bytes()));
    let state = |id: &str| decisions.heartbeat(id).body["state"].clone();
    assert!(
        eventually(|| (state("second") == "waiting").then_some(())).is_some(),
        "the second does not wait"
    );
    drop(connection);
    assert!(eventually(|| (state("second").is_null()).then_some(())).is_some(), "the second still waits");
    decisions.commit("first", &actual(100, 10)).ok();
    assert_eq!(used(&server), (100, 0, 10, 0));

    // This client hangs up without reading its answer.
    for n in 0..20 {
        let id = format!("gone-{n}");
        let mut connection = raw::Connection::open(server.address());
        connection.send(raw::request("POST", "/v1/decisions", "", waiting(&id).as_bytes()));
        let made = eventually(|| (decisions.get(&id).status == 200).then_some(()));
        assert!(made.is_some(), "{id} was never made");
        drop(connection);
        decisions.heartbeat(&id).ok().has("state", "open");
        decisions.rollback(&id).ok().has("state", "rolled_back");
    }
}
