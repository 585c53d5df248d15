//! Many clients with overlapping sets of locks. The semantics of sets are tested by `sets.txt` of the engine.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::concurrency::race;
use crate::harness::Server;
use crate::load::Random;
use crate::locks::{PATIENT, several, waiting};

fn lock(name: impl Into<Value>) -> Value {
    json!({"lock": name.into()})
}

/// The sets overlap, in any order: no deadlock, no starvation, and every set is granted completely.
#[test]
fn overlapping_lock_sets_never_deadlock() {
    const LOCKS: usize = 6;
    let server = Server::fresh();
    let locks = server.locks();
    // The sum over the holders of each lock: 1000 for a writer, 1 for each reader.
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
