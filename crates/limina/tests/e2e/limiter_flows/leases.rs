//! Leases: what a check took, held until it is released or its holder is dead.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Server, eventually};
use crate::limiter::{LONG, Limiter, fixed};

/// The clocks of both sides tell whole milliseconds.
const SLACK: Duration = Duration::from_millis(10);

/// Asks until the slot is free, and says when that was.
#[track_caller]
fn await_free(limiter: &Limiter, key_values: Value) -> Instant {
    let passed = eventually(|| (limiter.check(key_values.clone()).status == 200).then(Instant::now));
    passed.expect("the slot comes back")
}

#[test]
fn a_lease_holds_until_it_is_released() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &["pool"], 3);
    let key_values = || json!({"pool": "a"});
    let two = limiter.lease(key_values(), 2, "1h").created().uses("slots", 2);
    assert!((3_000_000..=3_600_000).contains(&two.number("expires_in_ms")), "{}", two.text);
    let one = limiter.lease(key_values(), 1, "1h").created().uses("slots", 3);
    limiter.lease(key_values(), 1, "1h").denied(&["slots"]);
    limiter.check(key_values()).denied(&["slots"]);
    limiter.release(&two.lease_id()).is(204);
    limiter.look(key_values()).uses("slots", 1);
    limiter.release(&two.lease_id()).refused(404, "LeaseNotFound");
    limiter.look(key_values()).uses("slots", 1);
    limiter.lease(key_values(), 2, "1h").created();
    limiter.release(&one.lease_id()).is(204);
    limiter.look(key_values()).uses("slots", 2);
}

#[test]
fn a_dead_holders_slots_come_back() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &["pool"], 2);
    let asked = Instant::now();
    let lease = limiter.lease(json!({"pool": 1}), 2, "400ms").created();
    assert!(lease.number("expires_in_ms") <= 400, "{}", lease.text);
    let back = await_free(&limiter, json!({"pool": 1}));
    assert!(back - asked + SLACK >= Duration::from_millis(400), "after {:?}", back - asked);
    // All of it came back at once, and the lease is gone.
    limiter.check(json!({"pool": 1})).allowed().uses("slots", 2);
    let id = lease.lease_id();
    limiter.held(&id).refused(404, "LeaseNotFound");
    limiter.heartbeat(&id).refused(404, "LeaseNotFound");
    // What is somebody else's by now is not given back by the late release.
    limiter.release(&id).refused(404, "LeaseNotFound");
    limiter.look(json!({"pool": 1})).uses("slots", 2);
    assert_eq!(limiter.all("/leases", None, 10).len(), 0);
}

#[test]
fn a_heartbeat_extends_by_the_ttl() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &[], 1);
    let lease = limiter.lease(json!({}), 1, "10m").created().lease_id();
    for _ in 0..2 {
        let left =
            eventually(|| Some(limiter.held(&lease).ok().number("expires_in_ms")).filter(|&ms| ms < 599_950));
        let left = left.expect("time passes");
        limiter.heartbeat(&lease).ok();
        let now = limiter.held(&lease).ok().number("expires_in_ms");
        assert!(now <= 600_000, "{now} of 600000 left");
        // A heartbeat that did nothing could only have less left than before.
        assert!(now > left, "{left} ms before, {now} after");
    }
    limiter.heartbeat("unknown").refused(404, "LeaseNotFound");
}

/// Heartbeats keep a lease far beyond its ttl.
#[test]
fn a_lease_lives_while_its_holder_does() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &[], 1);
    let ttl = Duration::from_secs(2);
    let mut last = Instant::now();
    let lease = limiter.lease(json!({}), 1, "2s").created().lease_id();
    let start = Instant::now();
    let mut beaten = 0;
    while start.elapsed() < ttl + ttl / 2 {
        let asked = Instant::now();
        if limiter.heartbeat(&lease).status != 200 {
            // Only a machine that stood still for a whole ttl excuses it.
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
fn leases_say_who_holds_what() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &["pool"], 100);
    let body = json!({"key_values": {"pool": "a", "job": 7}, "hits": 3, "ttl": "10m", "owner": "worker 🌮"});
    let lease = limiter.post("/leases", body).created();
    limiter.lease(json!({"pool": "b"}), 1, "1h").created();
    let id = lease.lease_id();
    let listed = limiter.all("/leases", None, 1);
    assert_eq!(listed.len(), 2);
    let in_list = listed.iter().find(|item| item["lease_id"] == id.as_str()).expect("listed").clone();
    for item in [&in_list, &limiter.held(&id).ok().body] {
        assert_eq!(item["owner"], "worker 🌮", "{item}");
        assert_eq!(item["key_values"], json!({"job": 7, "pool": "a"}), "{item}");
        assert_eq!(item["hits"], 3, "{item}");
        assert_eq!(item["fencing_token"], lease.body["fencing_token"], "{item}");
        let left = item["expires_in_ms"].as_u64().unwrap_or_else(|| panic!("until when? {item}"));
        let held = item["held_ms"].as_u64().unwrap_or_else(|| panic!("since when? {item}"));
        assert!(left <= 600_000 && held < 600_000 && left + held >= 599_990, "{item}");
    }
    limiter.held("unknown").refused(404, "LeaseNotFound");
    limiter.release(&id).is(204);
    limiter.held(&id).refused(404, "LeaseNotFound");
    assert_eq!(limiter.all("/leases", None, 10).len(), 1);
}

