//! The encoding of stored records. Their keys are in [`key`]; `docs/storage-format.md` describes both.
//!
//! A record is one byte of format version and then its fields in the postcard encoding (varints, zigzag for signed
//! numbers, length-prefixed strings). The store adds a checksum.

pub(crate) mod answer;
pub mod key;

use crate::{Name, Position, Time};
use alloc::vec::Vec;
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version of the format that this code writes, and the only one that it reads.
pub const VERSION: u8 = 1;

/// The one record that belongs to the shard itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardMeta {
    /// The shard time of the last sealed batch. Time never goes back behind it.
    pub time: Time,
    /// The id of the next namespace. Ids are not used again.
    pub next_namespace: u32,
    /// New namespaces begin at this position: the largest that a deleted namespace had. So a namespace that is created again
    /// never repeats a position.
    pub position_floor: Position,
    /// The id of the next sweep.
    pub next_sweep: u64,
    /// The audit has no record before this time. `None` if it has none at all.
    pub first_audit: Option<Time>,
    /// The last time at which holders of locks, leases and decisions were given their whole ttl again. Their own records do not
    /// show it.
    pub grace_at: Option<Time>,
}

/// A namespace's own record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceHead {
    /// The namespace's name.
    pub name: Name,
    /// The position of the namespace's last change.
    pub position: Position,
    /// How many replies are kept. `None` if there are none.
    pub replies: Option<KeptReplies>,
}

/// The number of kept replies, by the period in which they were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptReplies {
    /// The first period that may have kept replies.
    pub first: u32,
    /// The numbers of replies of the first period and of the two after it.
    pub counts: [u32; 3],
}

impl KeptReplies {
    /// The number of kept replies of all periods.
    pub fn sum(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }
}

/// A range of keys whose records are removed in slices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// The first key of the range.
    pub from: Vec<u8>,
    /// The first key behind the range.
    pub to: Vec<u8>,
}

/// Bytes that are not a record of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Appends the encoded record to `bytes`.
pub fn encode_into<T: Serialize>(record: &T, bytes: &mut Vec<u8>) {
    bytes.push(VERSION);
    // Writing to memory cannot fail, and every record type has a known length for its sequences.
    postcard::serialize_with_flavor(record, Append(bytes)).expect("a record encodes");
}

/// Appends to a vector. The flavor that postcard has for this appends byte by byte.
struct Append<'b>(&'b mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        match bytes {
            [byte] => self.0.push(*byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Decodes a record.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    match decode_first(bytes)? {
        (record, []) => Ok(record),
        _ => Err(Malformed),
    }
}

/// Decodes the first fields of a record, and returns the bytes behind them.
pub(crate) fn decode_first<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), Malformed> {
    match bytes.split_first() {
        Some((&VERSION, fields)) => postcard::take_from_bytes(fields).map_err(|_| Malformed),
        _ => Err(Malformed),
    }
}
