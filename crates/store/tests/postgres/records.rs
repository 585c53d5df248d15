//! Keys that are longer than an index entry, and removal of appends after a checkpoint.

use super::{
    database::{client, connect_as_owner, new_database},
    eventually,
};
use bytes::Bytes;
use limina_store::{Journal, Record, Records, Seq, ShardId, Table};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};
use tokio::task::JoinSet;

const SHARD: ShardId = ShardId(1);

fn key(parts: &[(u8, usize)]) -> Bytes {
    parts.iter().flat_map(|&(byte, count)| std::iter::repeat_n(byte, count)).collect()
}

/// Sorted keys around the length at which they are split. Many have a common beginning.
fn keys() -> Vec<Bytes> {
    let rests: [&[(u8, usize)]; 9] = [
        &[],
        &[(0, 1)],
        &[(0, 2)],
        &[(1, 1)],
        &[(1, 50_000)],
        &[(1, 50_000), (0, 1)],
        &[(1, 50_000), (9, 1)],
        &[(9, 1)],
        &[(255, 58_976)],
    ];
    let heads: [&[(u8, usize)]; 5] =
        [&[(7, 1022)], &[(7, 1023)], &[(7, 1023), (0, 1)], &[(7, 1024)], &[(7, 1023), (255, 1)]];
    let keys = heads.iter().flat_map(|head| rests.iter().map(|rest| key(&[*head, *rest].concat())));
    Vec::from_iter(BTreeSet::from_iter(keys))
}

/// Look-ups that wait share statements. Each gets the answers of its own shard, however many there are.
#[tokio::test]
async fn look_ups_of_many_shards_at_once_find_their_own() {
    let store = connect_as_owner(&new_database(), 1).await.expect("connect");
    let shards = [ShardId(0), ShardId(1), ShardId(2)];
    let key = |number: usize| Bytes::from(format!("key-{number}"));
    let value = |shard: ShardId, number: usize| Bytes::from(format!("{}-{number}", shard.0));
    for shard in shards {
        let epoch = store.take(shard).await.expect("take");
        store.append(shard, epoch, Seq(1), Bytes::new()).await.expect("append");
        let records = (0..10).map(|number| Record { key: key(number), value: Some(value(shard, number)) });
        store.checkpoint(shard, epoch, Seq(1), Arc::new(records.collect())).await.expect("checkpoint");
    }
    let store = Arc::new(store);
    let mut looking_up = JoinSet::new();
    for number in 0..60 {
        let (store, shard) = (store.clone(), shards[number % shards.len()]);
        looking_up.spawn(async move {
            // Some have no keys, and some have more than fit into a statement with others.
            let keys = [0, 1, 7, 2_000][number % 4];
            let numbers = (number..number + keys).map(|number| number % 20);
            let found = store.get_many(shard, numbers.clone().map(key).collect()).await.expect("get_many");
            let expected: Vec<_> =
                numbers.map(|number| (number < 10).then(|| value(shard, number))).collect();
            assert!(found == expected, "look-up {number} found others");
        });
    }
    looking_up.join_all().await;
}

