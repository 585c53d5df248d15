//! Millions of things by key, without a pause.
//!
//! A plain hash map that grows moves everything that it holds, and a plain vector copies it: with five million groups
//! that is a pause that everybody notices. Here things stand in pieces of fixed size, and the index over them is many
//! small tables, one of which is split in two whenever there are too many things (linear hashing).

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use hashbrown::{DefaultHashBuilder, Equivalent};

const PIECE: usize = 1 << 10;
/// How many things one table holds on average.
const LOAD: usize = 1 << 12;

/// Where a thing stands. It keeps its place while it is there; then the place is used again.
pub(crate) type Place = u32;

/// Things by key and by place.
#[derive(Debug)]
pub(crate) struct Keyed<K, T> {
    pieces: Vec<Piece<K, T>>,
    /// Pieces with room, each once.
    roomy: Vec<u32>,
    index: Index,
    hasher: DefaultHashBuilder,
}

/// A part of the places. It takes memory only while something stands in it.
#[derive(Debug)]
struct Piece<K, T> {
    slots: Vec<Option<(K, T)>>,
    /// Slots that are free again.
    free: Vec<u16>,
    used: usize,
    is_roomy: bool,
}

impl<K, T> Default for Piece<K, T> {
    fn default() -> Self {
        Piece { slots: Vec::new(), free: Vec::new(), used: 0, is_roomy: false }
    }
}

