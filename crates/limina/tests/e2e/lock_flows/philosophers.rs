//! Dining philosophers who need three forks each: nobody starves, no fork has two holders, and no outdated holder can
//! write.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::concurrency::race;
use crate::harness::{Server, eventually};
use crate::locks::{Grant, Locks, PATIENT, exclusive, release_path, several, waiting};
use crate::reply::Reply;

const SEATS: usize = 12;
const MEALS: usize = 6;

/// The resource that a fork's lock protects: a counter that rejects a token older than the newest one that it has seen.
#[derive(Default)]
struct Fork {
    /// The holder according to the test; 0 means none.
    hand: AtomicUsize,
    counter: Mutex<Counter>,
}

#[derive(Default)]
struct Counter {
    highest: u64,
    value: usize,
}

impl Fork {
    fn read(&self) -> usize {
        self.counter.lock().unwrap().value
    }

    fn write(&self, token: u64, value: usize) {
        let mut counter = self.counter.lock().unwrap();
        assert!(token > counter.highest, "an old token: {token} after {}", counter.highest);
        *counter = Counter { highest: token, value };
    }
}

#[derive(Default)]
struct Table {
    forks: [Fork; SEATS],
    eaten: AtomicUsize,
}

fn forks_of(seat: usize) -> [usize; 3] {
    // Not in ascending order, so that only the server, and not the order of the requests, prevents deadlocks.
    [(seat + 2) % SEATS, seat, (seat + 1) % SEATS]
}

fn request_of(seat: usize) -> Value {
    let forks: Vec<(Value, &str)> =
        forks_of(seat).iter().map(|fork| (json!({"fork": fork}), "exclusive")).collect();
    waiting(several(&forks), PATIENT)
}

impl Table {
    /// Reads and writes separately, so that a second holder would lose an update.
    fn eat(&self, seat: usize, grant: &Grant) {
        let forks = forks_of(seat).map(|fork| &self.forks[fork]);
        for fork in forks {
            let other = fork.hand.swap(seat + 1, Ordering::SeqCst);
            assert_eq!(other, 0, "a fork of {seat} is in the hand of {}", other.wrapping_sub(1));
        }
        let seen = forks.map(Fork::read);
        std::thread::yield_now();
        for (fork, seen) in forks.iter().zip(seen) {
            fork.write(grant.token, seen + 1);
        }
        for fork in forks {
            assert_eq!(fork.hand.swap(0, Ordering::SeqCst), seat + 1, "somebody took a fork of {seat}");
        }
        self.eaten.fetch_add(1, Ordering::SeqCst);
    }

    /// Checks that every philosopher has eaten every time: each fork was used by three of them.
    #[track_caller]
    fn check(&self, locks: &Locks) {
        assert_eq!(self.eaten.load(Ordering::SeqCst), SEATS * MEALS);
        for (n, fork) in self.forks.iter().enumerate() {
            assert_eq!(fork.read(), 3 * MEALS, "fork {n}");
        }
        assert_eq!(locks.ids().len(), 0, "all forks are back");
    }
}

#[test]
fn all_philosophers_eat() {
    let server = Server::fresh();
    let locks = server.locks();
    let table = Table::default();
    race(SEATS, |seat| {
        for _ in 0..MEALS {
            let grant = locks.grant(request_of(seat));
            assert_eq!(grant.locks.len(), 3);
            table.eat(seat, &grant);
            locks.let_go(&grant);
        }
    });
    table.check(&locks);
}

/// A client that acquires three locks at once is served while many others acquire one lock at a time.
#[test]
fn a_request_for_three_locks_does_not_starve() {
    let server = Server::fresh();
    let locks = server.locks();
    let modest = AtomicUsize::new(0);
    race(13, |client| {
        if client == 12 {
            for _ in 0..5 {
                let grant = locks.grant(request_of(0));
                locks.let_go(&grant);
                modest.fetch_add(1, Ordering::SeqCst);
            }
            return;
        }
        // The others continue until that client is done. If it starved, the test would never end.
        let fork = forks_of(0)[client % 3];
        let fed = eventually(|| {
            let grant = locks.grant(waiting(exclusive(json!({"fork": fork})), PATIENT));
            locks.let_go(&grant);
            (modest.load(Ordering::SeqCst) == 5).then_some(())
        });
        assert!(fed.is_some(), "starved after {} meals", modest.load(Ordering::SeqCst));
    });
}

/// The same dinner, during which the server crashes. A client that got no answer repeats its request with its key. A
/// client that held forks still holds them.
#[test]
fn all_philosophers_eat_across_crashes() {
    const CRASHES: usize = 3;
    let mut server = Server::fresh();
    let table = Table::default();
    let locks = Mutex::new(server.locks());
    std::thread::scope(|scope| {
        let philosophers: Vec<_> = (0..SEATS)
            .map(|seat| {
                let (table, locks) = (&table, &locks);
                scope.spawn(move || {
                    for meal in 0..MEALS {
                        let grant = retry(locks, |locks| {
                            let request = locks.request("POST", "").json(&request_of(seat));
                            request.header("idempotency-key", format!("{seat} {meal}"))
                        });
                        let grant = grant.granted();
                        table.eat(seat, &grant);
                        let path = release_path(&grant.lock_id, &grant.session_id);
                        let released = retry(locks, |locks| locks.request("DELETE", &path));
                        // An earlier release succeeded, but its answer was lost.
                        assert!([204, 404].contains(&released.status), "{}", released.text);
                    }
                })
            })
            .collect();
        for crash in 1..=CRASHES {
            let goal = SEATS * MEALS * crash / (CRASHES + 1);
            let reached = eventually(|| {
                let ended = philosophers.iter().any(|philosopher| philosopher.is_finished());
                (table.eaten.load(Ordering::SeqCst) >= goal || ended).then_some(())
            });
            assert!(reached.is_some(), "stuck at {} meals", table.eaten.load(Ordering::SeqCst));
            server.kill();
            server.start_again();
            *locks.lock().unwrap() = server.locks();
        }
    });
    table.check(&server.locks());
}

/// Repeats the request until the server answers, also after a restart.
fn retry(locks: &Mutex<Locks>, request: impl Fn(&Locks) -> reqwest::blocking::RequestBuilder) -> Reply {
    let answer = eventually(|| {
        let locks = locks.lock().unwrap().clone();
        let reply = Reply::try_to(request(&locks)).ok()?;
        // `IdempotencyKeyInUse`: for the server, the earlier attempt is still in progress. 503: the server is stopping.
        let again = reply.status == 503 || reply.code() == "IdempotencyKeyInUse";
        (!again).then_some(reply)
    });
    answer.expect("an answer")
}
