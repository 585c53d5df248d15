//! A client that hangs up stops waiting; and what is granted to nobody is held by nobody.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::concurrency::race;
use crate::h2;
use crate::harness::{Server, eventually, within};
use crate::load::Random;
use crate::locks::{Grant, PATIENT, PROMPT, exclusive, lasting, release_path, several, shared, waiting};
use crate::raw;

fn lock() -> Value {
    json!({"a": 1})
}

/// A request sent on a connection of its own, which can be closed.
fn asking(address: SocketAddr, request: &Value) -> raw::Connection {
    let mut connection = raw::Connection::open(address);
    connection.send(raw::request("POST", "/v1/locks", "", request.to_string().as_bytes()));
    connection
}

#[test]
fn a_closed_connection_leaves_the_queue() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(lock()));
    let mut connections = Vec::new();
    for n in 1..=10 {
        connections.push(asking(server.address(), &waiting(exclusive(lock()), PATIENT)));
        locks.await_queue(&held, n);
    }
    // From the middle, from the end, from the front.
    for (gone, left) in [(4, 9), (8, 8), (0, 7)] {
        drop(connections.remove(gone));
        locks.await_queue(&held, left);
    }
    let last = locks.wait(waiting(exclusive(lock()), PATIENT));
    locks.await_queue(&held, 8);
    connections.clear();
    locks.await_queue(&held, 1);
    locks.let_go(&held);
    locks.let_go(&last.granted());
    assert_eq!(locks.ids().len(), 0);
}

/// Bytes behind the body, which nobody reads while the request waits, do not hide the hang-up.
#[test]
fn a_closed_connection_leaves_the_queue_whatever_it_sent_before() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(lock()));
    for behind in [b"\r\n".to_vec(), raw::request("GET", "/healthz", "", b"")] {
        let mut connection = asking(server.address(), &waiting(exclusive(lock()), PATIENT));
        connection.send(behind);
        locks.await_queue(&held, 1);
        drop(connection);
        locks.await_queue(&held, 0);
    }
    locks.let_go(&held);
}

/// A client repeats its request under the same key and hangs up on the first one, while both wait for the disk. The retry is told
/// of a grant, and that grant stays.
#[test]
fn a_lock_that_was_told_to_a_retry_stays() {
    let server = Server::fresh();
    let locks = server.locks();
    let mut random = Random::new(1);
    for round in 0..150 {
        let body = exclusive(lock()).to_string();
        let key = format!("Idempotency-Key: key {round}\r\n");
        let request = raw::request("POST", "/v1/locks", &key, body.as_bytes());
        let [mut first, mut retry] = [(); 2].map(|()| raw::Connection::open(server.address()));
        first.send(&request);
        let sent = Instant::now();
        let spin = |until: Duration| while sent.elapsed() < until {};
        let (pause, until) = (random.below(1_000), random.below(2_000));
        spin(Duration::from_micros(pause));
        retry.send(&request);
        spin(Duration::from_micros(pause + until));
        drop(first);
        let grant = retry.receive().granted();
        for _ in 0..3 {
            locks.taken(exclusive(lock()));
            locks.heartbeat(&grant).ok();
        }
        locks.let_go(&grant);
    }
    assert_eq!(locks.ids().len(), 0);
}

#[test]
fn a_reset_stream_leaves_the_queue_and_its_connection_stays() {
    let server = Server::fresh();
    let locks = server.locks();
    let runtime = h2::runtime();
    let connection = h2::Connection::open(&runtime, &server.url("/healthz"));
    let held = locks.grant(exclusive(lock()));
    let mut streams = Vec::new();
    for n in 1..=10 {
        streams.push(connection.post(locks.url(), &waiting(exclusive(lock()), PATIENT)));
        locks.await_queue(&held, n);
    }
    for (gone, left) in [(4, 9), (8, 8), (0, 7)] {
        streams.remove(gone).reset();
        locks.await_queue(&held, left);
    }
    // The others have not moved, and are served on the same connection.
    let mut last = held.token;
    locks.let_go(&held);
    for stream in streams {
        let grant = stream.answer().granted();
        assert!(grant.token > last, "{} after {last}", grant.token);
        last = grant.token;
        locks.let_go(&grant);
    }
    assert_eq!(locks.ids().len(), 0);
}

/// Gone before the grant was due: the lock is free, though the one who asked for it had a lease of an hour.
#[test]
fn a_grant_to_a_closed_connection_is_released() {
    let server = Server::fresh();
    let locks = server.locks();
    for round in 0..40 {
        let held = locks.grant(exclusive(lock()));
        let connection = asking(server.address(), &waiting(exclusive(lock()), PATIENT));
        locks.await_queue(&held, 1);
        drop(connection);
        locks.let_go(&held);
        let next = locks.ask(&waiting(exclusive(lock()), "20s"));
        assert_eq!(next.status, 200, "held by one who is gone, round {round}: {:?}", locks.all(10));
        locks.let_go(&next.granted());
    }
    assert_eq!(locks.ids().len(), 0);
}

