//! The sorted table: fjall, behind the trait.
//!
//! Three habits guard against what fjall does not promise. Records go in through its sorted ingestion, which writes
//! and syncs whole files; what goes through its own journal can be lost in the middle without an error. A shard's
//! applied seq is written after them and synced. Every value bears a checksum over shard, key and value, looked at on
//! each read.

use super::{damage, fjall_files};
use crate::{
    Epoch, HISTORY, Records, Seq, ShardId, StoreError, Table,
    runs::{self, is_history},
};
use bytes::Bytes;
use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, PersistMode,
    compaction::Leveled,
    config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy},
};
use std::{
    io::ErrorKind,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How many records one ingestion takes: more would only hold more memory.
const CHUNK: usize = 500_000;
/// Threads that flush and compact. One, since of several the first hands every compaction back to the queue and takes it
/// again, without a pause, for as long as the others are busy: a sixth of all processor time under load.
const WORKERS: usize = 1;
/// So many tables of level 0 are merged into level 1 at a time. Each merge writes what it overlaps in level 1 anew, so
/// more than fjall's own 4 should write less; many more would give look-ups many more filters to ask. Not measured yet.
const LEVEL_0_THRESHOLD: u8 = 8;
/// With so many tables in level 0 a negative look-up becomes slow, so checkpoints wait for compaction, but not for
/// ever.
const LEVEL_0_TABLES: usize = 16;
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// So many look-ups are made at once, on the thread that asks, which saves every single request the way to another thread
/// and back. Filters and indexes are in memory; a block that is not may make the thread wait for the disk. The number is a
/// guess: where the two cost the same was not measured.
const FEW: usize = 128;
const CHECKSUM: usize = 4;
/// Under this shard, which cannot exist, stands a record that proves that the keyspace is the one we created.
const NOBODY: ShardId = ShardId(u16::MAX);
const CREATED: &[u8] = b"created";

/// The table of all shards.
#[derive(Clone)]
pub(super) struct FjallTable {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    records: Keyspace,
    applied: Keyspace,
    directory: PathBuf,
    /// What of fjall's own log was lost at opening.
    torn: Vec<String>,
    /// One checkpoint at a time: they would only compete for the same disk.
    ingesting: Mutex<()>,
}

impl FjallTable {
    /// Opens the table, or creates it if it need not exist.
    pub(super) fn open(directory: &Path, cache_bytes: u64, must_exist: bool) -> Result<Self, StoreError> {
        let torn = damage::check_before_opening(directory)?;
        let opening =
            Opening { files: directory, directory, cache_bytes, must_exist, workers: WORKERS, torn };
        let table = FjallTable { inner: Arc::new(opening.run()?) };
        match must_exist {
            true => table.inner.check_created()?,
            false => table.inner.mark_created()?,
        }
        Ok(table)
    }

    /// Opens a copy of the table, for reading only: nothing is flushed or compacted. Errors name the original's files.
    pub(super) fn open_copy(copy: &Path, original: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        let (must_exist, workers, torn) = (true, 0, Vec::new());
        let opening = Opening { files: copy, directory: original, cache_bytes, must_exist, workers, torn };
        let table = FjallTable { inner: Arc::new(opening.run()?) };
        table.inner.check_created()?;
        Ok(table)
    }

    /// Every record of every shard, in order. Ends at the first one that cannot be read.
    pub(super) fn each_record(
        &self,
        mut each: impl FnMut(ShardId, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.inner.guarded(|inner| {
            inner.records.iter().try_for_each(|guard| {
                let (shard, members) = inner.checked(guard)?;
                members.iter().try_for_each(|(key, value)| each(shard, key, value))
            })
        })
    }

    /// Every shard's applied seq.
    pub(super) fn each_applied(&self) -> Result<Vec<(ShardId, Seq)>, StoreError> {
        self.inner.guarded(|inner| {
            let applied = inner.applied.iter().map(|guard| {
                let (key, stored) = inner.said(guard.into_inner())?;
                let shard = key[..].try_into().map_err(|_| inner.mismatch(&key))?;
                let value = inner.unsealed(&key, &stored)?;
                let seq = value.try_into().map_err(|_| inner.mismatch(&key))?;
                Ok((ShardId(u16::from_be_bytes(shard)), Seq(u64::from_le_bytes(seq))))
            });
            applied.collect()
        })
    }

    /// [`Table::applied`], at once.
    pub(super) fn applied_now(&self, shard: ShardId) -> Result<Seq, StoreError> {
        self.inner.guarded(|inner| inner.applied(shard))
    }

    /// Where to look when the table is behind: how far each shard is stands mostly in fjall's own log.
    pub(super) fn where_it_lost(&self) -> String {
        let logs = fjall_files::logs(&self.inner.directory);
        let logs: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
        let torn: String = self.inner.torn.iter().map(|torn| format!("; {torn}")).collect();
        format!("the table's log is {}{torn}", logs.join(" and "))
    }

    /// Makes everything durable.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        self.blocking(|inner| inner.said(inner.database.persist(PersistMode::SyncAll))).await
    }

    /// Answers so many questions: a few at once, more on another thread.
    async fn looked_up<T: Send + 'static>(
        &self,
        count: usize,
        look_up: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match count <= FEW {
            true => self.inner.guarded(look_up),
            false => self.blocking(look_up).await,
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        match tokio::task::spawn_blocking(move || act(&inner)).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Err(damage::explain(&self.inner.directory, panic_text(&*panic))),
                Err(_) => Err(StoreError::Unavailable("the runtime is being shut down".to_string())),
            },
        }
    }
}

