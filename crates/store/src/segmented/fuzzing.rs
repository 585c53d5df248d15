//! Doors for the fuzz targets to the frames of the journal. They exist only with the feature `fuzzing`, and in tests, so
//! that each build of the tests compiles them.

use super::frame;
use crate::{Seq, ShardId};

/// The entries of a frame. None: the bytes are not a frame.
pub fn read_frame(bytes: &[u8]) -> Option<Vec<(ShardId, Seq, Vec<u8>)>> {
    let head = frame::check(bytes)?;
    let entries = frame::entries(bytes, &head)?;
    Some(entries.into_iter().map(|entry| (entry.shard, entry.seq, bytes[entry.range].to_vec())).collect())
}

/// Writes a frame.
pub fn write_frame(salt: u64, number: u64, entries: &[(ShardId, Seq, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, salt, number, entries.iter().copied());
    bytes
}

/// The same bytes with the magic number and the checksum of a frame, if they are long enough.
pub fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(magic) = bytes.get_mut(..4) {
        magic.copy_from_slice(&frame::MAGIC.to_le_bytes());
    }
    if let Some(head) = frame::peek(&bytes)
        && let Some(covered) = bytes.get(8..frame::HEAD + head.payload)
    {
        let checksum = crc32c::crc32c(covered);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}