/// The server has noticed the reset before the lock becomes free: the lock goes to the next client, although the stream
/// asked for a lease of an hour.
#[test]
fn a_stream_that_was_reset_is_granted_nothing() {
    let server = Server::fresh();
    let locks = server.locks();
    let runtime = h2::runtime();
    let connection = h2::Connection::open(&runtime, &server.url("/healthz"));
    for round in 0..40 {
        let held = locks.grant(exclusive(lock()));
        let stream = connection.post(locks.url(), &waiting(exclusive(lock()), PATIENT));
        locks.await_queue(&held, 1);
        stream.reset();
        // The reset and the release travel on two connections: only the server can say that it has seen the first.
        locks.await_queue(&held, 0);
        locks.let_go(&held);
        let next = locks.ask(&waiting(exclusive(lock()), "20s"));
        assert_eq!(next.status, 200, "held by one who is gone, round {round}: {:?}", locks.all(10));
        locks.let_go(&next.granted());
    }
    assert_eq!(locks.ids().len(), 0);
}

/// A reset and the release of the lock cross on their way. If the release comes first, the grant may be answered before
/// the reset arrives, and then it is a lease like any other. Either way the next client waits no longer than that lease.
#[test]
fn a_grant_that_crosses_a_reset_is_held_for_its_lease_at_most() {
    let server = Server::fresh();
    let locks = server.locks();
    let runtime = h2::runtime();
    let connection = h2::Connection::open(&runtime, &server.url("/healthz"));
    for round in 0..40 {
        let held = locks.grant(exclusive(lock()));
        let stream = connection.post(locks.url(), &lasting(waiting(exclusive(lock()), PATIENT), "200ms"));
        locks.await_queue(&held, 1);
        stream.reset();
        locks.let_go(&held);
        let next = locks.ask(&waiting(exclusive(lock()), PATIENT));
        assert_eq!(next.status, 200, "held by one who is gone, round {round}: {:?}", locks.all(10));
        locks.let_go(&next.granted());
    }
    assert_eq!(locks.ids().len(), 0);
}

/// The same where the server learns of both at once: it slept while the clients left and, after that, the locks were
/// released.
#[test]
fn closed_connections_are_granted_nothing_by_releases_seen_with_them() {
    let mut server = Server::fresh();
    for round in 0..20 {
        let address = server.address();
        release_behind_hang_ups(&mut server, round, |_, requests| {
            let connections: Vec<raw::Connection> =
                requests.iter().map(|request| asking(address, request)).collect();
            move || drop(connections)
        });
    }
}

#[test]
fn a_closed_connections_streams_are_granted_nothing_by_releases_seen_with_them() {
    let mut server = Server::fresh();
    for round in 0..20 {
        let health = server.url("/healthz");
        release_behind_hang_ups(&mut server, round, |url, requests| {
            let runtime = h2::runtime();
            let connection = h2::Connection::open(&runtime, &health);
            let streams: Vec<h2::Stream> =
                requests.iter().map(|request| connection.post(url, request)).collect();
            move || {
                drop((streams, connection));
                // Returns when the runtime is gone, and its sockets with it.
                runtime.shutdown_timeout(PROMPT);
            }
        });
    }
}

/// `wait` sends requests and returns what hangs up on all of them.
#[track_caller]
fn release_behind_hang_ups<H: FnOnce()>(
    server: &mut Server,
    round: usize,
    wait: impl FnOnce(&str, &[Value]) -> H,
) {
    const LOCKS: usize = 60;
    let locks = server.locks();
    let request = |n: usize| exclusive(json!({"n": n}));
    let held: Vec<Grant> = (0..LOCKS).map(|n| locks.grant(request(n))).collect();
    let requests: Vec<Value> = (0..LOCKS).map(|n| waiting(request(n), PATIENT)).collect();
    let hang_up = wait(locks.url(), &requests);
    for grant in &held {
        locks.await_queue(grant, 1);
    }
    let mut releases: Vec<raw::Connection> =
        (0..LOCKS).map(|_| raw::Connection::open(server.address())).collect();
    server.process().signal(Signal::STOP);
    hang_up();
    for (connection, grant) in releases.iter_mut().zip(&held) {
        let path = format!("/v1/locks{}", release_path(&grant.lock_id, &grant.session_id));
        connection.send(raw::request("DELETE", &path, "", b""));
    }
    server.process().signal(Signal::CONT);
    for connection in &mut releases {
        connection.receive().is(204);
    }
    let empty = within(PROMPT, || locks.ids().is_empty().then_some(()));
    let left = locks.all(1000);
    assert!(empty.is_some(), "round {round}: {} are held by those who are gone: {left:?}", left.len());
}

