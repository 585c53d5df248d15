//! A fjall database that is open, and the records in it.
//!
//! Three habits guard against what fjall does not promise. Records go in through its sorted ingestion, which writes
//! and syncs whole files; what goes through its own journal can be lost in the middle without an error. A shard's
//! applied seq is written after them and synced. Every value bears a checksum over shard, key and value, looked at on
//! each read.

use super::damage;
use crate::{
    HISTORY, Records, Seq, ShardId, StoreError,
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
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// How many records one ingestion takes: more would only hold more memory.
const CHUNK: usize = 500_000;
/// Threads that flush and compact, unless the table is only to be read. One, since of several the first hands every compaction back to the queue and takes it
/// again, without a pause, for as long as the others are busy: a sixth of all processor time under load.
pub(super) const WORKERS: usize = 1;
/// So many tables of level 0 are merged into level 1 at a time. Each merge writes what it overlaps in level 1 anew, so
/// more than fjall's own 4 should write less; many more would give look-ups many more filters to ask. Not measured yet.
const LEVEL_0_THRESHOLD: u8 = 8;
/// With so many tables in level 0 a negative look-up becomes slow, so checkpoints wait for compaction, but not for
/// ever.
const LEVEL_0_TABLES: usize = 16;
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const CHECKSUM: usize = 4;
/// Under this shard, which cannot exist, stands a record that proves that the keyspace is the one we created.
const NOBODY: ShardId = ShardId(u16::MAX);
const CREATED: &[u8] = b"created";

/// How fjall is opened.
#[derive(Clone)]
pub(super) struct Opening {
    /// Where the files are that it may change.
    pub(super) files: PathBuf,
    /// The directory that errors name, and where damage is looked for.
    pub(super) directory: PathBuf,
    /// How much of the table is kept in memory.
    pub(super) cache_bytes: u64,
    /// How many of its files stay open between two look-ups.
    pub(super) cached_files: usize,
    /// Whether the keyspaces must be there already.
    pub(super) must_exist: bool,
    /// Threads that flush and compact. Without any, the table can only be read.
    pub(super) workers: usize,
}

impl Opening {
    /// Opens the database. `torn` says what of fjall's own log will be dropped.
    pub(super) fn run(&self, torn: Vec<String>) -> Result<OpenTable, StoreError> {
        guard(&self.directory, || self.keyspaces(torn))
    }

    fn keyspaces(&self, torn: Vec<String>) -> Result<OpenTable, StoreError> {
        let said = |result: fjall::Result<Keyspace>| result.map_err(|error| explain(&self.directory, &error));
        let database = Database::builder(&self.files)
            .cache_size(self.cache_bytes)
            .max_cached_files(Some(self.cached_files))
            .worker_threads_unchecked(self.workers)
            .max_journaling_size(64 << 20)
            .open()
            .map_err(|error| explain(&self.directory, &error))?;
        for name in ["records", "applied"] {
            if self.must_exist && !database.keyspace_exists(name) {
                return Err(damage::explain(&self.directory, format!("the keyspace {name:?} is missing")));
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
        let (directory, may_write) = (self.directory.clone(), self.workers > 0);
        let (ingesting, failure) = (Mutex::new(()), OnceLock::new());
        Ok(OpenTable { database, records, applied, directory, torn, may_write, ingesting, failure })
    }
}

/// A fjall database. After its first failed write it is only read: fjall does not recover from one.
pub(super) struct OpenTable {
    database: Database,
    records: Keyspace,
    applied: Keyspace,
    directory: PathBuf,
    /// What of fjall's own log was lost at opening.
    torn: Vec<String>,
    may_write: bool,
    /// One checkpoint at a time: they would only compete for the same disk.
    ingesting: Mutex<()>,
    /// Why nothing is written any more.
    failure: OnceLock<String>,
}

/// fjall panics on some damaged files, which is no reason for us to.
fn guard<T>(directory: &Path, act: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|panic| Err(damage::explain(directory, panic_text(&*panic))))
}

impl OpenTable {
    /// Carries out a look-up. Where fjall panics, that is an error; and where it panics because an earlier panic has left
    /// one of its locks poisoned, the database has failed.
    pub(super) fn guarded<T>(
        &self,
        act: impl FnOnce(&OpenTable) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        catch_unwind(AssertUnwindSafe(|| act(self))).unwrap_or_else(|panic| {
            let words = panic_text(&*panic);
            if words.contains("PoisonError") {
                self.fail(&words);
            }
            Err(damage::explain(&self.directory, words))
        })
    }

    /// Why nothing is written to this database any more, if that is so. The threads of fjall that flush and compact end
    /// at their first failure, and leave a mark that only a write shows.
    pub(super) fn failure(&self) -> Option<&str> {
        if self.may_write
            && self.failure.get().is_none()
            && let Err(error) = self.database.persist(PersistMode::Buffer)
        {
            self.fail(&format!("flushing or compacting failed ({error})"));
        }
        self.failure.get().map(String::as_str)
    }

    /// Whether a failure was seen; costs nothing.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    fn fail(&self, reason: &str) {
        let _has_failed_before = self.failure.set(reason.to_string());
    }

    /// Takes the records in and remembers that the journal up to `upto` is contained. At the first failure the database
    /// has failed, whatever fjall thinks of it: only opening it again removes the files that were left behind.
    pub(super) fn checkpoint(&self, shard: ShardId, upto: Seq, records: &Records) -> Result<(), StoreError> {
        let _alone = self.ingesting.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.may_write {
            let words = "the table has failed, and is only read until it can be written to";
            return Err(StoreError::Unavailable(words.to_string()));
        }
        if let Some(reason) = self.failure() {
            return Err(StoreError::Unavailable(format!("the table is about to be opened again: {reason}")));
        }
        let written = guard(&self.directory, || self.write(shard, upto, records));
        written.inspect_err(|error| self.fail(&in_full(error)))
    }

    fn write(&self, shard: ShardId, upto: Seq, records: &Records) -> Result<(), StoreError> {
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

    /// Makes everything durable, if this database may be written to.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        match self.may_write && self.failure.get().is_none() {
            true => self.said(self.database.persist(PersistMode::SyncAll)),
            false => Ok(()),
        }
    }

    /// What of fjall's own log was lost at opening.
    pub(super) fn torn(&self) -> &[String] {
        &self.torn
    }

    /// Every record of every shard, in order. Ends at the first one that cannot be read.
    pub(super) fn each_record(
        &self,
        mut each: impl FnMut(ShardId, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.records.iter().try_for_each(|guard| {
            let (shard, members) = self.checked(guard)?;
            members.iter().try_for_each(|(key, value)| each(shard, key, value))
        })
    }

    /// Every shard's applied seq.
    pub(super) fn each_applied(&self) -> Result<Vec<(ShardId, Seq)>, StoreError> {
        let applied = self.applied.iter().map(|guard| {
            let (key, stored) = self.said(guard.into_inner())?;
            let shard = key[..].try_into().map_err(|_| self.mismatch(&key))?;
            let value = self.unsealed(&key, &stored)?;
            let seq = value.try_into().map_err(|_| self.mismatch(&key))?;
            Ok((ShardId(u16::from_be_bytes(shard)), Seq(u64::from_le_bytes(seq))))
        });
        applied.collect()
    }

    pub(super) fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        let key = shard.0.to_be_bytes();
        let Some(stored) = self.said(self.applied.get(key))? else { return Ok(Seq::ZERO) };
        let value = self.unsealed(&key, &stored)?;
        let seq = value.try_into().map_err(|_| self.mismatch(&key))?;
        Ok(Seq(u64::from_le_bytes(seq)))
    }

    pub(super) fn get(&self, shard: ShardId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
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

    pub(super) fn scan(
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

    pub(super) fn last_at_or_before(
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

    pub(super) fn mark_created(&self) -> Result<(), StoreError> {
        let key = full_key(NOBODY, CREATED);
        let mut ingestion = self.said(self.records.start_ingestion())?;
        let value = sealed(&key, b"");
        self.said(ingestion.write(key, value))?;
        self.said(ingestion.finish())
    }

    pub(super) fn check_created(&self) -> Result<(), StoreError> {
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

/// The error with its causes.
pub(super) fn in_full(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_string())
}
