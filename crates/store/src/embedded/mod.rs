//! The default store: one directory, used by one process.
//!
//! The journal consists of segment files, and one thread writes the waiting appends of all shards as one frame. The
//! table is a fjall database that checkpoints bring up to date. Opening proves that all parts belong together: every
//! checkpoint writes its seq, and the digest of the shard's history up to there, into the same files as its records, and the
//! journal must have that history (`segmented/history.rs`). Which files the table consists of is in an inventory
//! (`inventory.rs`). If a part is older than another, or from elsewhere, the directory is refused.

mod check;
mod damage;
mod directory;
mod fjall_files;
mod gathering;
mod history;
mod inventory;
mod loader;
mod open_table;
mod read_only;
mod reopening;
mod shadow;
mod table;
mod writer;

use crate::{
    AppendError, ConfirmError, Epoch, FreeSpace, Journal, JournalStats, Records, Seq, ShardId, Sharding,
    StoreError, Table,
    disk::{Disk, OsDisk},
    segmented::{SegmentedJournal, SegmentedOptions},
};
use bytes::Bytes;
pub use check::Finding;
use directory::{Lock, Meta};
use inventory::{Inventory, Keeper};
pub use loader::EmbeddedLoader;
use open_table::{Point, Points};
pub use read_only::ReadOnlyStore;
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use table::{FjallTable, TableOptions};
use writer::{Writer, WriterOptions};

/// The settings of an embedded store.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// The number of shards. `None` means 64 for a new directory, and whatever an existing one has. An existing
    /// directory is refused if it has another number.
    pub shards: Option<u16>,
    /// The length of a journal segment, in bytes.
    pub segment_bytes: u64,
    /// With fewer available bytes than this, clients' writes are answered with `StorageFull`. `None` means two
    /// segments, and at least 64 MiB.
    pub reserve_bytes: Option<u64>,
    /// How long the journal is idle before it writes an empty frame, which proves that the previous frame was durable.
    pub idle_seal: Duration,
    /// Memory for the table's block cache, in bytes.
    pub cache_bytes: u64,
    /// The number of table files that stay open between look-ups.
    pub cached_files: usize,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions {
            shards: None,
            segment_bytes: 64 << 20,
            reserve_bytes: None,
            idle_seal: Duration::from_millis(20),
            cache_bytes: 64 << 20,
            cached_files: 384,
        }
    }
}

/// The store in one directory. Dropping it is like killing the process; [`Embedded::close`] shuts it down properly.
pub struct Embedded {
    writer: Writer,
    table: FjallTable,
    sharding: Sharding,
    /// The last field, so that the directory is unlocked after everything else has been dropped.
    _lock: Lock,
}

impl Embedded {
    /// Opens or creates the directory. This blocks, because it reads the journal.
    pub fn open(directory: &Path, options: EmbeddedOptions) -> Result<Embedded, StoreError> {
        let lock = directory::lock(directory)?;
        directory::check_complete(directory)?;
        Embedded::open_locked(directory, lock, options)
    }

    fn open_locked(directory: &Path, lock: Lock, options: EmbeddedOptions) -> Result<Embedded, StoreError> {
        let begun = Instant::now();
        let known = Meta::read(directory)?;
        let meta = directory::agree_on_meta(directory, known, options.shards)?;
        let Sharding { shards, key } = meta.sharding;
        let inventory = known.map(|_| Inventory::read(directory)).transpose()?;

        // Opened first: every opening of the journal adds a segment, also if the table cannot be opened.
        let table_directory = directory::subdirectory(directory, "table")?;
        let table_options =
            TableOptions { cache_bytes: options.cache_bytes, cached_files: options.cached_files };
        if let Some(inventory) = &inventory {
            inventory.check_versions(&key, &table_directory)?;
            inventory.check_files(&table_directory)?;
        }
        let directory_id = inventory::directory_id(&key);
        let table = FjallTable::open(&table_directory, table_options, known.is_some(), directory_id)?;
        tracing::info!(directory = %directory.display(), "opening the store: reading the journal");
        let disk = Arc::new(OsDisk::new(&directory::subdirectory(directory, "journal")?));
        let segmented = SegmentedOptions {
            shards,
            segment_bytes: options.segment_bytes,
            must_exist: known.is_some(),
            must_reach: inventory.as_ref().map(|inventory| inventory.journal),
            history_key: *key.bytes(),
            ..SegmentedOptions::default()
        };
        let (mut journal, opened) = SegmentedJournal::open(disk.clone(), segmented)?;
        if known.is_none() && has_data(&journal, &table, shards)? {
            return Err(StoreError::Unusable(format!(
                "data directory {} holds data, but its file limina.meta is missing",
                directory.display()
            )));
        }
        for shard in (0..shards).map(ShardId) {
            let applied = check_parts(&journal, &table, shard)?;
            journal.release(shard, applied);
        }
        tracing::info!(
            directory = %directory.display(),
            shards,
            segments = opened.segments,
            bytes = opened.bytes,
            frames = opened.frames,
            elapsed_ms = begun.elapsed().as_millis() as u64,
            "opened the store"
        );
        let reserve_bytes = options.reserve_bytes.unwrap_or((2 * options.segment_bytes).max(64 << 20));
        let writer =
            Writer::start(journal, disk, WriterOptions { idle_seal: options.idle_seal, reserve_bytes })?;
        let end = Box::new(writer.end_reader());
        let keeper = Keeper::new(directory, key, inventory.unwrap_or_default(), end);
        match (table.keep_inventory(keeper), known) {
            (Ok(()), Some(_)) => {}
            (Ok(()), None) => meta.write(directory)?,
            // The disk may be full. An existing inventory of the table stays valid.
            (Err(error), Some(_)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the inventory of the table could not be written");
            }
            (Err(error), None) => return Err(error),
        }
        Ok(Embedded { writer, table, sharding: meta.sharding, _lock: lock })
    }

