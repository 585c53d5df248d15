//! `Idempotency-Key`: the same request again is the same grant, as long as that lives.

use serde_json::{Value, json};

use crate::concurrency::race;
use crate::harness::{Server, eventually};
use crate::locks::{Grant, PATIENT, exclusive, lasting, several, shared, waiting};
use crate::raw;

#[track_caller]
fn same(again: &Grant, first: &Grant) {
    let key =
        |grant: &Grant| (grant.lock_id.clone(), grant.session_id.clone(), grant.token, grant.locks.clone());
    assert_eq!(key(again), key(first), "the first grant again");
}

#[test]
fn a_repeated_grant_is_the_same_grant() {
    let mut server = Server::fresh();
    let requests: [Value; 3] = [
        exclusive(json!({"a": 1})),
        waiting(shared(json!({"b": 1})), PATIENT),
        several(&[(json!({"c": 1}), "exclusive"), (json!({"d": 1}), "shared")]),
    ];
    let key = |n: usize| format!("key {n}");
    let firsts: Vec<Grant> = requests
        .iter()
        .enumerate()
        .map(|(n, request)| server.locks().ask_keyed(&key(n), request).granted())
        .collect();
    let check = |server: &Server| {
        let locks = server.locks();
        for (n, request) in requests.iter().enumerate() {
            for _ in 0..2 {
                same(&locks.ask_keyed(&key(n), request).granted(), &firsts[n]);
            }
            let other = lasting(request.clone(), "2h");
            locks.ask_keyed(&key(n), &other).refused(422, "IdempotencyKeyReused");
        }
        assert_eq!(locks.ids().len(), 3, "each is held once");
        // Without its key it is another request.
        locks.taken(requests[0].clone());
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
    server.restart();
    check(&server);
    for first in &firsts {
        server.locks().heartbeat(first).ok();
        server.locks().let_go(first);
    }
    assert_eq!(server.locks().ids().len(), 0);
}

/// A grant that is over is not given to anybody again.
#[test]
fn a_grant_that_is_over_is_decided_afresh() {
    let mut server = Server::fresh();
    let request = exclusive(json!({"a": 1}));
    let mut last = server.locks().ask_keyed("key", &request).granted();
    for round in 0..3 {
        let locks = server.locks();
        match round {
            0 => locks.let_go(&last),
            1 => drop(locks.force(&last.lock_id).is(204)),
            _ => {
                locks.let_go(&last);
                server.crash_and_restart();
            }
        }
        let locks = server.locks();
        let next = locks.ask_keyed("key", &request).granted();
        assert_ne!(next.lock_id, last.lock_id, "round {round}");
        assert!(next.token > last.token, "round {round}");
        same(&locks.ask_keyed("key", &request).granted(), &next);
        last = next;
    }
    // Somebody else has it now: the key gives no right to it.
    let locks = server.locks();
    locks.let_go(&last);
    let other = locks.grant(exclusive(json!({"a": 1})));
    locks.ask_keyed("key", &request).refused(409, "LockHeld");
    locks.let_go(&other);
    locks.ask_keyed("key", &request).granted();
}

#[test]
fn a_grant_whose_lease_ended_is_decided_afresh() {
    let server = Server::fresh();
    let locks = server.locks();
    let request = lasting(exclusive(json!({"a": 1})), "500ms");
    let first = locks.ask_keyed("key", &request).granted();
    let ended = eventually(|| (locks.get(&first.lock_id).status == 404).then_some(()));
    assert!(ended.is_some());
    let second = locks.ask_keyed("key", &request).granted();
    assert_ne!(second.lock_id, first.lock_id);
    assert!(second.token > first.token);
}

#[test]
fn a_refusal_is_decided_afresh() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let (now, later) = (exclusive(json!({"a": 1})), waiting(exclusive(json!({"a": 1})), "20ms"));
    for _ in 0..2 {
        locks.ask_keyed("now", &now).refused(409, "LockHeld");
        locks.ask_keyed("later", &later).refused(409, "LockWaitTimeout");
    }
    locks.let_go(&held);
    let granted = locks.ask_keyed("now", &now).granted();
    locks.ask_keyed("later", &later).refused(409, "LockWaitTimeout");
    locks.let_go(&granted);
    let granted = locks.ask_keyed("later", &later).granted();
    same(&locks.ask_keyed("later", &later).granted(), &granted);
    // A refused key is free: even another body may use it.
    locks.ask_keyed("key", &now).refused(409, "LockHeld");
    locks.ask_keyed("key", &exclusive(json!({"b": 1}))).granted();
}

