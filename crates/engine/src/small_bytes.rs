//! Bytes that are mostly few.

use alloc::sync::Arc;
use core::{
    cmp::Ordering,
    hash::{Hash, Hasher},
};

/// So many stand in the value itself, which then has the size of half a line of a processor's cache.
const FEW: usize = 30;

/// Bytes that never change, cheap to clone. Few of them stand in the value itself: there are millions of keys, and to
/// find one should not mean to wait for memory twice.
#[derive(Debug, Clone)]
pub(crate) enum SmallBytes {
    Few { length: u8, bytes: [u8; FEW] },
    Many(Arc<[u8]>),
}

impl SmallBytes {
    pub(crate) fn new(bytes: &[u8]) -> SmallBytes {
        if bytes.len() > FEW {
            return SmallBytes::Many(bytes.into());
        }
        let mut few = [0; FEW];
        few[..bytes.len()].copy_from_slice(bytes);
        SmallBytes::Few { length: bytes.len() as u8, bytes: few }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            SmallBytes::Few { length, bytes } => &bytes[..usize::from(*length)],
            SmallBytes::Many(bytes) => bytes,
        }
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

/// As that of the slice, so that one can be looked up by the other.
impl Hash for SmallBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn few_and_many_are_the_bytes_they_were_made_of() {
        let all: Vec<u8> = (0..100).collect();
        let made: Vec<SmallBytes> = (0..=all.len()).map(|length| SmallBytes::new(&all[..length])).collect();
        for (length, small_bytes) in made.iter().enumerate() {
            assert_eq!(small_bytes.as_slice(), &all[..length]);
            assert_eq!(matches!(small_bytes, SmallBytes::Few { .. }), length <= FEW);
            assert_eq!(*small_bytes, small_bytes.clone());
        }
        assert!(made.is_sorted_by(|a, b| a < b));
        assert_eq!(size_of::<SmallBytes>(), 32);
    }
}
