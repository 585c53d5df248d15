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
pub(crate) enum Compact {
    Few { length: u8, bytes: [u8; FEW] },
    Many(Arc<[u8]>),
}

impl Compact {
    pub(crate) fn new(bytes: &[u8]) -> Compact {
        if bytes.len() > FEW {
            return Compact::Many(bytes.into());
        }
        let mut few = [0; FEW];
        few[..bytes.len()].copy_from_slice(bytes);
        Compact::Few { length: bytes.len() as u8, bytes: few }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Compact::Few { length, bytes } => &bytes[..usize::from(*length)],
            Compact::Many(bytes) => bytes,
        }
    }
}

impl PartialEq for Compact {
    fn eq(&self, other: &Compact) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Compact {}

impl PartialOrd for Compact {
    fn partial_cmp(&self, other: &Compact) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Compact {
    fn cmp(&self, other: &Compact) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

/// As that of the slice, so that one can be looked up by the other.
impl Hash for Compact {
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
        let made: Vec<Compact> = (0..=all.len()).map(|length| Compact::new(&all[..length])).collect();
        for (length, compact) in made.iter().enumerate() {
            assert_eq!(compact.as_slice(), &all[..length]);
            assert_eq!(matches!(compact, Compact::Few { .. }), length <= FEW);
            assert_eq!(*compact, compact.clone());
        }
        assert!(made.is_sorted_by(|a, b| a < b));
        assert_eq!(size_of::<Compact>(), 32);
    }
}
