//! The header of a segment, and the mark that says that another segment follows.
//!
//! Layout, little endian: magic (u64), format version (u32), number of shards (u32), the segment's number (u64), its
//! salt (u64), the number of its first frame (u64), the length of the file (u64), each shard's next seq at that point
//! (u64 each), the digest of each shard's history up to there (u64 each), crc32c of all that; then zeros to the end of the
//! block. The next block is for the closing mark.

use super::frame::{BLOCK, u32_at, u64_at};

const MAGIC: u64 = u64::from_le_bytes(*b"LIMINA-J");
const CLOSING_MAGIC: u64 = u64::from_le_bytes(*b"LIMINA-C");
const FIXED: usize = 48;
/// Version 1 had no digests.
pub(super) const VERSION: u32 = 2;

/// The content of a segment's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) number: u64,
    /// Random for each segment, so that old frames in a recycled file cannot be mistaken for frames of this segment.
    pub(super) salt: u64,
    /// In earlier segments, frames with this number or a higher one are superseded.
    pub(super) first_frame: u64,
    pub(super) length: u64,
    pub(super) next_seqs: Vec<u64>,
    /// The digest of each shard's appends before its next seq.
    pub(super) digests: Vec<u64>,
}

/// Why a header is not usable.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// It is not a header, or it is damaged.
    Invalid,
    /// It has another version of the format.
    Version(u32),
}

/// The length of the header of a journal with this many shards, in bytes.
pub(super) fn size(shards: usize) -> usize {
    (FIXED + 16 * shards + 4).next_multiple_of(BLOCK)
}

/// The offset of the first frame: after the header and the block of the closing mark.
pub(super) fn data_start(shards: usize) -> usize {
    size(shards) + BLOCK
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size(self.next_seqs.len()));
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.next_seqs.len() as u32).to_le_bytes());
        for field in [self.number, self.salt, self.first_frame, self.length] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for field in self.next_seqs.iter().chain(&self.digests) {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.resize(size(self.next_seqs.len()), 0);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Header, Problem> {
        if bytes.len() < FIXED || u64_at(bytes, 0) != MAGIC {
            return Err(Problem::Invalid);
        }
        let (version, shards) = (u32_at(bytes, 8), u32_at(bytes, 12) as usize);
        let of_a_shard = if version == 1 { 8 } else { 16 };
        let end = FIXED + of_a_shard * shards.min(usize::from(u16::MAX) + 1);
        if bytes.len() < end + 4 || crc32c::crc32c(&bytes[..end]) != u32_at(bytes, end) {
            return Err(Problem::Invalid);
        }
        if version != VERSION {
            return Err(Problem::Version(version));
        }
        let each = |from: usize| (0..shards).map(move |shard| u64_at(bytes, from + 8 * shard)).collect();
        Ok(Header {
            number: u64_at(bytes, 16),
            salt: u64_at(bytes, 24),
            first_frame: u64_at(bytes, 32),
            length: u64_at(bytes, 40),
            next_seqs: each(FIXED),
            digests: each(FIXED + 8 * shards),
        })
    }
}

/// Written into a segment once the next one is durable. If the next one is missing later, the loss is noticed.
pub(super) fn closing_mark(number: u64, salt: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK);
    bytes.extend_from_slice(&CLOSING_MAGIC.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&salt.to_le_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.resize(BLOCK, 0);
    bytes
}

/// Whether the bytes are the closing mark of exactly this segment.
pub(super) fn is_closing_mark(bytes: &[u8], header: &Header) -> bool {
    bytes.len() >= BLOCK && bytes[..BLOCK] == closing_mark(header.number, header.salt)[..]
}
