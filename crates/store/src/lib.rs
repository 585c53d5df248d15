//! Where what was decided is kept.
//!
//! A store has two parts. The [`Journal`] is what an answer waits for: one append a batch, durable when it returns,
//! refused when a newer owner has taken the shard. The [`Table`] holds the sorted records and is brought up to date
//! behind the journal. [`ShardStore`] is the layer above both, written once: it keeps the records since the last
//! checkpoint in memory and answers every look-up from there and from the table together.
//!
//! This crate knows bytes. It must never know what a record means, who asked for it, or what time it is.

pub mod batch;
pub mod conformance;
pub mod disk;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod filling;
pub mod journal;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod records;
pub mod runs;
pub mod segmented;
pub mod shard_store;
pub mod table;
pub mod tenure;

pub use batch::{Batch, Image};
pub use filling::Filling;
pub use journal::{AppendError, ConfirmError, Journal, JournalStats, Room};
pub use records::Records;
pub use runs::HISTORY;
pub use shard_store::{Answer, Backlog, Read, ShardStore, ShardStoreOptions};
pub use table::Table;
pub use tenure::{Announcement, Handed, Holding, Member, NodeId, Tenure, View};

use bytes::Bytes;

/// One of the fixed number of shards that a data directory or cluster was created with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// How many shards there are where nobody asked for a number.
const DEFAULT_SHARDS: u16 = 64;

/// The number of shards of a store that was created with `known`, or is about to be created; `place` says which store.
pub(crate) fn agree_on_shards(
    place: &str,
    known: Option<u16>,
    asked: Option<u16>,
) -> Result<u16, StoreError> {
    match (known, asked) {
        (_, Some(0 | u16::MAX)) => {
            Err(StoreError::Unusable("the number of shards must be 1 to 65534".to_string()))
        }
        (Some(known), Some(asked)) if known != asked => Err(StoreError::Unusable(format!(
            "{place} was created with {known} shards and cannot be opened with {asked}"
        ))),
        (known, asked) => Ok(known.or(asked).unwrap_or(DEFAULT_SHARDS)),
    }
}

/// Who owns a shard: grows with every taking over, and an append or confirm of an older one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The number of an append within its shard; the first is 1, and there are no gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first append.
    pub const ZERO: Seq = Seq(0);

    /// The one that follows.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

/// An after-image: what stands under a key from now on. No value means that the key is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Orders the records of a shard, bytewise.
    pub key: Bytes,
    /// The new value, or none where the record was removed.
    pub value: Option<Bytes>,
}

impl Record {
    /// The same, as a part of a batch; other records may have stood under its key.
    pub fn image(&self) -> Image<'_> {
        Image { key: &self.key, value: self.value.as_deref(), is_first: false }
    }
}

/// Something in the store that could not be done. It is about the machine or the files, never about a request.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("{action} {path}")]
    Io {
        /// What was attempted, as a participle: "reading", "syncing".
        action: &'static str,
        /// The file or directory.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// What was read is not what was written.
    #[error("damaged data in {path} at offset {offset}: {detail}")]
    Corrupt {
        /// The file, or the part of the table, that is damaged.
        path: String,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        detail: String,
    },
    /// The sorted table failed in a way of its own.
    #[error("the table failed: {0}")]
    Table(String),
    /// The directory or database cannot be used as it is: another version, another number of shards, in use by another
    /// process.
    #[error("{0}")]
    Unusable(String),
    /// Another node owns the shard.
    #[error("another node owns the shard")]
    NotOwned,
    /// The store stopped after an earlier failure, or is being closed.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: impl Into<String>, source: std::io::Error) -> Self {
        StoreError::Io { action, path: path.into(), source }
    }

    /// Whether it is for want of space.
    pub(crate) fn is_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, StoreError::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// The same error once more, for everyone who waits for the same thing.
    pub(crate) fn again(&self) -> Self {
        match self {
            StoreError::Io { action, path, source } => {
                let source = match source.raw_os_error() {
                    Some(code) => std::io::Error::from_raw_os_error(code),
                    None => std::io::Error::new(source.kind(), source.to_string()),
                };
                StoreError::Io { action, path: path.clone(), source }
            }
            StoreError::Corrupt { path, offset, detail } => {
                StoreError::Corrupt { path: path.clone(), offset: *offset, detail: detail.clone() }
            }
            StoreError::Table(detail) => StoreError::Table(detail.clone()),
            StoreError::Unusable(detail) => StoreError::Unusable(detail.clone()),
            StoreError::NotOwned => StoreError::NotOwned,
            StoreError::Unavailable(detail) => StoreError::Unavailable(detail.clone()),
        }
    }
}
