//! Fencing tokens: every grant has a higher one than all before it in its namespace.

use std::sync::Mutex;

use serde_json::json;

use crate::concurrency::race;
use crate::harness::Server;
use crate::locks::{PATIENT, exclusive, lasting, shared, waiting};

#[test]
fn tokens_grow_over_grants_restarts_and_crashes() {
    let mut server = Server::fresh();
    let mut last = 0;
    for round in 0..6 {
        let locks = server.locks();
        for n in 0..6 {
            // Another lock or the same one, shared or not, released or kept: all the same.
            let key_values = json!({"lock": if n < 3 { format!("{round} {n}") } else { "same".into() }});
            let request = if n % 2 == 0 { exclusive(key_values) } else { shared(key_values) };
            let grant = locks.grant(request);
            assert!(grant.token > last, "{} after {last}, round {round}", grant.token);
            last = grant.token;
            locks.heartbeat(&grant).ok();
            if n >= 2 {
                locks.let_go(&grant);
            }
        }
        match round % 2 {
            0 => server.crash_and_restart(),
            _ => server.restart(),
        }
    }
}

/// Right after a crash, with nothing written in between.
#[test]
fn no_crash_ever_repeats_a_token() {
    let mut server = Server::fresh();
    let mut last = 0;
    for _ in 0..6 {
        let grant = server.locks().grant(exclusive(json!({"a": 1})));
        assert!(grant.token > last, "{} after {last}", grant.token);
        last = grant.token;
        server.locks().let_go(&grant);
        server.crash_and_restart();
    }
}

/// Ended, forced, refused, timed out: nothing that happens between two grants makes a token smaller.
#[test]
fn tokens_grow_whatever_happens_between() {
    let mut server = Server::fresh();
    let locks = server.locks();
    let a = || json!({"a": 1});
    let first = locks.grant(lasting(exclusive(a()), "300ms"));
    let second = locks.grant(waiting(exclusive(a()), PATIENT));
    assert!(second.token > first.token, "after the lease's end");
    locks.taken(exclusive(a()));
    locks.ask(&waiting(exclusive(a()), "10ms")).refused(409, "LockWaitTimeout");
    locks.force(&second.lock_id).is(204);
    let third = locks.grant(exclusive(a()));
    assert!(third.token > second.token, "after force");
    server.crash_and_restart();
    let locks = server.locks();
    let waiter = locks.wait(waiting(exclusive(a()), PATIENT));
    locks.await_queue(&third, 1);
    locks.let_go(&third);
    let fourth = waiter.granted();
    assert!(fourth.token > third.token, "after a crash while held");
}

/// Grants and releases of many clients: as told, no token comes twice, and one client's own always grow.
#[test]
fn no_two_grants_have_the_same_token() {
    let server = Server::fresh();
    let locks = server.locks();
    let seen = Mutex::new(Vec::new());
    race(16, |client| {
        let mut last = 0;
        for n in 0..15 {
            let grant = locks.grant(waiting(shared(json!({"n": (client + n) % 3})), PATIENT));
            assert!(grant.token > last, "{} after {last}", grant.token);
            last = grant.token;
            seen.lock().unwrap().push(grant.token);
            locks.let_go(&grant);
        }
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    let count = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), count, "a token came twice");
}

/// What the token is for: a resource that has seen a newer one refuses a holder that slept too long.
#[test]
fn a_resource_can_tell_an_old_holder_from_the_new_one() {
    let server = Server::fresh();
    let locks = server.locks();
    let mut highest = 0;
    let mut write = |token: u64| {
        let accepted = token >= highest;
        highest = highest.max(token);
        accepted
    };
    let sleeper = locks.grant(lasting(exclusive(json!({"a": 1})), "300ms"));
    assert!(write(sleeper.token));
    let next = locks.grant(waiting(exclusive(json!({"a": 1})), PATIENT));
    assert!(write(next.token));
    assert!(!write(sleeper.token), "the old holder must be refused");
    assert!(write(next.token));
}
