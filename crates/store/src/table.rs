//! The part of a store that holds the sorted records.

use crate::{Epoch, Seq, ShardId, StoreError};
use bytes::Bytes;
use hashbrown::HashMap;
use std::{
    collections::BTreeSet,
    future::Future,
    ops::RangeBounds,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// After-images, the newest of each key; no value means removed.
///
/// Most are only ever looked up by their key, so they are kept by hash. Their order is made when it is first asked
/// for, and from then on kept up.
#[derive(Debug, Default)]
pub struct Records {
    by_key: HashMap<Bytes, Option<Bytes>>,
    order: OnceLock<BTreeSet<Bytes>>,
    /// Whether the order was asked for since these were begun.
    is_order_asked: AtomicBool,
}

impl Records {
    /// Replaces the after-image of a key, and returns the old one.
    pub fn insert(&mut self, key: Bytes, value: Option<Bytes>) -> Option<Option<Bytes>> {
        if let Some(order) = self.order.get_mut() {
            order.insert(key.clone());
        }
        self.by_key.insert(key, value)
    }

    /// The after-image of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.by_key.get(key)
    }

    /// A part of them, by key. The first time only that part is put in order, since it may be the only time: after a
    /// crash millions of records are read back from the journal, and opening looks at a few of them.
    pub fn range<'a>(
        &'a self,
        range: impl RangeBounds<Bytes> + 'a,
    ) -> Box<dyn DoubleEndedIterator<Item = (&'a Bytes, &'a Option<Bytes>)> + 'a> {
        if !self.is_order_asked.swap(true, Ordering::Relaxed) && self.order.get().is_none() {
            let mut part: Vec<_> = self.by_key.iter().filter(|(key, _)| range.contains(*key)).collect();
            part.sort_unstable_by(|a, b| a.0.cmp(b.0));
            return Box::new(part.into_iter());
        }
        let order = self.order.get_or_init(|| self.by_key.keys().cloned().collect());
        Box::new(order.range(range).map(|key| (key, &self.by_key[key])))
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, &Option<Bytes>)> {
        self.range(..)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// None yet; if the order of these was asked for, it will be asked for again.
    pub(crate) fn next(&self) -> Records {
        let next = Records::default();
        if self.is_order_asked.load(Ordering::Relaxed) {
            next.order.get_or_init(BTreeSet::new);
        }
        next
    }
}

impl FromIterator<(Bytes, Option<Bytes>)> for Records {
    fn from_iter<I: IntoIterator<Item = (Bytes, Option<Bytes>)>>(records: I) -> Records {
        Records { by_key: records.into_iter().collect(), ..Records::default() }
    }
}

/// Sorted records, as of each shard's last checkpoint. Look-ups never see a shard's neighbours.
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
