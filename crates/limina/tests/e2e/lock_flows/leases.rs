//! The `ttl` of locks, with the real clock and in races.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::Server;
use crate::ledger::encode;
use crate::locks::{Grant, PATIENT, PROMPT, SLACK, Waiter, exclusive, lasting, shared, waiting};
use crate::raw;
use crate::reply::Reply;

#[test]
fn an_expired_lock_goes_to_the_next_waiter() {
    let server = Server::fresh();
    let locks = server.locks();
    let asked = Instant::now();
    let dead = locks.grant(lasting(exclusive(json!({"a": 1})), "1s"));
    assert!(dead.expires_in_ms <= 1000, "{dead:?}");
    let answer = locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT)).answer();
    let next = answer.reply.granted();
    let after = answer.answered - asked;
    assert!(after + SLACK >= Duration::from_secs(1), "granted after {after:?} of 1s");
    assert!(after < Duration::from_secs(1) + PROMPT, "granted only after {after:?}");
    assert!(next.token > dead.token);
    // The former holder is too late: none of its requests affects the new holder.
    locks.heartbeat(&dead).refused(404, "LockNotFound");
    locks.release(&dead).refused(404, "LockNotFound");
    locks.get(&dead.lock_id).refused(404, "LockNotFound");
    locks.taken(shared(json!({"a": 1})));
    locks.let_go(&next);
}

/// Heartbeats extend a lock far beyond its `ttl`, while other clients wait for it.
#[test]
fn heartbeats_extend_a_lock() {
    let server = Server::fresh();
    let locks = server.locks();
    let ttl = Duration::from_secs(2);
    let mut last = Instant::now();
    let grant = locks.grant(lasting(exclusive(json!({"a": 1})), "2s"));
    let waiter = locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT));
    let start = Instant::now();
    while start.elapsed() < ttl * 2 {
        let asked = Instant::now();
        let reply: Reply = locks.heartbeat(&grant);
        if reply.status != 200 {
            // The lock may have expired only if this machine stood still for a whole `ttl`.
            assert!(
                last.elapsed() + SLACK >= ttl,
                "lost {:?} after a heartbeat: {}",
                last.elapsed(),
                reply.text
            );
            break;
        }
        last = asked;
        // The interval of the holder's heartbeats. The test does not wait for anything here.
        std::thread::sleep(Duration::from_millis(50));
    }
    let answer = waiter.answer();
    let next = answer.reply.granted();
    let after = answer.answered - last;
    assert!(after + SLACK >= ttl, "granted {after:?} after the last heartbeat");
    assert!(after < ttl + PROMPT, "granted only {after:?} after the last heartbeat");
    locks.heartbeat(&grant).refused(404, "LockNotFound");
    locks.let_go(&next);
}

/// Heartbeats race with the expiry of the lock: either the holder or the next client has it, never both.
#[test]
fn a_late_heartbeat_never_takes_a_lock_back() {
    let server = Server::fresh();
    let locks = server.locks();
    let mut holder = locks.grant(lasting(exclusive(json!({"a": 1})), "200ms"));
    for round in 0..6_u64 {
        let request = lasting(waiting(exclusive(json!({"a": 1})), PATIENT), "200ms");
        let waiter = locks.wait(request);
        // In each round the heartbeat is sent closer to the expiry, until it is too late.
        for step in 0.. {
            std::thread::sleep(Duration::from_millis(100 + 10 * round + 10 * step));
            let answered_before = waiter.is_answered();
            let reply = locks.heartbeat(&holder);
            if reply.status != 200 {
                reply.refused(404, "LockNotFound");
                break;
            }
            assert!(!answered_before, "the next one had it already, round {round}");
        }
        let next = waiter.granted();
        locks.heartbeat(&holder).refused(404, "LockNotFound");
        assert!(next.token > holder.token);
        holder = next;
    }
}

/// The server is paused until after the locks expire. When it continues, heartbeats and waiting requests have arrived:
/// each lock stays with its holder, whose heartbeat succeeds, or goes to the next client.
#[test]
fn expiries_during_a_pause_leave_one_holder() {
    const LOCKS: usize = 30;
    let mut server = Server::fresh();
    let locks = server.locks();
    let ttl = Duration::from_secs(2);
    let holders: Vec<Grant> =
        (0..LOCKS).map(|n| locks.grant(lasting(exclusive(json!({"n": n})), "2s"))).collect();
    let waiters: Vec<Waiter> =
        (0..LOCKS).map(|n| locks.wait(waiting(exclusive(json!({"n": n})), PATIENT))).collect();
    let mut beats: Vec<raw::Connection> =
        (0..LOCKS).map(|_| raw::Connection::open(server.address())).collect();
    server.process().signal(Signal::STOP);
    std::thread::sleep(ttl);
    for (connection, holder) in beats.iter_mut().zip(&holders) {
        let path = format!("/v1/locks/{}/heartbeat", encode(&holder.lock_id));
        let body = json!({"session_id": holder.session_id}).to_string();
        connection.send(raw::request("POST", &path, "", body.as_bytes()));
    }
    let awake = Instant::now();
    server.process().signal(Signal::CONT);
    for ((mut connection, waiter), holder) in beats.into_iter().zip(waiters).zip(&holders) {
        let beat = connection.receive();
        let kept = beat.status == 200;
        if !kept {
            beat.refused(404, "LockNotFound");
        }
        let answer = waiter.answer();
        let next = answer.reply.granted();
        let after = answer.answered - awake;
        assert!(!kept || after + SLACK >= ttl, "{next:?} beside {holder:?}, {after:?} after its heartbeat");
        assert!(next.token > holder.token);
        locks.heartbeat(holder).refused(404, "LockNotFound");
    }
}
