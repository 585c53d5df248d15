//! An estimate of the memory that an entry takes, from the sizes of its types and of its texts.
//!
//! The estimate depends on what is held and not on how it came to be: it is the same after every opening. So it uses the
//! average space that growing containers leave unused, in place of the actual one. `cargo run -p limina-engine --example
//! resident` compares it with the memory of a process.

use serde::Serialize;

/// A place in a vector, which is three quarters full on average.
pub(crate) const fn vec_slot<T>() -> u64 {
    size_of::<T>() as u64 * 4 / 3
}

/// A place in a hash map, which is two thirds full on average, and has one more byte for each place.
pub(crate) const fn hash_slot<T>() -> u64 {
    (size_of::<T>() as u64 + 1) * 3 / 2
}

/// A place in a large tree. Most keys are inserted in their order, which leaves nodes about half full.
pub(crate) const fn tree_slot<T>() -> u64 {
    size_of::<T>() as u64 * 2 + 16
}

/// A tree that is so small that its first node matters: a node has 11 places.
pub(crate) const fn small_tree<T>(entries: usize) -> u64 {
    entries.div_ceil(8) as u64 * (11 * size_of::<T>() as u64 + 16)
}

/// A place in a slab, with its place in the hash index, whose tables are often less than a quarter full.
pub(crate) const fn slab_slot<T>() -> u64 {
    size_of::<Option<T>>() as u64 * 5 / 4 + 32
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

/// An upper bound for a value that is seldom there: a multiple of its encoding.
pub(crate) fn of_encoded<T: Serialize>(value: &T) -> u64 {
    let encoded = postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default());
    // Counting bytes cannot fail, and all sequences of commands have known lengths.
    256 + 4 * encoded.expect("a command encodes") as u64
}
