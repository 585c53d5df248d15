//! Arbitrary histories of a shard, compared with a model that is only a map.

use super::{Factory, Stop};
use crate::{Answer, FilteredKeys, HISTORY, Read, Record, Seq, ShardId, ShardStore, ShardStoreOptions};
use bytes::Bytes;
use std::{collections::BTreeMap, ops::Bound, sync::Arc};

/// One step of a history. Keys are numbers below [`KEYS`].
#[derive(Debug, Clone)]
pub enum Step {
    /// Appends these changes. `None` removes the key.
    Append(BTreeMap<u8, Option<u16>>),
    /// Adds this many records to each of these histories.
    Extend(BTreeMap<u8, u16>),
    /// Removes a whole history.
    Forget(u8),
    /// Compares every kind of look-up in the range `from..=to`, with this limit.
    Look(u8, u8, usize),
    /// The same for a range of histories. Each end is a history and a number in it.
    LookIntoHistories((u8, u16), (u8, u16), usize),
    /// Runs a checkpoint.
    Checkpoint,
    /// Reads the filter of keys, or makes it, if the table has one.
    LoadFilter,
    /// Takes ownership of the shard again, in the same process.
    Retake,
    /// Stops the store and opens it again.
    Reopen(Stop),
}

/// The number of keys. It is small, so that steps often use the same keys.
pub const KEYS: u8 = 40;

/// The number of histories.
pub const HISTORIES: u8 = 3;

const SHARD: ShardId = ShardId(1);

/// Runs the steps, and compares each result with the model.
pub async fn check<F: Factory>(mut factory: F, steps: Vec<Step>) {
    let mut model: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let mut store = factory.open().await.expect("open");
    let mut shard = open(&store).await;
    let mut seq = Seq::ZERO;
    // The last number of each history, also of a removed one: no key of a history is written twice.
    let mut lasts = [0; HISTORIES as usize];
    for step in steps {
        match step {
            Step::Append(_) | Step::Extend(_) | Step::Forget(_) => {
                seq = seq.next();
                let records = changes(&step, &model, &mut lasts);
                for record in &records {
                    match &record.value {
                        Some(value) => model.insert(record.key.clone(), value.clone()),
                        None => model.remove(&record.key),
                    };
                }
                shard.append(seq, records).await.expect("append");
            }
            Step::Look(from, to, limit) => {
                look(&shard, &model, key(from.min(to)), key(to.max(from)), limit).await
            }
            Step::LookIntoHistories(from, to, limit) => {
                let place = |(history, number): (u8, u16)| history_key(history, number.into());
                look(&shard, &model, place(from.min(to)), place(to.max(from)), limit).await
            }
            Step::Checkpoint => {
                let before = shard.backlog();
                let done = shard.checkpoint().await.expect("checkpoint");
                assert_eq!(done, before.since.map(|_| seq));
                assert_eq!(shard.backlog().since, None);
            }
            Step::LoadFilter => {
                shard.load_filter().await.expect("load_filter");
            }
            Step::Retake => shard.retake().await.expect("retake"),
            Step::Reopen(stop) => {
                drop(shard);
                factory.stop(store, stop).await;
                store = factory.open().await.expect("open");
                shard = open(&store).await;
            }
        }
        assert_eq!(shard.seq(), seq);
        shard.confirm().await.expect("confirm");
    }
    for limit in [1, 7, 1000] {
        look(&shard, &model, key(0), key(KEYS), limit).await;
    }
}

async fn open<S: crate::Journal + crate::Table>(store: &Arc<S>) -> ShardStore<S, S> {
    let opened = ShardStore::open(store.clone(), store.clone(), SHARD, ShardStoreOptions::default()).await;
    let mut opened = opened.expect("opening the shard");
    let range = key(0)..key(KEYS);
    // Some keys are not filtered.
    let is_filtered = |key: &[u8]| key.len() != 2;
    opened.filter_keys(FilteredKeys { range, is_filtered, counts: Arc::default() });
    opened
}

