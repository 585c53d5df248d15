//! The journal's settings, its input, and the report of opening it.

use crate::{Epoch, Seq, ShardId, StoreError, journal::MAX_PAYLOAD_BYTES};
use bytes::Bytes;

/// The layout of the journal.
#[derive(Debug, Clone)]
pub struct SegmentedOptions {
    /// The number of shards. It is fixed when the journal is created.
    pub shards: u16,
    /// The length of a segment, in bytes.
    pub segment_bytes: u64,
    /// The number of released segments that are kept for reuse.
    pub spares: usize,
    /// The longest payload, in bytes.
    pub payload_bytes: usize,
    /// Whether a journal must exist already. If it must and none is found, it was lost.
    pub must_exist: bool,
    /// Where the journal ended once. If it must exist and ends before, a part of it was lost.
    pub must_reach: Option<JournalEnd>,
    /// The key of the histories' digests. Every journal has its own, so that no other journal has the same digests.
    pub history_key: [u8; 16],
    /// The source of the segments' salts.
    pub salts: Salts,
}

/// The end of a journal at some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalEnd {
    /// The number of the newest segment.
    pub segment: u64,
    /// That segment's salt.
    pub salt: u64,
    /// The number of the last durable frame.
    pub frame: u64,
}

impl Default for SegmentedOptions {
    fn default() -> Self {
        SegmentedOptions {
            shards: 64,
            segment_bytes: 64 << 20,
            spares: 2,
            payload_bytes: MAX_PAYLOAD_BYTES,
            must_exist: false,
            must_reach: None,
            history_key: [0; 16],
            salts: Salts::Random,
        }
    }
}

/// The source of salts.
#[derive(Debug, Clone, Copy)]
pub enum Salts {
    /// The random numbers of the operating system.
    Random,
    /// Computed from this seed and the segment's number, for simulations. Each opening needs another seed.
    Seeded(u64),
}

/// One append on its way into the journal.
#[derive(Debug, Clone)]
pub struct Append {
    /// The shard that it belongs to.
    pub shard: ShardId,
    /// The epoch of the sender. It is rejected unless this is the shard's present epoch.
    pub epoch: Epoch,
    /// Its number within the shard.
    pub seq: Seq,
    /// The bytes to be stored.
    pub payload: Bytes,
}

/// What opening a journal found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The number of segments that were read.
    pub segments: u64,
    /// The number of bytes that were read.
    pub bytes: u64,
    /// The number of frames that were accepted.
    pub frames: u64,
    /// File and offset of a torn last frame that was dropped.
    pub torn: Option<(String, u64)>,
}

impl Salts {
    pub(super) fn draw(&mut self, segment: u64) -> Result<u64, StoreError> {
        match self {
            Salts::Random => getrandom::u64().map_err(|error| {
                StoreError::Unavailable(format!("the system returned no random numbers: {error}"))
            }),
            Salts::Seeded(seed) => {
                *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(2 * segment + 1);
                Ok(*seed ^ (*seed >> 29))
            }
        }
    }
}
