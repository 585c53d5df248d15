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
mod error;
mod ids;
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

pub use batch::{Batch, Record, RecordRef};
pub use bulk_loader::BulkLoader;
pub use error::StoreError;
pub use ids::{Epoch, Seq, ShardId};
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