/// The records that a step appends.
fn changes(step: &Step, model: &BTreeMap<Bytes, Bytes>, lasts: &mut [u64]) -> Vec<Record> {
    let history = |history: u8| model.range(history_key(history, 0)..history_key(history + 1, 0));
    match step {
        Step::Append(changes) => changes.iter().map(|(key, value)| record(*key, *value)).collect(),
        Step::Extend(counts) => {
            let extend = |(of_history, count): (&u8, &u16)| {
                let (of_history, count) = (*of_history, u64::from(*count));
                let last = &mut lasts[usize::from(of_history)];
                let before = std::mem::replace(last, *last + 2 * count);
                let value = |number: u64| Bytes::from(vec![number as u8; number as usize % 100]);
                (1..=count).map(move |n| before + 2 * n).map(move |number| Record {
                    key: history_key(of_history, number),
                    value: Some(value(number)),
                })
            };
            counts.iter().flat_map(extend).collect()
        }
        Step::Forget(number) => {
            history(*number).map(|(key, _)| Record { key: key.clone(), value: None }).collect()
        }
        _ => Vec::new(),
    }
}

fn history_key(history: u8, number: u64) -> Bytes {
    [&[HISTORY, history][..], &number.to_be_bytes()].concat().into()
}

/// Keys of several lengths. Some are prefixes of others, and some end with a zero byte.
fn key(number: u8) -> Bytes {
    match number % 4 {
        0 => Bytes::copy_from_slice(&[number]),
        1 => Bytes::copy_from_slice(&[number - 1, 0]),
        2 => Bytes::copy_from_slice(&[number - 2, 0, 0]),
        _ => Bytes::copy_from_slice(&[number - 3, 1, u8::MAX]),
    }
}

fn record(number: u8, value: Option<u16>) -> Record {
    Record { key: key(number), value: value.map(|value| Bytes::copy_from_slice(&value.to_be_bytes())) }
}

async fn look<S: crate::Journal + crate::Table>(
    shard: &ShardStore<S, S>,
    model: &BTreeMap<Bytes, Bytes>,
    from: Bytes,
    to: Bytes,
    limit: usize,
) {
    let pair = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
    let inclusive = (Bound::Included(from.clone()), Bound::Included(to.clone()));
    let mut reads = vec![
        Read::LastAtOrBefore { from: from.clone(), at: to.clone() },
        Read::Scan { from: from.clone(), to: to.clone(), limit },
        Read::LastAtOrBefore { from: to.clone(), at: from.clone() },
    ];
    let mut expected = vec![
        Answer::Last(model.range(inclusive.clone()).next_back().map(pair)),
        Answer::Page(model.range(from.clone()..to.clone()).take(limit).map(pair).collect()),
        Answer::Last(if from == to {
            model.get(&from).map(|value| (from.clone(), value.clone()))
        } else {
            None
        }),
    ];
    let mut all = Vec::new();
    let mut scan = shard.begin_full_scan(from.clone()..to.clone());
    loop {
        let page = shard.next_page(&mut scan, limit.max(1)).await.expect("page");
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2 * limit.max(1));
        all.extend(page);
    }
    assert_eq!(all, model.range(from.clone()..to.clone()).map(pair).collect::<Vec<_>>(), "{from:?}..{to:?}");
    for key in (0..KEYS).map(key).chain([from, to]) {
        expected.push(Answer::Value(model.get(&key).cloned()));
        reads.push(Read::Get(key));
    }
    for ((read, now), expected) in reads.iter().zip(shard.read_now(&reads)).zip(&expected) {
        assert!(now.is_none() || now.as_ref() == Some(expected), "{read:?} at once: {now:?}");
    }
    let found = shard.read(reads.clone()).await;
    for ((read, found), expected) in reads.iter().zip(found).zip(expected) {
        assert_eq!(found.expect("read"), expected, "{read:?}");
    }
}
