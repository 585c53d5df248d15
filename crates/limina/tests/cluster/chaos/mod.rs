//! Nodes are killed, paused and stopped at random while clients of all families are at work through all of them.
//!
//! In the end everything that was acknowledged is there exactly once, and what is not known to the client once or not at
//! all; tokens, positions and clocks never went back; no limit was ever passed. A seed decides what is done, and of course
//! not how fast. `cargo xtask chaos` runs this for longer than the tests do.

pub(crate) mod client;
mod events;
mod faults;
mod ledger;
mod limiter;
mod locks;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, SHORT};
use crate::load::{self, Random};
use client::{Client, Front};

/// How long nodes are disturbed before all is looked at.
const ROUND: Duration = Duration::from_secs(8);

/// Of one family in one namespace.
const CLIENTS: u64 = 3;

#[test]
fn whatever_becomes_of_nodes_nothing_acknowledged_is_lost() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = number("CHAOS_SEED").unwrap_or(1);
    let length = Duration::from_secs(60 * number("CHAOS_MINUTES").unwrap_or(0));
    let mut cluster = Cluster::of(3, SHORT);
    let start = Instant::now();
    for round in 0.. {
        eprintln!("chaos: round {round} of seed {seed}");
        let seed = seed.wrapping_add(round);
        run(&mut cluster, &format!("round-{round}"), seed, |cluster| {
            faults::disturb(cluster, &mut Random::new(seed), ROUND);
        });
        if start.elapsed() >= length {
            break;
        }
    }
}

/// One round, in namespaces of its own: clients are at work for as long as they are disturbed, then all is looked at.
#[track_caller]
pub(crate) fn run(cluster: &mut Cluster, name: &str, seed: u64, disturb: impl FnOnce(&mut Cluster)) {
    let front = Front::new((0..cluster.len()).map(|node| cluster[node].address()).collect());
    let spaces: Vec<String> = (0..4).map(|n| format!("{name}-{n}")).collect();
    let [books, limits, keys, news] = spaces.as_slice() else { unreachable!("four of them") };
    load::make_limits(&cluster[0].ledger_of(books));
    limiter::make(&mut Client::new(&front, limits, "first", seed));
    let first = events::make(&mut Client::new(&front, news, "first", seed));
    let (in_use, last) = (limiter::InUse::default(), AtomicU64::new(u64::MAX));

    std::thread::scope(|scope| {
        let (front, in_use, last) = (&front, &in_use, &last);
        // A client that fails ends the round, and the followers with it.
        let ending = Ending { front, last };
        let client = |space: &str, n: u64| Client::new(front, space, &format!("client {n}"), seed * 100 + n);
        let holders =
            crowd(scope, move |n| ledger::work(front, books, &format!("client-{n}"), seed * 100 + n));
        let takers = crowd(scope, move |n| limiter::work(client(limits, n), in_use));
        let lockers = crowd(scope, move |n| locks::work(client(keys, n)));
        let tellers = crowd(scope, move |n| events::work(client(news, n)));
        let followers = crowd(scope, move |n| events::follow(front, news, seed * 100 + n, first, last));

        disturb(cluster);
        front.progress.stop.store(true, Ordering::Relaxed);
        let operations = all(holders).into_iter().flatten().collect();
        let (takers, lockers) = (all(takers), all(lockers));
        let told: Vec<_> = all(tellers).into_iter().flatten().collect();
        faults::restart_all(cluster);

        let node = &cluster[0];
        last.store(events::last_clock(&node.events_of(news)), Ordering::Relaxed);
        ledger::check(front, node.address(), books, operations);
        limiter::check(&node.limiter_of(limits), &takers);
        locks::check(&node.locks_of(keys), &lockers);
        all(followers).iter().for_each(|follower| events::check(follower, &told));
        drop(ending);
    });
}

type Crowd<'scope, T> = Vec<ScopedJoinHandle<'scope, T>>;

fn crowd<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl Fn(u64) -> T + Send + Clone + 'scope,
) -> Crowd<'scope, T> {
    let client = |n| {
        let work = work.clone();
        scope.spawn(move || work(n))
    };
    (0..CLIENTS).map(client).collect()
}

#[track_caller]
fn all<T>(crowd: Crowd<'_, T>) -> Vec<T> {
    crowd.into_iter().map(|client| client.join().expect("a client")).collect()
}

/// Lets everybody end, also where the round fails.
struct Ending<'a> {
    front: &'a Front,
    last: &'a AtomicU64,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.front.progress.stop.store(true, Ordering::Relaxed);
        if std::thread::panicking() {
            self.last.store(0, Ordering::Relaxed);
        }
    }
}
