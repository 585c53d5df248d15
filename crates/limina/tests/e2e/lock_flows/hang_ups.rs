//! A client that hangs up stops waiting, and a lock that would be granted to a client that has gone is free.

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

/// Sends a request on its own connection, which the test can close.
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
    // These leave from the middle, from the end and from the front of the queue.
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

/// Bytes after the body, which the server does not read while the request waits, do not hide the hang-up.
#[test]
fn bytes_after_the_body_do_not_hide_a_hang_up() {
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

/// A client repeats its request under the same key and hangs up the first connection, while both requests wait for the
/// disk. The retry gets a grant, and that grant remains.
#[test]
fn a_grant_returned_to_a_retry_survives_the_hang_up() {
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
fn a_reset_stream_leaves_the_queue_without_closing_its_connection() {
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
    // The other streams have kept their places, and are granted on the same connection.
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

/// The client hangs up before its grant is due. The lock is then free, although the client asked for a `ttl` of an
/// hour.
#[test]
fn a_grant_due_after_a_hang_up_is_released() {
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

/// The server learns of the reset before the lock becomes free: the next client gets the lock, although the reset
/// stream asked for a `ttl` of an hour.
#[test]
fn a_reset_stream_is_granted_nothing() {
    let server = Server::fresh();
    let locks = server.locks();
    let runtime = h2::runtime();
    let connection = h2::Connection::open(&runtime, &server.url("/healthz"));
    for round in 0..40 {
        let held = locks.grant(exclusive(lock()));
        let stream = connection.post(locks.url(), &waiting(exclusive(lock()), PATIENT));
        locks.await_queue(&held, 1);
        stream.reset();
        // The reset and the release use different connections, so only the server knows when it has seen the reset.
        locks.await_queue(&held, 0);
        locks.let_go(&held);
        let next = locks.ask(&waiting(exclusive(lock()), "20s"));
        assert_eq!(next.status, 200, "held by one who is gone, round {round}: {:?}", locks.all(10));
        locks.let_go(&next.granted());
    }
    assert_eq!(locks.ids().len(), 0);
}

/// A reset and the release of the lock cross. If the release arrives first, the grant may be answered before the reset
/// arrives, and is then held like any other. In both cases the next client waits no longer than that `ttl`.
#[test]
fn a_grant_that_crosses_a_reset_is_held_for_at_most_its_ttl() {
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

/// The server learns of both at once: it is paused while the clients leave and, after that, the locks are released.
#[test]
fn releases_seen_with_hang_ups_grant_nothing_to_closed_connections() {
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
fn releases_seen_with_hang_ups_grant_nothing_to_closed_streams() {
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
                // Returns when the runtime has ended, and its sockets are closed.
                runtime.shutdown_timeout(PROMPT);
            }
        });
    }
}

/// `wait` sends the requests, and returns a function that hangs up on all of them.
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

/// As above, but an expiry makes the grants due.
#[test]
fn an_expiry_grants_nothing_to_a_closed_connection() {
    let server = Server::fresh();
    let locks = server.locks();
    let asked = Instant::now();
    locks.grant(lasting(exclusive(lock()), "2s"));
    drop(asking(server.address(), &waiting(exclusive(lock()), PATIENT)));
    if asked.elapsed() >= Duration::from_secs(2) {
        // If the machine stood still, the grant may have been due before the client left.
        return;
    }
    let next = locks.ask(&waiting(exclusive(lock()), "20s"));
    assert_eq!(next.status, 200, "held by one who is gone: {:?}", locks.all(10));
    locks.let_go(&next.granted());
    assert_eq!(locks.ids().len(), 0);
}

/// Requests that waited behind one that has gone are granted, in all queues of that request.
#[test]
fn a_hang_up_unblocks_later_requests() {
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
    // Both readers are granted while the first reader still holds the lock.
    reader.granted();
    other.granted();
    assert_eq!(locks.ids().len(), 3);
}

/// A connection with many waiting streams is closed at once.
#[test]
fn a_closed_connection_removes_all_its_waiting_streams() {
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
    // The end of the runtime closes the sockets.
    drop((streams, connection));
    runtime.shutdown_background();
    locks.await_queue(&held, 1);
    locks.let_go(&held);
    locks.let_go(&last.granted());
    assert_eq!(locks.ids().len(), 0);
}

/// A grant that was answered is held for its `ttl`, even if its client hangs up afterwards.
#[test]
fn a_grant_survives_the_close_of_its_connection() {
    let server = Server::fresh();
    let locks = server.locks();
    let mut connection = asking(server.address(), &waiting(exclusive(lock()), PATIENT));
    let grant = connection.receive().granted();
    drop(connection);
    locks.taken(exclusive(lock()));
    locks.heartbeat(&grant).ok();
    locks.let_go(&grant);
}

/// Some clients wait, some do not, some time out, and some hang up: there are never two holders, and in the end none.
#[test]
fn random_waits_and_hang_ups_leave_no_grant() {
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
                    // The lock may have been granted just before the client hung up. Then it is held for its `ttl`,
                    // which is short.
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
