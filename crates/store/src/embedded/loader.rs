//! Loads an import into a new data directory.

use super::{Embedded, EmbeddedOptions, directory};
use crate::{BulkLoader, Epoch, Records, Seq, ShardId, Sharding, StoreError, Table};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A data directory that is marked as incomplete until the import is finished.
pub struct EmbeddedLoader {
    store: Embedded,
    directory: PathBuf,
}

impl EmbeddedLoader {
    /// Creates the directory, or uses one that is empty. Any other directory is refused and not changed.
    pub fn begin(directory: &Path, options: EmbeddedOptions) -> Result<EmbeddedLoader, StoreError> {
        directory::check_empty(directory)?;
        let lock = directory::lock(directory)?;
        directory::mark_incomplete(directory)?;
        let store = Embedded::open_locked(directory, lock, options)?;
        Ok(EmbeddedLoader { store, directory: directory.to_path_buf() })
    }
}

impl BulkLoader for EmbeddedLoader {
    fn sharding(&self) -> Sharding {
        self.store.sharding()
    }

    /// The journal stays empty, so its first append comes after everything that is put here.
    async fn put(&mut self, shard: ShardId, records: Records) -> Result<(), StoreError> {
        self.store.checkpoint(shard, Epoch(0), Seq::ZERO, Arc::new(records)).await
    }

    async fn finish(self) -> Result<(), StoreError> {
        self.store.close().await?;
        directory::mark_complete(&self.directory)
    }
}
