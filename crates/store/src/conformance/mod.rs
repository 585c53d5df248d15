//! The conformance suite: cases that every store must pass.
//!
//! Each function is one case. The tests of a store implement [`Factory`] and run all cases; [`model::check`] compares
//! arbitrary histories with a naive model.

pub mod journal;
pub mod model;
pub mod prepared;
pub mod table;
pub mod tenure;

use crate::{AppendError, Epoch, Journal, Record, Records, Seq, ShardId, StoreError, Table};
use bytes::Bytes;
use std::{future::Future, sync::Arc};

/// Opens stores over the same data repeatedly.
pub trait Factory: Send {
    /// The store under test.
    type Store: Journal + Table;

    /// Opens the store, or creates it the first time.
    fn open(&mut self) -> impl Future<Output = Result<Arc<Self::Store>, StoreError>> + Send;

    /// Stops a store. The caller must hold the only reference to it.
    fn stop(&mut self, store: Arc<Self::Store>, how: Stop) -> impl Future<Output = ()> + Send;
}

/// How a store is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It is closed properly.
    Clean,
    /// The process is killed.
    Kill,
    /// Power is lost, and the seed decides which unsynced data survives. A factory that cannot simulate this kills the
    /// process instead.
    PowerLoss(u64),
}

/// Every kind of stop.
pub const STOPS: [Stop; 3] = [Stop::Clean, Stop::Kill, Stop::PowerLoss(7)];

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Parses `"a=1 b= c"`: `a` is 1, `b` is empty, `c` is removed.
fn records(text: &str) -> Vec<Record> {
    let record = |word: &str| match word.split_once('=') {
        Some((key, value)) => Record { key: bytes(key), value: Some(bytes(value)) },
        None => Record { key: bytes(word), value: None },
    };
    text.split_whitespace().map(record).collect()
}

fn overlay(text: &str) -> Arc<Records> {
    Arc::new(records(text).into_iter().collect())
}

fn page(found: &[(Bytes, Bytes)]) -> String {
    let record = |(key, value): &(Bytes, Bytes)| {
        format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
    };
    found.iter().map(record).collect::<Vec<_>>().join(" ")
}

/// A payload of the given length that is different for each append.
fn payload(shard: ShardId, seq: u64, length: usize) -> Bytes {
    let mut bytes: Vec<u8> = format!("{}/{seq} ", shard.0).into_bytes();
    bytes.resize(length.max(bytes.len()), seq as u8);
    bytes.into()
}

async fn append<S: Journal>(store: &S, shard: ShardId, epoch: Epoch, seq: u64, length: usize) {
    let appended = store.append(shard, epoch, Seq(seq), payload(shard, seq, length)).await;
    appended.unwrap_or_else(|error| panic!("append {seq} of {shard:?}: {error:?}"));
}

async fn take<S: Journal>(store: &S, shard: ShardId) -> Epoch {
    store.take(shard).await.unwrap_or_else(|error| panic!("taking {shard:?}: {error:?}"))
}

/// Checks that the journal has exactly the appends `after + 1..=last`, of the given length.
async fn check_tail<S: Journal>(
    store: &S,
    shard: ShardId,
    epoch: Epoch,
    after: u64,
    last: u64,
    length: usize,
) {
    let mut next = after + 1;
    loop {
        let part = store.tail(shard, epoch, Seq(next - 1)).await;
        let part = part.unwrap_or_else(|error| panic!("tail of {shard:?}: {error:?}"));
        if part.is_empty() {
            break;
        }
        for (seq, found) in part {
            assert_eq!(seq, Seq(next), "the seqs of {shard:?}");
            assert!(
                found == payload(shard, next, length),
                "append {next} of {shard:?} is not what was appended"
            );
            next += 1;
        }
    }
    assert_eq!(next, last + 1, "the end of {shard:?}");
}

fn is_fenced(result: Result<(), AppendError>) -> bool {
    matches!(result, Err(AppendError::Fenced))
}
