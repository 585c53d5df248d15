//! The cases that every table must pass.

use super::{Factory, Stop, append, bytes, overlay, page, take};
use crate::{HISTORY, Journal, Record, Records, Seq, ShardId, Table};
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};

const A: ShardId = ShardId(2);
const B: ShardId = ShardId(3);

/// Appends up to `seq`, and checkpoints the records there, as `ShardStore` would.
async fn fill<S: Journal + Table>(store: &S, shard: ShardId, from: u64, seq: u64, text: &str) {
    let epoch = take(store, shard).await;
    for seq in from..=seq {
        append(store, shard, epoch, seq, 10).await;
    }
    store.checkpoint(shard, epoch, Seq(seq), overlay(text)).await.expect("checkpoint");
    store.release(shard, Seq(seq));
}

async fn check_scan<S: Table>(store: &S, shard: ShardId, range: (&str, &str), limit: usize, expected: &str) {
    let found = store.scan(shard, bytes(range.0), bytes(range.1), limit).await.expect("scan");
    assert_eq!(page(&found), expected, "scan {range:?} limit {limit}");
}

async fn check_get<S: Table>(store: &S, shard: ShardId, keys: &str, expected: &str) {
    let asked = keys.split_whitespace().map(bytes).collect();
    let found = store.get_many(shard, asked).await.expect("get_many");
    let found: Vec<String> = found
        .iter()
        .map(|value| {
            value.as_ref().map_or("-".to_string(), |value| String::from_utf8_lossy(value).into_owned())
        })
        .collect();
    assert_eq!(found.join(" "), expected, "get {keys}");
}

async fn check_last<S: Table>(store: &S, shard: ShardId, ranges: &[(&str, &str)], expected: &str) {
    let asked = ranges.iter().map(|(from, at)| (bytes(from), bytes(at))).collect();
    let found = store.last_at_or_before(shard, asked).await.expect("last_at_or_before");
    let found: Vec<String> = found
        .iter()
        .map(|record| record.as_ref().map_or("-".to_string(), |record| page(std::slice::from_ref(record))))
        .collect();
    assert_eq!(found.join(" "), expected, "last {ranges:?}");
}

/// Look-ups of every kind find the right records, and never those of another shard.
pub async fn look_ups(mut factory: impl Factory) {
    let store = factory.open().await.expect("open");
    let store = &*store;
    assert_eq!(store.applied(A).await.expect("applied"), Seq(0));
    check_scan(store, A, ("", "z"), 10, "").await;
    fill(store, A, 1, 3, "a=1 b=2 ba=3 c=4").await;
    fill(store, B, 1, 1, "=0 a=other zz=other").await;
    assert_eq!(store.applied(A).await.expect("applied"), Seq(3));
    check_get(store, A, "c nothing a b", "4 - 1 2").await;
    check_get(store, A, "", "").await;
    check_get(store, ShardId(1), "a", "-").await;
    check_scan(store, A, ("", "z"), 10, "a=1 b=2 ba=3 c=4").await;
    check_scan(store, A, ("a", "c"), 10, "a=1 b=2 ba=3").await;
    check_scan(store, A, ("a", "c"), 2, "a=1 b=2").await;
    check_scan(store, A, ("aa", "ba"), 10, "b=2").await;
    check_scan(store, A, ("a", "z"), 0, "").await;
    check_scan(store, A, ("c", "a"), 10, "").await;
    check_scan(store, A, ("b", "b"), 10, "").await;
    check_scan(store, B, ("", "\u{7f}"), 10, "=0 a=other zz=other").await;
    check_last(store, A, &[("a", "a"), ("a", "bz"), ("bb", "bz"), ("", "z"), ("z", "a")], "a=1 ba=3 - c=4 -")
        .await;
    check_last(store, B, &[("", "")], "=0").await;
    check_last(store, A, &[], "").await;
}

/// A checkpoint replaces and removes records of earlier checkpoints, and can be repeated.
pub async fn checkpoints_replace_and_remove(mut factory: impl Factory) {
    let mut store = factory.open().await.expect("open");
    fill(&*store, A, 1, 1, "a=1 b=1 c=1 d=1").await;
    fill(&*store, A, 2, 2, "b c=2 x").await;
    fill(&*store, A, 3, 3, "b=3 c d").await;
    let epoch = take(&*store, A).await;
    store.checkpoint(A, epoch, Seq(3), overlay("b=3 c d")).await.expect("once more");
    for stop in [Some(Stop::Kill), Some(Stop::Clean), None] {
        check_scan(&*store, A, ("", "z"), 10, "a=1 b=3").await;
        check_get(&*store, A, "a b c d x", "1 3 - - -").await;
        check_last(&*store, A, &[("", "z"), ("bb", "z")], "b=3 -").await;
        if let Some(stop) = stop {
            factory.stop(store, stop).await;
            store = factory.open().await.expect("open");
        }
    }
}

