//! Nodes are killed, paused and stopped at random while clients of all families send requests through all of them.
//!
//! At the end, everything that was acknowledged is there exactly once, and every request with an unknown outcome once
//! or not at all. Tokens, positions and clocks never went back, and no limit was ever exceeded. A seed decides which
//! faults happen, but not the timing. `cargo xtask chaos` runs this for longer than the tests do.

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
use client::{Client, Round};

/// How long faults are injected before the checks.
const ROUND: Duration = Duration::from_secs(8);

/// The number of clients of each family, in one namespace.
const CLIENTS: u64 = 3;

#[test]
fn nothing_acknowledged_is_lost_under_random_faults() {
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

/// Plays one round in its own namespaces: clients send requests while faults are injected. Then everything is checked.
#[track_caller]
pub(crate) fn run(cluster: &mut Cluster, name: &str, seed: u64, disturb: impl FnOnce(&mut Cluster)) {
    let round = Round::new((0..cluster.len()).map(|node| cluster[node].address()).collect());
    let spaces: Vec<String> = (0..4).map(|n| format!("{name}-{n}")).collect();
    let [books, limits, keys, news] = spaces.as_slice() else { unreachable!("four of them") };
    load::make_limits(&cluster[0].ledger_of(books));
    limiter::make(&mut Client::new(&round, limits, "first", seed));
    let first = events::make(&mut Client::new(&round, news, "first", seed));
    let (in_use, last) = (limiter::InUse::default(), AtomicU64::new(u64::MAX));

    std::thread::scope(|scope| {
        let (round, in_use, last) = (&round, &in_use, &last);
        // If a client fails, the round ends, and so do its followers.
        let ending = Ending { round, last };
        let client = |space: &str, n: u64| Client::new(round, space, &format!("client {n}"), seed * 100 + n);
        let holders =
            crowd(scope, move |n| ledger::work(round, books, &format!("client-{n}"), seed * 100 + n));
        let takers = crowd(scope, move |n| limiter::work(client(limits, n), in_use));
        let lockers = crowd(scope, move |n| locks::work(client(keys, n)));
        let tellers = crowd(scope, move |n| events::work(client(news, n)));
        let followers = crowd(scope, move |n| events::follow(round, news, seed * 100 + n, first, last));

        disturb(cluster);
        round.progress.stop.store(true, Ordering::Relaxed);
        let operations = all(holders).into_iter().flatten().collect();
        let (takers, lockers) = (all(takers), all(lockers));
        let told: Vec<_> = all(tellers).into_iter().flatten().collect();
        faults::restart_all(cluster);

        let node = &cluster[0];
        last.store(events::last_clock(&node.events_of(news)), Ordering::Relaxed);
        ledger::check(round, node.address(), books, operations);
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

/// Ends all clients when it is dropped, even if the round fails.
struct Ending<'a> {
    round: &'a Round,
    last: &'a AtomicU64,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.round.progress.stop.store(true, Ordering::Relaxed);
        if std::thread::panicking() {
            self.last.store(0, Ordering::Relaxed);
        }
    }
}