#[test]
fn a_key_whose_request_waits_is_in_use() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let request = waiting(exclusive(json!({"a": 1})), PATIENT);
    let waiter = locks.wait_keyed("key", request.clone());
    locks.await_queue(&held, 1);
    for _ in 0..3 {
        locks.ask_keyed("key", &request).refused(409, "IdempotencyKeyInUse");
    }
    locks.await_queue(&held, 1);
    locks.let_go(&held);
    let granted = waiter.granted();
    same(&locks.ask_keyed("key", &request).granted(), &granted);
    locks.let_go(&granted);
    locks.free(exclusive(json!({"a": 1})));
}

/// A client that has lost its connection asks again with its key, and is let in.
#[test]
fn a_key_is_free_when_its_client_is_gone() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let request = waiting(exclusive(json!({"a": 1})), PATIENT);
    let mut connection = raw::Connection::open(server.address());
    let body = request.to_string();
    connection.send(raw::request("POST", "/v1/locks", "Idempotency-Key: key\r\n", body.as_bytes()));
    locks.await_queue(&held, 1);
    drop(connection);
    locks.await_queue(&held, 0);
    let again = locks.wait_keyed("key", request.clone());
    locks.await_queue(&held, 1);
    locks.let_go(&held);
    locks.let_go(&again.granted());
    locks.free(exclusive(json!({"a": 1})));
}

/// The waiter is forgotten in a crash, and so is that its key was in use.
#[test]
fn a_crash_frees_the_keys_of_those_who_waited() {
    let mut server = Server::fresh();
    let held = server.locks().grant(exclusive(json!({"a": 1})));
    let request = waiting(exclusive(json!({"a": 1})), PATIENT);
    for round in 0..2 {
        let locks = server.locks();
        let waiter = locks.wait_keyed("key", request.clone());
        locks.await_queue(&held, 1);
        match round {
            0 => server.kill(),
            _ => server.stop(),
        }
        if let Some(reply) = waiter.ended() {
            reply.refused(503, "ShuttingDown");
        }
        server.start_again();
    }
    let locks = server.locks();
    let waiter = locks.wait_keyed("key", request);
    locks.await_queue(&held, 1);
    locks.let_go(&held);
    waiter.granted();
}

#[test]
fn a_raced_key_is_granted_once() {
    let server = Server::fresh();
    let locks = server.locks();
    for round in 0..10 {
        let request = waiting(shared(json!({"round": round})), PATIENT);
        let replies = race(12, |_| locks.ask_keyed(&format!("key {round}"), &request));
        let mut first: Option<Grant> = None;
        for reply in replies {
            if reply.status == 200 {
                let grant = reply.granted();
                same(&grant, first.get_or_insert(grant.clone()));
            } else {
                reply.refused(409, "IdempotencyKeyInUse");
            }
        }
        assert!(first.is_some(), "nobody was granted it");
        assert_eq!(locks.ids().len(), round + 1);
    }
}

#[test]
fn a_key_belongs_to_its_namespace() {
    let server = Server::fresh();
    let request = exclusive(json!({"a": 1}));
    let red = server.locks_of("red").ask_keyed("key", &request).granted();
    let blue = server.locks_of("blue").ask_keyed("key", &request).granted();
    assert_ne!(red.session_id, blue.session_id);
    // With and without the prefix it is the same namespace.
    let plain = server.locks().ask_keyed("key", &request).granted();
    same(&server.locks_of("default").ask_keyed("key", &request).granted(), &plain);
}

#[test]
fn a_heartbeat_takes_a_key_too() {
    let server = Server::fresh();
    let locks = server.locks();
    let grant = locks.grant(exclusive(json!({"a": 1})));
    let path = format!("/{}/heartbeat", crate::ledger::encode(&grant.lock_id));
    let beat = |session: &str| {
        let request = locks.request("POST", &path).header("idempotency-key", "key");
        crate::reply::Reply::to(request.json(&json!({"session_id": session})))
    };
    beat("wrong").refused(409, "SessionMismatch");
    for _ in 0..3 {
        let reply = beat(&grant.session_id).ok();
        assert!(!reply.text.contains(&grant.session_id), "{}", reply.text);
    }
    locks.let_go(&grant);
}