#[tokio::test]
async fn long_keys_keep_their_order() {
    let store = connect_as_owner(&new_database(), 1).await.expect("connect");
    let keys = keys();
    let value = |number: usize| Bytes::from(number.to_string());
    let record = |number: usize, value| Record { key: keys[number].clone(), value };
    let epoch = store.take(SHARD).await.expect("take");
    for seq in 1..=2 {
        store.append(SHARD, epoch, Seq(seq), Bytes::new()).await.expect("append");
    }
    let all: Records = (0..keys.len()).map(|number| record(number, Some(value(number)))).collect();
    store.checkpoint(SHARD, epoch, Seq(1), Arc::new(all)).await.expect("checkpoint");
    let removed: Records = (0..keys.len()).step_by(3).map(|number| record(number, None)).collect();
    store.checkpoint(SHARD, epoch, Seq(2), Arc::new(removed)).await.expect("checkpoint");
    let left = (0..keys.len()).filter(|number| number % 3 != 0);
    let model: BTreeMap<Bytes, Bytes> = left.map(|number| (keys[number].clone(), value(number))).collect();

    let found = store.get_many(SHARD, keys.clone()).await.expect("get_many");
    assert!(keys.iter().zip(found).all(|(key, found)| model.get(key) == found.as_ref()));
    let pair = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
    for from in &keys {
        let ranges = keys.iter().map(|at| (from.clone(), at.clone())).collect();
        let found = store.last_at_or_before(SHARD, ranges).await.expect("last_at_or_before");
        for (at, found) in keys.iter().zip(found) {
            let range = (Bound::Included(from.clone()), Bound::Included(at.clone()));
            let expected = (from <= at).then(|| model.range(range).next_back().map(pair)).flatten();
            assert!(found == expected, "the last from {} to {} bytes", from.len(), at.len());
        }
        for (limit, to) in [(1, &keys[8]), (4, &keys[26]), (100, &keys[keys.len() - 1])] {
            let found = store.scan(SHARD, from.clone(), to.clone(), limit).await.expect("scan");
            let range = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
            let expected: Option<Vec<_>> =
                (from < to).then(|| model.range(range).take(limit).map(pair).collect());
            assert!(
                found == expected.unwrap_or_default(),
                "a scan from {} to {} bytes",
                from.len(),
                to.len()
            );
        }
    }
}

#[tokio::test]
async fn a_release_removes_only_appends_that_the_table_has() {
    const APPENDS: i64 = 600;
    const APPLIED: u64 = 590;
    let url = new_database();
    let store = connect_as_owner(&url, 1).await.expect("connect");
    let epoch = store.take(SHARD).await.expect("take");
    for seq in 1..=APPENDS as u64 {
        store.append(SHARD, epoch, Seq(seq), Bytes::from_static(b"ten bytes.")).await.expect("append");
    }
    assert_eq!(store.stats().live_bytes, 10 * APPENDS as u64);
    assert_eq!(store.stats().pinning, [(SHARD, Seq(1))]);
    store.checkpoint(SHARD, epoch, Seq(APPLIED), Arc::default()).await.expect("checkpoint");
    store.release(SHARD, Seq(APPENDS as u64));
    let client = client(&url).await;
    eventually(async || {
        let row =
            client.query_one("SELECT count(*), min(seq) FROM limina.journal", &[]).await.expect("count");
        (row.get::<_, i64>(0), row.get::<_, i64>(1)) == (APPENDS - APPLIED as i64, APPLIED as i64 + 1)
    })
    .await;
    let tail = store.tail(SHARD, epoch, Seq(APPLIED)).await.expect("tail");
    assert_eq!(tail.len(), 10);
    assert!(store.tail(SHARD, epoch, Seq(0)).await.is_err(), "what is missing is noticed");
}

/// A checkpoint whose last answer was lost is repeated. Its records must not be written again: they would name the same seq as those of the
/// next checkpoint, so that a late one of them could replace a later record.
#[tokio::test]
async fn a_checkpoint_that_was_done_is_not_written_again() {
    let store = connect_as_owner(&new_database(), 1).await.expect("connect");
    let epoch = store.take(SHARD).await.expect("take");
    for seq in 1..=9 {
        store.append(SHARD, epoch, Seq(seq), Bytes::new()).await.expect("append");
    }
    let key = Bytes::from_static(b"key");
    let records = |value: &'static str| {
        let record = Record { key: key.clone(), value: Some(Bytes::from_static(value.as_bytes())) };
        Arc::new(Records::from_iter([record]))
    };
    let check = async |upto, written, expect: &str| {
        store.checkpoint(SHARD, epoch, Seq(upto), records(written)).await.expect("checkpoint");
        let found = store.get_many(SHARD, vec![key.clone()]).await.expect("a look-up");
        assert_eq!(found, [Some(Bytes::copy_from_slice(expect.as_bytes()))]);
        assert_eq!(store.applied(SHARD).await.expect("applied"), Seq(upto));
    };
    check(5, "first", "first").await;
    check(5, "repeated", "first").await;
    check(9, "next", "next").await;
}
