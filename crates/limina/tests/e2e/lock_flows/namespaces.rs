//! The deletion of a namespace with locks that are held and waited for.

use serde_json::json;

use crate::harness::Server;
use crate::locks::{PROMPT, exclusive, waiting};

/// A namespace is deleted while one client holds a lock and many wait: all of them get an answer, and no two clients
/// hold the lock afterwards.
#[test]
fn a_namespace_is_deleted_while_locks_are_held_and_waited_for() {
    let server = Server::fresh();
    let locks = server.locks_of("brief");
    let elsewhere = server.locks_of("lasting").grant(exclusive(json!({"a": 1})));
    let held = locks.grant(exclusive(json!({"a": 1})));
    let waiters: Vec<_> = (0..10).map(|_| locks.wait(waiting(exclusive(json!({"a": 1})), "10s"))).collect();
    locks.await_queue(&held, 10);
    server.delete("/v1/ns/brief").is(204);
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
    // The contract does not specify their answers, but at most one of them may get the lock.
    assert!(granted.len() <= 1, "{granted:?}");
    for grant in &granted {
        assert!(grant.token > held.token);
        locks.let_go(grant);
    }
    locks.free(exclusive(json!({"a": 1})));
    server.locks_of("lasting").heartbeat(&elsewhere).ok();
}
