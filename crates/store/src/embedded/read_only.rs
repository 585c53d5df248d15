//! A data directory that is only read, as a journal and a table. `check.rs` reads it and reports what it finds.

use super::{
    check::{self, Finding},
    directory::{self, Lock, META},
    shadow::Shadow,
    table::FjallTable,
};
use crate::{
    AppendError, ConfirmError, Epoch, FreeSpace, Journal, JournalStats, Records, Seq, ShardId, StoreError,
    Table,
    disk::{Disk, OsDisk},
    segmented::SegmentedJournal,
};
use bytes::Bytes;
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A data directory that is only read. As a [`Journal`] and a [`Table`] it rejects every change.
pub struct ReadOnlyStore {
    journal: SegmentedJournal<ReadOnlyDisk>,
    table: FjallTable,
    shards: u16,
    /// Dropped after the table, which has files open in it.
    _shadow: Shadow,
    _lock: Option<Lock>,
}

impl ReadOnlyStore {
    /// Locks the directory and reads all of it. An error means that it could not be read at all. Returns `None` if it
    /// is too damaged to be read as a store would read it.
    pub fn check(
        directory: &Path,
        report: &mut dyn FnMut(Finding),
    ) -> Result<Option<ReadOnlyStore>, StoreError> {
        let parts = [directory.join(META), directory.join("journal"), directory.join("table")];
        if !directory.is_dir() {
            return Err(StoreError::Unusable(format!("there is no data directory {}", directory.display())));
        }
        if !parts.iter().any(|part| part.exists()) {
            let words = format!("{} is not a data directory of limina", directory.display());
            return Err(StoreError::Unusable(words));
        }
        let lock = directory::lock_to_read(directory)?;
        directory::check_complete(directory)?;
        let known = check::check_meta(directory, report)?;
        let sharding = known.as_ref().map(|(meta, _)| meta.sharding);
        let [_, _, table] = &parts;
        let journal = known.as_ref().and_then(|(meta, inventory)| {
            inventory
                .check_versions(&meta.sharding.key, table)
                .unwrap_or_else(|error| report(Finding::Problem(error)));
            check::check_journal(directory, meta.sharding, inventory.journal, report)
        });
        let shadow = check::check_table_files(table, report).then(|| Shadow::of(table)).transpose()?;
        let table = shadow.as_ref().and_then(|shadow| check::check_records(shadow, table, sharding, report));
        let (Some(sharding), Some(journal), Some(table), Some(shadow)) = (sharding, journal, table, shadow)
        else {
            return Ok(None);
        };
        let shards = sharding.shards;
        let agree = check::check_parts(&journal, &table, shards, report);
        let read_only = ReadOnlyStore { journal, table, shards, _shadow: shadow, _lock: lock };
        Ok(agree.then_some(read_only))
    }

    /// The number of shards that the directory was created with.
    pub fn shards(&self) -> u16 {
        self.shards
    }
}

impl Journal for ReadOnlyStore {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        Ok(self.journal.epoch(shard))
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        self.journal.tail(shard, epoch, after)
    }

    async fn append(&self, _: ShardId, _: Epoch, _: Seq, _: Bytes) -> Result<(), AppendError> {
        Err(AppendError::NotDone(read_only()))
    }

    async fn confirm(&self, _: ShardId, _: Epoch, _: Seq) -> Result<(), ConfirmError> {
        Ok(())
    }

    fn release(&self, _: ShardId, _: Seq) {}

    fn free_space(&self) -> FreeSpace {
        FreeSpace::Reserve
    }

    fn stats(&self) -> JournalStats {
        self.journal.stats()
    }
}

impl Table for ReadOnlyStore {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        self.table.applied(shard).await
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.table.get_many(shard, keys).await
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.table.scan(shard, from, to, limit).await
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        self.table.last_at_or_before(shard, ranges).await
    }

    async fn checkpoint(&self, _: ShardId, _: Epoch, _: Seq, _: Arc<Records>) -> Result<(), StoreError> {
        Err(read_only())
    }
}

fn read_only() -> StoreError {
    StoreError::Unavailable("the store is open for reading only".to_string())
}

/// The journal's directory; every call that would change it fails.
pub(super) struct ReadOnlyDisk {
    pub(super) disk: OsDisk,
    pub(super) directory: PathBuf,
}

impl Disk for ReadOnlyDisk {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn create(&self, _: &str) -> io::Result<File> {
        refused()
    }

    fn open(&self, name: &str) -> io::Result<File> {
        File::open(self.directory.join(name))
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self) -> io::Result<()> {
        refused()
    }

    fn available(&self) -> io::Result<u64> {
        self.disk.available()
    }

    fn path(&self, name: &str) -> String {
        self.disk.path(name)
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the journal is open for reading only"))
}
