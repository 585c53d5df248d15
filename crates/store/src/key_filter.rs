//! A filter of keys: it says that a key is certainly not in the table, or that it may be.
//!
//! Nearly every new operation looks its id up, only to find that it is new. In a database each look-up is a part of a statement. The
//! filter answers it from memory: a chain of Bloom filters, with [`BITS_PER_KEY`] bits for each key. The first one is small. When the
//! last one is full, another one is added that has room for as many keys as all before it.
//!
//! A filter never forgets a key. A key that was removed from the table costs a look-up again, and nothing else.

use crate::sip_hash::sip_hash;
use bytes::{Buf, Bytes};

/// The bits for each key that a Bloom filter has room for. With [`PROBES`] of them set for each key, a full filter takes 0.8 % of the
/// keys that it does not have for its own.
pub const BITS_PER_KEY: usize = 10;
const PROBES: u64 = 7;
/// The room of the first filter: 10 KiB.
const FIRST_ROOM: usize = 8 << 10;
/// Each further filter adds to the share of keys that are looked up in vain. A longer chain should be built again.
const LONG_CHAIN: usize = 8;
/// The first byte of an encoded filter.
const FORMAT: u8 = 1;
const HEAD: usize = 1 + KEY_BYTES + 3 * NUMBER;
const KEY_BYTES: usize = 16;
const NUMBER: usize = 8;

/// A set of keys that may say that it contains a key which it does not contain, but never the opposite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFilter {
    /// The key of the hash. Without it, a client could choose operation ids that are all looked up in vain.
    hash_key: [u8; KEY_BYTES],
    /// Never empty. Only the last one has room.
    chain: Vec<Bloom>,
    /// How many of the keys that were added have been removed from the table since.
    removed: usize,
}

/// One Bloom filter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bloom {
    words: Vec<u64>,
    /// How many keys it has, and how many it has room for.
    keys: usize,
    room: usize,
}

impl KeyFilter {
    /// An empty filter with room for this many keys, under a random key.
    pub fn new(hash_key: [u8; 16], room: usize) -> KeyFilter {
        KeyFilter { hash_key, chain: vec![Bloom::new(room.max(FIRST_ROOM))], removed: 0 }
    }

    /// A filter of keys with these hashes, with some room for more.
    pub(crate) fn of_hashes(hash_key: [u8; 16], hashes: &[u64]) -> KeyFilter {
        let mut filter = KeyFilter::new(hash_key, hashes.len() + hashes.len() / 4);
        hashes.iter().for_each(|hash| filter.insert_hash(*hash));
        filter
    }

    /// The hash of a key.
    pub(crate) fn hash(hash_key: &[u8; 16], key: &[u8]) -> u64 {
        sip_hash(hash_key, key)
    }

    /// Adds a key.
    pub fn insert(&mut self, key: &[u8]) {
        self.insert_hash(sip_hash(&self.hash_key, key));
    }

    fn insert_hash(&mut self, hash: u64) {
        if self.chain.iter().any(|bloom| bloom.contains(hash)) {
            return;
        }
        let room = self.chain.iter().map(|bloom| bloom.room).sum();
        match self.chain.last_mut() {
            Some(last) if last.keys < last.room => last.insert(hash),
            _ => {
                let mut next = Bloom::new(room);
                next.insert(hash);
                self.chain.push(next);
            }
        }
    }

    /// Whether the key may have been added. `false` is certain.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        let hash = sip_hash(&self.hash_key, key);
        // Most keys are in the last filters, which are the largest.
        self.chain.iter().rev().any(|bloom| bloom.contains(hash))
    }

    /// A key that was added was removed from the table. The filter cannot forget it.
    pub fn note_removal(&mut self) {
        self.removed += 1;
    }

    /// Whether a new filter, made from the keys of the table, would be much better.
    pub fn is_worn(&self) -> bool {
        self.chain.len() >= LONG_CHAIN || (self.removed > FIRST_ROOM && 2 * self.removed > self.len())
    }

    /// The number of keys that were added, except for a few that were taken for others.
    pub fn len(&self) -> usize {
        self.chain.iter().map(|bloom| bloom.keys).sum()
    }

    /// Whether no key was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory use, in bytes.
    pub fn bytes(&self) -> usize {
        self.chain.iter().map(|bloom| bloom.words.len() * NUMBER).sum()
    }

    fn is_full(&self) -> bool {
        self.chain.last().is_none_or(|last| last.keys >= last.room)
    }

    /// The number of filters in the chain. Only the last one changes.
    pub(crate) fn parts(&self) -> usize {
        self.chain.len()
    }

    /// One filter of the chain, with what belongs to all of them.
    ///
    /// Layout, little endian: a format byte, the key of the hash (16 bytes), the number of keys that were removed, that this filter has,
    /// and that it has room for (8 bytes each), its bits.
    pub(crate) fn encode(&self, part: usize) -> Vec<u8> {
        let bloom = &self.chain[part];
        let mut bytes = Vec::with_capacity(HEAD + bloom.words.len() * NUMBER);
        bytes.push(FORMAT);
        bytes.extend_from_slice(&self.hash_key);
        for number in [self.removed, bloom.keys, bloom.room] {
            bytes.extend_from_slice(&(number as u64).to_le_bytes());
        }
        bloom.words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// The filter with these parts. `None` if they are not the parts of one filter.
    pub(crate) fn decode(parts: impl IntoIterator<Item = Bytes>) -> Option<KeyFilter> {
        let mut filter: Option<KeyFilter> = None;
        for mut part in parts {
            if part.len() < HEAD || part.get_u8() != FORMAT {
                return None;
            }
            let hash_key = part.split_to(KEY_BYTES)[..].try_into().ok()?;
            let mut number = || usize::try_from(part.get_u64_le()).ok();
            let (removed, keys, room) = (number()?, number()?, number()?);
            let words: Vec<u64> = part.chunks_exact(NUMBER).map(|mut word| word.get_u64_le()).collect();
            let bloom = Bloom { words, keys, room };
            if room == 0 || room.checked_mul(BITS_PER_KEY)?.div_ceil(64) != bloom.words.len() {
                return None;
            }
            match &mut filter {
                None => filter = Some(KeyFilter { hash_key, chain: vec![bloom], removed }),
                // Only the last part of a filter may have room. An earlier part with room is from an older state, and lacks keys.
                Some(filter) if filter.hash_key == hash_key && filter.is_full() => {
                    filter.chain.push(bloom);
                    // The last part was written last.
                    filter.removed = removed;
                }
                Some(_) => return None,
            }
        }
        filter
    }
}