impl Table for FjallTable {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        self.blocking(move |inner| inner.applied(shard)).await
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        let count = keys.len();
        let get_all = move |inner: &Inner| keys.iter().map(|key| inner.get(shard, key)).collect();
        self.looked_up(count, get_all).await
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if limit == 0 || from >= to {
            return Ok(Vec::new());
        }
        self.blocking(move |inner| inner.scan(shard, &from, &to, limit)).await
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        let count = ranges.len();
        let find_all = move |inner: &Inner| {
            ranges.iter().map(|(from, at)| inner.last_at_or_before(shard, from, at)).collect()
        };
        self.looked_up(count, find_all).await
    }

    async fn checkpoint(
        &self,
        shard: ShardId,
        _epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        self.blocking(move |inner| inner.checkpoint(shard, upto, &records)).await
    }
}

/// How fjall is opened.
struct Opening<'a> {
    /// Where the files are that it may change.
    files: &'a Path,
    /// The directory that errors name, and where damage is looked for.
    directory: &'a Path,
    cache_bytes: u64,
    must_exist: bool,
    /// Threads that flush and compact.
    workers: usize,
    torn: Vec<String>,
}

impl Opening<'_> {
    fn run(self) -> Result<Inner, StoreError> {
        guard(self.directory, || self.keyspaces())
    }

    fn keyspaces(self) -> Result<Inner, StoreError> {
        let said = |result: fjall::Result<Keyspace>| result.map_err(|error| explain(self.directory, &error));
        let database = Database::builder(self.files)
            .cache_size(self.cache_bytes)
            .worker_threads_unchecked(self.workers)
            .max_journaling_size(64 << 20)
            .open()
            .map_err(|error| explain(self.directory, &error))?;
        for name in ["records", "applied"] {
            if self.must_exist && !database.keyspace_exists(name) {
                return Err(damage::explain(self.directory, format!("the keyspace {name:?} is missing")));
            }
        }
        let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
        let records = said(database.keyspace("records", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(4 << 20)
                .filter_policy(FilterPolicy::all(filter))
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .expect_point_read_hits(false)
                .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(LEVEL_0_THRESHOLD)))
        }))?;
        let applied = said(
            database.keyspace("applied", || KeyspaceCreateOptions::default().max_memtable_size(1 << 20)),
        )?;
        let directory = self.directory.to_path_buf();
        Ok(Inner { database, records, applied, directory, torn: self.torn, ingesting: Mutex::new(()) })
    }
}

/// fjall panics on some damaged files, which is no reason for us to.
fn guard<T>(directory: &Path, act: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|panic| Err(damage::explain(directory, panic_text(&*panic))))
}

impl Inner {
    fn guarded<T>(&self, act: impl FnOnce(&Inner) -> Result<T, StoreError>) -> Result<T, StoreError> {
        guard(&self.directory, || act(self))
    }

    fn checkpoint(&self, shard: ShardId, upto: Seq, records: &Records) -> Result<(), StoreError> {
        let _alone = self.ingesting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut remaining = runs::pack(records.sorted()).peekable();
        while remaining.peek().is_some() {
            self.wait_for_compaction();
            let mut ingestion = self.said(self.records.start_ingestion())?;
            for (key, value) in remaining.by_ref().take(CHUNK) {
                let full = full_key(shard, key);
                let written = match value {
                    Some(value) => {
                        let sealed = sealed(&full, &value);
                        ingestion.write(full, sealed)
                    }
                    None => ingestion.write_tombstone(full),
                };
                self.said(written)?;
            }
            self.said(ingestion.finish())?;
        }
        let key = shard.0.to_be_bytes();
        self.said(self.applied.insert(key, sealed(&key, &upto.0.to_le_bytes())))?;
        self.said(self.database.persist(PersistMode::SyncAll))
    }

    fn wait_for_compaction(&self) {
        let begun = Instant::now();
        while self.records.l0_table_count() > LEVEL_0_TABLES && begun.elapsed() < LONGEST_PAUSE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        let key = shard.0.to_be_bytes();
        let Some(stored) = self.said(self.applied.get(key))? else { return Ok(Seq::ZERO) };
        let value = self.unsealed(&key, &stored)?;
        let seq = value.try_into().map_err(|_| self.mismatch(&key))?;
        Ok(Seq(u64::from_le_bytes(seq)))
    }

