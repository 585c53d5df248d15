//! Writes that may not be durable yet.

use crate::record;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use bytes::Bytes;
use core::{
    borrow::Borrow,
    cell::{Cell, OnceCell},
    hash::BuildHasher,
    ops::{Bound, Range, RangeBounds},
};
use hashbrown::{DefaultHashBuilder, HashTable};
use serde::Serialize;

/// The most records and bytes for which a batch has room from its first write on.
const MOST_ROOM: Room = Room { records: 64, bytes: 4 << 10 };

/// The newest after-image of each key, in the order in which the keys were written first.
///
/// Keys and values are in one buffer, and a hash table finds their ranges. So a write needs no allocation of its own and no
/// reference count.
#[derive(Debug, Default)]
pub struct Writes {
    bytes: Vec<u8>,
    ranges: Vec<WriteRanges>,
    by_key: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// The ranges of a key and its value in the buffer.
#[derive(Debug)]
struct WriteRanges {
    hash: u64,
    key: Range<usize>,
    value: Option<Range<usize>>,
    is_first: bool,
}

/// One after-image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The record's key.
    pub key: &'a [u8],
    /// The new value. `None` if the record was removed.
    pub value: Option<&'a [u8]>,
    /// Whether the key was never used before this batch.
    pub is_first: bool,
}

impl Writes {
    /// All after-images, each key once.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Write<'_>> + Clone {
        self.ranges.iter().map(|index| Write {
            key: self.at(&index.key),
            value: index.value.as_ref().map(|value| self.at(value)),
            is_first: index.is_first,
        })
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are no after-images.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn get(&self, hash: u64, key: &[u8]) -> Option<Option<&[u8]>> {
        let index = &self.ranges[self.find(hash, key)?];
        Some(index.value.as_ref().map(|value| self.at(value)))
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_same = |index: &u32| {
            let index = &self.ranges[*index as usize];
            index.hash == hash && self.at(&index.key) == key
        };
        self.by_key.find(hash, is_same).map(|index| *index as usize)
    }

    fn at(&self, range: &Range<usize>) -> &[u8] {
        &self.bytes[range.clone()]
    }

    fn end(&self) -> usize {
        self.bytes.len()
    }

    fn reserve(&mut self, room: &Room) {
        self.bytes.reserve(room.bytes);
        self.ranges.reserve(room.records);
        let ranges = &self.ranges;
        self.by_key.reserve(room.records, |index| ranges[*index as usize].hash);
    }
}

/// The writes of a batch, with an index by key order that is built when it is first needed. `W` is [`Writes`] while the batch
/// is being built, and `Arc<Writes>` when it is sealed and shared with the shard.
#[derive(Debug, Default)]
pub(crate) struct RecentWrites<W = Writes> {
    writes: W,
    order: OnceCell<BTreeMap<Vec<u8>, usize>>,
    /// Whether a range was read since the batch began.
    is_order_used: Cell<bool>,
    /// What the last batch needed. The next one probably needs as much, and does not grow again and again.
    room: Room,
}

#[derive(Debug, Default)]
struct Room {
    records: usize,
    bytes: usize,
}

impl RecentWrites {
    /// Stores the record under the key. `is_first` says that the key was never used before.
    pub(crate) fn put<T: Serialize>(&mut self, key: &[u8], record: &T, is_first: bool) {
        let index = self.index(key, is_first);
        let from = self.writes.end();
        record::encode_into(record, &mut self.writes.bytes);
        self.writes.ranges[index].value = Some(from..self.writes.end());
    }

    /// The bytes of all keys and values, with those that were overwritten.
    pub(crate) fn bytes(&self) -> usize {
        self.writes.end()
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        let index = self.index(key, false);
        self.writes.ranges[index].value = None;
    }

    fn index(&mut self, key: &[u8], is_first: bool) -> usize {
        let hash = self.writes.hasher.hash_one(key);
        if let Some(index) = self.writes.find(hash, key) {
            return index;
        }
        let index = self.writes.ranges.len();
        if index == 0 {
            self.writes.reserve(&self.room);
        }
        let from = self.writes.end();
        self.writes.bytes.extend_from_slice(key);
        let key_range = from..self.writes.end();
        self.writes.ranges.push(WriteRanges { hash, key: key_range, value: None, is_first });
        let Writes { by_key, ranges, .. } = &mut self.writes;
        by_key.insert_unique(hash, index as u32, |index| ranges[*index as usize].hash);
        if let Some(order) = self.order.get_mut() {
            order.insert(key.to_vec(), index);
        }
        index
    }

    /// Seals the batch and begins an empty one. If ranges were read in this batch, the next one maintains the order from its
    /// beginning.
    pub(crate) fn seal(&mut self) -> RecentWrites<Arc<Writes>> {
        let next = RecentWrites {
            writes: Writes { hasher: self.writes.hasher.clone(), ..Writes::default() },
            order: OnceCell::new(),
            is_order_used: Cell::new(false),
            room: Room {
                records: self.writes.len().min(MOST_ROOM.records),
                bytes: self.writes.end().min(MOST_ROOM.bytes),
            },
        };
        if self.is_order_used.get() {
            next.order.get_or_init(BTreeMap::new);
        }
        let RecentWrites { writes, order, is_order_used, room } = core::mem::replace(self, next);
        RecentWrites { writes: Arc::new(writes), order, is_order_used, room }
    }
}

impl<W: Borrow<Writes>> RecentWrites<W> {
    /// What was written under the key in this batch or else in the batch `before`. `Some(None)` is a removal; `None` means that
    /// neither batch has written the key.
    pub(crate) fn get<'a>(
        &'a self,
        before: &'a RecentWrites<impl Borrow<Writes>>,
        key: &[u8],
    ) -> Option<Option<&'a [u8]>> {
        let (writes, before) = (self.writes.borrow(), before.writes.borrow());
        let hash = writes.hasher.hash_one(key);
        writes.get(hash, key).or_else(|| before.get(hash, key))
    }

    /// The writes in a range of keys, sorted by key. A value of `None` is a removal.
    pub(crate) fn range(
        &self,
        range: impl RangeBounds<Bytes>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> {
        self.is_order_used.set(true);
        let writes = self.writes.borrow();
        let order = self.order.get_or_init(|| {
            let ranges = writes.ranges.iter().enumerate();
            ranges.map(|(index, record)| (writes.at(&record.key).to_vec(), index)).collect()
        });
        let bounds = (slice(range.start_bound()), slice(range.end_bound()));
        order.range::<[u8], _>(bounds).map(move |(key, index)| {
            (key.as_slice(), writes.ranges[*index].value.as_ref().map(|value| writes.at(value)))
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.borrow().is_empty()
    }
}

impl RecentWrites<Arc<Writes>> {
    pub(crate) fn writes(&self) -> &Arc<Writes> {
        &self.writes
    }
}

fn slice(bound: Bound<&Bytes>) -> Bound<&[u8]> {
    bound.map(|key| key.as_ref())
}
