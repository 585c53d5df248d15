//! The table: the part of a store that holds the sorted records.

use crate::{Epoch, FilterPart, Records, Seq, ShardId, StoreError, StoredFilter};
use bytes::Bytes;
use std::{future::Future, sync::Arc};

/// The sorted records of all shards, each as of the shard's last checkpoint. A look-up sees the records of its own
/// shard only. Records of histories may be packed into runs (see [`HISTORY`](crate::HISTORY)), but look-ups return
/// single records. Every key begins with a byte below ff, because the table may keep records of its own behind all others.
pub trait Table: Send + Sync + 'static {
    /// The last append of the shard that the table contains; [`Seq::ZERO`] if there is none.
    fn applied(&self, shard: ShardId) -> impl Future<Output = Result<Seq, StoreError>> + Send;

    /// The values under the keys, in the order of the keys. `None` if there is no record.
    fn get_many(
        &self,
        shard: ShardId,
        keys: Vec<Bytes>,
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, StoreError>> + Send;

    /// The first `limit` records with `from <= key < to`, sorted by key.
    fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(Bytes, Bytes)>, StoreError>> + Send;

    /// For each pair `(from, at)`, the last record with `from <= key <= at`.
    fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> impl Future<Output = Result<Vec<Option<(Bytes, Bytes)>>, StoreError>> + Send;

    /// Writes the records, and once they are durable, stores that the table contains the journal up to `upto`. A
    /// checkpoint can be repeated, also after a crash in the middle of it.
    fn checkpoint(
        &self,
        shard: ShardId,
        epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Drops records with `from <= key < to`, which nobody looks up any more: all of them, some, or none, whatever costs little. The
    /// caller removes the others one by one. A dropped record may come back if it was removed before this call, and not since.
    fn discard(
        &self,
        _shard: ShardId,
        _from: Bytes,
        _to: Bytes,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Whether the table stores filters of its keys. A table whose look-ups cost little needs none.
    fn has_filters(&self) -> bool {
        false
    }

    /// The keys of the first `limit` records with `from <= key < to`, in order.
    fn scan_keys(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Bytes>, StoreError>> + Send {
        async move {
            let page = self.scan(shard, from, to, limit).await?;
            Ok(page.into_iter().map(|(key, _)| key).collect())
        }
    }

    /// Stores the changed parts of a filter that has the keys of the table up to the checkpoint `upto`, which is to be called after
    /// this. The filter has `parts` parts in all.
    fn store_filter(
        &self,
        _shard: ShardId,
        _epoch: Epoch,
        _upto: Seq,
        _changed: Vec<FilterPart>,
        _parts: usize,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// The stored filter, if there is one.
    fn load_filter(
        &self,
        _shard: ShardId,
    ) -> impl Future<Output = Result<Option<StoredFilter>, StoreError>> + Send {
        std::future::ready(Ok(None))
    }
}
