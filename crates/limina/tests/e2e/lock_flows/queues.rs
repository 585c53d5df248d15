//! First come, first served.

use serde_json::json;

use crate::harness::Server;
use crate::locks::{Grant, Locks, PATIENT, Waiter, exclusive, shared, waiting};

/// Waiters that have joined the queue of `held` one after the other.
#[track_caller]
fn queue(locks: &Locks, held: &Grant, modes: &[&str]) -> Vec<Waiter> {
    modes
        .iter()
        .enumerate()
        .map(|(n, mode)| {
            let request = match *mode {
                "shared" => shared(json!({"a": 1})),
                _ => exclusive(json!({"a": 1})),
            };
            let waiter = locks.wait(waiting(request, PATIENT));
            locks.await_queue(held, n as u64 + 1);
            waiter
        })
        .collect()
}

#[test]
fn waiters_are_granted_in_the_order_in_which_they_came() {
    let server = Server::fresh();
    let locks = server.locks();
    let mut held = locks.grant(exclusive(json!({"a": 1})));
    let waiters = queue(&locks, &held, &["exclusive"; 40]);
    let count = waiters.len();
    for (n, waiter) in waiters.into_iter().enumerate() {
        assert!(!waiter.is_answered(), "{n} was not next");
        locks.let_go(&held);
        let next = waiter.granted();
        assert!(next.token > held.token, "{} after {}", next.token, held.token);
        locks.await_queue(&next, (count - n - 1) as u64);
        assert_eq!(locks.ids().len(), 1);
        held = next;
    }
    locks.let_go(&held);
    locks.free(exclusive(json!({"a": 1})));
}

/// Readers, a writer, readers, a writer: each group as a whole, in turn.
#[test]
fn shared_ones_never_overtake_a_waiting_exclusive_one() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let modes = ["shared", "shared", "exclusive", "shared", "shared", "shared", "exclusive", "shared"];
    let mut waiters = queue(&locks, &held, &modes).into_iter();
    locks.let_go(&held);
    let mut last = held.token;
    for group in [2, 1, 3, 1, 1] {
        let grants: Vec<Grant> = waiters.by_ref().take(group).map(Waiter::granted).collect();
        for grant in &grants {
            assert!(grant.token > last, "{} in the group after {last}", grant.token);
        }
        last = grants.iter().map(|grant| grant.token).max().expect("a grant");
        assert_eq!(locks.ids().len(), group, "exactly this group holds it");
        assert!(waiters.as_slice().iter().all(|waiter| !waiter.is_answered()), "somebody overtook");
        for grant in &grants {
            locks.let_go(grant);
        }
    }
    assert!(waiters.next().is_none());
    locks.free(exclusive(json!({"a": 1})));
}

/// A stream of readers does not starve a writer: it holds up those who come after it.
#[test]
fn a_waiting_exclusive_one_closes_the_door_to_shared_ones() {
    let server = Server::fresh();
    let locks = server.locks();
    let first = locks.grant(shared(json!({"a": 1})));
    let second = locks.grant(shared(json!({"a": 1})));
    let writer = locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT));
    locks.await_queue(&first, 1);
    // The holders share it, and would share it with these; only the earlier waiter is in the way.
    locks.taken(shared(json!({"a": 1})));
    locks.taken(exclusive(json!({"a": 1})));
    locks.ask(&waiting(shared(json!({"a": 1})), "300ms")).refused(409, "LockWaitTimeout");
    let late = locks.wait(waiting(shared(json!({"a": 1})), PATIENT));
    locks.let_go(&first);
    locks.taken(shared(json!({"a": 1})));
    assert!(!writer.is_answered());
    locks.let_go(&second);
    let writer = writer.granted();
    assert!(!late.is_answered());
    locks.taken(shared(json!({"a": 1})));
    locks.let_go(&writer);
    let late = late.granted();
    assert!(late.token > writer.token);
    locks.let_go(&late);
}

/// When the writer gives up, the readers behind it join those who hold.
#[test]
fn the_door_opens_again_when_the_exclusive_one_gives_up() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(shared(json!({"a": 1})));
    let writer = locks.wait(waiting(exclusive(json!({"a": 1})), "5s"));
    locks.await_queue(&held, 1);
    let readers: Vec<Waiter> =
        (0..5).map(|_| locks.wait(waiting(shared(json!({"a": 1})), PATIENT))).collect();
    writer.answer().reply.refused(409, "LockWaitTimeout");
    for reader in readers {
        reader.granted();
    }
    assert_eq!(locks.ids().len(), 6, "all of them share it");
}

#[test]
fn one_that_gives_up_does_not_disturb_the_others() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let wait = |wait: &str, n: u64| {
        let waiter = locks.wait(waiting(exclusive(json!({"a": 1})), wait));
        locks.await_queue(&held, n);
        waiter
    };
    let (first, short, last) = (wait(PATIENT, 1), wait("6s", 2), wait(PATIENT, 3));
    short.answer().reply.refused(409, "LockWaitTimeout");
    locks.await_queue(&held, 2);
    locks.let_go(&held);
    let first = first.granted();
    assert!(!last.is_answered());
    locks.let_go(&first);
    let last = last.granted();
    assert!(last.token > first.token);
    locks.let_go(&last);
}

/// The queue of one lock is nothing to another.
#[test]
fn queues_are_apart() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let waiters = queue(&locks, &held, &["exclusive", "shared"]);
    let other = locks.grant(exclusive(json!({"b": 1})));
    locks.await_queue(&other, 0);
    locks.let_go(&other);
    for key_values in [json!({"a": 2}), json!({"a": "1"}), json!({"a": 1, "b": 1})] {
        locks.free(exclusive(key_values));
    }
    locks.let_go(&held);
    for waiter in waiters {
        locks.let_go(&waiter.granted());
    }
}
