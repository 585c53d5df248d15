//! Leases with the real clock, and across crashes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Server, eventually};
use crate::limiter::Limiter;
use crate::raw;

/// The error of times that both sides measure in whole milliseconds.
const SLACK: Duration = Duration::from_millis(10);

/// Repeats the request until the slot is free, and returns when that was.
#[track_caller]
fn await_free(limiter: &Limiter, key_values: Value) -> Instant {
    let passed = eventually(|| (limiter.check(key_values.clone()).status == 200).then(Instant::now));
    passed.expect("the slot comes back")
}

#[test]
fn slots_of_an_expired_lease_are_free() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &["pool"], 2);
    let asked = Instant::now();
    let lease = limiter.lease(json!({"pool": 1}), 2, "400ms").created();
    assert!(lease.number("expires_in_ms") <= 400, "{}", lease.text);
    let back = await_free(&limiter, json!({"pool": 1}));
    assert!(back - asked + SLACK >= Duration::from_millis(400), "after {:?}", back - asked);
    // All slots came back at once, and the lease is gone.
    limiter.check(json!({"pool": 1})).allowed().uses("slots", 2);
    let id = lease.lease();
    limiter.held(&id).refused(404, "LeaseNotFound");
    limiter.heartbeat(&id).refused(404, "LeaseNotFound");
    // The late release must not free a slot that another lease has by now.
    limiter.release(&id).refused(404, "LeaseNotFound");
    limiter.look(json!({"pool": 1})).uses("slots", 2);
    assert_eq!(limiter.all("/leases", None, 10).len(), 0);
}

/// A waiting lease gets the slot when the slot is released, unless its client has gone.
#[test]
fn a_lease_waits_for_its_slot() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &["pool"], 1);
    let first = limiter.lease(json!({"pool": 1}), 1, "1h").created().lease();
    let wanted = json!({"key_values": {"pool": 1}, "ttl": "1h", "wait": "5m"});
    let ask = || {
        let mut connection = raw::Connection::open(server.address());
        connection.send(raw::request("POST", "/v1/limiter/leases", "", wanted.to_string().as_bytes()));
        connection
    };
    let await_waiting = |count: u64| {
        let looked = || {
            let limits = limiter.look(json!({"pool": 1})).body["limits"].clone();
            (limits[0]["waiting"] == count).then_some(())
        };
        eventually(looked).unwrap_or_else(|| panic!("{count} do not wait"));
    };
    let gone = ask();
    await_waiting(1);
    let mut patient = ask();
    await_waiting(2);
    // A request without a wait is refused, and a client that hangs up leaves the queue.
    limiter.lease(json!({"pool": 1}), 1, "1h").denied(&["slots"]);
    drop(gone);
    await_waiting(1);
    limiter.release(&first).is(204);
    assert_eq!(patient.receive().status, 201);
    await_waiting(0);
    assert_eq!(limiter.all("/leases", None, 10).len(), 1);
}

/// Heartbeats extend a lease far beyond its `ttl`.
#[test]
fn heartbeats_extend_a_lease() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &[], 1);
    let ttl = Duration::from_secs(2);
    let mut last = Instant::now();
    let lease = limiter.lease(json!({}), 1, "2s").created().lease();
    let start = Instant::now();
    let mut beaten = 0;
    while start.elapsed() < ttl + ttl / 2 {
        let asked = Instant::now();
        if limiter.heartbeat(&lease).status != 200 {
            // The lease may have expired only if this machine stood still for a whole `ttl`.
            assert!(last.elapsed() + SLACK >= ttl, "lost {:?} after a heartbeat", last.elapsed());
            return;
        }
        last = asked;
        beaten += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = limiter.check(json!({}));
    assert!(
        refused.status == 429 || last.elapsed() + SLACK >= ttl,
        "after {beaten} heartbeats: {}",
        refused.text
    );
    let back = await_free(&limiter, json!({}));
    assert!(back - last + SLACK >= ttl, "{:?} after the last heartbeat", back - last);
}

#[test]
fn a_lease_survives_a_crash_and_then_has_a_full_ttl() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &["pool"], 2);
    let ttl = Duration::from_millis(1500);
    let short = limiter.lease(json!({"pool": 1}), 2, "1500ms").created();
    let long = limiter.lease(json!({"pool": 2}), 1, "1h").created();
    server.kill();
    let down = Instant::now();
    server.start_again();
    let limiter = server.limiter();
    limiter.heartbeat(&long.lease()).ok();
    limiter.look(json!({"pool": 2})).uses("slots", 1);
    let held = limiter.held(&long.lease()).ok();
    assert_eq!(held.body["fencing_token"], long.body["fencing_token"], "{}", held.text);
    assert_eq!(held.body["hits"], 1, "{}", held.text);

    let back = await_free(&limiter, json!({"pool": 1}));
    assert!(back - down + SLACK >= ttl, "{:?} after the start", back - down);
    limiter.held(&short.lease()).refused(404, "LeaseNotFound");
    limiter.release(&long.lease()).is(204);
    server.crash_and_restart();
    server.limiter().look(json!({"pool": 2})).uses("slots", 0);
    server.limiter().look(json!({"pool": 1})).uses("slots", 1);
}

#[test]
fn an_expiry_survives_a_crash() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &[], 1);
    let lease = limiter.lease(json!({}), 1, "200ms").created().lease();
    await_free(&limiter, json!({}));
    server.crash_and_restart();
    let limiter = server.limiter();
    limiter.check(json!({})).denied(&["slots"]).uses("slots", 1);
    limiter.held(&lease).refused(404, "LeaseNotFound");
}