/// Checkpoints and the applied seq survive every kind of stop.
pub async fn checkpoints_survive(mut factory: impl Factory) {
    let mut seq = 0;
    for stop in super::STOPS {
        let store = factory.open().await.expect("open");
        assert_eq!(store.applied(A).await.expect("applied"), Seq(seq));
        fill(&*store, A, seq + 1, seq + 2, &format!("a={seq} b{seq}={seq} gone")).await;
        seq += 2;
        factory.stop(store, stop).await;
    }
    let store = factory.open().await.expect("open");
    assert_eq!(store.applied(A).await.expect("applied"), Seq(seq));
    assert_eq!(store.applied(B).await.expect("applied"), Seq(0));
    check_scan(&*store, A, ("", "z"), 10, "a=4 b0=0 b2=2 b4=4").await;
}

/// The last record of a history is found at every key, whichever checkpoint has written it. There are enough checkpoints for a
/// table to merge its files, and some of them have nothing of a history.
pub async fn histories_are_found_at_every_key(mut factory: impl Factory) {
    const CHECKPOINTS: u64 = 24;
    /// The numbers of the first and the last record that a history gets in a checkpoint. Every second number is used.
    fn written(history: u8, checkpoint: u64) -> Option<(u64, u64)> {
        let begin = checkpoint * 20;
        match history {
            1 => Some((begin, begin + 10)),
            2 => Some((begin + 4, begin + 4)),
            _ => (checkpoint % 7 == 3).then_some((begin + 2, begin + 8)),
        }
    }
    let key =
        |history: u8, number: u64| Bytes::from([&[HISTORY, history][..], &number.to_be_bytes()].concat());
    let store = factory.open().await.expect("open");
    let epoch = take(&*store, A).await;
    let mut expected: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    for checkpoint in 0..CHECKPOINTS {
        let mut records = Vec::new();
        for history in 1..=3 {
            let Some((first, last)) = written(history, checkpoint) else { continue };
            records.extend((first..=last).step_by(2).map(|number| Record {
                key: key(history, number),
                value: Some(Bytes::copy_from_slice(&number.to_le_bytes())),
            }));
        }
        expected.extend(
            records.iter().map(|record| (record.key.clone(), record.value.clone().expect("a value"))),
        );
        append(&*store, A, epoch, checkpoint + 1, 10).await;
        store
            .checkpoint(A, epoch, Seq(checkpoint + 1), Arc::new(records.into_iter().collect()))
            .await
            .expect("checkpoint");
        let at = (1..=3).flat_map(|history| (0..=(checkpoint + 1) * 20).map(move |number| (history, number)));
        let ranges: Vec<_> =
            at.map(|(history, number)| (key(history, number % 3), key(history, number))).collect();
        let found = store.last_at_or_before(A, ranges.clone()).await.expect("last_at_or_before");
        for ((from, at), found) in ranges.into_iter().zip(found) {
            let last = match from <= at {
                true => expected.range(from.clone()..=at.clone()).next_back(),
                false => None,
            };
            let last = last.map(|(key, value)| (key.clone(), value.clone()));
            assert_eq!(found, last, "{from:?} to {at:?} after {checkpoint}");
        }
    }
}

/// A history is removed from its beginning, some records at a time. Look-ups meanwhile find only records that are left,
/// and nothing in the end.
pub async fn histories_are_removed_bit_by_bit(mut factory: impl Factory) {
    const COUNT: u64 = 1000;
    const SLICE: usize = 100;
    let store = factory.open().await.expect("open");
    let key =
        |history: u8, number: u64| Bytes::from([&[HISTORY, history][..], &number.to_be_bytes()].concat());
    let value = Some(Bytes::from_static(b"value"));
    let added = |numbers: std::ops::RangeInclusive<u64>| {
        let records = [1, 2].into_iter().flat_map(|history| numbers.clone().map(move |n| key(history, n)));
        Arc::new(records.map(|key| Record { key, value: value.clone() }).collect::<Records>())
    };
    let epoch = take(&*store, A).await;
    append(&*store, A, epoch, 1, 10).await;
    append(&*store, A, epoch, 2, 10).await;
    store.checkpoint(A, epoch, Seq(1), added(1..=COUNT / 2)).await.expect("checkpoint");
    store.checkpoint(A, epoch, Seq(2), added(COUNT / 2 + 1..=COUNT)).await.expect("checkpoint");
    let (mut next, mut seq) = (1, 2);
    loop {
        let found = store.scan(A, key(1, 0), key(2, 0), SLICE).await.expect("scan");
        let Some((last, _)) = found.last() else { break };
        let last_number = u64::from_be_bytes(last[2..].try_into().expect("a number"));
        assert!((key(1, next)..=key(1, COUNT)).contains(&found[0].0), "{next}: {:?}", found[0]);
        let removed = found.iter().map(|(key, _)| Record { key: key.clone(), value: None });
        seq += 1;
        append(&*store, A, epoch, seq, 10).await;
        store.checkpoint(A, epoch, Seq(seq), Arc::new(removed.collect())).await.expect("checkpoint");
        next = last_number + 1;
    }
    let rest = store.scan(A, key(0, 0), key(3, 0), usize::MAX).await.expect("scan");
    assert!(rest.iter().map(|(key, _)| key.clone()).eq((1..=COUNT).map(|number| key(2, number))));
}
