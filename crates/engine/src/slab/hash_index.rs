//! Slab indexes by hash, in many small tables (linear hashing).
//!
//! When there are too many entries, one table is split in two; when there are few, two tables are merged. So an insertion
//! moves at most the entries of one table.

use super::SlabIndex;
use crate::resident::Shrink;
use alloc::vec::Vec;

/// The average number of entries of a table at which another table is added.
pub(super) const TABLE_LOAD: usize = 1 << 12;
/// The number of slots with which a table begins.
const FIRST_SLOTS: usize = 4;
/// The average memory of a table, if there are several.
const TABLE_BYTES: usize = 2 * TABLE_LOAD * size_of::<(u32, SlabIndex)>();

/// Slab indexes by hash.
#[derive(Debug, Default)]
pub(super) struct HashIndex {
    tables: Vec<Table>,
    len: usize,
    /// See [`HashIndex::recount_bytes`].
    bytes: usize,
}

impl HashIndex {
    /// The memory of the tables. If there are several, how large each of them is depends on random hashes, so this is their
    /// average: the same entries must always count the same.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same, summed up anew.
    pub(super) fn recount_bytes(&self) -> usize {
        let slots = match &self.tables[..] {
            [] => 0,
            [table] => table.slots.capacity() * size_of::<(u32, SlabIndex)>(),
            tables => tables.len() * TABLE_BYTES,
        };
        self.tables.capacity() * size_of::<Table>() + slots
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The index with this hash for which `is_key` holds.
    pub(super) fn find(&self, hash: u32, is_key: impl Fn(SlabIndex) -> bool) -> Option<SlabIndex> {
        self.tables.get(table_of(hash, self.tables.len()))?.find(hash, is_key)
    }

    /// The first slot at which [`HashIndex::find`] looks, to load it from memory.
    pub(super) fn first_slot(&self, hash: u32) -> u32 {
        let table = self.tables.get(table_of(hash, self.tables.len()));
        table.and_then(|table| table.slots.get(table.home(hash))).map_or(0, |(hash, _)| *hash)
    }

    pub(super) fn insert(&mut self, hash: u32, index: SlabIndex) {
        if self.len >= self.tables.len() * TABLE_LOAD {
            self.split();
        }
        self.len += 1;
        if self.put(hash, index) {
            self.bytes = self.recount_bytes();
        }
    }

    pub(super) fn remove(&mut self, hash: u32, index: SlabIndex) {
        let table = table_of(hash, self.tables.len());
        self.tables[table].remove(hash, index);
        self.len -= 1;
        if self.len == 0 {
            *self = HashIndex::default();
        } else if self.tables.len() > 1 && self.len < (self.tables.len() - 1) * TABLE_LOAD / 4 {
            self.merge();
        }
    }

    /// Frees the memory of one table, and returns whether there was one.
    pub(super) fn free_table(&mut self) -> bool {
        self.tables.pop().is_some()
    }

    /// Returns whether the table has grown.
    fn put(&mut self, hash: u32, index: SlabIndex) -> bool {
        let table = table_of(hash, self.tables.len());
        self.tables[table].insert(hash, index)
    }

    /// Adds a table, and moves a part of one other table into it.
    fn split(&mut self) {
        let new = self.tables.len();
        if new == 0 {
            // Most indexes need no second table.
            self.tables.reserve_exact(1);
        }
        self.tables.push(Table::default());
        if new > 0 {
            let old = core::mem::take(&mut self.tables[source_of(new)]);
            // Both tables get their final size first. Entries come in the order of their hashes, and would crowd at the
            // beginning of a table that grows with them.
            for table in [source_of(new), new] {
                self.tables[table].slots.resize(old.slots.len() / 2, FREE);
            }
            for (hash, index) in old.entries() {
                self.put(hash, index);
            }
        }
        self.bytes = self.recount_bytes();
    }

    /// Removes the last table, and moves its entries back to the table from which it was split.
    fn merge(&mut self) {
        let last = self.tables.pop().expect("there are several tables");
        for (hash, index) in last.entries() {
            self.put(hash, index);
        }
        self.tables.shrink();
        self.bytes = self.recount_bytes();
    }
}

/// The table from which a new table is split: its number without the highest bit.
fn source_of(new: usize) -> usize {
    new - (1 << new.ilog2())
}

/// The number of the table for a hash: its lower bits, with one bit less if that table does not exist yet.
fn table_of(hash: u32, tables: usize) -> usize {
    if tables <= 1 {
        return 0;
    }
    let size = tables.next_power_of_two();
    let number = hash as usize & (size - 1);
    if number < tables { number } else { number - size / 2 }
}

/// An open-addressing hash table with linear probing: a look-up usually touches one cache line.
#[derive(Debug, Default)]
struct Table {
    /// Empty, or a power of two of slots. At most three quarters of them are in use.
    slots: Vec<(u32, SlabIndex)>,
    len: usize,
}

const FREE: (u32, SlabIndex) = (0, SlabIndex::MAX);

impl Table {
    fn find(&self, hash: u32, is_key: impl Fn(SlabIndex) -> bool) -> Option<SlabIndex> {
        let slot = self.slot_of(hash, is_key)?;
        Some(self.slots[slot].1)
    }

    /// Returns whether the table has grown.
    fn insert(&mut self, hash: u32, index: SlabIndex) -> bool {
        let has_grown = self.len * 4 >= self.slots.len() * 3;
        if has_grown {
            let slots = (self.slots.len() * 2).max(FIRST_SLOTS);
            let old = core::mem::replace(&mut self.slots, Vec::with_capacity(slots));
            self.slots.resize(slots, FREE);
            old.into_iter().filter(|slot| *slot != FREE).for_each(|(hash, index)| self.put(hash, index));
        }
        self.len += 1;
        self.put(hash, index);
        has_grown
    }

    fn put(&mut self, hash: u32, index: SlabIndex) {
        let mut slot = self.home(hash);
        while self.slots[slot] != FREE {
            slot = self.after(slot);
        }
        self.slots[slot] = (hash, index);
    }

    fn remove(&mut self, hash: u32, index: SlabIndex) {
        let mut hole = self.slot_of(hash, |other| other == index).expect("the index was inserted");
        self.len -= 1;
        // Probing stops at a free slot. So an entry behind the hole that is looked up across it moves into the hole.
        let mut slot = self.after(hole);
        while self.slots[slot] != FREE {
            let distance = |from: usize| slot.wrapping_sub(from) & (self.slots.len() - 1);
            if distance(self.home(self.slots[slot].0)) >= distance(hole) {
                self.slots[hole] = self.slots[slot];
                hole = slot;
            }
            slot = self.after(slot);
        }
        self.slots[hole] = FREE;
    }

    fn entries(&self) -> impl Iterator<Item = (u32, SlabIndex)> {
        self.slots.iter().copied().filter(|slot| *slot != FREE)
    }

    fn slot_of(&self, hash: u32, is_key: impl Fn(SlabIndex) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = self.home(hash);
        while self.slots[slot] != FREE {
            let (other, index) = self.slots[slot];
            if other == hash && is_key(index) {
                return Some(slot);
            }
            slot = self.after(slot);
        }
        None
    }

    /// The slot at which probing begins. It is computed from the higher bits: the hashes of one table share the lower ones.
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> u32::BITS) as usize
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
impl HashIndex {
    pub(super) fn tables(&self) -> usize {
        self.tables.len()
    }

    pub(super) fn largest_table(&self) -> Option<usize> {
        self.tables.iter().map(|table| table.len).max()
    }
}
