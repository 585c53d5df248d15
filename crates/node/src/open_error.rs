//! Why a shard could not be opened.

use limina_store::StoreError;

/// Why a shard could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store failed.
    #[error("opening shard {shard}")]
    Store {
        /// The number of the shard.
        shard: u16,
        /// The error of the store.
        #[source]
        source: StoreError,
    },
    /// A stored record could not be loaded.
    #[error("opening shard {shard}")]
    Record {
        /// The number of the shard.
        shard: u16,
        /// The record, and what is wrong with it.
        #[source]
        source: limina_engine::engine::BadRecord,
    },
}
