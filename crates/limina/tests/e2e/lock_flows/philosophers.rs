//! Dining philosophers, each with three forks: nobody starves, no fork is in two hands, and no stale hand writes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::concurrency::race;
use crate::harness::{Server, eventually};
use crate::locks::{Grant, Locks, PATIENT, exclusive, release_path, several, waiting};
use crate::reply::Reply;

const SEATS: usize = 12;
const MEALS: usize = 6;

/// What a fork's lock protects: a counter that refuses a token older than one that it has seen.
#[derive(Default)]
struct Fork {
    /// Who has it in hand, as the test keeps the books; 0 is nobody.
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
    // Not in the order of their numbers, so that an order is nobody's merit but the server's.
    [(seat + 2) % SEATS, seat, (seat + 1) % SEATS]
}

fn request_of(seat: usize) -> Value {
    let forks: Vec<(Value, &str)> =
        forks_of(seat).iter().map(|fork| (json!({"fork": fork}), "exclusive")).collect();
    waiting(several(&forks), PATIENT)
}

impl Table {
    /// Reads and writes apart, so that a second hand would lose an update.
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

    /// Everybody has eaten everything: each fork served three.
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
fn philosophers_dine() {
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

/// One who takes three at once is served beside a greedy crowd that takes one at a time.
#[test]
fn nobody_starves_beside_a_greedy_crowd() {
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
        // The crowd goes on until the modest one has dined: were it to starve, this would never end.
        let fork = forks_of(0)[client % 3];
        let fed = eventually(|| {
            let grant = locks.grant(waiting(exclusive(json!({"fork": fork})), PATIENT));
            locks.let_go(&grant);
            (modest.load(Ordering::SeqCst) == 5).then_some(())
        });
        assert!(fed.is_some(), "starved after {} meals", modest.load(Ordering::SeqCst));
    });
}

/// The same dinner with crashes in its midst. Who does not know what became of its request asks again with its key;
/// who held forks holds them still.
#[test]
fn philosophers_dine_through_crashes() {
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
                        let grant = insist(locks, |locks| {
                            let request = locks.request("POST", "").json(&request_of(seat));
                            request.header("idempotency-key", format!("{seat} {meal}"))
                        });
                        let grant = grant.granted();
                        table.eat(seat, &grant);
                        let path = release_path(&grant.lock_id, &grant.session_id);
                        let released = insist(locks, |locks| locks.request("DELETE", &path));
                        // Released before, in a call whose answer was lost.
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

/// Asks until the server, or the one after it, answers.
fn insist(locks: &Mutex<Locks>, request: impl Fn(&Locks) -> reqwest::blocking::RequestBuilder) -> Reply {
    let answer = eventually(|| {
        let locks = locks.lock().unwrap().clone();
        let reply = Reply::try_to(request(&locks)).ok()?;
        // In use: the call of before is not over yet for the server. 503: it is going.
        let again = reply.status == 503 || reply.code() == "IdempotencyKeyInUse";
        (!again).then_some(reply)
    });
    answer.expect("an answer")
}
