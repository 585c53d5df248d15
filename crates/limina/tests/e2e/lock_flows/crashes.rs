//! `kill -9`: granted locks are held, released locks are free, and clients that waited ask again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::h2;
use crate::harness::{Server, eventually};
use crate::locks::{
    Grant, PATIENT, SLACK, Waiter, exclusive, lasting, locks_in, release_path, several, shared, waiting,
};
use crate::reply::Reply;

#[test]
fn grants_and_releases_survive_a_crash() {
    let mut server = Server::fresh();
    let locks = server.locks();
    let kept = locks.grant(exclusive(json!({"a": 1})));
    let readers: Vec<Grant> = (0..3).map(|_| locks.grant(shared(json!({"b": 1})))).collect();
    let pair = locks.grant(several(&[(json!({"c": 1}), "exclusive"), (json!({"b": 1}), "shared")]));
    let released = locks.grant(exclusive(json!({"d": 1})));
    locks.let_go(&released);
    let forced = locks.grant(exclusive(json!({"e": 1})));
    locks.force(&forced.lock_id).is(204);
    for round in 0..3 {
        match round {
            2 => server.restart(),
            _ => server.crash_and_restart(),
        }
        let locks = server.locks();
        let mut expected: BTreeSet<String> = readers.iter().map(|grant| grant.lock_id.clone()).collect();
        expected.extend([kept.lock_id.clone(), pair.lock_id.clone()]);
        assert_eq!(locks.ids(), expected, "round {round}");
        for grant in readers.iter().chain([&kept, &pair]) {
            let item = locks.get(&grant.lock_id).ok().body;
            assert_eq!(item["fencing_token"], grant.token, "{item}");
            assert_eq!(locks_in(&item), grant.locks, "{item}");
            assert!(!item.to_string().contains(&grant.session_id), "{item}");
            // Only the session from before the crash is accepted.
            locks.heartbeat_as(&grant.lock_id, "another").refused(409, "SessionMismatch");
            locks.heartbeat(grant).ok();
        }
        for taken in [json!({"a": 1}), json!({"b": 1}), json!({"c": 1})] {
            locks.taken(exclusive(taken));
        }
        // Released locks are free at once, without waiting for the end of a `ttl`.
        for free in [json!({"d": 1}), json!({"e": 1})] {
            locks.free(exclusive(free));
        }
        locks.heartbeat(&released).refused(404, "LockNotFound");
        locks.heartbeat(&forced).refused(404, "LockNotFound");
    }
    let locks = server.locks();
    for grant in readers.iter().chain([&kept, &pair]) {
        locks.let_go(grant);
    }
    server.crash_and_restart();
    assert_eq!(server.locks().ids().len(), 0);
}

/// The server is killed shortly before the lock would expire. After the start the lock has its full `ttl`, and no other
/// client gets it.
#[test]
fn a_holder_has_a_full_ttl_after_a_crash() {
    let mut server = Server::fresh();
    let ttl = Duration::from_secs(3);
    for round in 0..2 {
        let locks = server.locks();
        let key_values = json!({"round": round});
        let asked = Instant::now();
        let grant = locks.grant(lasting(exclusive(key_values.clone()), "3s"));
        let nearly = eventually(|| {
            let reply = locks.get(&grant.lock_id);
            let left = reply.body["expires_in_ms"].as_u64();
            (reply.status == 404 || left.is_some_and(|ms| ms < 1000)).then_some(())
        });
        assert!(nearly.is_some(), "time passes");
        match round {
            0 => server.kill(),
            _ => server.stop(),
        }
        let down = Instant::now();
        // If the machine stood still, the lock may have expired before the server ended. Then this round shows nothing.
        let alive = down - asked < ttl;
        server.start_again();
        let locks = server.locks();
        let answer = locks.wait(waiting(exclusive(key_values), PATIENT)).answer();
        let next = answer.reply.granted();
        let after = answer.answered - down;
        assert!(
            !alive || after + SLACK >= ttl,
            "granted {after:?} after the end of the server, round {round}"
        );
        assert!(next.token > grant.token);
        locks.heartbeat(&grant).refused(404, "LockNotFound");
        locks.let_go(&next);
    }
}

