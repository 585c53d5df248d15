//! What is stored: the bytes of records. Their keys are in [`key`]; `docs/storage-format.md` describes both.
//!
//! A record is one byte of format version and then its fields in the postcard encoding (varints, zigzag for signed
//! numbers, length-prefixed strings). The store adds a checksum.

pub mod key;

use crate::{Name, Position, Time};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version of the format that this code writes, and the only one that it reads.
pub const VERSION: u8 = 1;

/// The one record that belongs to the shard itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardMeta {
    /// Shard time of the last sealed batch; time never goes back behind it.
    pub time: Time,
    /// The id that the next namespace gets. Ids are not used again.
    pub next_namespace: u32,
    /// No namespace made from now on starts below this position, so that none repeats a deleted one's.
    pub position_floor: Position,
    /// The id that the next sweep gets.
    pub next_sweep: u64,
}

/// A namespace's own record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceHead {
    /// Its name.
    pub name: Name,
    /// The position of its last change.
    pub position: Position,
    /// The first and the last period for which idempotency replies are kept.
    pub replies: Option<(u32, u32)>,
}

/// A range of keys, all of whose records are to be removed bit by bit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// The first key to go.
    pub from: Vec<u8>,
    /// The first key to stay.
    pub to: Vec<u8>,
}

/// Bytes that are not a record of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Writes a record's bytes behind what is in `bytes`.
pub fn encode_into<T: Serialize>(record: &T, bytes: &mut Vec<u8>) {
    bytes.push(VERSION);
    // Writing to memory cannot fail, and every record type has a known length for its sequences.
    *bytes = postcard::to_extend(record, core::mem::take(bytes)).expect("a record encodes");
}

/// Reads a record's bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    match bytes.split_first() {
        Some((&VERSION, fields)) => match postcard::take_from_bytes(fields) {
            Ok((record, [])) => Ok(record),
            _ => Err(Malformed),
        },
        _ => Err(Malformed),
    }
}
