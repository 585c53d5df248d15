//! The filter of the table's keys, see [`KeyFilter`]. It answers a look-up of a key that the table does not have.
//!
//! A filter in use has every filtered key of the table. So a checkpoint adds its keys before the table gets them, and stores the filter
//! with the table, also before. A stored filter that belongs to an older checkpoint than the table is not used: it lacks keys. Then the
//! filter is made from the keys of the table, while checkpoints add theirs.

use super::ShardStore;
use crate::{
    Epoch, Journal, RecordRef, Records, Seq, StoreError, Table, key_filter::KeyFilter, sharding::random_bytes,
};
use bytes::Bytes;
use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The keys of the table that are read at a time, and that are added at a time.
const PAGE: usize = 4_096;

/// The keys that a filter covers.
#[derive(Debug, Clone)]
pub struct FilteredKeys {
    /// All of them are in this range.
    pub range: Range<Bytes>,
    /// Whether a key of the range is filtered.
    pub is_filtered: fn(&[u8]) -> bool,
    /// Counts the look-ups of such keys, over all shards.
    pub counts: Arc<FilterCounts>,
}

/// How look-ups of filtered keys were answered.
#[derive(Debug, Default)]
pub struct FilterCounts {
    /// By the filter: the table does not have the key.
    pub absent: AtomicU64,
    /// By the table, because the filter was not there, or said that the table may have the key.
    pub looked_up: AtomicU64,
}

/// A filter as the table stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFilter {
    /// It has all keys of the table up to this append, and possibly more.
    pub upto: Seq,
    /// The parts of [`KeyFilter`], in order.
    pub parts: Vec<Bytes>,
}

/// A part of a filter that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterPart {
    /// The number of the part.
    pub number: usize,
    /// Its content.
    pub bytes: Bytes,
}

/// The records of a checkpoint.
type Images<'a> = Box<dyn Iterator<Item = RecordRef<'a>> + Send + 'a>;

/// The filter of one shard.
#[derive(Default)]
pub(super) struct Filtering {
    keys: Option<FilteredKeys>,
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    /// It was not read yet.
    #[default]
    Unknown,
    /// The keys of the table are being read. These are the hashes of those that were read, and of those that checkpoints added meanwhile.
    Building { hash_key: [u8; 16], hashes: Vec<u64> },
    Ready {
        filter: KeyFilter,
        /// The parts below this number are stored, and do not change any more.
        clean: usize,
    },
    /// There is no memory for it.
    Off,
}

impl Filtering {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table has gone back to an older state, and the stored filter with it. What is in memory would never be stored again as a whole.
    pub(super) fn reload(&self) {
        let mut state = self.lock();
        if !matches!(*state, State::Off) {
            *state = State::Unknown;
        }
    }

    /// Whether the table certainly does not have the key.
    pub(super) fn is_absent(&self, key: &[u8]) -> bool {
        let Some(keys) = self.keys.as_ref().filter(|keys| (keys.is_filtered)(key)) else { return false };
        let is_absent = match &*self.lock() {
            State::Ready { filter, .. } => !filter.may_contain(key),
            State::Unknown | State::Building { .. } | State::Off => false,
        };
        let count = if is_absent { &keys.counts.absent } else { &keys.counts.looked_up };
        count.fetch_add(1, Ordering::Relaxed);
        is_absent
    }

    /// Adds the keys of a checkpoint.
    async fn add(&self, records: &Records) {
        let Some(keys) = &self.keys else { return };
        let mut images: Images<'_> = Box::new(records.images());
        // Adding many keys must not hold up the other tasks of this thread.
        while self.add_some(keys, &mut images) {
            tokio::task::yield_now().await;
        }
        let mut state = self.lock();
        if matches!(&*state, State::Ready { filter, .. } if filter.is_worn()) {
            *state = State::Unknown;
        }
    }

    /// Adds some of the keys, and returns whether there may be more.
    fn add_some(&self, keys: &FilteredKeys, images: &mut Images<'_>) -> bool {
        let mut state = self.lock();
        let mut count = 0;
        for image in images.by_ref().take(PAGE) {
            count += 1;
            if (keys.is_filtered)(image.key) {
                state.add(image.key, image.value.is_some());
            }
        }
        count == PAGE
    }

    /// The parts that must be stored, and how many there are in all.
    fn changed_parts(&self) -> Option<(Vec<FilterPart>, usize)> {
        let state = self.lock();
        let State::Ready { filter, clean } = &*state else { return None };
        let part = |number| FilterPart { number, bytes: filter.encode(number).into() };
        Some(((*clean..filter.parts()).map(part).collect(), filter.parts()))
    }

    /// This many parts are stored. The last one may change again.
    fn stored(&self, parts: usize) {
        if let State::Ready { clean, .. } = &mut *self.lock() {
            *clean = parts - 1;
        }
    }
}