impl<K, T> Default for Keyed<K, T> {
    fn default() -> Self {
        Keyed {
            pieces: Vec::new(),
            roomy: Vec::new(),
            index: Index::default(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<K: Hash + Eq, T> Keyed<K, T> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.index.len
    }

    /// No place is at or behind this one.
    pub(crate) fn end(&self) -> Place {
        match self.pieces.split_last() {
            Some((last, before)) => (before.len() * PIECE + last.slots.len()) as Place,
            None => 0,
        }
    }

    pub(crate) fn find<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Place> {
        self.index
            .find(self.hash(key), |place| self.at(place).is_some_and(|(other, _)| key.equivalent(other)))
    }

    /// What stands at a place.
    pub(crate) fn at(&self, place: Place) -> Option<(&K, &T)> {
        let (piece, slot) = parts(place);
        self.pieces.get(piece)?.slots.get(slot)?.as_ref().map(|(key, thing)| (key, thing))
    }

    pub(crate) fn at_mut(&mut self, place: Place) -> Option<(&K, &mut T)> {
        let (piece, slot) = parts(place);
        self.pieces.get_mut(piece)?.slots.get_mut(slot)?.as_mut().map(|(key, thing)| (&*key, thing))
    }

    /// Puts in what is not there yet.
    pub(crate) fn insert(&mut self, key: K, thing: T) -> Place {
        let hash = self.hash(&key);
        let number = match self.roomy.last() {
            Some(number) => *number as usize,
            None => {
                self.pieces.push(Piece { is_roomy: true, ..Piece::default() });
                self.roomy.push(self.pieces.len() as u32 - 1);
                self.pieces.len() - 1
            }
        };
        let piece = &mut self.pieces[number];
        let slot = match piece.free.pop() {
            Some(slot) => usize::from(slot),
            None => {
                if piece.slots.capacity() == 0 {
                    piece.slots.reserve_exact(PIECE);
                }
                piece.slots.push(None);
                piece.slots.len() - 1
            }
        };
        piece.slots[slot] = Some((key, thing));
        piece.used += 1;
        if piece.used == PIECE {
            piece.is_roomy = false;
            self.roomy.pop();
        }
        let place = (number * PIECE + slot) as Place;
        self.index.insert(hash, place);
        place
    }

    /// Puts in what stood at a place before, while nothing is put in otherwise. Places come in order, with gaps.
    pub(crate) fn insert_at(&mut self, place: Place, key: K, thing: T) {
        let hash = self.hash(&key);
        let (number, slot) = parts(place);
        while self.pieces.len() <= number {
            self.pieces.push(Piece { is_roomy: true, ..Piece::default() });
            self.roomy.push(self.pieces.len() as u32 - 1);
        }
        let piece = &mut self.pieces[number];
        while piece.slots.len() <= slot {
            if piece.slots.len() < slot {
                piece.free.push(piece.slots.len() as u16);
            }
            piece.slots.push(None);
        }
        assert!(piece.slots[slot].is_none(), "the place is free");
        piece.slots[slot] = Some((key, thing));
        piece.used += 1;
        if piece.used == PIECE {
            piece.is_roomy = false;
            self.roomy.retain(|roomy| *roomy as usize != number);
        }
        self.index.insert(hash, place);
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<(K, T)> {
        let (number, slot) = parts(place);
        let piece = self.pieces.get_mut(number)?;
        let (key, thing) = piece.slots.get_mut(slot)?.take()?;
        piece.used -= 1;
        piece.free.push(slot as u16);
        if piece.used == 0 {
            (piece.slots, piece.free) = (Vec::new(), Vec::new());
        }
        if !piece.is_roomy {
            piece.is_roomy = true;
            self.roomy.push(number as u32);
        }
        while self.pieces.last().is_some_and(|piece| piece.used == 0) {
            self.pieces.pop();
            self.roomy.retain(|roomy| (*roomy as usize) < self.pieces.len());
        }
        self.index.remove(self.hash(&key), place);
        Some((key, thing))
    }

    /// Those at or behind `from`, by place.
    pub(crate) fn iter_from(&self, from: Place) -> impl Iterator<Item = (Place, &K, &T)> {
        let (first, slot) = parts(from);
        let pieces = self.pieces.iter().enumerate().skip(first);
        pieces
            .flat_map(move |(number, piece)| {
                let skipped = if number == first { slot.min(piece.slots.len()) } else { 0 };
                let slots = piece.slots[skipped..].iter().enumerate();
                slots.map(move |(at, slot)| (number * PIECE + skipped + at, slot))
            })
            .filter_map(|(place, slot)| slot.as_ref().map(|(key, thing)| (place as Place, key, thing)))
    }

    /// Frees the memory of a part, if any is left; for getting rid of all of it without a pause.
    pub(crate) fn drop_part(&mut self) -> bool {
        self.pieces.pop().is_some() || self.index.tables.pop().is_some()
    }

    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        self.hasher.hash_one(key) as u32
    }
}

fn parts(place: Place) -> (usize, usize) {
    (place as usize / PIECE, place as usize % PIECE)
}

/// Places by hash.
#[derive(Debug, Default)]
struct Index {
    tables: Vec<Table>,
    len: usize,
}

impl Index {
    fn find(&self, hash: u32, is_it: impl Fn(Place) -> bool) -> Option<Place> {
        self.tables.get(table_of(hash, self.tables.len()))?.find(hash, is_it)
    }

    fn insert(&mut self, hash: u32, place: Place) {
        if self.len >= self.tables.len() * LOAD {
            self.split();
        }
        self.len += 1;
        self.put(hash, place);
    }

    fn put(&mut self, hash: u32, place: Place) {
        let table = table_of(hash, self.tables.len());
        self.tables[table].insert(hash, place);
    }

    fn remove(&mut self, hash: u32, place: Place) {
        let table = table_of(hash, self.tables.len());
        self.tables[table].remove(hash, place);
        self.len -= 1;
        if self.tables.len() > 1 && self.len < (self.tables.len() - 1) * LOAD / 4 {
            self.join();
        }
    }

    /// One table less: what is in the last moves to where it came from.
    fn join(&mut self) {
        let last = self.tables.pop().expect("there are several");
        last.entries().for_each(|(hash, place)| self.put(hash, place));
    }

    /// One more table, to which a part of one other moves.
    fn split(&mut self) {
        let new = self.tables.len();
        self.tables.push(Table::default());
        if new > 0 {
            let old = core::mem::take(&mut self.tables[source_of(new)]);
            // Both have their room at once. Entries come in the order of their hashes, and would crowd at the beginning of a
            // table that grows with them.
            for table in [source_of(new), new] {
                self.tables[table].slots.resize(old.slots.len() / 2, FREE);
            }
            old.entries().for_each(|(hash, place)| self.put(hash, place));
        }
    }
}

/// The table from which a new one takes its part: its number without its highest bit.
fn source_of(new: usize) -> usize {
    new - (1 << new.ilog2())
}

fn table_of(hash: u32, tables: usize) -> usize {
    if tables <= 1 {
        return 0;
    }
    let size = tables.next_power_of_two();
    let number = hash as usize & (size - 1);
    if number < tables { number } else { number - size / 2 }
}

/// Places by hash, in one run of memory in which a place stands where its hash says, or shortly behind: to look one up
/// is to wait for memory once.
#[derive(Debug, Default)]
struct Table {
    /// None, or a power of two of them, of which a quarter is free.
    slots: Vec<(u32, Place)>,
    len: usize,
}

/// A slot in which nothing stands.
const FREE: (u32, Place) = (0, Place::MAX);

impl Table {
    fn find(&self, hash: u32, is_it: impl Fn(Place) -> bool) -> Option<Place> {
        let slot = self.slot_of(hash, is_it)?;
        Some(self.slots[slot].1)
    }

    fn insert(&mut self, hash: u32, place: Place) {
        if self.len * 4 >= self.slots.len() * 3 {
            let old = core::mem::take(&mut self.slots);
            self.slots.resize((old.len() * 2).max(16), FREE);
            old.into_iter().filter(|slot| *slot != FREE).for_each(|(hash, place)| self.put(hash, place));
        }
        self.len += 1;
        self.put(hash, place);
    }

    fn put(&mut self, hash: u32, place: Place) {
        let mut slot = self.home(hash);
        while self.slots[slot] != FREE {
            slot = self.after(slot);
        }
        self.slots[slot] = (hash, place);
    }

    fn remove(&mut self, hash: u32, place: Place) {
        let mut hole = self.slot_of(hash, |other| other == place).expect("it was put in");
        self.len -= 1;
        // What stands behind, and would not be found across a hole, moves into it.
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

    fn entries(&self) -> impl Iterator<Item = (u32, Place)> {
        self.slots.iter().copied().filter(|slot| *slot != FREE)
    }

    fn slot_of(&self, hash: u32, is_it: impl Fn(Place) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = self.home(hash);
        while self.slots[slot] != FREE {
            let (other, place) = self.slots[slot];
            if other == hash && is_it(place) {
                return Some(slot);
            }
            slot = self.after(slot);
        }
        None
    }

    /// By the higher bits: all in one table have the same lower ones.
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> u32::BITS) as usize
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    #[test]
    fn many_are_found_and_removed_by_key_and_by_place() {
        let mut keyed: Keyed<u64, u64> = Keyed::default();
        let places: Vec<Place> = (0..50_000).map(|key| keyed.insert(key, key * 2)).collect();
        assert!(keyed.index.tables.len() > 8);
        for key in 0..50_000u64 {
            assert_eq!(keyed.find(&key), Some(places[key as usize]));
            assert_eq!(keyed.at(places[key as usize]), Some((&key, &(key * 2))));
        }
        for key in (0..50_000u64).filter(|key| key % 3 == 0) {
            assert_eq!(keyed.remove(places[key as usize]), Some((key, key * 2)));
        }
        assert_eq!(keyed.len(), 33_333);
        assert_eq!(keyed.iter_from(0).count(), 33_333);
        assert!((0..50_000u64).all(|key| keyed.find(&key).is_some() == (key % 3 != 0)));
        let largest = keyed.index.tables.iter().map(|table| table.len).max();
        assert!(largest.is_some_and(|largest| largest < 3 * LOAD), "{largest:?}");
        for key in (0..50_000u64).filter(|key| key % 3 != 0) {
            assert!(
                (key..(key + 2).min(50_000)).all(|key| keyed.find(&key).is_some() == (key % 3 != 0)),
                "{key}"
            );
            assert!(keyed.remove(places[key as usize]).is_some());
        }
        // Nothing of the many that were here takes memory any more.
        assert_eq!((keyed.len(), keyed.index.tables.len()), (0, 1));
        assert!(keyed.pieces.is_empty() && keyed.roomy.is_empty());
        assert_eq!(keyed.iter_from(0).count(), 0);
        keyed.insert(7, 7);
        assert!(keyed.find(&7).is_some());
    }

    proptest! {
        #[test]
        fn it_holds_what_a_plain_map_holds(steps in proptest::collection::vec((0u8..4, 0u16..40), 0..300)) {
            let mut keyed: Keyed<u16, u16> = Keyed::default();
            let mut plain: BTreeMap<u16, (Place, u16)> = BTreeMap::new();
            let mut is_begun = false;
            for (number, (step, key)) in steps.into_iter().enumerate() {
                let number = number as u16;
                // Places are given back only at the beginning.
                let step = if step == 1 && is_begun { 0 } else { step };
                is_begun |= step != 1;
                match (step, plain.get(&key)) {
                    (0, None) => {
                        plain.insert(key, (keyed.insert(key, number), number));
                    }
                    (1, None) => {
                        let place = keyed.end() + Place::from(key % 3);
                        keyed.insert_at(place, key, number);
                        plain.insert(key, (place, number));
                    }
                    (2, Some((place, value))) => {
                        prop_assert_eq!(keyed.remove(*place), Some((key, *value)));
                        plain.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(keyed.find(&key), plain.get(&key).map(|(place, _)| *place));
            }
            let mut expect: Vec<(Place, u16, u16)> =
                plain.iter().map(|(key, (place, value))| (*place, *key, *value)).collect();
            expect.sort_unstable();
            let found: Vec<_> = keyed.iter_from(0).map(|(place, key, value)| (place, *key, *value)).collect();
            prop_assert_eq!(&found, &expect);
            let from = expect.len() as Place / 2;
            let found = keyed.iter_from(from).count();
            prop_assert_eq!(found, expect.iter().filter(|(place, ..)| *place >= from).count());
        }
    }
}
