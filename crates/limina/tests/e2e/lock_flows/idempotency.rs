//! `Idempotency-Key`: a repeated request returns the same grant, as long as that grant lives.

use serde_json::json;

use crate::concurrency::race;
use crate::harness::Server;
use crate::locks::{Grant, PATIENT, exclusive, shared, waiting};
use crate::raw;

#[track_caller]
fn same(again: &Grant, first: &Grant) {
    let key =
        |grant: &Grant| (grant.lock_id.clone(), grant.session_id.clone(), grant.token, grant.locks.clone());
    assert_eq!(key(again), key(first), "the first grant again");
}

/// A client that has lost its connection repeats its request with its key, and is granted the lock.
#[test]
fn a_key_in_use_is_free_after_its_client_hangs_up() {
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

/// A crash removes the waiting request, and with it the information that its key was in use.
#[test]
fn a_crash_frees_the_keys_of_waiting_requests() {
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
fn concurrent_requests_with_one_key_get_one_grant() {
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