/// Every lock gets its full `ttl`, although each had less than that left when the server was killed.
#[test]
fn every_holder_has_time_to_heartbeat_after_a_crash() {
    let mut server = Server::fresh();
    let locks = server.locks();
    let ttl = Duration::from_secs(6);
    let asked = Instant::now();
    let mut grants: Vec<Grant> =
        (0..10).map(|n| locks.grant(lasting(exclusive(json!({"n": n})), "6s"))).collect();
    grants.extend((0..5).map(|_| locks.grant(lasting(shared(json!({"all": true})), "6s"))));
    // The kill comes after three seconds of the `ttl`, and the checks after four seconds of the next one. So a lock
    // that had kept its old `ttl` would have expired.
    std::thread::sleep(Duration::from_secs(3));
    server.kill();
    let down = Instant::now();
    let alive = down - asked < ttl;
    server.start_again();
    std::thread::sleep(Duration::from_secs(4).saturating_sub(down.elapsed()));
    let locks = server.locks();
    for grant in &grants {
        let reply = locks.heartbeat(grant);
        let after = down.elapsed();
        assert!(
            reply.status == 200 || !alive || after + SLACK >= ttl,
            "lost after {after:?}: {}",
            reply.text
        );
    }
}

/// A lock does not expire while the server is down.
#[test]
fn locks_do_not_expire_during_downtime() {
    let mut server = Server::fresh();
    let ttl = Duration::from_millis(1500);
    for round in 0..2 {
        let key_values = json!({"round": round});
        let asked = Instant::now();
        let grant = server.locks().grant(lasting(exclusive(key_values.clone()), "1500ms"));
        match round {
            0 => server.kill(),
            _ => server.stop(),
        }
        // The stop may have taken so long that the lock expired before it.
        let alive = asked.elapsed() < ttl;
        std::thread::sleep(ttl + ttl / 4);
        let started = Instant::now();
        server.start_again();
        let answer = server.locks().wait(waiting(exclusive(key_values), PATIENT)).answer();
        let next = answer.reply.granted();
        let after = answer.answered - started;
        assert!(!alive || after + SLACK >= ttl, "granted {after:?} after the start, round {round}");
        assert!(next.token > grant.token);
    }
}

/// Heartbeats after a crash extend a lock from before it, while other clients wait for the lock.
#[test]
fn heartbeats_after_a_crash_keep_the_lock() {
    let mut server = Server::fresh();
    let grant = server.locks().grant(lasting(exclusive(json!({"a": 1})), "30s"));
    for _ in 0..3 {
        server.crash_and_restart();
        let locks = server.locks();
        let waiter = locks.wait(waiting(exclusive(json!({"a": 1})), "500ms"));
        locks.heartbeat(&grant).ok();
        let left = locks.get(&grant.lock_id).ok().body["expires_in_ms"].as_u64().expect("`expires_in_ms`");
        assert!(left <= 30_000, "{left}");
        waiter.answer().reply.refused(409, "LockWaitTimeout");
        locks.taken(exclusive(json!({"a": 1})));
    }
    server.locks().let_go(&grant);
    server.locks().free(exclusive(json!({"a": 1})));
}

/// A client that got a lock because of a release or an expiry holds it after a crash.
#[test]
fn a_grant_to_the_next_waiter_survives_a_crash() {
    let mut server = Server::fresh();
    let locks = server.locks();
    let first = locks.grant(exclusive(json!({"a": 1})));
    let waiter = locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT));
    locks.await_queue(&first, 1);
    locks.let_go(&first);
    let by_release = waiter.granted();
    let dead = locks.grant(lasting(exclusive(json!({"b": 1})), "300ms"));
    let by_end = locks.grant(waiting(exclusive(json!({"b": 1})), PATIENT));
    server.crash_and_restart();
    let locks = server.locks();
    for gone in [&first, &dead] {
        locks.heartbeat(gone).refused(404, "LockNotFound");
    }
    for holder in [&by_release, &by_end] {
        locks.heartbeat(holder).ok();
    }
    assert_eq!(locks.ids().len(), 2);
}

/// The server is killed while many clients wait, over HTTP/1.1 and HTTP/2. The holder still holds its lock, no other
/// client does, and all of them ask again.
#[test]
fn waiters_retry_after_a_crash() {
    const WAITERS: usize = 60;
    let mut server = Server::fresh();
    let held = server.locks().grant(exclusive(json!({"a": 1})));
    let locks = server.locks();
    let waiters: Vec<Waiter> =
        (0..WAITERS).map(|_| locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT))).collect();
    let runtime = h2::runtime();
    let connection = h2::Connection::open(&runtime, &server.url("/healthz"));
    let streams: Vec<_> = (0..WAITERS)
        .map(|_| connection.post(locks.url(), &waiting(shared(json!({"a": 1})), PATIENT)))
        .collect();
    locks.await_queue(&held, 2 * WAITERS as u64);
    server.kill();
    for waiter in waiters {
        assert!(waiter.ended().is_none(), "a dead server says nothing");
    }
    drop(streams);
    server.start_again();

    let locks = server.locks();
    locks.await_queue(&held, 0);
    assert_eq!(locks.ids().len(), 1);
    locks.taken(shared(json!({"a": 1})));
    locks.heartbeat(&held).ok();
    let waiters: Vec<Waiter> =
        (0..WAITERS).map(|_| locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT))).collect();
    locks.await_queue(&held, WAITERS as u64);
    locks.let_go(&held);
    let inside = AtomicUsize::new(0);
    let mut tokens: Vec<u64> = std::thread::scope(|scope| {
        let visitors: Vec<_> = waiters
            .into_iter()
            .map(|waiter| {
                let (inside, locks) = (&inside, &locks);
                scope.spawn(move || {
                    let grant = waiter.granted();
                    assert_eq!(inside.swap(1, Ordering::SeqCst), 0, "two inside");
                    inside.store(0, Ordering::SeqCst);
                    locks.let_go(&grant);
                    grant.token
                })
            })
            .collect();
        visitors.into_iter().map(|visitor| visitor.join().expect("a visitor")).collect()
    });
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), WAITERS);
    assert!(tokens[0] > held.token);
}