/// The same when it is the end of a lease that makes the grant due.
#[test]
fn the_end_of_a_lease_grants_nothing_to_a_closed_connection() {
    let server = Server::fresh();
    let locks = server.locks();
    let asked = Instant::now();
    locks.grant(lasting(exclusive(lock()), "2s"));
    drop(asking(server.address(), &waiting(exclusive(lock()), PATIENT)));
    if asked.elapsed() >= Duration::from_secs(2) {
        // On a machine that stood still the grant may have been due before the client was gone.
        return;
    }
    let next = locks.ask(&waiting(exclusive(lock()), "20s"));
    assert_eq!(next.status, 200, "held by one who is gone: {:?}", locks.all(10));
    locks.let_go(&next.granted());
    assert_eq!(locks.ids().len(), 0);
}

/// Whoever waited behind the one that is gone comes in, in all its queues.
#[test]
fn those_behind_move_up() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(shared(lock()));
    let writer = asking(
        server.address(),
        &waiting(several(&[(lock(), "exclusive"), (json!({"b": 1}), "exclusive")]), PATIENT),
    );
    locks.await_queue(&held, 1);
    locks.taken(exclusive(json!({"b": 1})));
    let reader = locks.wait(waiting(shared(lock()), PATIENT));
    let other = locks.wait(waiting(exclusive(json!({"b": 1})), PATIENT));
    drop(writer);
    // Both, while the first still holds.
    reader.granted();
    other.granted();
    assert_eq!(locks.ids().len(), 3);
}

/// A whole connection with many waiting streams, gone at once.
#[test]
fn a_connection_with_many_streams_is_gone() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(lock()));
    let runtime = h2::runtime();
    let connection = h2::Connection::open(&runtime, &server.url("/healthz"));
    let streams: Vec<_> =
        (0..50).map(|_| connection.post(locks.url(), &waiting(exclusive(lock()), PATIENT))).collect();
    locks.await_queue(&held, 50);
    let last = locks.wait(waiting(exclusive(lock()), PATIENT));
    locks.await_queue(&held, 51);
    assert!(streams.iter().all(|stream| !stream.is_answered()));
    // With its runtime, the sockets are closed.
    drop((streams, connection));
    runtime.shutdown_background();
    locks.await_queue(&held, 1);
    locks.let_go(&held);
    locks.let_go(&last.granted());
    assert_eq!(locks.ids().len(), 0);
}

/// A grant that was answered is held, even by one that is gone afterwards: its lease tells.
#[test]
fn a_holder_may_close_its_connection() {
    let server = Server::fresh();
    let locks = server.locks();
    let mut connection = asking(server.address(), &waiting(exclusive(lock()), PATIENT));
    let grant = connection.receive().granted();
    drop(connection);
    locks.taken(exclusive(lock()));
    locks.heartbeat(&grant).ok();
    locks.let_go(&grant);
}

/// Some wait, some do not, some give up, some are gone: never two inside, and at the end nobody.
#[test]
fn a_coming_and_going_leaves_nothing_behind() {
    let server = Server::fresh();
    let (locks, address) = (server.locks(), server.address());
    let inside = AtomicUsize::new(0);
    let visit = |grant: &Grant| {
        let before = inside.swap(1, Ordering::SeqCst);
        assert_eq!(before, 0, "two inside");
        std::thread::yield_now();
        inside.store(0, Ordering::SeqCst);
        locks.let_go(grant);
    };
    race(16, |client| {
        let mut random = Random::new(client as u64 + 1);
        for _ in 0..15 {
            match random.below(4) {
                0 => {
                    // It may have been granted just before it left: then its lease, a short one, must end.
                    let connection = asking(address, &lasting(waiting(exclusive(lock()), PATIENT), "100ms"));
                    let until = Instant::now() + Duration::from_millis(random.below(20));
                    while Instant::now() < until {
                        std::thread::yield_now();
                    }
                    drop(connection);
                }
                1 => {
                    let reply = locks.ask(&exclusive(lock()));
                    match reply.status {
                        200 => visit(&reply.granted()),
                        _ => drop(reply.refused(409, "LockHeld")),
                    }
                }
                2 => {
                    let wait = format!("{}ms", 1 + random.below(40));
                    let reply = locks.ask(&waiting(exclusive(lock()), &wait));
                    match reply.status {
                        200 => visit(&reply.granted()),
                        _ => drop(reply.refused(409, "LockWaitTimeout")),
                    }
                }
                _ => visit(&locks.grant(waiting(exclusive(lock()), PATIENT))),
            }
        }
    });
    let empty = eventually(|| locks.ids().is_empty().then_some(()));
    assert!(empty.is_some(), "left over: {:?}", locks.all(10));
    locks.free(exclusive(lock()));
}
