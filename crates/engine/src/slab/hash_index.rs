//! Slab indexes by hash, in many small tables (linear hashing).
//!
//! When there are too many entries, one table is split in two; when there are few, two tables are merged. So an insertion
//! moves at most the entries of one table.

use super::SlabIndex;
use alloc::vec::Vec;

/// The average number of entries of a table at which another table is added.
pub(super) const TABLE_LOAD: usize = 1 << 12;

/// Slab indexes by hash.
#[derive(Debug, Default)]
pub(super) struct HashIndex {
    tables: Vec<Table>,
    len: usize,
}

impl HashIndex {
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
        self.put(hash, index);
    }

    pub(super) fn remove(&mut self, hash: u32, index: SlabIndex) {
        let table = table_of(hash, self.tables.len());
        self.tables[table].remove(hash, index);
        self.len -= 1;
        if self.tables.len() > 1 && self.len < (self.tables.len() - 1) * TABLE_LOAD / 4 {
            self.merge();
        }
    }

    /// Frees the memory of one table, and returns whether there was one.
    pub(super) fn free_table(&mut self) -> bool {
        self.tables.pop().is_some()
    }

    fn put(&mut self, hash: u32, index: SlabIndex) {
        let table = table_of(hash, self.tables.len());
        self.tables[table].insert(hash, index);
    }

    /// Adds a table, and moves a part of one other table into it.
    fn split(&mut self) {
        let new = self.tables.len();
        self.tables.push(Table::default());
        if new > 0 {
            let old = core::mem::take(&mut self.tables[source_of(new)]);
            // Both tables get their final size first. Entries come in the order of their hashes, and would crowd at the
            // beginning of a table that grows with them.
            for table in [source_of(new), new] {
                self.tables[table].slots.resize(old.slots.len() / 2, FREE);
            }
            old.entries().for_each(|(hash, index)| self.put(hash, index));
        }
    }

    /// Removes the last table, and moves its entries back to the table from which it was split.
    fn merge(&mut self) {
        let last = self.tables.pop().expect("there are several tables");
        last.entries().for_each(|(hash, index)| self.put(hash, index));
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

    fn insert(&mut self, hash: u32, index: SlabIndex) {
        if self.len * 4 >= self.slots.len() * 3 {
            let old = core::mem::take(&mut self.slots);
            self.slots.resize((old.len() * 2).max(16), FREE);
            old.into_iter().filter(|slot| *slot != FREE).for_each(|(hash, index)| self.put(hash, index));
        }
        self.len += 1;
        self.put(hash, index);
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
