//! The removal of a namespace whose locks are held and waited for.

use serde_json::json;

use crate::harness::Server;
use crate::locks::{PROMPT, exclusive, waiting};

/// Somebody holds, many wait, and the namespace goes: nobody hangs, and no two hold the lock afterwards.
#[test]
fn a_namespace_goes_while_somebody_holds_and_waits() {
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
    // What they are told is not said; but at most one may have the lock.
    assert!(granted.len() <= 1, "{granted:?}");
    for grant in &granted {
        assert!(grant.token > held.token);
        locks.let_go(grant);
    }
    locks.free(exclusive(json!({"a": 1})));
    server.locks_of("lasting").heartbeat(&elsewhere).ok();
}