impl Bloom {
    fn new(room: usize) -> Bloom {
        Bloom { words: vec![0; (room * BITS_PER_KEY).div_ceil(64)], keys: 0, room }
    }

    /// The words and bits of a hash.
    fn probes(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let bits = self.words.len() as u64 * 64;
        // Two hashes in one: their multiples are as good as independent ones. The second one is odd, so that it is never zero.
        let step = hash.rotate_left(32) | 1;
        (0..PROBES).map(move |probe| {
            let mixed = hash.wrapping_add(probe.wrapping_mul(step));
            let bit = ((u128::from(mixed) * u128::from(bits)) >> 64) as u64;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn insert(&mut self, hash: u64) {
        self.probes(hash).for_each(|(word, bit)| self.words[word] |= bit);
        self.keys += 1;
    }

    fn contains(&self, hash: u64) -> bool {
        self.probes(hash).all(|(word, bit)| self.words[word] & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key(number: u64) -> Vec<u8> {
        format!("operation-{number}").into_bytes()
    }

    fn decoded(filter: &KeyFilter) -> KeyFilter {
        let parts = (0..filter.parts()).map(|part| filter.encode(part).into());
        KeyFilter::decode(parts).expect("it was encoded")
    }

    #[test]
    fn a_filter_grows_with_few_false_positives() {
        let mut filter = KeyFilter::new([7; 16], 0);
        let many = 20 * FIRST_ROOM as u64;
        for number in 0..many {
            filter.insert(&key(number));
        }
        assert!((0..many).all(|number| filter.may_contain(&key(number))));
        let wrong = (many..2 * many).filter(|number| filter.may_contain(&key(*number))).count();
        let share = wrong as f64 / many as f64;
        assert!(share < 0.008 * filter.parts() as f64, "{share} with {} parts", filter.parts());
        let room: usize = filter.chain.iter().map(|bloom| bloom.room).sum();
        assert!(filter.bytes() * 8 <= room * BITS_PER_KEY + 64 * filter.parts(), "{} bytes", filter.bytes());
        assert!(room <= 2 * many as usize, "{room}");
        assert_eq!(decoded(&filter), filter);
    }

    #[test]
    fn a_filter_of_removed_keys_is_worn() {
        let mut filter = KeyFilter::new([7; 16], 0);
        let many = 4 * FIRST_ROOM;
        (0..many as u64).for_each(|number| filter.insert(&key(number)));
        assert!(!filter.is_worn());
        (0..many / 2 + many / 10).for_each(|_| filter.note_removal());
        assert!(filter.is_worn());
    }

    #[test]
    fn bytes_that_are_no_filter_are_refused() {
        let filter = KeyFilter::new([7; 16], 0);
        let whole = Bytes::from(filter.encode(0));
        assert_eq!(KeyFilter::decode([]), None);
        for end in [0, 1, HEAD - 1, HEAD, HEAD + 8, whole.len() - 1] {
            assert_eq!(KeyFilter::decode([whole.slice(..end)]), None, "{end}");
        }
        let other = Bytes::from(KeyFilter::new([8; 16], 0).encode(0));
        assert_eq!(KeyFilter::decode([whole.clone(), other]), None, "of another filter");
        assert_eq!(KeyFilter::decode([whole]), Some(filter));
    }

    /// A part may be overwritten by an older one, if a statement of the database is executed late.
    #[test]
    fn parts_of_different_states_are_not_a_filter() {
        let mut filter = KeyFilter::new([7; 16], 0);
        filter.insert(&key(0));
        let older = Bytes::from(filter.encode(0));
        (1..2 * FIRST_ROOM as u64).for_each(|number| filter.insert(&key(number)));
        assert!(filter.parts() > 1);
        let later = (1..filter.parts()).map(|part| filter.encode(part).into());
        assert_eq!(KeyFilter::decode([older].into_iter().chain(later)), None);
    }

    proptest! {
        /// Against a set: whatever was added is found, also after the filter was stored and read again.
        #[test]
        fn a_filter_has_no_false_negatives(
            steps in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..300),
            hash_key in any::<[u8; 16]>(),
        ) {
            let (mut filter, mut set) = (KeyFilter::new(hash_key, 0), BTreeSet::new());
            for (is_stored, key) in steps {
                filter.insert(&key);
                set.insert(key);
                if is_stored {
                    filter = decoded(&filter);
                }
                prop_assert!(set.iter().all(|key| filter.may_contain(key)));
            }
        }
    }
}
