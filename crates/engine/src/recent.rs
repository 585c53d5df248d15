//! After-images that may not be durable yet.

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

/// The newest after-image of each key, in the order in which the keys first came.
///
/// Keys and values lie one behind the other in one piece of memory, and ranges in it are found by hash: a record costs
/// no allocation and no reference count.
#[derive(Debug, Default)]
pub struct Writes {
    bytes: Vec<u8>,
    ranges: Vec<WriteRanges>,
    by_key: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// Where a record lies.
#[derive(Debug)]
struct WriteRanges {
    hash: u64,
    key: Range<usize>,
    value: Option<Range<usize>>,
    is_first: bool,
}

/// One of the after-images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The record's key.
    pub key: &'a [u8],
    /// What stands there from now on; nothing if it was removed.
    pub value: Option<&'a [u8]>,
    /// Whether nothing has ever stood under the key before this batch.
    pub is_first: bool,
}

impl Writes {
    /// All of them, each key once.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Write<'_>> + Clone {
        self.ranges.iter().map(|index| Write {
            key: self.at(&index.key),
            value: index.value.as_ref().map(|value| self.at(value)),
            is_first: index.is_first,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
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
}

/// After-images and, if it was asked for, their order. `W` is [`Writes`] while the batch is being built, and later shared
/// with whoever makes them durable.
#[derive(Debug, Default)]
pub(crate) struct RecentWrites<W = Writes> {
    writes: W,
    order: OnceCell<BTreeMap<Vec<u8>, usize>>,
    /// Whether the order was asked for since these were begun.
    is_order_asked: Cell<bool>,
}

impl RecentWrites {
    /// The record stands under the key from now on; `is_first` says that nothing ever has before.
    pub(crate) fn put<T: Serialize>(&mut self, key: &[u8], record: &T, is_first: bool) {
        let index = self.index(key, is_first);
        let from = self.writes.end();
        record::encode_into(record, &mut self.writes.bytes);
        self.writes.ranges[index].value = Some(from..self.writes.end());
    }

    /// How many bytes keys and values take, replaced ones included.
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

    /// Ends the batch. What follows begins empty; if the order was asked for here, it will be asked for there.
    pub(crate) fn seal(&mut self) -> RecentWrites<Arc<Writes>> {
        let next = RecentWrites {
            writes: Writes { hasher: self.writes.hasher.clone(), ..Writes::default() },
            order: OnceCell::new(),
            is_order_asked: Cell::new(false),
        };
        if self.is_order_asked.get() {
            next.order.get_or_init(BTreeMap::new);
        }
        let RecentWrites { writes, order, is_order_asked } = core::mem::replace(self, next);
        RecentWrites { writes: Arc::new(writes), order, is_order_asked }
    }
}

impl<W: Borrow<Writes>> RecentWrites<W> {
    /// What was written under the key here or, if nothing was, in the batch `before`.
    pub(crate) fn get<'a>(
        &'a self,
        before: &'a RecentWrites<impl Borrow<Writes>>,
        key: &[u8],
    ) -> Option<Option<&'a [u8]>> {
        let (writes, before) = (self.writes.borrow(), before.writes.borrow());
        let hash = writes.hasher.hash_one(key);
        writes.get(hash, key).or_else(|| before.get(hash, key))
    }

    /// By key.
    pub(crate) fn range(
        &self,
        range: impl RangeBounds<Bytes>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> {
        self.is_order_asked.set(true);
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
