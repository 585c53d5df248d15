//! Waiting for locks, with the real clock.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::concurrency::race;
use crate::harness::Server;
use crate::load::Random;
use crate::locks::{PATIENT, PROMPT, SLACK, exclusive, shared, waiting};

#[test]
fn a_wait_ends_on_time() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let waits = [("1ms", 1), ("100ms", 100), ("700ms", 700), ("1500ms", 1500), ("1s1ms", 1001)];
    let waiters: Vec<_> = waits
        .iter()
        .flat_map(|(text, ms)| {
            [exclusive, shared].map(|mode| (*ms, locks.wait(waiting(mode(json!({"a": 1})), text))))
        })
        .collect();
    for (ms, waiter) in waiters {
        let answer = waiter.answer();
        let wait = Duration::from_millis(ms);
        assert!(answer.took() + SLACK >= wait, "{wait:?} ended after {:?}", answer.took());
        assert!(answer.took() < wait + PROMPT, "{wait:?} ended only after {:?}", answer.took());
        answer.reply.refused(409, "LockWaitTimeout");
    }
    locks.await_queue(&held, 0);
    locks.let_go(&held);
    assert_eq!(locks.ids().len(), 0, "none of them holds anything");
}

/// A waiting request is answered as soon as it is granted, not at the end of its wait.
#[test]
fn a_release_ends_the_wait() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let waiter = locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT));
    locks.await_queue(&held, 1);
    let released = Instant::now();
    locks.let_go(&held);
    let answer = waiter.answer();
    assert!(answer.answered - released < PROMPT, "{:?} after the release", answer.answered - released);
    answer.reply.granted();
}

/// A release races with the end of the wait: the client is granted the lock or is refused, and its answer says which.
#[test]
fn a_release_at_the_end_of_a_wait_has_one_outcome() {
    let server = Server::fresh();
    let locks = server.locks();
    race(8, |client| {
        let mut random = Random::new(client as u64 + 1);
        let key_values = json!({"client": client});
        for _ in 0..10 {
            let held = locks.grant(exclusive(key_values.clone()));
            let waiter = locks.wait(waiting(exclusive(key_values.clone()), "150ms"));
            std::thread::sleep(Duration::from_millis(135 + random.below(30)));
            locks.let_go(&held);
            let reply = waiter.answer().reply;
            match reply.status {
                200 => locks.let_go(&reply.granted()),
                _ => drop(reply.refused(409, "LockWaitTimeout")),
            }
            locks.free(exclusive(key_values.clone()));
        }
    });
    assert_eq!(locks.ids().len(), 0);
}

/// The waits of many requests end at the same time.
#[test]
fn many_waits_time_out_together() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    race(60, |n| {
        let ms = 400 + 20 * n as u64;
        let asked = Instant::now();
        locks.ask(&waiting(exclusive(json!({"a": 1})), &format!("{ms}ms"))).refused(409, "LockWaitTimeout");
        let took = asked.elapsed();
        let wait = Duration::from_millis(ms);
        assert!(took + SLACK >= wait && took < wait + PROMPT, "{wait:?} took {took:?}");
    });
    locks.await_queue(&held, 0);
    locks.let_go(&held);
    locks.free(exclusive(json!({"a": 1})));
}
