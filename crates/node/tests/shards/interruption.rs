//! The process stands still for longer than locks are held, as after SIGSTOP.

use super::*;
use limina_engine::{
    KeyValues,
    key_values::Value,
    locks::{self, Acquire, Lock, LockRequest, Mode as LockMode},
};
use std::time::Duration;

const TTL: u64 = 3_000;

async fn ask_locks(
    service: &Service,
    namespace: &Name,
    command: locks::Command,
) -> Result<locks::Reply, locks::Refusal> {
    let request = Request::new(namespace.clone(), Command::Locks(command));
    match service.submit(request).await {
        Ok(Outcome::Locks(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

async fn acquire(service: &Service, namespace: &Name) {
    let key_values = KeyValues::new(vec![("lock", Value::<&str>::Integer(1))]).expect("a valid key");
    let lock = Lock { key_values, mode: LockMode::Exclusive };
    let wanted = Acquire::new(vec![lock], Millis(TTL)).expect("a valid request");
    let request = LockRequest { id: name("id"), session: name("session"), wanted };
    ask_locks(service, namespace, locks::Command::Acquire(request)).await.expect("the lock is free");
}

/// How long the lock is still held. None if it is not.
async fn left(service: &Service, namespace: &Name) -> Option<u64> {
    match ask_locks(service, namespace, locks::Command::Get(name("id"))).await {
        Ok(locks::Reply::Grant(grant)) => Some(grant.expires_in_ms.0),
        Err(locks::Refusal::LockNotFound { .. }) => None,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn locks_have_their_full_ttl_after_the_process_stood_still() {
    let (service, node) = start(&memory(), NodeOptions::default()).await;
    let namespaces = [namespace_in(ShardId(0)), namespace_in(ShardId(1))];
    for namespace in &namespaces {
        acquire(&service, namespace).await;
    }
    // When the process continues, the timer of the lock, the task that notices the interruption, and the requests run
    // in any order.
    for pause in [1_100, 10_000, 60_000] {
        tokio::time::advance(Duration::from_millis(pause)).await;
        for namespace in &namespaces {
            let left = left(&service, namespace).await;
            assert!(left.is_some_and(|left| left > TTL - 100), "{left:?} after {pause}");
        }
    }
    // A lock that is not kept alive ends at its time while the process runs.
    tokio::time::sleep(Duration::from_millis(TTL - 200)).await;
    assert!(left(&service, &namespaces[0]).await.is_some());
    // Shard time may be up to 5 % slower than this clock, because the wall clock did not advance with it.
    tokio::time::sleep(Duration::from_millis(600)).await;
    for namespace in &namespaces {
        assert_eq!(left(&service, namespace).await, None);
    }
    node.stop().await;
}