    /// How the directory's namespaces are distributed over its shards, since it was created.
    pub fn sharding(&self) -> Sharding {
        self.sharding
    }

    /// Calls `each` with whether the table is open, now and at every change. A failed table is reopened automatically.
    /// Returns the reason if that has failed for so long that only a restart may help.
    pub async fn watch_table(&self, each: impl FnMut(bool)) -> StoreError {
        self.table.watch(each).await
    }

    /// Finishes the work that was begun, and seals the last frame. Later calls fail. The directory is unlocked when the
    /// store is dropped.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.writer.close().await?;
        self.table.close().await
    }
}

fn has_data<D: Disk>(
    journal: &SegmentedJournal<D>,
    table: &FjallTable,
    shards: u16,
) -> Result<bool, StoreError> {
    let is_appended_to = |shard| journal.last_seq(shard) > Seq::ZERO;
    // After an import there are records before the first append.
    Ok((0..shards).map(ShardId).any(is_appended_to)
        || !table.each_applied()?.is_empty()
        || table.has_records()?)
}

/// Checks that the records of the shard and the journal belong together. Returns how far the records have come.
fn check_parts<D: Disk>(
    journal: &SegmentedJournal<D>,
    table: &FjallTable,
    shard: ShardId,
) -> Result<Seq, StoreError> {
    let points = table.points(shard)?;
    let applied = points.and_then(|points| points.applied).map_or(Seq::ZERO, |applied| applied.seq);
    journal.check_applied(shard, applied).map_err(|error| match error {
        StoreError::Unusable(words) if applied < journal.released_before(shard) => {
            StoreError::Unusable(format!("{words}; {}", table.describe_log()))
        }
        error => error,
    })?;
    if let Some(Points { applied, begun }) = points {
        let check = |Point { seq, digest }| journal.check_history(shard, seq, digest);
        applied.map_or(Ok(()), check)?;
        check(begun)?;
    }
    Ok(applied)
}

impl Journal for Embedded {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        self.writer.take(shard).await
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        self.writer.tail(shard, epoch, after).await
    }

    async fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> Result<(), AppendError> {
        self.writer.append(shard, epoch, seq, payload).await
    }

    async fn confirm(&self, shard: ShardId, epoch: Epoch, _: Seq) -> Result<(), ConfirmError> {
        match self.writer.epoch(shard) == epoch {
            true => Ok(()),
            false => Err(ConfirmError::Fenced),
        }
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.writer.release(shard, upto);
    }

    fn free_space(&self) -> FreeSpace {
        self.writer.free_space()
    }

    fn stats(&self) -> JournalStats {
        self.writer.stats()
    }
}

impl Table for Embedded {
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

    async fn checkpoint(
        &self,
        shard: ShardId,
        _epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        let digest = self.writer.digest(shard, upto).await?;
        self.table.checkpoint(shard, Point { seq: upto, digest }, records).await
    }

    async fn discard(&self, shard: ShardId, from: Bytes, to: Bytes) -> Result<(), StoreError> {
        self.table.discard(shard, from, to).await
    }
}
