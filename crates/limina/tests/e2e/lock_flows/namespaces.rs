//! Namespaces: nothing is shared between two, and nothing of a removed one comes back.

use serde_json::json;

use crate::harness::Server;
use crate::ledger::encode;
use crate::locks::{PATIENT, PROMPT, exclusive, waiting};
use crate::shape;

#[track_caller]
fn remove(server: &Server, namespace: &str) {
    let reply = server.delete(&format!("/v1/ns/{}", encode(namespace)));
    assert!([200, 204].contains(&reply.status), "{} {}", reply.status, reply.text);
}

#[track_caller]
fn listed(server: &Server, namespace: &str) -> bool {
    shape::namespaces(&server.get("/v1/ns").ok().body).iter().any(|name| name == namespace)
}

#[test]
fn two_namespaces_share_nothing() {
    let mut server = Server::fresh();
    let (red, blue) = (server.locks_of("red"), server.locks_of("blue"));
    let mine = red.grant(exclusive(json!({"a": 1})));
    let other = blue.grant(exclusive(json!({"a": 1})));
    server.locks().free(exclusive(json!({"a": 1})));
    for (locks, foreign) in [(&blue, &mine), (&red, &other)] {
        if foreign.lock_id != mine.lock_id || mine.lock_id != other.lock_id {
            locks.get(&foreign.lock_id).refused(404, "LockNotFound");
            locks.heartbeat(foreign).refused(404, "LockNotFound");
            locks.release(foreign).refused(404, "LockNotFound");
            locks.force(&foreign.lock_id).refused(404, "LockNotFound");
        }
        assert_eq!((locks.ids().len(), locks.query(&json!({}), 10).len()), (1, 1));
    }
    // A queue in one holds up nobody in the other.
    let waiter = red.wait(waiting(exclusive(json!({"a": 1})), PATIENT));
    red.await_queue(&mine, 1);
    blue.await_queue(&other, 0);
    blue.let_go(&other);
    assert!(!waiter.is_answered());
    blue.free(exclusive(json!({"a": 1})));
    red.let_go(&mine);
    let mine = waiter.granted();
    server.crash_and_restart();
    server.locks_of("red").get(&mine.lock_id).ok();
    assert_eq!(server.locks_of("blue").ids().len(), 0);
}

#[test]
fn reading_never_creates_one() {
    let server = Server::fresh();
    let locks = server.locks_of("new");
    assert_eq!((locks.ids().len(), locks.query(&json!({}), 10).len()), (0, 0));
    locks.get("x").refused(404, "LockNotFound");
    assert!(!listed(&server, "new"));
    locks.grant(exclusive(json!({"a": 1})));
    assert!(listed(&server, "new"));
}

#[test]
fn nothing_of_a_removed_namespace_comes_back() {
    let mut server = Server::fresh();
    let locks = server.locks_of("brief ns");
    let kept = server.locks().grant(exclusive(json!({"a": 1})));
    let mut last = 0;
    for _ in 0..2 {
        let grant = locks.grant(exclusive(json!({"a": 1})));
        assert!(grant.token > last, "{} after {last}: an old holder would pass for a new one", grant.token);
        last = grant.token;
        remove(&server, "brief ns");
        assert!(!listed(&server, "brief ns"));
        locks.get(&grant.lock_id).refused(404, "LockNotFound");
        locks.heartbeat(&grant).refused(404, "LockNotFound");
        locks.release(&grant).refused(404, "LockNotFound");
        assert_eq!(locks.ids().len(), 0);
    }
    server.crash_and_restart();
    assert_eq!(server.locks_of("brief ns").ids().len(), 0);
    let grant = server.locks_of("brief ns").grant(exclusive(json!({"a": 1})));
    assert!(grant.token > last, "{} after {last}", grant.token);
    server.locks().heartbeat(&kept).ok();
}

/// The grant is gone with its namespace, and so is what a key could bring back.
#[test]
fn a_key_of_a_removed_namespace_is_decided_afresh() {
    let server = Server::fresh();
    let locks = server.locks_of("brief");
    let request = exclusive(json!({"a": 1}));
    let first = locks.ask_keyed("key", &request).granted();
    remove(&server, "brief");
    let second = locks.ask_keyed("key", &request).granted();
    assert_ne!(second.session_id, first.session_id);
    assert!(second.token > first.token);
    locks.let_go(&second);
}

/// Somebody holds, many wait, and the namespace goes: nobody hangs, and no two hold the lock afterwards.
#[test]
fn a_namespace_goes_while_somebody_holds_and_waits() {
    let server = Server::fresh();
    let locks = server.locks_of("brief");
    let elsewhere = server.locks_of("lasting").grant(exclusive(json!({"a": 1})));
    let held = locks.grant(exclusive(json!({"a": 1})));
    let waiters: Vec<_> = (0..10).map(|_| locks.wait(waiting(exclusive(json!({"a": 1})), "10s"))).collect();
    locks.await_queue(&held, 10);
    remove(&server, "brief");
    locks.get(&held.lock_id).refused(404, "LockNotFound");
    locks.heartbeat(&held).refused(404, "LockNotFound");
    let mut granted = Vec::new();
    for waiter in waiters {
        let answer = waiter.answer();
        assert!(answer.took() < std::time::Duration::from_secs(10) + PROMPT, "hung for {:?}", answer.took());
        match answer.reply.status {
            200 => granted.push(answer.reply.granted()),
            status => assert!([404, 409, 503].contains(&status), "{status} {}", answer.reply.text),
        }
    }
    // What they are told is not said; but at most one may have the lock.
    assert!(granted.len() <= 1, "{granted:?}");
    for grant in &granted {
        assert!(grant.token > held.token);
        locks.let_go(grant);
    }
    locks.free(exclusive(json!({"a": 1})));
    server.locks_of("lasting").heartbeat(&elsewhere).ok();
}