/// What a client knows about one grant.
enum Known {
    Held(Grant),
    /// The release was answered.
    Over(Grant),
    /// The release was not answered.
    MaybeHeld(Grant),
    /// The request for the grant was not answered.
    Unknown,
}

/// The server crashes while many clients acquire and release locks. Everything that was answered is true afterwards.
#[test]
fn answers_are_true_after_crashes_under_load() {
    let mut server = Server::fresh();
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let mut highest = 0;
    for round in 0..3 {
        let (locks, done) = (server.locks(), AtomicUsize::new(0));
        let told: Vec<(String, Known)> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..12)
                .map(|client| {
                    let (locks, done) = (&locks, &done);
                    scope.spawn(move || {
                        let mut told = Vec::new();
                        for n in 0.. {
                            let own = json!({"client": client, "n": n, "round": round});
                            let request =
                                several(&[(own.clone(), "exclusive"), (json!({"all": true}), "shared")]);
                            let answer = Reply::try_to(locks.request("POST", "").json(&request));
                            let Ok(reply) = answer else {
                                told.push((own.to_string(), Known::Unknown));
                                break;
                            };
                            let grant = reply.granted();
                            done.fetch_add(1, Ordering::Relaxed);
                            if n % 3 == 0 {
                                told.push((own.to_string(), Known::Held(grant)));
                                continue;
                            }
                            let path = release_path(&grant.lock_id, &grant.session_id);
                            match Reply::try_to(locks.request("DELETE", &path)) {
                                Ok(reply) => {
                                    reply.is(204);
                                    told.push((own.to_string(), Known::Over(grant)));
                                }
                                Err(_) => {
                                    told.push((own.to_string(), Known::MaybeHeld(grant)));
                                    break;
                                }
                            }
                        }
                        told
                    })
                })
                .collect();
            let reached = eventually(|| (done.load(Ordering::Relaxed) >= 150).then_some(()));
            server.kill();
            assert!(reached.is_some(), "the load is stuck");
            clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
        });
        known.extend(told);
        server.start_again();
        highest = verify(&server, &known, highest);
    }
}

/// The highest token that any client has seen so far.
#[track_caller]
fn verify(server: &Server, known: &BTreeMap<String, Known>, before: u64) -> u64 {
    let locks = server.locks();
    let all = (json!({"all": true}).to_string(), "shared".to_owned());
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    for item in locks.all(100) {
        let own: Vec<_> = locks_in(&item).into_iter().filter(|lock| *lock != all).collect();
        assert_eq!((own.len(), locks_in(&item).len()), (1, 2), "half of a grant: {item}");
        assert_eq!(found.insert(own[0].0.clone(), item), None, "held twice: {own:?}");
    }
    let mut highest = before;
    for (own, known) in known {
        let there = found.remove(own);
        match known {
            Known::Held(grant) => {
                let item = there.unwrap_or_else(|| panic!("lost: {own} {grant:?}"));
                assert_eq!(item["lock_id"], grant.lock_id.as_str(), "{item}");
                assert_eq!(item["fencing_token"], grant.token, "{item}");
                locks.heartbeat(grant).ok();
            }
            Known::Over(grant) => assert_eq!(there, None, "released, but there: {grant:?}"),
            Known::MaybeHeld(grant) => {
                if let Some(item) = there {
                    assert_eq!(item["fencing_token"], grant.token, "{item}");
                }
            }
            Known::Unknown => {
                if let Some(item) = there {
                    highest = highest.max(item["fencing_token"].as_u64().expect("a token"));
                }
            }
        }
        if let Known::Held(grant) | Known::Over(grant) | Known::MaybeHeld(grant) = known {
            highest = highest.max(grant.token);
        }
    }
    assert!(found.is_empty(), "nobody asked for {found:?}");
    let next = locks.grant(shared(json!({"all": true})));
    assert!(next.token > highest, "{} after {highest}", next.token);
    locks.let_go(&next);
    next.token
}
