//! The memory that an entry takes, from the sizes of its types and of its texts.
//!
//! Every entry counts with the largest share of its containers that it may take: a place in a hash map that has just doubled, for
//! example. So what is counted is never less than what is allocated. The first entry of a container also counts what the smallest
//! container takes beyond one place. [`shrink`] keeps this true when entries are removed. Slabs cannot move their entries to
//! shrink, so they count what they have allocated.
//!
//! `tests/memory` compares all of this with what is allocated.

use core::hash::{BuildHasher, Hash};
use hashbrown::{HashMap, HashSet};
use limina_api::{KeyValues, Name};
use serde::Serialize;

/// A place in a vector that has just doubled.
pub(crate) const fn vec_slot<T>() -> u64 {
    size_of::<T>() as u64 * 2
}

/// What a vector of at most four places takes beyond one [`vec_slot`].
pub(crate) const fn first_in_vec<T>() -> u64 {
    size_of::<T>() as u64 * 2
}

/// A place in a hash map that has just doubled, because it was seven eighths full. Each place has one more byte.
pub(crate) const fn hash_slot<T>() -> u64 {
    (size_of::<T>() as u64 + 1) * 7 / 3
}

/// What the smallest hash map, which has four places, takes beyond one [`hash_slot`].
pub(crate) const fn first_in_hash<T>() -> u64 {
    4 * (size_of::<T>() as u64 + 1) + 16 - hash_slot::<T>()
}

/// A place in a large tree. A node has 11 places, of which at least five are used.
pub(crate) const fn tree_slot<T>() -> u64 {
    size_of::<T>() as u64 * 9 / 4 + 8
}

/// What a tree of one node takes beyond one [`tree_slot`].
pub(crate) const fn first_in_tree<T>() -> u64 {
    11 * size_of::<T>() as u64 + 16 - tree_slot::<T>()
}

/// What a container with entries takes beyond the sum of them: `first` if there are any.
pub(crate) fn unless_empty(entries: usize, first: u64) -> u64 {
    if entries > 0 { first } else { 0 }
}

/// A container that gives memory back when few of its places are used.
pub(crate) trait Shrink {
    /// Gives memory back if less than three eighths of the places are used. Then the container has room for a third more entries.
    /// Call it after entries were removed.
    fn shrink(&mut self);
}

/// The number of used places from which on a container gives memory back.
const fn is_sparse(entries: usize, places: usize) -> bool {
    entries * 8 < places * 3
}

impl<K: Hash + Eq, V, S: BuildHasher> Shrink for HashMap<K, V, S> {
    fn shrink(&mut self) {
        if is_sparse(self.len(), self.allocation_size() * 7 / 8 / (size_of::<(K, V)>() + 1)) {
            self.shrink_to(self.len() + self.len() / 3);
        }
    }
}

impl<T: Hash + Eq, S: BuildHasher> Shrink for HashSet<T, S> {
    fn shrink(&mut self) {
        if is_sparse(self.len(), self.allocation_size() * 7 / 8 / (size_of::<T>() + 1)) {
            self.shrink_to(self.len() + self.len() / 3);
        }
    }
}

impl<T> Shrink for alloc::vec::Vec<T> {
    fn shrink(&mut self) {
        if is_sparse(self.len(), self.capacity()) {
            self.shrink_to(self.len() + self.len() / 3);
        }
    }
}

/// A tree that is so small that its first node matters: a node has 11 places.
pub(crate) const fn small_tree<T>(entries: usize) -> u64 {
    entries.div_ceil(8) as u64 * (11 * size_of::<T>() as u64 + 16)
}

/// About what one more entry takes in a slab, with its place in the hash index. A slab counts what it has allocated.
pub(crate) const fn slab_slot<T>() -> u64 {
    size_of::<Option<T>>() as u64 * 5 / 4 + 24
}

/// An allocation of its own.
pub(crate) const fn heap(bytes: usize) -> u64 {
    match bytes {
        0 => 0,
        // Allocators round up to a multiple of 16, and larger sizes by an eighth at most.
        _ => (bytes.next_multiple_of(16) + bytes / 16) as u64,
    }
}

/// An allocation with two reference counts.
pub(crate) const fn shared(bytes: usize) -> u64 {
    heap(bytes + 2 * size_of::<usize>())
}

/// What takes memory besides its own value.
pub(crate) trait Heap {
    /// The bytes.
    fn heap(&self) -> u64;
}

impl Heap for Name {
    fn heap(&self) -> u64 {
        self.shared_bytes().map_or(0, shared)
    }
}

impl Heap for KeyValues {
    fn heap(&self) -> u64 {
        self.shared_bytes().map_or(0, shared)
    }
}

/// An upper bound for a value that is seldom there: a multiple of its encoding.
pub(crate) fn of_encoded<T: Serialize>(value: &T) -> u64 {
    let encoded = postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default());
    // Counting bytes cannot fail, and all sequences of commands have known lengths.
    256 + 4 * encoded.expect("a command encodes") as u64
}
