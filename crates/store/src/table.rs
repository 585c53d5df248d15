//! The part of a store that holds the sorted records.

use crate::{Epoch, Records, Seq, ShardId, StoreError};
use bytes::Bytes;
use std::{future::Future, sync::Arc};

/// Sorted records, as of each shard's last checkpoint. Look-ups never see a shard's neighbours. Records of histories may
/// be packed, see [`HISTORY`](crate::HISTORY); look-ups do not show it.
pub trait Table: Send + Sync + 'static {
    /// Up to where the shard's journal is contained in the table.
    fn applied(&self, shard: ShardId) -> impl Future<Output = Result<Seq, StoreError>> + Send;

    /// The values under the keys, in the order of the keys.
    fn get_many(
        &self,
        shard: ShardId,
        keys: Vec<Bytes>,
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, StoreError>> + Send;

    /// The first `limit` records with `from <= key < to`.
    fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(Bytes, Bytes)>, StoreError>> + Send;

    /// The last record with `from <= key <= at`, for each pair of `(from, at)`.
    fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> impl Future<Output = Result<Vec<Option<(Bytes, Bytes)>>, StoreError>> + Send;

    /// Takes the records in and, when they are durable, remembers that the journal up to `upto` is contained.
    /// Repeating it, or what was left half done by a crash, is harmless.
    fn checkpoint(
        &self,
        shard: ShardId,
        epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}
