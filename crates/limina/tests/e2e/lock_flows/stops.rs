//! A clean stop: waiting requests are answered at once, and held locks stay held.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::h2;
use crate::harness::{Server, eventually};
use crate::ledger;
use crate::locks::{
    Grant, Locks, PATIENT, PROMPT, Waiter, exclusive, lasting, release_path, several, shared, waiting,
};
use crate::raw;
use crate::reply::Reply;

#[test]
fn a_stop_answers_all_waiting_requests() {
    let mut server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let other = locks.grant(shared(json!({"b": 1})));
    let both = several(&[(json!({"a": 1}), "exclusive"), (json!({"b": 1}), "exclusive")]);
    let mut waiters: Vec<Waiter> =
        (0..20).map(|_| locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT))).collect();
    waiters.extend((0..5).map(|_| locks.wait(waiting(both.clone(), PATIENT))));
    let runtime = h2::runtime();
    let connection = h2::Connection::open(&runtime, &server.url("/healthz"));
    let streams: Vec<_> =
        (0..30).map(|_| connection.post(locks.url(), &waiting(shared(json!({"a": 1})), PATIENT))).collect();
    locks.await_queue(&held, 55);

    let stopped = Instant::now();
    server.process().signal(Signal::TERM);
    for waiter in waiters {
        let answer = waiter.answer();
        let after = answer.answered - stopped;
        assert!(after < PROMPT, "answered {after:?} after the signal");
        answer.reply.refused(503, "ShuttingDown");
    }
    for stream in streams {
        stream.answer().refused(503, "ShuttingDown");
        assert!(stopped.elapsed() < PROMPT, "answered {:?} after the signal", stopped.elapsed());
    }
    let status = server.process().exit();
    assert!(status.success(), "{status}");
    assert!(stopped.elapsed() < PROMPT, "the end took {:?}", stopped.elapsed());

    server.start_again();
    let locks = server.locks();
    for grant in [&held, &other] {
        locks.await_queue(grant, 0);
        locks.heartbeat(grant).ok();
    }
    assert_eq!(locks.ids().len(), 2, "none of those who were refused holds anything");
    locks.taken(exclusive(json!({"a": 1})));
    locks.let_go(&held);
    locks.free(exclusive(json!({"a": 1})));
}

/// The process is paused for longer than every `ttl`. Meanwhile a heartbeat waits in its socket.
#[test]
fn a_paused_server_expires_no_lock_or_lease() {
    const TTL: Duration = Duration::from_secs(4);
    let server = Server::fresh();
    server.ledger().create("a");
    let decision = json!({"operation_id": "op", "locks": [{"key_values": {"b": 1}}], "ttl": "4s"});
    server.decisions().decide(&decision).ok();
    let hold = ledger::with(ledger::hold("expires", &[("a", 7)]), json!({"expires_after": "4s"}));
    server.ledger().post("/hold", hold).ok();
    let grant = server.locks().grant(lasting(exclusive(json!({"a": 1})), "4s"));
    let granted = Instant::now();

    server.signal(Signal::STOP);
    let mut heartbeat = raw::Connection::open(server.address());
    let body = json!({"session_id": grant.session_id}).to_string();
    let path = format!("/v1/locks/{}/heartbeat", grant.lock_id);
    heartbeat.send(raw::request("POST", &path, "", body.as_bytes()));
    std::thread::sleep(
        (granted + TTL + Duration::from_millis(500)).saturating_duration_since(Instant::now()),
    );
    server.signal(Signal::CONT);

    heartbeat.receive().ok();
    server.decisions().heartbeat("op").ok();
    // A hold of the ledger has a fixed end, which an interruption does not extend.
    server.ledger().values(&["a"]).ok().value("a", 0, 0);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("the process stood still")).expect("the log says so");
    let paused =
        line.split("paused_ms=").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    assert!(paused.is_some_and(|paused| (1_000..60_000).contains(&paused)), "{line}");
}

/// The clients ask again, and are granted the lock in the order in which they ask.
#[test]
fn waiters_retry_in_order_after_a_restart() {
    let mut server = Server::fresh();
    let held = server.locks().grant(exclusive(json!({"a": 1})));
    for _ in 0..2 {
        let locks = server.locks();
        let waiter = locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT));
        locks.await_queue(&held, 1);
        server.restart();
        waiter.answer().reply.refused(503, "ShuttingDown");
    }
    let locks = server.locks();
    let waiters: Vec<Waiter> = (1..=5)
        .map(|n| {
            let waiter = locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT));
            locks.await_queue(&held, n);
            waiter
        })
        .collect();
    let mut last = held;
    for waiter in waiters {
        locks.let_go(&last);
        let next = waiter.granted();
        assert!(next.token > last.token);
        last = next;
    }
}

/// The server stops while many clients acquire and release locks. Everything that was answered is true afterwards.
#[test]
fn answers_are_true_after_a_stop_under_load() {
    let mut server = Server::fresh();
    for round in 0..4 {
        let (locks, done) = (server.locks(), AtomicUsize::new(0));
        let ends: Vec<End> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..10)
                .map(|n| {
                    let (locks, done) = (&locks, &done);
                    let lock = json!({"lock": n % 3, "round": round});
                    scope.spawn(move || visit_until_the_end(locks, &lock, done))
                })
                .collect();
            let reached = eventually(|| (done.load(Ordering::Relaxed) >= 60).then_some(()));
            server.stop();
            assert!(reached.is_some(), "the load is stuck");
            clients.into_iter().map(|client| client.join().expect("a client")).collect()
        });
        server.start_again();
        let locks = server.locks();
        let mut left = locks.ids();
        let mut unknown = 0;
        for end in &ends {
            match end {
                End::NotGranted => {}
                End::NotReleased(grant) => {
                    assert!(left.remove(&grant.lock_id), "not released, but gone: {grant:?}");
                    locks.heartbeat(grant).ok();
                    locks.let_go(grant);
                }
                End::ReleaseUnknown(grant) => {
                    if left.remove(&grant.lock_id) {
                        locks.let_go(grant);
                    }
                }
                End::GrantUnknown => unknown += 1,
            }
        }
        assert!(left.len() <= unknown, "held by nobody: {left:?}, {unknown} do not know");
        for lock_id in left {
            locks.force(&lock_id).is(204);
        }
    }
}

/// The last answer that a client got.
enum End {
    NotGranted,
    GrantUnknown,
    NotReleased(Grant),
    ReleaseUnknown(Grant),
}

fn visit_until_the_end(locks: &Locks, lock: &Value, done: &AtomicUsize) -> End {
    loop {
        let request = waiting(exclusive(lock.clone()), PATIENT);
        let grant = match Reply::try_to(locks.request("POST", "").json(&request)) {
            Ok(reply) if reply.status == 200 => reply.granted(),
            Ok(reply) => {
                reply.refused(503, "ShuttingDown");
                return End::NotGranted;
            }
            Err(_) => return End::GrantUnknown,
        };
        match Reply::try_to(locks.request("DELETE", &release_path(&grant.lock_id, &grant.session_id))) {
            Ok(reply) if reply.status == 204 => drop(done.fetch_add(1, Ordering::Relaxed)),
            Ok(reply) => {
                reply.refused(503, "ShuttingDown");
                return End::NotReleased(grant);
            }
            Err(_) => return End::ReleaseUnknown(grant),
        }
    }
}
