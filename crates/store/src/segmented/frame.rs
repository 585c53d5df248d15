//! A frame: everything that one sync covers.
//!
//! Layout, little endian: magic (u32), crc32c (u32) of all that follows, the segment's salt (u64), the frame's number
//! (u64), the length of the payload (u32), the number of entries (u32); then for each entry its shard (u16), its seq
//! (u64), its length (u32) and its bytes. The rest of the last block is zeros.

use crate::{Seq, ShardId};
use std::ops::Range;

/// Frames and headers begin at multiples of this many bytes.
pub(super) const BLOCK: usize = 4096;
/// The length of a frame's header, in bytes.
pub(super) const HEAD: usize = 32;
/// The length of an entry's header, in bytes.
pub(super) const ENTRY_HEAD: usize = 14;
pub(super) const MAGIC: u32 = 0x4652_4c4d;

/// One append within a frame.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) shard: ShardId,
    pub(super) seq: Seq,
    /// The range of its payload, relative to the beginning of the frame.
    pub(super) range: Range<usize>,
}

/// The header of a frame, without magic and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) salt: u64,
    pub(super) number: u64,
    pub(super) payload: usize,
    pub(super) entries: u32,
}

impl Head {
    pub(super) fn size(&self) -> usize {
        (HEAD + self.payload).next_multiple_of(BLOCK)
    }
}

/// The number of bytes that a frame with these payloads takes in the file.
pub(super) fn size<'a>(entries: impl Iterator<Item = &'a [u8]>) -> usize {
    (HEAD + entries.map(|bytes| ENTRY_HEAD + bytes.len()).sum::<usize>()).next_multiple_of(BLOCK)
}

/// Encodes a frame into the buffer, whose content is replaced. Returns where each entry is.
pub(super) fn encode<'a>(
    buffer: &mut Vec<u8>,
    salt: u64,
    number: u64,
    entries: impl Iterator<Item = (ShardId, Seq, &'a [u8])>,
) -> Vec<Entry> {
    buffer.clear();
    buffer.resize(HEAD, 0);
    let mut written = Vec::new();
    for (shard, seq, bytes) in entries {
        buffer.extend_from_slice(&shard.0.to_le_bytes());
        buffer.extend_from_slice(&seq.0.to_le_bytes());
        buffer.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        let start = buffer.len();
        buffer.extend_from_slice(bytes);
        written.push(Entry { shard, seq, range: start..buffer.len() });
    }
    let payload = (buffer.len() - HEAD) as u32;
    buffer[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    buffer[8..16].copy_from_slice(&salt.to_le_bytes());
    buffer[16..24].copy_from_slice(&number.to_le_bytes());
    buffer[24..28].copy_from_slice(&payload.to_le_bytes());
    buffer[28..32].copy_from_slice(&(written.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c(&buffer[8..]);
    buffer[4..8].copy_from_slice(&crc.to_le_bytes());
    buffer.resize(buffer.len().next_multiple_of(BLOCK), 0);
    written
}

/// The header of a frame, before its checksum has been checked.
pub(super) fn peek(bytes: &[u8]) -> Option<Head> {
    let head = bytes.get(..HEAD)?;
    (u32_at(head, 0) == MAGIC).then(|| Head {
        salt: u64_at(head, 8),
        number: u64_at(head, 16),
        payload: u32_at(head, 24) as usize,
        entries: u32_at(head, 28),
    })
}

/// The header of a frame whose checksum is correct.
pub(super) fn check(bytes: &[u8]) -> Option<Head> {
    let head = peek(bytes)?;
    let covered = bytes.get(8..HEAD + head.payload)?;
    (crc32c::crc32c(covered) == u32_at(bytes, 4)).then_some(head)
}

/// The entries of a frame whose checksum is correct. `None` if their lengths do not add up.
pub(super) fn entries(bytes: &[u8], head: &Head) -> Option<Vec<Entry>> {
    let end = HEAD + head.payload;
    let mut entries = Vec::new();
    let mut offset = HEAD;
    for _ in 0..head.entries {
        let entry = bytes.get(offset..offset + ENTRY_HEAD)?;
        let start = offset + ENTRY_HEAD;
        let range = start..start + u32_at(entry, 10) as usize;
        if range.end > end {
            return None;
        }
        offset = range.end;
        let shard = ShardId(u16::from_le_bytes([entry[0], entry[1]]));
        entries.push(Entry { shard, seq: Seq(u64_at(entry, 2)), range });
    }
    (offset == end).then_some(entries)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
