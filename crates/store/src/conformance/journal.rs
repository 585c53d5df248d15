//! The cases that every journal must pass.

use super::{Factory, STOPS, Stop, append, check_tail, is_fenced, overlay, payload, take};
use crate::{
    AppendError, ConfirmError, FreeSpace, Journal, Seq, ShardId, StoreError, Table,
    journal::MAX_PAYLOAD_BYTES,
};
use bytes::Bytes;

const A: ShardId = ShardId(0);
const B: ShardId = ShardId(1);

/// Appends survive every kind of stop, and appending continues afterwards.
pub async fn appends_survive(mut factory: impl Factory) {
    let mut last = 0;
    for stop in STOPS.into_iter().chain([Stop::PowerLoss(8), Stop::Clean]) {
        let store = factory.open().await.expect("open");
        let epoch = take(&*store, A).await;
        check_tail(&*store, A, epoch, 0, last, 100).await;
        for seq in last + 1..=last + 5 {
            append(&*store, A, epoch, seq, 100).await;
        }
        last += 5;
        check_tail(&*store, A, epoch, 0, last, 100).await;
        check_tail(&*store, A, epoch, 3, last, 100).await;
        check_tail(&*store, A, epoch, last, last, 100).await;
        assert_eq!(store.free_space(), FreeSpace::Ample);
        factory.stop(store, stop).await;
    }
    let store = factory.open().await.expect("open");
    let epoch = take(&*store, A).await;
    check_tail(&*store, A, epoch, 0, last, 100).await;
}

/// Opening repeatedly without an append loses nothing and adds nothing.
pub async fn openings_without_appends(mut factory: impl Factory) {
    for (round, stop) in STOPS.into_iter().cycle().take(9).enumerate() {
        let store = factory.open().await.expect("open");
        if round == 3 {
            let epoch = take(&*store, A).await;
            append(&*store, A, epoch, 1, 10).await;
        }
        factory.stop(store, stop).await;
    }
    let store = factory.open().await.expect("open");
    let epoch = take(&*store, A).await;
    check_tail(&*store, A, epoch, 0, 1, 10).await;
}

/// Several shards append at the same time, and each keeps its own order.
pub async fn shards_append_together(mut factory: impl Factory) {
    let store = factory.open().await.expect("open");
    let run = async |shard: ShardId, appends: u64| {
        let epoch = take(&*store, shard).await;
        for seq in 1..=appends {
            append(&*store, shard, epoch, seq, 50).await;
        }
    };
    tokio::join!(run(ShardId(0), 40), run(ShardId(1), 30), run(ShardId(2), 20), run(ShardId(3), 10));
    factory.stop(store, Stop::PowerLoss(1)).await;
    let store = factory.open().await.expect("open");
    for (shard, appends) in [(0, 40), (1, 30), (2, 20), (3, 10), (4, 0)] {
        let epoch = take(&*store, ShardId(shard)).await;
        check_tail(&*store, ShardId(shard), epoch, 0, appends, 50).await;
    }
}

/// Only the last owner that took a shard may write. Epochs grow, also over openings.
pub async fn older_epochs_are_fenced(mut factory: impl Factory) {
    let store = factory.open().await.expect("open");
    let first = take(&*store, A).await;
    append(&*store, A, first, 1, 10).await;
    let second = take(&*store, A).await;
    assert!(second > first);
    assert!(is_fenced(store.append(A, first, Seq(2), payload(A, 2, 10)).await));
    assert!(matches!(store.confirm(A, first, Seq(0)).await, Err(ConfirmError::Fenced)));
    assert!(store.confirm(A, second, Seq(0)).await.is_ok());
    assert!(matches!(store.tail(A, first, Seq(0)).await, Err(StoreError::NotOwned)));
    append(&*store, A, second, 2, 10).await;
    let other = take(&*store, B).await;
    assert!(store.confirm(A, second, Seq(0)).await.is_ok(), "taking one shard does not fence another");
    append(&*store, B, other, 1, 10).await;
    factory.stop(store, Stop::Kill).await;
    let store = factory.open().await.expect("open");
    assert!(is_fenced(store.append(A, second, Seq(3), payload(A, 3, 10)).await));
    let third = take(&*store, A).await;
    assert!(third > second);
    check_tail(&*store, A, third, 0, 2, 10).await;
}

