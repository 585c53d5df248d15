//! What the journal is told, and what it tells.

use crate::{Epoch, Seq, ShardId, StoreError, journal::MAX_PAYLOAD_BYTES};
use bytes::Bytes;

/// How the journal is laid out.
#[derive(Debug, Clone)]
pub struct SegmentedOptions {
    /// How many shards there are; fixed when the journal is created.
    pub shards: u16,
    /// How long a segment is.
    pub segment_bytes: u64,
    /// How many released segments are kept for reuse.
    pub spares: usize,
    /// The longest payload that is taken.
    pub payload_bytes: usize,
    /// Whether there must be a journal already: if none is found then, it was lost.
    pub must_exist: bool,
    /// Where the segments' salts come from.
    pub salts: Salts,
}

impl Default for SegmentedOptions {
    fn default() -> Self {
        SegmentedOptions {
            shards: 64,
            segment_bytes: 64 << 20,
            spares: 2,
            payload_bytes: MAX_PAYLOAD_BYTES,
            must_exist: false,
            salts: Salts::Random,
        }
    }
}

/// Where salts come from.
#[derive(Debug, Clone, Copy)]
pub enum Salts {
    /// The operating system's randomness.
    Random,
    /// Computed from this seed and the segment's number, for simulations; each opening needs another seed.
    Seeded(u64),
}

/// One payload on its way into the journal.
#[derive(Debug, Clone)]
pub struct Append {
    /// Whose it is.
    pub shard: ShardId,
    /// Who sends it.
    pub epoch: Epoch,
    /// Its number within the shard.
    pub seq: Seq,
    /// What is to be kept.
    pub payload: Bytes,
}

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Segments read.
    pub segments: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Frames accepted.
    pub frames: u64,
    /// File and offset of a torn last frame that was dropped.
    pub torn: Option<(String, u64)>,
}

impl Salts {
    pub(super) fn draw(&mut self, segment: u64) -> Result<u64, StoreError> {
        match self {
            Salts::Random => getrandom::u64().map_err(|error| {
                StoreError::Unavailable(format!("the system gives no random numbers: {error}"))
            }),
            Salts::Seeded(seed) => {
                *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(2 * segment + 1);
                Ok(*seed ^ (*seed >> 29))
            }
        }
    }
}
