//! Appends that fail, a full disk, a node that is dropped, and work that is due while no client asks.

use super::{info, memory, namespace_in, start, store::FaultyStore, submit};
use limina_engine::Name;
use limina_node::{NodeOptions, Unavailable};
use limina_store::{
    FreeSpace, ShardId,
    memory::{AppendFault, Memory},
};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

const SHARD: ShardId = ShardId(0);
const MINUTE: Duration = Duration::from_secs(60);
/// On the paused clock: every task has done what it can do without more time.
const SETTLED: Duration = Duration::from_millis(10);

fn namespace() -> Name {
    namespace_in(SHARD)
}

/// An event stops incubating after a minute. That is a change of the stream, which the shard appends on its own.
#[tokio::test(start_paused = true)]
async fn due_work_is_done_while_no_client_asks() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    submit(&service, &namespace(), "a").await.expect("the shard serves");
    let before = store.appends();
    sleep(MINUTE / 2).await;
    assert_eq!(store.appends(), before, "nothing is due");
    sleep(MINUTE).await;
    assert_eq!(store.appends(), before + 1);
    assert_eq!(info(&service, &namespace()).await.expect("the shard serves").incubating, 0);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_dropped_stops() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    submit(&service, &namespace(), "a").await.expect("the shard serves");
    let takes = store.takes();
    drop(node);
    sleep(MINUTE).await;
    assert_eq!(store.takes(), takes, "no shard opens again");
    assert_eq!(Arc::strong_count(&store), 1, "no task uses the store any more");
    assert_eq!(info(&service, &namespace()).await.unwrap_err(), Unavailable::ShardUnavailable);
}

#[tokio::test(start_paused = true)]
async fn a_failed_append_makes_the_shard_open_again() {
    let check = async |fault: AppendFault, expect: Unavailable, is_done: bool| {
        let store = memory();
        let (service, node) = start(&store, NodeOptions::default()).await;
        submit(&service, &namespace(), "before").await.expect("the shard serves");
        let takes = store.takes();
        store.inner().fail_append(fault);
        assert_eq!(submit(&service, &namespace(), "fails").await.unwrap_err(), expect, "{fault:?}");
        let incubating = info(&service, &namespace()).await.expect("the shard serves again").incubating;
        assert_eq!(incubating, 1 + usize::from(is_done), "{fault:?}");
        assert_eq!(store.takes(), takes + 1, "{fault:?}");
        submit(&service, &namespace(), "after").await.expect("the shard serves again");
        node.stop().await;
    };
    check(AppendFault::NotDone, Unavailable::ShardUnavailable, false).await;
    check(AppendFault::UnknownButHappened, Unavailable::OutcomeUnknown, true).await;
    check(AppendFault::UnknownAndDidNotHappen, Unavailable::OutcomeUnknown, false).await;
}

/// Whatever the store says about its room: a shard on a full disk rejects writes, serves reads, tries due work again only
/// now and then, and goes on when there is room.
#[tokio::test(start_paused = true)]
async fn a_full_disk_causes_no_busy_loop() {
    // A write finds no room before anything is decided, or its append fails.
    full_disk(FreeSpace::Reserve).await;
    full_disk(FreeSpace::Ample).await;
}

async fn full_disk(room: FreeSpace) {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    submit(&service, &namespace(), "a").await.expect("the shard serves");
    store.fill(Some(room));
    assert_eq!(submit(&service, &namespace(), "b").await.unwrap_err(), Unavailable::StorageFull);
    check_calls(&store, MINUTE / 2, 0).await;
    assert_eq!(info(&service, &namespace()).await.expect("reads go on").incubating, 1);

    // The event is due now, and cannot be written.
    sleep(MINUTE).await;
    // Every 200 ms the shard may try to append it, and open again.
    check_calls(&store, Duration::from_secs(10), 2 * (10 * 5 + 1)).await;
    assert_eq!(info(&service, &namespace()).await.expect("reads go on").incubating, 1, "time stands still");
    assert_eq!(submit(&service, &namespace(), "b").await.unwrap_err(), Unavailable::StorageFull);

    store.fill(None);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(info(&service, &namespace()).await.expect("the shard serves").incubating, 0);
    submit(&service, &namespace(), "c").await.expect("there is room again");
    node.stop().await;
}

/// In so much time, without requests, the store may be asked at most so often.
async fn check_calls(store: &Arc<FaultyStore<Memory>>, span: Duration, at_most: usize) {
    let calls = || store.appends() + store.takes();
    sleep(SETTLED).await;
    let before = calls();
    sleep(span).await;
    let calls = calls() - before;
    assert!(calls <= at_most, "{calls} calls in {span:?}");
}
