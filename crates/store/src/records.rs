//! Records in memory: the newest after-image of each key.

use crate::{Batch, RecordRef, batch::Slot};
use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};
use std::{
    collections::BTreeSet,
    hash::BuildHasher,
    hint::black_box,
    ops::{Range, RangeBounds},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// Approximate memory for each record, besides its key and value.
const LOCATION_BYTES: usize = 48;
/// Bytes of replaced records that are always tolerated before memory is compacted.
const MIN_DEAD_BYTES: usize = 16 << 10;
/// So many records are sorted in a few milliseconds.
const FEW: usize = 8 << 10;

/// The number of records that are read from memory together, before they are used one after the other. They are scattered, so each
/// read alone would wait for memory.
const LOADED_TOGETHER: usize = 16;

/// How many bytes of each key are copied to be sorted.
const HEAD: usize = 24;
/// Fewer keys than this that begin alike are compared where they are.
const FEW_ALIKE: usize = 16;

/// The newest after-image of each key. A value of `None` means that the record was removed.
///
/// Whole batches are kept in their encoded form, with the location of each key's record. So a record needs neither an
/// allocation nor a reference count, and dropping all of them is cheap. Most records are only looked up by their key,
/// so locations are in a hash table. The sorted order of the keys is built when it is first needed, and maintained from
/// then on.
#[derive(Debug, Default)]
pub struct Records {
    buffers: Vec<Bytes>,
    locations: HashTable<RecordLocation>,
    hasher: DefaultHashBuilder,
    /// Bytes of current records, and bytes of records that were replaced.
    live_bytes: usize,
    dead_bytes: usize,
    order: OnceLock<BTreeSet<Bytes>>,
    /// Whether the sorted order was needed since this set was created.
    is_order_requested: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct RecordLocation {
    /// Kept here so that neither a growing table nor a failed look-up has to read the key.
    hash: u64,
    buffer: u32,
    slot: Slot,
}

impl RecordLocation {
    fn bytes(&self) -> usize {
        self.slot.key as usize + self.slot.value.unwrap_or(0) as usize
    }
}

impl Records {
    /// Inserts a batch. Its records replace earlier ones with the same keys.
    pub fn insert(&mut self, batch: &Batch) {
        self.insert_slots(batch, batch.slots());
    }

    /// Inserts a batch that was read back from the journal. An interrupted checkpoint may have written any of its
    /// records to the table, so none counts as the first under its key.
    pub(crate) fn insert_replayed(&mut self, batch: &Batch) {
        self.insert_slots(batch, batch.slots().map(|slot| Slot { is_first: false, ..slot }));
    }

    fn insert_slots(&mut self, batch: &Batch, slots: impl Iterator<Item = Slot>) {
        let payload = batch.payload().clone();
        let buffer = u32::try_from(self.buffers.len()).expect("fewer than 2^32 batches");
        self.locations.reserve(batch.len(), |location| location.hash);
        self.buffers.push(payload.clone());
        let locate = |slot: Slot| {
            let hash = self.hasher.hash_one(slot.image(&payload).key);
            RecordLocation { hash, buffer, slot }
        };
        let located: Vec<RecordLocation> = slots.map(locate).collect();
        for together in located.chunks(LOADED_TOGETHER) {
            self.load_places(together);
            for location in together {
                self.put(*location, location.slot.image(&payload).key);
            }
        }
        if self.dead_bytes > 2 * self.live_bytes + MIN_DEAD_BYTES {
            self.compact();
        }
    }

    /// Reads the places that these records have in the hash table, so that they are in the processor's cache afterwards. No read
    /// depends on another one, so the processor waits for several at a time.
    fn load_places(&self, located: &[RecordLocation]) {
        let is_taken = |location: &&RecordLocation| {
            self.locations.find(location.hash, |other| other.hash == location.hash).is_some()
        };
        black_box(located.iter().filter(is_taken).count());
    }

    fn put(&mut self, mut location: RecordLocation, key: &[u8]) {
        let buffers = &self.buffers;
        let is_same = |other: &RecordLocation| other.hash == location.hash && other.key(buffers) == key;
        self.live_bytes += location.bytes();
        match self.locations.entry(location.hash, is_same, |location| location.hash) {
            Entry::Vacant(vacant) => {
                vacant.insert(location);
                if let Some(order) = self.order.get_mut() {
                    order.insert(Bytes::copy_from_slice(key));
                }
            }
            Entry::Occupied(mut occupied) => {
                let old = occupied.get().bytes();
                self.live_bytes -= old;
                self.dead_bytes += old;
                // The table never contained this record, so it need not learn of the removal.
                if occupied.get().slot.is_first && location.slot.value.is_none() {
                    occupied.remove();
                    self.live_bytes -= location.bytes();
                    self.dead_bytes += location.bytes();
                    if let Some(order) = self.order.get_mut() {
                        order.remove(key);
                    }
                } else {
                    location.slot.is_first = occupied.get().slot.is_first;
                    *occupied.get_mut() = location;
                }
            }
        }
    }

    /// Copies the current records into one batch, and frees the memory of those that were replaced.
    fn compact(&mut self) {
        let locations: Vec<&RecordLocation> = self.locations.iter().collect();
        let images = locations.iter().map(|location| location.image(&self.buffers));
        let batch = Batch::new(images);
        let mut next = Records {
            hasher: self.hasher.clone(),
            order: std::mem::take(&mut self.order),
            ..Records::default()
        };
        next.is_order_requested = AtomicBool::new(*self.is_order_requested.get_mut());
        next.locations.reserve(locations.len(), |location| location.hash);
        for slot in batch.slots() {
            let key = slot.image(batch.payload()).key;
            let location = RecordLocation { hash: next.hasher.hash_one(key), buffer: 0, slot };
            next.live_bytes += location.bytes();
            next.locations.insert_unique(location.hash, location, |location| location.hash);
        }
        next.buffers.push(batch.payload().clone());
        *self = next;
    }

    /// The after-image of a key: `None` if there is none, `Some(None)` if the record was removed.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let hash = self.hasher.hash_one(key);
        let is_same = |location: &RecordLocation| location.hash == hash && location.key(&self.buffers) == key;
        self.locations.find(hash, is_same).map(|location| location.value(&self.buffers))
    }

    /// The records in a range of keys, sorted. The first call sorts only that range, because it may be the only call:
    /// after a crash, millions of records are read back from the journal, and opening looks at a few of them.
    pub fn range<'a>(
        &'a self,
        range: impl RangeBounds<Bytes> + 'a,
    ) -> Box<dyn DoubleEndedIterator<Item = (Bytes, Option<Bytes>)> + 'a> {
        if !self.is_order_requested.swap(true, Ordering::Relaxed) && self.order.get().is_none() {
            let part = self.sort(self.locations.iter().filter(|location| {
                let bounds = (range.start_bound().map(|key| &**key), range.end_bound().map(|key| &**key));
                RangeBounds::<[u8]>::contains(&bounds, location.key(&self.buffers))
            }));
            return Box::new(part.into_iter().map(|location| location.record(&self.buffers)));
        }
        // The keys are copied, so that the order does not keep replaced batches in memory.
        let key = |location: &RecordLocation| Bytes::copy_from_slice(location.key(&self.buffers));
        let sorted = || self.sort(self.locations.iter()).into_iter().map(key).collect();
        let order = self.order.get_or_init(sorted);
        let value = |key: &Bytes| self.get(key).expect("what is in order is there");
        Box::new(order.range(range).map(move |key| (key.clone(), value(key))))
    }

    /// The records in a range of keys, sorted, for a caller that needs all of them. The order is computed for this call only.
    pub(crate) fn sorted_range(&self, range: &Range<Bytes>) -> Vec<(Bytes, Option<Bytes>)> {
        let within = |location: &&RecordLocation| {
            let key = location.key(&self.buffers);
            *range.start <= *key && *key < *range.end
        };
        let sorted = self.sort(self.locations.iter().filter(within));
        sorted.into_iter().map(|location| location.record(&self.buffers)).collect()
    }

    /// All records, in no particular order.
    pub(crate) fn images(&self) -> impl Iterator<Item = RecordRef<'_>> {
        self.locations.iter().map(|location| location.image(&self.buffers))
    }

    /// All records sorted by key, for a checkpoint. The order is computed for this call only.
    pub fn sorted(&self) -> impl ExactSizeIterator<Item = RecordRef<'_>> {
        let sorted = self.sort(self.locations.iter());
        // The locations are all over the memory. In a loop that does nothing else, the processor reads several of them at a time.
        let images: Vec<RecordRef<'_>> =
            sorted.into_iter().map(|location| location.image(&self.buffers)).collect();
        // The keys and values are scattered too.
        let mut loaded = 0;
        (0..images.len()).map(move |at| {
            if at == loaded {
                loaded = images.len().min(at + LOADED_TOGETHER);
                load_keys(&images[at..loaded]);
            }
            images[at]
        })
    }

    fn sort<'a>(&self, locations: impl Iterator<Item = &'a RecordLocation>) -> Vec<&'a RecordLocation> {
        let mut sorted = locations.collect::<Vec<_>>();
        self.sort_slice(&mut sorted);
        sorted
    }

    /// Most keys are not in the processor's cache, so comparing them where they are is slow. The first bytes in which the keys
    /// differ are copied next to the locations, and these copies are compared. Keys whose copies are equal are sorted by their next
    /// bytes in the same way.
    fn sort_slice(&self, locations: &mut [&RecordLocation]) {
        let mut keys = locations.iter().map(|location| location.key(&self.buffers));
        let Some(first) = keys.next() else { return };
        let in_common =
            |most: usize, key: &[u8]| first[..most].iter().zip(key).take_while(|(a, b)| a == b).count();
        let skipped = keys.fold(first.len(), in_common);
        let head = |location: &RecordLocation| {
            let mut head = [0; HEAD];
            let key = &location.key(&self.buffers)[skipped..];
            let length = key.len().min(HEAD);
            head[..length].copy_from_slice(&key[..length]);
            let (words, _) = head.as_chunks::<8>();
            [0, 1, 2].map(|word| u64::from_be_bytes(words[word]))
        };
        let mut all: Vec<([u64; 3], &RecordLocation)> =
            locations.iter().map(|location| (head(location), *location)).collect();
        all.sort_unstable_by_key(|(head, _)| *head);
        for (place, (_, location)) in locations.iter_mut().zip(&all) {
            *place = location;
        }
        let mut end = 0;
        let ranges = all.chunk_by(|a, b| a.0 == b.0).map(|alike| {
            end += alike.len();
            end - alike.len()..end
        });
        let alike: Vec<Range<usize>> = ranges.filter(|range| range.len() > 1).collect();
        // Freed before the calls below, which need as much memory again if many keys have long beginnings in common.
        drop(all);
        for range in alike {
            self.sort_alike(&mut locations[range], skipped + HEAD);
        }
    }

    /// Sorts keys whose first `compared` bytes are equal. A shorter key is equal to those that go on with zeros.
    fn sort_alike(&self, locations: &mut [&RecordLocation], compared: usize) {
        let is_short = |location: &&RecordLocation| location.slot.key as usize <= compared;
        if locations.len() < FEW_ALIKE || locations.iter().any(is_short) {
            locations.sort_unstable_by_key(|location| location.key(&self.buffers));
        } else {
            self.sort_slice(locations);
        }
    }

    /// The number of keys, including those of removed records.
    pub fn len(&self) -> usize {
        self.locations.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.locations.is_empty()
    }

    /// Approximate memory use, in bytes.
    pub fn bytes(&self) -> usize {
        self.live_bytes + self.dead_bytes + self.len() * LOCATION_BYTES
    }

    /// Whether [`Records::range`] finds its records without sorting many of them first.
    pub(crate) fn is_range_quick(&self) -> bool {
        self.order.get().is_some() || self.len() <= FEW
    }

    /// Sees to it that [`Records::next`] maintains the sorted order.
    pub(crate) fn request_order(&self) {
        self.is_order_requested.store(true, Ordering::Relaxed);
    }

    /// A new, empty set. If this one needed the sorted order, the new one maintains it from the start.
    pub(crate) fn next(&self) -> Records {
        let next = Records::default();
        if self.is_order_requested.load(Ordering::Relaxed) {
            next.order.get_or_init(BTreeSet::new);
        }
        next
    }
}

