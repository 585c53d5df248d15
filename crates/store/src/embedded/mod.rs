//! The default store: one directory, one process.
//!
//! The journal is segment files behind one thread that takes whatever waits, from all shards, into one frame. The
//! table is fjall, brought up to date behind it. Opening holds the two against each other: a table that is older than
//! the journal's beginning, or newer than its end, means that acknowledged data were lost, and is refused.

mod at_rest;
mod damage;
mod directory;
mod filling;
mod fjall_files;
mod open_table;
mod reopening;
mod shadow;
mod table;
mod writer;

use crate::{
    AppendError, ConfirmError, Epoch, Journal, JournalStats, Records, Room, Seq, ShardId, StoreError, Table,
    disk::{Disk, OsDisk},
    segmented::{Segmented, SegmentedOptions},
};
pub use at_rest::{AtRest, Finding};
use bytes::Bytes;
use directory::{Lock, Meta};
pub use filling::EmbeddedFilling;
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use table::{FjallTable, TableOptions};
use writer::{Writer, WriterOptions};

/// How an embedded store is made and kept.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// How many shards there are. It is fixed when the directory is created (64 if nothing else is asked for); asking
    /// for another number later is refused.
    pub shards: Option<u16>,
    /// How long a segment of the journal is.
    pub segment_bytes: u64,
    /// Below so many available bytes clients are told that the storage is full; two segments, and at least 64 MiB,
    /// unless something else is asked for.
    pub reserve_bytes: Option<u64>,
    /// How long the journal is idle before it proves its last frame durable with an empty one.
    pub idle_seal: Duration,
    /// How much of the table is kept in memory.
    pub cache_bytes: u64,
    /// How many of the table's files stay open between two look-ups.
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

/// The store in one directory. Dropping it ends it as a killed process would; [`Embedded::close`] ends it well.
pub struct Embedded {
    writer: Writer,
    table: FjallTable,
    shards: u16,
    /// Last, so that the directory is free only when everything else has ended.
    _lock: Lock,
}

impl Embedded {
    /// Opens the directory, or creates it. This blocks: it reads the journal.
    pub fn open(directory: &Path, options: EmbeddedOptions) -> Result<Embedded, StoreError> {
        let lock = directory::lock(directory)?;
        directory::check_filled(directory)?;
        Embedded::open_locked(directory, lock, options)
    }

    fn open_locked(directory: &Path, lock: Lock, options: EmbeddedOptions) -> Result<Embedded, StoreError> {
        let begun = Instant::now();
        let known = Meta::read(directory)?;
        let meta = directory::agree(directory, known, options.shards)?;

        tracing::info!(directory = %directory.display(), "opening the store: reading the journal");
        let disk = Arc::new(OsDisk::new(&directory::subdirectory(directory, "journal")?));
        let segmented = SegmentedOptions {
            shards: meta.shards,
            segment_bytes: options.segment_bytes,
            must_exist: known.is_some(),
            ..SegmentedOptions::default()
        };
        let (mut journal, opened) = Segmented::open(disk.clone(), segmented)?;
        let table_directory = directory::subdirectory(directory, "table")?;
        let table_options =
            TableOptions { cache_bytes: options.cache_bytes, cached_files: options.cached_files };
        let table = FjallTable::open(&table_directory, table_options, known.is_some())?;
        for shard in (0..meta.shards).map(ShardId) {
            let applied = table.applied_now(shard)?;
            if known.is_none() && applied.max(journal.last_seq(shard)) > Seq::ZERO {
                return Err(StoreError::Unusable(format!(
                    "data directory {} holds data, but its file limina.meta is missing",
                    directory.display()
                )));
            }
            check_applied(&journal, &table, shard, applied)?;
            journal.release(shard, applied);
        }
        if known.is_none() {
            meta.write(directory)?;
        }
        tracing::info!(
            directory = %directory.display(),
            shards = meta.shards,
            segments = opened.segments,
            bytes = opened.bytes,
            frames = opened.frames,
            elapsed_ms = begun.elapsed().as_millis() as u64,
            "opened the store"
        );
        let reserve_bytes = options.reserve_bytes.unwrap_or((2 * options.segment_bytes).max(64 << 20));
        let writer =
            Writer::start(journal, disk, WriterOptions { idle_seal: options.idle_seal, reserve_bytes })?;
        Ok(Embedded { writer, table, shards: meta.shards, _lock: lock })
    }

    /// How many shards the directory was created with.
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// Tells `each` whether the table is open, now and at every change: one that has failed is opened again. Returns when
    /// that has not succeeded for so long that only a restart may help, with the reason.
    pub async fn watch_table(&self, each: impl FnMut(bool)) -> StoreError {
        self.table.watch(each).await
    }

    /// Ends the store well: what was begun is finished, the last frame is sealed. Whatever is asked afterwards is
    /// refused. The directory is free when the store is dropped.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.writer.close().await?;
        self.table.close().await
    }
}

/// Whether journal and table belong together, for this shard.
fn check_applied<D: Disk>(
    journal: &Segmented<D>,
    table: &FjallTable,
    shard: ShardId,
    applied: Seq,
) -> Result<(), StoreError> {
    journal.check_applied(shard, applied).map_err(|error| match error {
        StoreError::Unusable(words) if applied < journal.released_before(shard) => {
            StoreError::Unusable(format!("{words}; {}", table.where_it_lost()))
        }
        error => error,
    })
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

    async fn confirm(&self, shard: ShardId, epoch: Epoch) -> Result<(), ConfirmError> {
        match self.writer.epoch(shard) == epoch {
            true => Ok(()),
            false => Err(ConfirmError::Fenced),
        }
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.writer.release(shard, upto);
    }

    fn room(&self) -> Room {
        self.writer.room()
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
        epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        self.table.checkpoint(shard, epoch, upto, records).await
    }
}