/// An append that does not follow the last one is rejected and changes nothing.
pub async fn gaps_are_refused(mut factory: impl Factory) {
    let store = factory.open().await.expect("open");
    let epoch = take(&*store, A).await;
    append(&*store, A, epoch, 1, 10).await;
    for seq in [0, 1, 3, u64::MAX] {
        let refused = store.append(A, epoch, Seq(seq), payload(A, seq, 10)).await;
        assert!(matches!(refused, Err(AppendError::NotDone(_))), "seq {seq}: {refused:?}");
    }
    append(&*store, A, epoch, 2, 10).await;
    check_tail(&*store, A, epoch, 0, 2, 10).await;
}

/// Appends that the table contains are released. All others are kept, also over openings.
pub async fn released_appends_go(mut factory: impl Factory) {
    let mut last = 0;
    for stop in STOPS {
        let store = factory.open().await.expect("open");
        let applied = store.applied(A).await.expect("applied").0;
        let epoch = take(&*store, A).await;
        check_tail(&*store, A, epoch, applied, last, 1000).await;
        for seq in last + 1..=last + 200 {
            append(&*store, A, epoch, seq, 1000).await;
            if seq % 50 == 20 {
                store.checkpoint(A, epoch, Seq(seq), overlay("a=1")).await.expect("checkpoint");
                store.release(A, Seq(seq));
            }
        }
        last += 200;
        check_tail(&*store, A, epoch, last - 30, last, 1000).await;
        factory.stop(store, stop).await;
    }
    let store = factory.open().await.expect("open");
    assert_eq!(store.applied(A).await.expect("applied"), Seq(last - 30));
    let epoch = take(&*store, A).await;
    check_tail(&*store, A, epoch, last - 30, last, 1000).await;
}

/// A shard that never checkpoints keeps its appends, whatever other shards release.
pub async fn an_idle_shard_keeps_its_appends(mut factory: impl Factory) {
    let store = factory.open().await.expect("open");
    let idle = take(&*store, B).await;
    append(&*store, B, idle, 1, 300).await;
    let epoch = take(&*store, A).await;
    for seq in 1..=300 {
        append(&*store, A, epoch, seq, 2000).await;
    }
    store.checkpoint(A, epoch, Seq(300), overlay("a=1")).await.expect("checkpoint");
    store.release(A, Seq(300));
    factory.stop(store, Stop::PowerLoss(3)).await;
    let store = factory.open().await.expect("open");
    let idle = take(&*store, B).await;
    check_tail(&*store, B, idle, 0, 1, 300).await;
    let epoch = take(&*store, A).await;
    check_tail(&*store, A, epoch, 300, 300, 2000).await;
}

/// Payloads that are longer than any buffer, appended one by one and read back in parts.
pub async fn large_payloads(mut factory: impl Factory) {
    const LENGTH: usize = 3 << 20;
    let store = factory.open().await.expect("open");
    let epoch = take(&*store, A).await;
    for seq in 1..=5 {
        append(&*store, A, epoch, seq, LENGTH).await;
    }
    let too_long = Bytes::from(vec![0; MAX_PAYLOAD_BYTES + 1]);
    let refused = store.append(A, epoch, Seq(6), too_long).await;
    assert!(matches!(refused, Err(AppendError::NotDone(_))));
    factory.stop(store, Stop::PowerLoss(5)).await;
    let store = factory.open().await.expect("open");
    let epoch = take(&*store, A).await;
    let part = store.tail(A, epoch, Seq(0)).await.expect("tail");
    assert!(part.len() < 5, "the tail comes in parts");
    check_tail(&*store, A, epoch, 0, 5, LENGTH).await;
}
