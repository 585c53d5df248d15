//! Requests that wait for a shard that has too much to do: how long, and what becomes of them.

use super::{info, memory, name, namespace_in, namespaces_in, start, store::FaultyStore, submit};
use futures_util::FutureExt;
use limina_engine::{
    Command, KeyValues, Millis, Outcome, Request,
    key_values::Value,
    ledger::{self, Change, Hold, Transfer},
    limiter,
    locks::{self, Acquire, Lock, LockRequest, Mode},
};
use limina_node::{Node, NodeOptions, Service, Unavailable};
use limina_shard::Options as ShardOptions;
use limina_store::{ShardId, memory::Memory};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::sleep,
};

const SHARD: ShardId = ShardId(0);
/// On the paused clock: every task has done what it can do without more time.
const SETTLED: Duration = Duration::from_millis(1);

/// A shard whose batches have few requests, so that others wait while an append does.
async fn small_batches(store: &Arc<FaultyStore<Memory>>) -> (Service, Node) {
    let shard = ShardOptions { max_batch: 4, ..ShardOptions::default() };
    start(store, NodeOptions { shard, ..NodeOptions::default() }).await
}

/// Invariant 17: while the shard does not get on, a request is rejected at once, and nothing is done.
#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_for_long_is_rejected_at_once() {
    let store = memory();
    let (service, node) = small_batches(&store).await;
    let namespace = namespace_in(SHARD);
    store.hold_appends(true);
    let mut accepted = JoinSet::new();
    loop {
        let (service, namespace, event) =
            (service.clone(), namespace.clone(), format!("e{}", accepted.len()));
        accepted.spawn(async move { submit(&service, &namespace, &event).await });
        sleep(SETTLED).await;
        if let Some(rejected) = accepted.try_join_next() {
            let Err(Unavailable::Overloaded { retry_after_ms }) = rejected.expect("no panic") else {
                panic!("nothing can be answered yet");
            };
            assert!((200..1000).contains(&retry_after_ms), "{retry_after_ms} ms is no estimate");
            break;
        }
        assert!(accepted.len() < 1000, "nothing is rejected");
    }
    assert!(accepted.len() > 200, "requests may wait for a quarter of a second");
    let at_once = submit(&service, &namespace, "at once").now_or_never();
    assert!(matches!(at_once, Some(Err(Unavailable::Overloaded { .. }))), "{at_once:?}");

    store.hold_appends(false);
    let mut done = 0;
    while let Some(answer) = accepted.join_next().await {
        match answer.expect("no panic") {
            Ok(_) => done += 1,
            Err(unavailable) => assert_eq!(unavailable.code(), "Overloaded"),
        }
    }
    assert!(done > 200, "only {done} were done");
    assert_eq!(info(&service, &namespace).await.expect("the shard serves").incubating, done);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_client_has_gone_is_not_begun() {
    let store = memory();
    let (service, node) = small_batches(&store).await;
    let namespace = namespace_in(SHARD);
    store.hold_appends(true);
    let mut clients: Vec<JoinHandle<_>> = Vec::new();
    for number in 0..40 {
        let (service, namespace) = (service.clone(), namespace.clone());
        clients.push(tokio::spawn(async move { submit(&service, &namespace, &format!("e{number}")).await }));
        sleep(SETTLED).await;
    }
    let gone = clients.split_off(20);
    gone.iter().for_each(JoinHandle::abort);
    sleep(SETTLED).await;
    store.hold_appends(false);
    for client in clients {
        client.await.expect("no panic").expect("it is done");
    }
    assert_eq!(info(&service, &namespace).await.expect("the shard serves").incubating, 20);
    node.stop().await;
}

/// The slices of this batch write nothing, so nothing in the store makes the shard wait between them.
#[tokio::test(start_paused = true)]
async fn a_long_batch_gives_way_to_another_namespace_after_each_slice() {
    let (service, node) = start(&memory(), NodeOptions::default()).await;
    let mut namespaces = namespaces_in(SHARD);
    let mut namespace = || namespaces.next().expect("every shard has names");
    let (namespace, neighbour) = (namespace(), namespace());
    let key_values = KeyValues::new(vec![("key", Value::<&str>::Integer(1))]).expect("valid");
    let entry = limiter::Take::new(key_values, 1).expect("valid");
    let check = limiter::Check::new(vec![entry; 16]).expect("valid");
    let batch = limiter::CheckBatch::new(vec![check; 8_192]).expect("valid");
    let command = Command::Limiter(limiter::Command::CheckBatch(batch));
    let request = Request::new(namespace, command);
    let batch = tokio::spawn({
        let service = service.clone();
        async move { service.submit(request).await }
    });
    // The batch's task submits it, and the shard begins.
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    submit(&service, &neighbour, "e").await.expect("the shard serves");
    assert!(!batch.is_finished(), "the neighbour waited for the whole batch");
    batch.await.expect("no panic").expect("the shard serves");
    node.stop().await;
}

/// A request for a lock that waits for its holder does not wait in the queue.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_lock_is_not_waiting_for_the_shard() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    let namespace = namespace_in(SHARD);
    let acquire = |id: &str| {
        let key_values = KeyValues::new(vec![("lock", Value::<&str>::Integer(1))]).expect("valid");
        let locks = vec![Lock { key_values, mode: Mode::Exclusive }];
        let wanted = Acquire::new(locks, Millis(60_000)).expect("valid");
        let wanted = wanted.with_wait(Millis(10_000)).expect("valid");
        let request = LockRequest { id: name(id), session: name(id), wanted };
        let command = Command::Locks(locks::Command::Acquire(request));
        let request = Request::new(namespace.clone(), command);
        let service = service.clone();
        async move { service.submit(request).await }
    };
    acquire("holder").await.expect("the lock is free");
    let waiter = tokio::spawn(acquire("waiter"));
    sleep(Duration::from_secs(5)).await;
    submit(&service, &namespace, "a").await.expect("the shard is idle");
    let waited = waiter.await.expect("no panic").expect("it is decided in the end");
    assert!(matches!(waited, Outcome::Locks(Err(_))), "{waited:?}");
    node.stop().await;
}

/// Appends to memory are done at once, so the sweep of a deleted namespace never waits for the store.
#[tokio::test]
async fn a_sweep_in_memory_gives_way_to_another_namespace() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    let mut namespaces = namespaces_in(SHARD);
    let mut namespace = || namespaces.next().expect("every shard has names");
    let (large, neighbour) = (namespace(), namespace());
    submit(&service, &neighbour, "e").await.expect("the shard serves");
    for batch in 0..20 {
        let hold = |number: usize| {
            let own = name(&format!("{batch}/{number}"));
            let hold = Hold::new(own.clone(), vec![Change::new(own, 1)]).expect("valid");
            Transfer::Hold(hold.with_create_missing(true))
        };
        let batch = ledger::Batch::new((0..1_000).map(hold).collect()).expect("valid");
        let request = Request::new(large.clone(), Command::Ledger(ledger::Command::Batch(batch)));
        service.submit(request).await.expect("the shard serves");
    }
    let request = Request::new(large, Command::DeleteNamespace);
    assert_eq!(service.submit(request).await, Ok(Outcome::NamespaceDeleted));
    let (mut swept, mut most) = (0, 0);
    while swept < 150 {
        let before = store.appends();
        info(&service, &neighbour).await.expect("the shard serves");
        let meanwhile = store.appends() - before;
        (swept, most) = (swept + meanwhile, most.max(meanwhile));
    }
    assert!(most <= 4, "a request waited for {most} slices");
    node.stop().await;
}
