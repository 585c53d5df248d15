//! The durable storage of shards: bytes under keys, appended to a journal and sorted in a table.
//!
//! A store has two parts. Answers wait for the [`Journal`]: one append per batch, durable when it returns, and rejected
//! if a newer owner has taken the shard. The [`Table`] holds the sorted records; checkpoints bring it up to date later.
//! [`ShardStore`] is the layer above both, and is the same for every store: it keeps the records since the last
//! checkpoint in memory, and answers look-ups from there and from the table together.
//!
//! This crate promises that an append that returned is found again after any crash, and that damaged data is reported
//! instead of being used. It must never know what a record means, who sent a request, or what time it is.

// Some helpers serve one of the two optional stores only.
#![cfg_attr(not(all(feature = "embedded", feature = "postgres")), allow(dead_code, unused_imports))]

pub mod batch;
pub mod bulk_loader;
pub mod conformance;
pub mod disk;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod journal;
pub mod key_filter;
pub mod log_limit;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod records;
pub mod runs;
pub mod segmented;
pub mod shard_store;
pub mod sharding;
pub mod sip_hash;
pub mod table;
pub mod tenure;

pub use batch::{Batch, RecordRef};
pub use bulk_loader::BulkLoader;
pub use journal::{AppendError, ConfirmError, FreeSpace, Journal, JournalStats, LostAppends};
pub use key_filter::KeyFilter;
pub use log_limit::LogLimit;
pub use records::Records;
pub use runs::HISTORY;
pub use shard_store::{
    Answer, Backlog, FilterCounts, FilterPart, FilteredKeys, Preparation, Read, ShardStore,
    ShardStoreOptions, StoredFilter,
};
pub use sharding::{Sharding, ShardingKey};
pub use sip_hash::sip_hash;
pub use table::Table;
pub use tenure::{Announcement, Fingerprint, HandOver, Member, NodeId, ShardRow, Tenure, View};

use bytes::Bytes;

/// One of the shards of a data directory or cluster. Their number is fixed when the store is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// Identifies one ownership of a shard. It grows whenever the shard is claimed, handed over or opened. Appends and
/// confirms under an older epoch are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The number of an append within its shard. The first is 1, and there are no gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The seq before the first append.
    pub const ZERO: Seq = Seq(0);

    /// The seq of the next append.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

/// An after-image: the new value of a record under its key, or its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Records of a shard are sorted by the bytes of their keys.
    pub key: Bytes,
    /// The new value; `None` removes the record.
    pub value: Option<Bytes>,
}

impl Record {
    /// Borrows the record. `is_first` is false, because other records may have been under its key before.
    pub fn image(&self) -> RecordRef<'_> {
        RecordRef { key: &self.key, value: self.value.as_deref(), is_first: false }
    }
}

/// A failure of the store. It concerns the machine, the files or the database, never a request.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system returned an error.
    #[error("{action} {path}")]
    Io {
        /// What was attempted, as a participle: "reading", "syncing".
        action: &'static str,
        /// The file or directory.
        path: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Stored data is damaged: what was read is not what was written.
    #[error("damaged data in {path} at offset {offset}: {detail}")]
    Corrupt {
        /// The file, or the part of the table, that is damaged.
        path: String,
        /// Offset of the damage in the file, in bytes.
        offset: u64,
        /// A description of the damage, for operators.
        detail: String,
    },
    /// The table's database failed; the text is its own error message.
    #[error("the table failed: {0}")]
    Table(String),
    /// The directory or database cannot be used as it is. For example, it has another version or another number of
    /// shards, or another process uses it. Retrying does not help.
    #[error("{0}")]
    Unusable(String),
    /// Another node owns the shard, so this node must not open or change it.
    #[error("another node owns the shard")]
    NotOwned,
    /// The store has less of the shard than this node has seen there: it has gone back to an older state.
    #[error("the store has gone back to an older state")]
    WentBack,
    /// The store failed earlier, cannot be reached, or is being closed. Retrying may help.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: impl Into<String>, source: std::io::Error) -> Self {
        StoreError::Io { action, path: path.into(), source }
    }

    /// Whether the cause is a full disk or an exhausted quota.
    pub(crate) fn is_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, StoreError::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// A copy of the error, for each caller that waits for the same operation.
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
            StoreError::WentBack => StoreError::WentBack,
            StoreError::Unavailable(detail) => StoreError::Unavailable(detail.clone()),
        }
    }
}