impl State {
    fn add(&mut self, key: &[u8], is_stored: bool) {
        match self {
            State::Building { hash_key, hashes } if is_stored => hashes.push(KeyFilter::hash(hash_key, key)),
            State::Ready { filter, .. } if is_stored => filter.insert(key),
            State::Ready { filter, .. } => filter.note_removal(),
            State::Building { .. } | State::Unknown | State::Off => {}
        }
    }
}

impl<J: Journal, T: Table> ShardStore<J, T> {
    /// Filters these keys, if the table stores filters. To be called before the store is used.
    pub fn filter_keys(&mut self, keys: FilteredKeys) {
        self.filtering.keys = self.table.has_filters().then_some(keys);
    }

    /// Whether [`ShardStore::load_filter`] has something to do.
    pub fn needs_filter(&self) -> bool {
        self.filtering.keys.is_some() && matches!(*self.filtering.lock(), State::Unknown)
    }

    /// Reads the filter, or makes it from the keys of the table. Until then, all keys are looked up. Returns how many keys it has.
    pub async fn load_filter(&self) -> Result<usize, StoreError> {
        let Some(keys) = self.filtering.keys.clone().filter(|_| self.needs_filter()) else { return Ok(0) };
        {
            // No checkpoint may change the table before the filter is there, or gets its keys.
            let _alone = self.checkpointing.lock().await;
            let stored = self.table.load_filter(self.shard).await?;
            let stored = stored.filter(|stored| stored.upto >= self.lock().applied);
            let filter = stored.and_then(|stored| KeyFilter::decode(stored.parts));
            if let Some(filter) = filter.filter(|filter| !filter.is_worn()) {
                let (count, clean) = (filter.len(), filter.parts() - 1);
                *self.filtering.lock() = State::Ready { filter, clean };
                return Ok(count);
            }
            *self.filtering.lock() = State::Building { hash_key: random_bytes()?, hashes: Vec::new() };
        }
        let built = self.build_filter(&keys).await;
        if built.is_err() {
            *self.filtering.lock() = State::Unknown;
        }
        built
    }

    async fn build_filter(&self, keys: &FilteredKeys) -> Result<usize, StoreError> {
        let mut rest = keys.range.clone();
        while !rest.is_empty() {
            let page = self.table.scan_keys(self.shard, rest.start.clone(), rest.end.clone(), PAGE).await?;
            rest.start = match page.last() {
                Some(last) if page.len() >= PAGE => super::look_up::successor(last),
                _ => rest.end.clone(),
            };
            let mut state = self.filtering.lock();
            page.iter().filter(|key| (keys.is_filtered)(key)).for_each(|key| state.add(key, true));
        }
        let _alone = self.checkpointing.lock().await;
        let count = {
            let mut state = self.filtering.lock();
            // It may have been dropped meanwhile.
            let State::Building { hash_key, hashes } = &mut *state else { return Ok(0) };
            let filter = KeyFilter::of_hashes(*hash_key, hashes);
            let count = filter.len();
            *state = State::Ready { filter, clean: 0 };
            count
        };
        let (epoch, applied) = {
            let state = self.lock();
            (state.epoch, state.applied)
        };
        self.store_filter(epoch, applied).await;
        Ok(count)
    }

    /// Adds the keys of a checkpoint to the filter, and stores the filter.
    pub(super) async fn filter_checkpoint(&self, epoch: Epoch, upto: Seq, records: &Records) {
        if self.filtering.keys.is_some() {
            self.filtering.add(records).await;
            self.store_filter(epoch, upto).await;
        }
    }

    /// If this fails, the stored filter is older than the table, and is not used by the next owner.
    async fn store_filter(&self, epoch: Epoch, upto: Seq) {
        let Some((changed, parts)) = self.filtering.changed_parts() else { return };
        match self.table.store_filter(self.shard, epoch, upto, changed, parts).await {
            Ok(()) => self.filtering.stored(parts),
            // The shard has moved meanwhile, which is nothing to warn of.
            Err(StoreError::NotOwned) => {}
            Err(error) => tracing::warn!(
                shard = self.shard.0,
                error = &error as &dyn std::error::Error,
                "the filter of a shard's keys could not be stored"
            ),
        }
    }

    /// The memory of the filter, in bytes.
    pub fn filter_bytes(&self) -> usize {
        match &*self.filtering.lock() {
            State::Ready { filter, .. } => filter.bytes(),
            State::Building { hashes, .. } => hashes.capacity() * 8,
            State::Unknown | State::Off => 0,
        }
    }

    /// Frees the memory of the filter. From now on all keys are looked up.
    pub fn drop_filter(&self) {
        if self.filtering.keys.is_some() {
            *self.filtering.lock() = State::Off;
        }
    }
}
