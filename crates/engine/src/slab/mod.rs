//! A map for millions of entries, by key and by a stable index, that never pauses to grow.
//!
//! A plain hash map that grows moves all its entries, and a plain vector copies them: with five million groups that would
//! delay every request of the shard. Here entries are stored in chunks of fixed size, and the hash index over them consists
//! of many small tables, one of which is split whenever there are too many entries (`hash_index`).
//!
//! A namespace may have few entries, so the first chunk begins small and doubles until it has its full size. A slab without
//! entries takes no memory.

mod hash_index;

use crate::resident::Shrink;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use hash_index::HashIndex;
use hashbrown::{DefaultHashBuilder, Equivalent};

/// The number of slots of a chunk.
const CHUNK: usize = 1 << 10;
/// The number of slots with which the first chunk begins.
const FIRST_SLOTS: usize = 4;

/// Identifies an entry while it exists. The index of a removed entry is used again.
pub(crate) type SlabIndex = u32;

/// Entries by key and by index.
#[derive(Debug)]
pub(crate) struct Slab<K, T> {
    chunks: Vec<Chunk<K, T>>,
    /// The numbers of the chunks with free slots, each once.
    open_chunks: Vec<u32>,
    by_hash: HashIndex,
    hasher: DefaultHashBuilder,
    /// The memory of the chunks.
    chunk_bytes: usize,
}

/// The entries with consecutive indexes. An empty chunk takes no memory for slots.
#[derive(Debug)]
struct Chunk<K, T> {
    slots: Vec<Option<(K, T)>>,
    /// The slots whose entries were removed.
    free: Vec<u16>,
    used: usize,
    /// Whether the chunk is in `open_chunks`.
    is_open: bool,
}

impl<K, T> Chunk<K, T> {
    fn open() -> Self {
        Chunk { slots: Vec::new(), free: Vec::new(), used: 0, is_open: true }
    }

    fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<(K, T)>>() + self.free.capacity() * size_of::<u16>()
    }

    /// Makes room for so many slots.
    fn reserve(&mut self, slots: usize, is_first: bool) {
        if slots > self.slots.capacity() {
            let room = if is_first { slots.next_power_of_two().max(FIRST_SLOTS) } else { CHUNK };
            self.slots.reserve_exact(room - self.slots.len());
        }
    }
}

impl<K, T> Default for Slab<K, T> {
    fn default() -> Self {
        Slab {
            chunks: Vec::new(),
            open_chunks: Vec::new(),
            by_hash: HashIndex::default(),
            hasher: DefaultHashBuilder::default(),
            chunk_bytes: 0,
        }
    }
}

impl<K: Hash + Eq, T> Slab<K, T> {
    /// The memory that the slab takes, without what keys and values refer to.
    pub(crate) fn bytes(&self) -> u64 {
        (self.chunk_bytes + self.by_hash.bytes()) as u64
    }