    fn get(&self, shard: ShardId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if is_history(key) {
            let found = self.last_at_or_before(shard, key, key)?;
            return Ok(found.map(|(_, value)| value));
        }
        let full = full_key(shard, key);
        match self.said(self.records.get(&full))? {
            Some(stored) => Ok(Some(Bytes::copy_from_slice(self.unsealed(&full, &stored)?))),
            None => Ok(None),
        }
    }

    fn scan(
        &self,
        shard: ShardId,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let range = self.records.range(full_key(shard, from)..full_key(shard, to));
        let mut page = Vec::new();
        for guard in self.run_before(shard, from).into_iter().chain(range) {
            let (_, members) = self.checked(guard)?;
            page.extend(members.into_iter().filter(|(key, _)| *from <= **key && **key < *to));
            if page.len() >= limit {
                page.truncate(limit);
                break;
            }
        }
        Ok(page)
    }

    fn last_at_or_before(
        &self,
        shard: ShardId,
        from: &[u8],
        at: &[u8],
    ) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        if from > at {
            return Ok(None);
        }
        let mut range = self.records.range(full_key(shard, from)..=full_key(shard, at));
        let Some(guard) = range.next_back().or_else(|| self.run_before(shard, from)) else { return Ok(None) };
        let (_, members) = self.checked(guard)?;
        Ok(members.into_iter().rfind(|(key, _)| *from <= **key && **key <= *at))
    }

    /// The run that begins before the key, and may reach beyond it.
    fn run_before(&self, shard: ShardId, key: &[u8]) -> Option<fjall::Guard> {
        let mut before = || self.records.range(full_key(shard, &[HISTORY])..full_key(shard, key)).next_back();
        is_history(key).then(&mut before).flatten()
    }

    /// The records of which a stored one consists.
    fn checked(&self, guard: fjall::Guard) -> Result<(ShardId, Vec<(Bytes, Bytes)>), StoreError> {
        let (full, stored) = self.said(guard.into_inner())?;
        let value = self.unsealed(&full, &stored)?;
        let (shard, key) = full.split_first_chunk().ok_or_else(|| self.mismatch(&full))?;
        let members = runs::unpack(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        Ok((ShardId(u16::from_be_bytes(*shard)), members.ok_or_else(|| self.mismatch(&full))?))
    }

    fn unsealed<'a>(&self, full_key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], StoreError> {
        let (value, checksum) = stored
            .split_last_chunk::<CHECKSUM>()
            .filter(|_| full_key.len() >= 2)
            .ok_or_else(|| self.mismatch(full_key))?;
        match u32::from_le_bytes(*checksum) == checksum_of(full_key, value) {
            true => Ok(value),
            false => Err(self.mismatch(full_key)),
        }
    }

    fn mismatch(&self, full_key: &[u8]) -> StoreError {
        let key: String = full_key.iter().map(|byte| format!("{byte:02x}")).collect();
        StoreError::Corrupt {
            path: self.directory.display().to_string(),
            offset: 0,
            detail: format!("the record under {key} does not have its checksum"),
        }
    }

    fn mark_created(&self) -> Result<(), StoreError> {
        let key = full_key(NOBODY, CREATED);
        let mut ingestion = self.said(self.records.start_ingestion())?;
        let value = sealed(&key, b"");
        self.said(ingestion.write(key, value))?;
        self.said(ingestion.finish())
    }

    fn check_created(&self) -> Result<(), StoreError> {
        match self.get(NOBODY, CREATED)? {
            Some(_) => Ok(()),
            None => Err(damage::explain(
                &self.directory,
                "the table is not the one that was created here".to_string(),
            )),
        }
    }

    fn said<T>(&self, result: fjall::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| explain(&self.directory, &error))
    }
}

fn full_key(shard: ShardId, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(2 + key.len());
    full.extend_from_slice(&shard.0.to_be_bytes());
    full.extend_from_slice(key);
    full
}

fn sealed(full_key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(value.len() + CHECKSUM);
    sealed.extend_from_slice(value);
    sealed.extend_from_slice(&checksum_of(full_key, value).to_le_bytes());
    sealed
}

fn checksum_of(full_key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(full_key), value)
}

/// fjall's error as ours: one of the operating system stays one, and for all else the files are looked at.
fn explain(directory: &Path, error: &fjall::Error) -> StoreError {
    use fjall::Error::{Io, KeyspaceDeleted, Locked, Poisoned, Storage};
    match error {
        Io(source) | Storage(fjall::LsmError::Io(source)) if source.kind() != ErrorKind::UnexpectedEof => {
            let source = std::io::Error::new(source.kind(), source.to_string());
            StoreError::io("using", directory.display().to_string(), source)
        }
        // Nothing is damaged, so nothing need be looked for.
        Poisoned | Locked | KeyspaceDeleted => StoreError::Table(error.to_string()),
        _ => damage::explain(directory, error.to_string()),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_string())
}