impl RecordLocation {
    fn image<'a>(&self, buffers: &'a [Bytes]) -> RecordRef<'a> {
        self.slot.image(&buffers[self.buffer as usize])
    }

    fn key<'a>(&self, buffers: &'a [Bytes]) -> &'a [u8] {
        self.image(buffers).key
    }

    fn key_bytes(&self, buffers: &[Bytes]) -> Bytes {
        let at = self.slot.at as usize;
        buffers[self.buffer as usize].slice(at..at + self.slot.key as usize)
    }

    fn record(&self, buffers: &[Bytes]) -> (Bytes, Option<Bytes>) {
        (self.key_bytes(buffers), self.value(buffers))
    }

    fn value(&self, buffers: &[Bytes]) -> Option<Bytes> {
        let at = (self.slot.at + self.slot.key) as usize;
        self.slot.value.map(|length| buffers[self.buffer as usize].slice(at..at + length as usize))
    }
}

impl FromIterator<crate::Record> for Records {
    fn from_iter<I: IntoIterator<Item = crate::Record>>(records: I) -> Records {
        let mut all = Records::default();
        all.insert(&records.into_iter().collect::<Vec<_>>().into());
        all
    }
}

/// Reads the keys of records, so that they are in the processor's cache afterwards. No read depends on another one, so the processor waits for
/// several at a time.
fn load_keys(records: &[RecordRef<'_>]) {
    black_box(records.iter().filter(|record| record.key.first() == Some(&0)).count());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;
    use proptest::prelude::*;

    /// Keys that begin alike for any number of bytes, some of which end where others go on with zeros.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let end = prop::collection::vec(prop_oneof![Just(0), 1..4_u8], 0..8);
        (prop_oneof![Just(0_usize), 20..30_usize, Just(60)], 0..2_u8, end)
            .prop_map(|(alike, first, end)| [&[first][..], &vec![7; alike], &end].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn records_are_sorted_by_their_keys(keys in prop::collection::btree_set(key(), 0..300)) {
            let shuffled = keys.iter().rev().map(|key| Record { key: key.clone().into(), value: None });
            let records: Records = shuffled.collect();
            prop_assert!(records.sorted().map(|record| record.key.to_vec()).eq(keys));
        }
    }
}