    /// The same, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        let chunks = self.chunks.iter().map(Chunk::bytes).sum::<usize>();
        (chunks + self.list_bytes() + self.by_hash.recount_bytes()) as u64
    }

    fn list_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk<K, T>>() + self.open_chunks.capacity() * size_of::<u32>()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// All indexes in use are below this one.
    pub(crate) fn end(&self) -> SlabIndex {
        match self.chunks.split_last() {
            Some((last, before)) => (before.len() * CHUNK + last.slots.len()) as SlabIndex,
            None => 0,
        }
    }

    pub(crate) fn find<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<SlabIndex> {
        let is_key = |index| self.at(index).is_some_and(|(other, _)| key.equivalent(other));
        self.by_hash.find(self.hash(key), is_key)
    }

    /// Where an entry with this hash is. It may have another key, but that is rare.
    pub(crate) fn probable_index(&self, hash: u32) -> Option<SlabIndex> {
        self.by_hash.find(hash, |_| true)
    }

    /// Loads from memory what [`Slab::probable_index`] looks at. The result has no meaning.
    pub(crate) fn load_place(&self, hash: u32) -> u32 {
        self.by_hash.first_slot(hash)
    }

    pub(crate) fn at(&self, index: SlabIndex) -> Option<(&K, &T)> {
        let (chunk, slot) = split(index);
        self.chunks.get(chunk)?.slots.get(slot)?.as_ref().map(|(key, value)| (key, value))
    }

    pub(crate) fn at_mut(&mut self, index: SlabIndex) -> Option<(&K, &mut T)> {
        let (chunk, slot) = split(index);
        self.chunks.get_mut(chunk)?.slots.get_mut(slot)?.as_mut().map(|(key, value)| (&*key, value))
    }

    /// Inserts an entry whose key is not in the slab yet.
    pub(crate) fn insert(&mut self, key: K, value: T) -> SlabIndex {
        let hash = self.hash(&key);
        let number = match self.open_chunks.last() {
            Some(number) => *number as usize,
            None => {
                self.push_chunk();
                self.chunks.len() - 1
            }
        };
        let chunk = &mut self.chunks[number];
        let slot = match chunk.free.pop() {
            Some(slot) => usize::from(slot),
            None => {
                if chunk.slots.len() == chunk.slots.capacity() {
                    self.chunk_bytes -= chunk.bytes();
                    chunk.reserve(chunk.slots.len() + 1, number == 0);
                    self.chunk_bytes += chunk.bytes();
                }
                chunk.slots.push(None);
                chunk.slots.len() - 1
            }
        };
        chunk.slots[slot] = Some((key, value));
        chunk.used += 1;
        if chunk.used == CHUNK {
            chunk.is_open = false;
            self.open_chunks.pop();
        }
        let index = (number * CHUNK + slot) as SlabIndex;
        self.by_hash.insert(hash, index);
        index
    }

    /// Inserts a stored entry at the index that it had before, which must be free. This is fast if indexes come in ascending order;
    /// gaps are allowed.
    pub(crate) fn insert_at(&mut self, index: SlabIndex, key: K, value: T) {
        let hash = self.hash(&key);
        let (number, slot) = split(index);
        while self.chunks.len() <= number {
            self.push_chunk();
        }
        let chunk = &mut self.chunks[number];
        self.chunk_bytes -= chunk.bytes();
        chunk.reserve(slot + 1, number == 0);
        if slot < chunk.slots.len() {
            chunk.free.retain(|free| usize::from(*free) != slot);
        }
        while chunk.slots.len() <= slot {
            if chunk.slots.len() < slot {
                chunk.free.push(chunk.slots.len() as u16);
            }
            chunk.slots.push(None);
        }
        self.chunk_bytes += chunk.bytes();
        assert!(chunk.slots[slot].is_none(), "the index is free");
        chunk.slots[slot] = Some((key, value));
        chunk.used += 1;
        if chunk.used == CHUNK {
            chunk.is_open = false;
            self.open_chunks.retain(|open| *open as usize != number);
        }
        self.by_hash.insert(hash, index);
    }

    fn push_chunk(&mut self) {
        self.chunk_bytes -= self.list_bytes();
        if self.chunks.is_empty() {
            // Most slabs need no second chunk.
            self.chunks.reserve_exact(1);
            self.open_chunks.reserve_exact(1);
        }
        self.open_chunks.push(self.chunks.len() as u32);
        self.chunks.push(Chunk::open());
        self.chunk_bytes += self.list_bytes();
    }

    pub(crate) fn remove(&mut self, index: SlabIndex) -> Option<(K, T)> {
        let (number, slot) = split(index);
        let chunk = self.chunks.get_mut(number)?;
        let (key, value) = chunk.slots.get_mut(slot)?.take()?;
        chunk.used -= 1;
        self.by_hash.remove(self.hasher.hash_one(&key) as u32, index);
        self.chunk_bytes -= chunk.bytes();
        match chunk.used {
            0 => (chunk.slots, chunk.free) = (Vec::new(), Vec::new()),
            _ => chunk.free.push(slot as u16),
        }
        self.chunk_bytes += chunk.bytes();
        if !core::mem::replace(&mut chunk.is_open, true) {
            self.chunk_bytes -= self.list_bytes();
            self.open_chunks.push(number as u32);
            self.chunk_bytes += self.list_bytes();
        }
        if self.chunks.last().is_some_and(|chunk| chunk.used == 0) {
            self.pop_chunks();
        }
        Some((key, value))
    }

    /// Removes the empty chunks at the end.
    fn pop_chunks(&mut self) {
        self.chunk_bytes -= self.list_bytes();
        while self.chunks.pop_if(|chunk| chunk.used == 0).is_some() {}
        self.open_chunks.retain(|open| (*open as usize) < self.chunks.len());
        self.chunks.shrink();
        self.open_chunks.shrink();
        self.chunk_bytes += self.list_bytes();
    }

    /// The entries from index `from` on, by index.
    pub(crate) fn iter_from(&self, from: SlabIndex) -> impl Iterator<Item = (SlabIndex, &K, &T)> {
        let (first, slot) = split(from);
        let chunks = self.chunks.iter().enumerate().skip(first);
        chunks
            .flat_map(move |(number, chunk)| {
                let skipped = if number == first { slot.min(chunk.slots.len()) } else { 0 };
                let slots = chunk.slots[skipped..].iter().enumerate();
                slots.map(move |(at, slot)| (number * CHUNK + skipped + at, slot))
            })
            .filter_map(|(index, slot)| slot.as_ref().map(|(key, value)| (index as SlabIndex, key, value)))
    }

    /// Frees the memory of one chunk or table, and returns whether there was one. The slab cannot be used afterwards: this is
    /// for freeing all of it in slices.
    pub(crate) fn free_chunk(&mut self) -> bool {
        self.chunks.pop().is_some() || self.by_hash.free_table()
    }

    /// The hash of a key.
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        self.hasher.hash_one(key) as u32
    }
}

