//! A new directory that is being filled.

use super::{Embedded, EmbeddedOptions, directory};
use crate::{Epoch, Filling, Records, Seq, ShardId, StoreError, Table};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A directory that bears a mark until it is filled.
pub struct EmbeddedFilling {
    store: Embedded,
    directory: PathBuf,
}

impl EmbeddedFilling {
    /// Makes the directory, or takes one that is empty. Nothing is written to any other.
    pub fn begin(directory: &Path, options: EmbeddedOptions) -> Result<EmbeddedFilling, StoreError> {
        directory::check_empty(directory)?;
        let lock = directory::lock(directory)?;
        directory::begin_filling(directory)?;
        let store = Embedded::open_locked(directory, lock, options)?;
        Ok(EmbeddedFilling { store, directory: directory.to_path_buf() })
    }
}

impl Filling for EmbeddedFilling {
    fn shards(&self) -> u16 {
        self.store.shards()
    }

    /// The journal stays empty: its first append comes after all that is put here.
    async fn put(&mut self, shard: ShardId, records: Records) -> Result<(), StoreError> {
        self.store.checkpoint(shard, Epoch(0), Seq::ZERO, Arc::new(records)).await
    }

    async fn finish(self) -> Result<(), StoreError> {
        self.store.close().await?;
        directory::end_filling(&self.directory)
    }
}
