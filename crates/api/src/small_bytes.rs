//! Immutable byte strings that are usually short.

use alloc::{sync::Arc, vec::Vec};
use core::{
    cmp::Ordering,
    hash::{Hash, Hasher},
};

/// The largest number of bytes that are stored inline. The value then takes 32 bytes, half a cache line.
const INLINE: usize = 30;

/// Immutable bytes, cheap to clone. Short ones are stored inline: with millions of keys, a look-up should not wait for memory
/// twice.
#[derive(Debug, Clone)]
pub(crate) enum SmallBytes {
    Inline { length: u8, bytes: [u8; INLINE] },
    Shared(Arc<[u8]>),
}

impl SmallBytes {
    pub(crate) fn new(bytes: &[u8]) -> SmallBytes {
        if bytes.len() > INLINE {
            return SmallBytes::Shared(bytes.into());
        }
        let mut inline = [0; INLINE];
        inline[..bytes.len()].copy_from_slice(bytes);
        SmallBytes::Inline { length: bytes.len() as u8, bytes: inline }
    }

    /// The number of bytes, if they are kept in an allocation with two reference counts.
    pub(crate) fn shared_bytes(&self) -> Option<usize> {
        match self {
            SmallBytes::Inline { .. } => None,
            SmallBytes::Shared(bytes) => Some(bytes.len()),
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            SmallBytes::Inline { length, bytes } => &bytes[..usize::from(*length)],
            SmallBytes::Shared(bytes) => bytes,
        }
    }
}

/// The largest number of bytes that a [`ByteBuffer`] collects without an allocation.
const SHORT: usize = 64;

/// Collects bytes, without an allocation if they are few.
#[derive(Debug)]
pub struct ByteBuffer {
    short: [u8; SHORT],
    length: usize,
    /// All bytes, if they are more than [`SHORT`]; else empty.
    long: Vec<u8>,
}

impl ByteBuffer {
    /// An empty buffer.
    pub fn new() -> ByteBuffer {
        ByteBuffer { short: [0; SHORT], length: 0, long: Vec::new() }
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.length = 0;
        self.long.clear();
    }

    /// Adds bytes at the end.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if end <= SHORT {
            self.short[self.length..end].copy_from_slice(bytes);
        } else {
            if self.length <= SHORT {
                self.long.extend_from_slice(&self.short[..self.length]);
            }
            self.long.extend_from_slice(bytes);
        }
        self.length = end;
    }

    /// All bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        if self.length <= SHORT { &self.short[..self.length] } else { &self.long }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.length <= SHORT { &mut self.short[..self.length] } else { &mut self.long }
    }
}

impl Default for ByteBuffer {
    fn default() -> ByteBuffer {
        ByteBuffer::new()
    }
}

impl PartialEq for SmallBytes {
    fn eq(&self, other: &SmallBytes) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SmallBytes {}

impl PartialOrd for SmallBytes {
    fn partial_cmp(&self, other: &SmallBytes) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SmallBytes {
    fn cmp(&self, other: &SmallBytes) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

/// Equal to the hash of the slice, so that a map can be looked up by a slice.
impl Hash for SmallBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_and_shared_bytes_read_back() {
        let all: Vec<u8> = (0..100).collect();
        let made: Vec<SmallBytes> = (0..=all.len()).map(|length| SmallBytes::new(&all[..length])).collect();
        for (length, small_bytes) in made.iter().enumerate() {
            assert_eq!(small_bytes.as_slice(), &all[..length]);
            assert_eq!(matches!(small_bytes, SmallBytes::Inline { .. }), length <= INLINE);
            assert_eq!(*small_bytes, small_bytes.clone());
        }
        assert!(made.is_sorted_by(|a, b| a < b));
        assert_eq!(size_of::<SmallBytes>(), 32);
    }

    #[test]
    fn a_buffer_collects_few_and_many_bytes() {
        let all: Vec<u8> = (0..200).collect();
        let mut buffer = ByteBuffer::new();
        for piece in [1, 7, 64, 65, 200] {
            for length in [0, 1, 63, 64, 65, 128, 200] {
                buffer.clear();
                all[..length].chunks(piece).for_each(|bytes| buffer.extend_from_slice(bytes));
                assert_eq!(buffer.as_slice(), &all[..length], "{length} bytes, {piece} at a time");
            }
        }
    }
}