#[test]
fn fencing_tokens_grow() {
    let mut server = Server::fresh();
    server.limiter().rule("slots", &["pool"], 1);
    let mut last = 0;
    for round in 0..3 {
        let limiter = server.limiter();
        for pool in 0..5 {
            let key_values = json!({"pool": format!("{round} {pool}")});
            let lease = limiter.lease(key_values, 1, "1h").created();
            let token = lease.number("fencing_token");
            assert!(token > last, "{token} after {last}");
            last = token;
            // Released or not makes no difference.
            if pool % 2 == 0 {
                limiter.release(&lease.lease_id()).is(204);
            }
        }
        match round {
            0 => server.crash_and_restart(),
            _ => server.restart(),
        }
    }
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
    limiter.heartbeat(&long.lease_id()).ok();
    limiter.look(json!({"pool": 2})).uses("slots", 1);
    let held = limiter.held(&long.lease_id()).ok();
    assert_eq!(held.body["fencing_token"], long.body["fencing_token"], "{}", held.text);
    assert_eq!(held.body["hits"], 1, "{}", held.text);

    let back = await_free(&limiter, json!({"pool": 1}));
    assert!(back - down + SLACK >= ttl, "{:?} after the start", back - down);
    limiter.held(&short.lease_id()).refused(404, "LeaseNotFound");
    limiter.release(&long.lease_id()).is(204);
    server.crash_and_restart();
    server.limiter().look(json!({"pool": 2})).uses("slots", 0);
    server.limiter().look(json!({"pool": 1})).uses("slots", 1);
}

#[test]
fn an_expiry_survives_a_crash() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &[], 1);
    let lease = limiter.lease(json!({}), 1, "200ms").created().lease_id();
    await_free(&limiter, json!({}));
    server.crash_and_restart();
    let limiter = server.limiter();
    limiter.check(json!({})).denied(&["slots"]).uses("slots", 1);
    limiter.held(&lease).refused(404, "LeaseNotFound");
}

/// A lease's take is in use like any other: for rules made later, for overrides, for a changed limit.
#[test]
fn a_lease_counts_like_any_other_use() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("all", &[], -1);
    let lease = limiter.lease(json!({"user": "ann", "path": "/x"}), 4, "1h").created().lease_id();
    limiter.rule("user", &["user"], 4);
    limiter.override_of("user", "x", json!({"user": "ann", "path": "/x"}), 6);
    limiter.check(json!({"user": "ann"})).denied(&["user"]).uses("user", 4);
    limiter.lease(json!({"user": "ann", "path": "/x"}), 2, "1h").created().uses("user/x", 6);
    limiter.lease(json!({"user": "ann", "path": "/x"}), 1, "1h").denied(&["user/x"]);
    limiter.release(&lease).is(204);
    limiter.look(json!({"user": "ann", "path": "/x"})).uses("all", 2).uses("user/x", 2);
    // The rules may go; the lease still gives back what it holds.
    let lease = limiter.lease(json!({"user": "bob"}), 3, "1h").created().lease_id();
    limiter.delete("/rules/user").is(204);
    limiter.release(&lease).is(204);
    limiter.look(json!({"user": "bob"})).uses("all", 2);
}

#[test]
fn a_lease_takes_from_windows_for_good() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &[], 5);
    limiter.window("window", &[], 2, fixed(LONG));
    for _ in 0..2 {
        let lease = limiter.lease(json!({}), 1, "1h").created().lease_id();
        limiter.release(&lease).is(204);
    }
    limiter.lease(json!({}), 1, "1h").denied(&["window"]).uses("slots", 0).uses("window", 2);
    server.limiter_of("unruled").lease(json!({"a": 1}), 1, "1h").created();
}

#[test]
fn many_leases_expire_together() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &[], 100);
    for n in 0..100 {
        limiter.lease(json!({"n": n % 10}), 1, "3s").created();
    }
    let kept = limiter.lease(json!({}), 1, "1h");
    // Room for it there was only if some had expired already.
    let left = i64::from(kept.status == 201);
    let expired = eventually(|| (limiter.used("slots", json!({})) == left).then_some(()));
    expired.expect("all expired");
    assert_eq!(limiter.all("/leases", None, 10).len() as i64, left);
}