/// The number of the chunk, and the slot within it.
fn split(index: SlabIndex) -> (usize, usize) {
    (index as usize / CHUNK, index as usize % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    #[test]
    fn many_entries_are_found_and_removed_by_key_and_by_index() {
        let mut slab: Slab<u64, u64> = Slab::default();
        let indexes: Vec<SlabIndex> = (0..50_000).map(|key| slab.insert(key, key * 2)).collect();
        assert!(slab.by_hash.tables() > 8);
        for key in 0..50_000u64 {
            assert_eq!(slab.find(&key), Some(indexes[key as usize]));
            assert_eq!(slab.at(indexes[key as usize]), Some((&key, &(key * 2))));
        }
        for key in (0..50_000u64).filter(|key| key % 3 == 0) {
            assert_eq!(slab.remove(indexes[key as usize]), Some((key, key * 2)));
        }
        assert_eq!(slab.len(), 33_333);
        assert_eq!(slab.iter_from(0).count(), 33_333);
        assert!((0..50_000u64).all(|key| slab.find(&key).is_some() == (key % 3 != 0)));
        let largest = slab.by_hash.largest_table();
        assert!(largest.is_some_and(|largest| largest < 3 * hash_index::TABLE_LOAD), "{largest:?}");
        for key in (0..50_000u64).filter(|key| key % 3 != 0) {
            assert!(
                (key..(key + 2).min(50_000)).all(|key| slab.find(&key).is_some() == (key % 3 != 0)),
                "{key}"
            );
            assert!(slab.remove(indexes[key as usize]).is_some());
        }
        // All memory of the entries is freed.
        assert_eq!((slab.len(), slab.by_hash.tables(), slab.bytes()), (0, 0, 0));
        assert!(slab.chunks.is_empty() && slab.open_chunks.is_empty());
        assert_eq!(slab.iter_from(0).count(), 0);
        slab.insert(7, 7);
        assert!(slab.find(&7).is_some());
    }

    #[test]
    fn few_entries_take_little_memory() {
        let mut slab: Slab<u64, u64> = Slab::default();
        assert_eq!(slab.bytes(), 0);
        slab.insert(0, 0);
        assert!(slab.bytes() < 300, "{}", slab.bytes());
        // Never more than twice what the entries need, beyond the first few.
        for key in 1..5_000 {
            slab.insert(key, key);
            let needed = (key + 1) * (size_of::<Option<(u64, u64)>>() as u64 + 12);
            assert!(slab.bytes() < 2 * needed + 300, "{} bytes for {key}", slab.bytes());
            assert_eq!(slab.bytes(), slab.recount_bytes());
        }
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart() {
        #[derive(Debug, PartialEq, Eq)]
        struct Colliding(u16);

        impl Hash for Colliding {
            fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
                (self.0 % 2).hash(state);
            }
        }

        let mut slab: Slab<Colliding, ()> = Slab::default();
        let indexes: Vec<SlabIndex> = (0..10).map(|key| slab.insert(Colliding(key), ())).collect();
        for key in 0..12 {
            let key = Colliding(key);
            assert_eq!(slab.find(&key), indexes.get(usize::from(key.0)).copied());
            let probable = slab.probable_index(slab.hash(&key)).and_then(|index| slab.at(index));
            assert_eq!(probable.map(|(other, ())| other.0 % 2), Some(key.0 % 2));
        }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_plain_map_holds(steps in proptest::collection::vec((0u8..4, 0u16..40), 0..300)) {
            let mut slab: Slab<u16, u16> = Slab::default();
            let mut plain: BTreeMap<u16, (SlabIndex, u16)> = BTreeMap::new();
            let mut is_begun = false;
            for (number, (step, key)) in steps.into_iter().enumerate() {
                let number = number as u16;
                // `insert_at` is allowed only before the first `insert`.
                let step = if step == 1 && is_begun { 0 } else { step };
                is_begun |= step != 1;
                match (step, plain.get(&key)) {
                    (0, None) => {
                        plain.insert(key, (slab.insert(key, number), number));
                    }
                    (1, None) => {
                        let index = slab.end() + SlabIndex::from(key % 3);
                        slab.insert_at(index, key, number);
                        plain.insert(key, (index, number));
                    }
                    (2, Some((index, value))) => {
                        prop_assert_eq!(slab.remove(*index), Some((key, *value)));
                        plain.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(slab.find(&key), plain.get(&key).map(|(index, _)| *index));
                prop_assert_eq!(slab.bytes(), slab.recount_bytes());
            }
            let keys: Vec<u16> = (0..40).collect();
            for key in keys {
                // Another key has the same hash at most by accident.
                prop_assert!(slab.find(&key).is_none() || slab.probable_index(slab.hash(&key)).is_some());
            }
            let mut expect: Vec<(SlabIndex, u16, u16)> =
                plain.iter().map(|(key, (index, value))| (*index, *key, *value)).collect();
            expect.sort_unstable();
            let found: Vec<_> = slab.iter_from(0).map(|(index, key, value)| (index, *key, *value)).collect();
            prop_assert_eq!(&found, &expect);
            let from = expect.len() as SlabIndex / 2;
            let found = slab.iter_from(from).count();
            prop_assert_eq!(found, expect.iter().filter(|(index, ..)| *index >= from).count());
        }
    }
}
