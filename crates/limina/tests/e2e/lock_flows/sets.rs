//! Several locks at once: all of them at one instant, or none.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::concurrency::race;
use crate::harness::{Server, eventually};
use crate::load::Random;
use crate::locks::{PATIENT, exclusive, lasting, several, shared, waiting};

fn lock(name: impl Into<Value>) -> Value {
    json!({"lock": name.into()})
}

#[test]
fn one_that_is_held_keeps_all_of_them() {
    let server = Server::fresh();
    let locks = server.locks();
    let wanted = [(lock("a"), "exclusive"), (lock("b"), "exclusive"), (lock("c"), "exclusive")];
    for held in ["a", "b", "c"] {
        let holder = locks.grant(exclusive(lock(held)));
        locks.taken(several(&wanted));
        assert_eq!(locks.ids().len(), 1, "nothing is left of the refused request");
        for free in ["a", "b", "c"].into_iter().filter(|name| *name != held) {
            locks.free(exclusive(lock(free)));
        }
        locks.let_go(&holder);
        locks.free(several(&wanted));
    }
}

#[test]
fn sixty_four_at_once() {
    let server = Server::fresh();
    let locks = server.locks();
    let wanted: Vec<(Value, &str)> = (0..64).map(|n| (lock(n), "exclusive")).collect();
    let grant = locks.grant(several(&wanted));
    assert_eq!(grant.locks.len(), 64);
    for n in 0..64 {
        locks.taken(shared(lock(n)));
    }
    locks.let_go(&grant);
    for n in 0..64 {
        locks.free(exclusive(lock(n)));
    }
}

/// Who waits for several stands in every queue: nobody who comes later may take one of them meanwhile.
#[test]
fn a_waiter_stands_in_all_its_queues() {
    let server = Server::fresh();
    let locks = server.locks();
    let a = locks.grant(exclusive(lock("a")));
    let both = [(lock("a"), "exclusive"), (lock("b"), "exclusive")];
    let waiter = locks.wait(waiting(several(&both), PATIENT));
    locks.await_queue(&a, 1);
    // Nobody holds it, but it has been asked for before.
    locks.taken(exclusive(lock("b")));
    locks.taken(shared(lock("b")));
    locks.taken(several(&[(lock("c"), "exclusive"), (lock("b"), "shared")]));
    locks.free(exclusive(lock("c")));
    assert_eq!(locks.ids().len(), 1, "it holds nothing while it waits");
    locks.let_go(&a);
    let granted = waiter.granted();
    locks.taken(exclusive(lock("a")));
    locks.taken(exclusive(lock("b")));
    locks.let_go(&granted);
    locks.free(several(&both));
}

/// Whoever waited behind it comes in as soon as it is gone.
#[test]
fn a_waiter_that_gives_up_leaves_all_its_queues() {
    let server = Server::fresh();
    let locks = server.locks();
    let a = locks.grant(exclusive(lock("a")));
    let both = [(lock("a"), "exclusive"), (lock("b"), "exclusive")];
    let impatient = locks.wait(waiting(several(&both), "5s"));
    locks.await_queue(&a, 1);
    let behind = locks.wait(waiting(exclusive(lock("b")), PATIENT));
    impatient.answer().reply.refused(409, "LockWaitTimeout");
    let behind = behind.granted();
    locks.let_go(&behind);
    locks.free(exclusive(lock("b")));
    locks.let_go(&a);
    locks.free(several(&both));
}

/// Only those that conflict hold each other up.
#[test]
fn what_does_not_conflict_passes_a_waiter() {
    let server = Server::fresh();
    let locks = server.locks();
    let a = locks.grant(exclusive(lock("a")));
    let waiter = locks.wait(waiting(several(&[(lock("a"), "exclusive"), (lock("b"), "shared")]), PATIENT));
    locks.await_queue(&a, 1);
    locks.free(shared(lock("b")));
    locks.taken(exclusive(lock("b")));
    locks.free(exclusive(lock("c")));
    // Held by one that passed, it does not keep the waiter from sharing it.
    let passed = locks.grant(shared(lock("b")));
    locks.let_go(&a);
    let granted = waiter.granted();
    locks.let_go(&passed);
    locks.taken(exclusive(lock("b")));
    locks.let_go(&granted);
}

/// Each waits behind the one before it, though most of what they ask for is held by nobody.
#[test]
fn a_chain_of_waiters_is_served_in_its_order() {
    let server = Server::fresh();
    let locks = server.locks();
    let pair = |n: usize| several(&[(lock(n), "exclusive"), (lock(n + 1), "exclusive")]);
    let first = locks.grant(exclusive(lock(0)));
    let mut chain = Vec::new();
    for n in 0..8 {
        chain.push(locks.wait(waiting(pair(n), PATIENT)));
        // It has joined when its second lock may not be had.
        let joined = eventually(|| {
            let probe = locks.ask(&shared(lock(n + 1)));
            match probe.status {
                200 => {
                    locks.let_go(&probe.granted());
                    None
                }
                _ => Some(probe.refused(409, "LockHeld")),
            }
        });
        assert!(joined.is_some(), "{n} never joined");
    }
    let mut last = first.token;
    locks.let_go(&first);
    for waiter in chain {
        let granted = waiter.granted();
        assert!(granted.token > last, "{} after {last}", granted.token);
        last = granted.token;
        locks.let_go(&granted);
    }
}

#[test]
fn all_come_free_together_when_the_lease_ends() {
    let server = Server::fresh();
    let locks = server.locks();
    let both = several(&[(lock("a"), "exclusive"), (lock("b"), "exclusive")]);
    locks.grant(lasting(both.clone(), "500ms"));
    let again = locks.grant(waiting(both, PATIENT));
    locks.let_go(&again);
}

/// Crosswise and in any order: nobody deadlocks, nobody starves, and every set is whole.
#[test]
fn sets_that_cross_never_deadlock() {
    const LOCKS: usize = 6;
    let server = Server::fresh();
    let locks = server.locks();
    // Per lock: 1000 for a writer, 1 for each reader.
    let inside: Vec<AtomicUsize> = (0..LOCKS).map(|_| AtomicUsize::new(0)).collect();
    race(16, |client| {
        let mut random = Random::new(client as u64 + 1);
        for _ in 0..12 {
            let mut names: Vec<usize> = (0..LOCKS).collect();
            for n in (1..LOCKS).rev() {
                names.swap(n, random.below(n as u64 + 1) as usize);
            }
            names.truncate(1 + random.below(4) as usize);
            let wanted: Vec<(usize, bool)> =
                names.into_iter().map(|name| (name, random.below(3) == 0)).collect();
            let request: Vec<(Value, &str)> = wanted
                .iter()
                .map(|(name, shared)| (lock(*name), if *shared { "shared" } else { "exclusive" }))
                .collect();
            let grant = locks.grant(waiting(several(&request), PATIENT));
            for (name, shared) in &wanted {
                let before = inside[*name].fetch_add(if *shared { 1 } else { 1000 }, Ordering::SeqCst);
                assert!(before == 0 || (*shared && before < 1000), "{name}: {before} inside, {wanted:?}");
            }
            std::thread::yield_now();
            for (name, shared) in &wanted {
                inside[*name].fetch_sub(if *shared { 1 } else { 1000 }, Ordering::SeqCst);
            }
            locks.let_go(&grant);
        }
    });
    assert_eq!(locks.ids().len(), 0);
}
