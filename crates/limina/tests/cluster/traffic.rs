//! Clients that send requests to every shard and require that each of them succeeds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{SHARDS, namespace_in};
use crate::harness::{Server, eventually};
use crate::ledger::Ledger;

/// Each client gets this many answers before and after the disturbance.
const SOME: usize = 5;

#[derive(Default)]
struct Client {
    done: AtomicUsize,
    stop: AtomicBool,
}

/// Holds one unit after another in each shard through these nodes, while `happens` changes the cluster. Every request
/// must succeed, and all units must be there at the end. Returns the longest time that a request took.
#[track_caller]
pub(crate) fn steady<T>(through: &[&Server], happens: impl FnOnce() -> T) -> (Duration, T) {
    let clients: Vec<Client> = (0..SHARDS).map(|_| Client::default()).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(shard, client)| {
                let namespace = namespace_in(through[0], shard);
                let ledgers: Vec<_> = through.iter().map(|node| node.ledger_of(&namespace)).collect();
                scope.spawn(move || work(client, &ledgers))
            })
            .collect();
        let at_work = |since: &[usize]| {
            eventually(|| {
                let each = clients.iter().zip(since);
                let done = |(client, since): (&Client, &usize)| {
                    client.done.load(Ordering::Relaxed) >= since + SOME || client.stop.load(Ordering::Relaxed)
                };
                each.into_iter().all(done).then_some(())
            })
            .is_some()
        };
        let before = at_work(&[0; SHARDS]);
        let result = happens();
        let since: Vec<usize> = clients.iter().map(|client| client.done.load(Ordering::Relaxed)).collect();
        let after = at_work(&since);
        clients.iter().for_each(|client| client.stop.store(true, Ordering::Relaxed));
        let longest = threads.into_iter().map(|thread| thread.join().expect("a client")).max();
        assert!(before && after, "the clients hung");
        (longest.expect("there are clients"), result)
    })
}

fn work(client: &Client, ledgers: &[Ledger]) -> Duration {
    // Stops the client when the test ends, even if it fails.
    let _stop = Stop(client);
    ledgers[0].create("steady");
    let (mut longest, mut count) = (Duration::ZERO, 0);
    while !client.stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let ledger = &ledgers[count % ledgers.len()];
        count += 1;
        ledger.hold(&format!("{count}"), &[("steady", 1)]).ok().value("steady", 0, count as i64);
        longest = longest.max(start.elapsed());
        client.done.store(count, Ordering::Relaxed);
    }
    longest
}

struct Stop<'a>(&'a Client);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}
