//! An open fjall database, and the records in it.
//!
//! Three measures protect against what fjall does not guarantee. Records are written by sorted ingestion, which writes
//! and syncs whole files, because data that goes through fjall's own journal can be lost in the middle without an
//! error. A shard's [`Points`] are written with its records, in the same files, and once more after them into a keyspace
//! of their own. So neither keyspace can be older than the other unnoticed. Every value has a checksum over shard, key and value,
//! which each read checks.

use super::{damage, fjall_files, history};
use crate::{
    HISTORY, Records, Seq, ShardId, StoreError,
    runs::{self, is_history, is_same_history},
};
use bytes::Bytes;
use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode,
    compaction::Leveled,
    config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy},
};
use std::{
    error::Error,
    io::ErrorKind,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// The number of records in one ingestion. A larger number would only use more memory.
const CHUNK: usize = 500_000;
/// The number of threads that flush and compact, unless the table is only read. If there are several, the first one
/// puts every compaction back into the queue and takes it again, without a pause, while the others are busy. That took
/// a sixth of all processor time under load.
pub(super) const WORKERS: usize = 1;
/// The number of level-0 tables that are merged into level 1 at a time. Each merge rewrites what it overlaps in level
/// 1, so with more than fjall's default of 4, less is written. A much larger number would make look-ups check many more
/// filters.
const LEVEL_0_THRESHOLD: u8 = 12;
/// With more level-0 tables than this, look-ups of missing keys become slow. Checkpoints then wait for compaction, for
/// a limited time.
const LEVEL_0_TABLES: usize = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// With fewer removals, rewriting the table gives back too little.
const MANY_REMOVALS: u64 = 100_000;
/// A larger table is not rewritten at once: that would keep the disk busy for minutes. Later merges give the space back.
const LARGEST_REWRITE: u64 = 1 << 30;
const CHECKSUM: usize = 4;
/// The number of the shard, with which every key of the table begins.
const SHARD_BYTES: usize = 2;
/// Under this shard number, which cannot exist, a record proves that the keyspace is the one that was created here.
const MARKER_SHARD: ShardId = ShardId(u16::MAX);
const CREATED: &[u8] = b"created";
/// The key of a shard's points. It comes after all keys of records, because these begin with a lower byte.
const POINTS: &[u8] = &[0xff];

/// A place in a shard's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) seq: Seq,
    /// The digest of the appends up to there.
    pub(super) digest: u64,
}

/// How far the records of a shard have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Points {
    /// The records contain everything up to here. `None` before the first checkpoint.
    pub(super) applied: Option<Point>,
    /// They contain nothing after this. It is later than `applied` if the last checkpoint was interrupted.
    pub(super) begun: Point,
}

impl Point {
    fn encode(self) -> [u8; 16] {
        (u128::from(self.digest) << 64 | u128::from(self.seq.0)).to_le_bytes()
    }

    fn decode(bytes: [u8; 16]) -> Point {
        let both = u128::from_le_bytes(bytes);
        Point { seq: Seq(both as u64), digest: (both >> 64) as u64 }
    }
}

impl Points {
    fn encode(self) -> Vec<u8> {
        let applied = self.applied.map(Point::encode);
        [&self.begun.encode()[..], applied.as_ref().map_or(&[], |applied| &applied[..])].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Points> {
        let (points, rest) = bytes.as_chunks::<16>();
        match (points, rest) {
            ([begun], []) => Some(Points { applied: None, begun: Point::decode(*begun) }),
            ([begun, applied], []) => {
                Some(Points { applied: Some(Point::decode(*applied)), begun: Point::decode(*begun) })
            }
            _ => None,
        }
    }
}

/// How to open the database.
#[derive(Clone)]
pub(super) struct TableOpener {
    /// The directory of the files that fjall opens and may change.
    pub(super) files: PathBuf,
    /// The directory that errors name, and that is searched for damage.
    pub(super) directory: PathBuf,
    /// Memory for the block cache, in bytes.
    pub(super) cache_bytes: u64,
    /// The number of table files that stay open between look-ups.
    pub(super) cached_files: usize,
    /// Whether the keyspaces must exist already.
    pub(super) must_exist: bool,
    /// The number of threads that flush and compact. With none, the table can only be read.
    pub(super) workers: usize,
}

impl TableOpener {
    /// Opens the database. `torn` describes the parts of fjall's own log that opening drops.
    pub(super) fn open(&self, torn: Vec<String>) -> Result<OpenTable, StoreError> {
        guard(&self.directory, || self.keyspaces(torn))
    }

    fn keyspaces(&self, torn: Vec<String>) -> Result<OpenTable, StoreError> {
        let map_error =
            |result: fjall::Result<Keyspace>| result.map_err(|error| explain(&self.directory, &error));
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
        let records = map_error(database.keyspace("records", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(4 << 20)
                .filter_policy(FilterPolicy::all(filter))
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .expect_point_read_hits(false)
                .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(LEVEL_0_THRESHOLD)))
        }))?;
        let applied = map_error(
            database.keyspace("applied", || KeyspaceCreateOptions::default().max_memtable_size(1 << 20)),
        )?;
        let (directory, may_write) = (self.directory.clone(), self.workers > 0);
        let (ingesting, rewriting, failure) = (Mutex::new(()), Mutex::new(()), OnceLock::new());
        Ok(OpenTable {
            database,
            records,
            applied,
            directory,
            torn,
            may_write,
            ingesting,
            rewriting,
            failure,
        })
    }
}

/// An open fjall database. After the first failed write it is only read, because fjall does not recover from that.
pub(super) struct OpenTable {
    database: Database,
    records: Keyspace,
    applied: Keyspace,
    directory: PathBuf,
    /// The parts of fjall's own log that were dropped at opening.
    torn: Vec<String>,
    may_write: bool,
    /// Held during a checkpoint. Only one runs at a time, because they would compete for the same disk.
    ingesting: Mutex<()>,
    /// One checkpoint at a time rewrites the table.
    rewriting: Mutex<()>,
    /// Set at the first failed write: the reason why nothing is written any more.
    failure: OnceLock<String>,
}

/// fjall panics on some damaged files. The panic becomes an error.
fn guard<T>(directory: &Path, act: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|panic| Err(damage::explain(directory, panic_text(&*panic))))
}

impl OpenTable {
    /// Runs a look-up. A panic of fjall becomes an error. If fjall panics because an earlier panic poisoned one of its
    /// locks, the database has failed.
    pub(super) fn catch_panics<T>(
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

    /// The reason why nothing is written to this database any more, if it has failed. fjall's threads for flushing and
    /// compacting end at their first failure, and only a write shows that they did.
    pub(super) fn failure(&self) -> Option<&str> {
        if self.may_write
            && self.failure.get().is_none()
            && let Err(error) = self.database.persist(PersistMode::Buffer)
        {
            self.fail(&format!("flushing or compacting failed ({error})"));
        }
        self.failure.get().map(String::as_str)
    }

    /// Whether a failure was seen so far. Does not check for a new one.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    fn fail(&self, reason: &str) {
        let _has_failed_before = self.failure.set(reason.to_string());
    }

    /// Writes the records, and stores that the table contains the journal up to `upto`. After the first failure the
    /// database counts as failed, even if fjall would continue: only reopening removes the files that were left behind.
    pub(super) fn checkpoint(
        &self,
        shard: ShardId,
        upto: Point,
        records: &Records,
    ) -> Result<(), StoreError> {
        let alone = self.ingesting.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.may_write {
            let words = "the table has failed and is read-only until it is reopened";
            return Err(StoreError::Unavailable(words.to_string()));
        }
        if let Some(reason) = self.failure() {
            return Err(StoreError::Unavailable(format!("the table is about to be opened again: {reason}")));
        }
        let written = guard(&self.directory, || self.write(shard, upto, records));
        drop(alone);
        let written = written.and_then(|()| guard(&self.directory, || self.give_space_back()));
        written.inspect_err(|error| self.fail(&in_full(error)))
    }

    /// Rewrites the table if at least a third of it are removals: they have as many removed records beside them. fjall merges files
    /// only when many new ones have come, so what a deleted namespace had would stay until then. The work is in proportion to what
    /// was removed. Checkpoints of other shards go on meanwhile.
    fn give_space_back(&self) -> Result<(), StoreError> {
        let tree = &self.records.tree;
        let removals = tree.tombstone_count();
        let is_worth_it = removals >= MANY_REMOVALS
            && 3 * removals >= tree.approximate_len() as u64
            && tree.disk_space() <= LARGEST_REWRITE;
        let Some(_alone) = is_worth_it.then(|| self.rewriting.try_lock().ok()).flatten() else {
            return Ok(());
        };
        self.map_error(self.records.major_compact())?;
        let _alone = self.ingesting.lock().unwrap_or_else(PoisonError::into_inner);
        self.free_dropped_files()
    }

    /// Deletes the files that contain nothing but records with `from <= key < to`. That takes the same time for any number of records.
    pub(super) fn discard(&self, shard: ShardId, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        let _alone = self.ingesting.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.may_write || self.failure().is_some() {
            return Ok(());
        }
        let range = full_key(shard, from)..full_key(shard, to);
        let dropped = guard(&self.directory, || {
            let files = self.records.table_count();
            self.map_error(self.records.tree.drop_range(range).map_err(fjall::Error::from))?;
            if self.records.table_count() < files { self.free_dropped_files() } else { Ok(()) }
        });
        dropped.inspect_err(|error| self.fail(&in_full(error)))
    }

    /// Lets fjall delete the files that it has dropped. It keeps them for readers of an older state of the table until an ingestion has
    /// shown that there are none, and a flush has looked. So the mark of the creation is written once more.
    fn free_dropped_files(&self) -> Result<(), StoreError> {
        let key = full_key(MARKER_SHARD, CREATED);
        let Some(mark) = self.map_error(self.records.get(&key))? else { return Ok(()) };
        let mut ingestion = self.map_error(self.records.start_ingestion())?;
        self.map_error(ingestion.write(key.clone(), mark.clone()))?;
        self.map_error(ingestion.finish())?;
        self.map_error(self.records.insert(key, mark))?;
        self.map_error(self.records.rotate_memtable())?;
        Ok(())
    }

    fn write(&self, shard: ShardId, upto: Point, records: &Records) -> Result<(), StoreError> {
        let before = self.points(shard)?.and_then(|points| points.applied);
        let mut remaining = runs::pack(records.sorted()).peekable();
        loop {
            self.wait_for_compaction();
            let mut ingestion = self.map_error(self.records.start_ingestion())?;
            for (key, value) in remaining.by_ref().take(CHUNK) {
                let full = full_key(shard, key);
                let written = match value {
                    Some(value) => {
                        let with_checksum = with_checksum(&full, &value);
                        ingestion.write(full, with_checksum)
                    }
                    None => ingestion.write_tombstone(full),
                };
                self.map_error(written)?;
            }
            let is_last = remaining.peek().is_none();
            let points = Points { applied: if is_last { Some(upto) } else { before }, begun: upto };
            let key = full_key(shard, POINTS);
            let value = with_checksum(&key, &points.encode());
            self.map_error(ingestion.write(key, value))?;
            self.map_error(ingestion.finish())?;
            if is_last {
                break;
            }
        }
        let key = shard.0.to_be_bytes();
        self.map_error(self.applied.insert(key, with_checksum(&key, &upto.seq.0.to_le_bytes())))?;
        self.map_error(self.database.persist(PersistMode::SyncAll))
    }

    fn wait_for_compaction(&self) {
        let begun = Instant::now();
        while self.records.l0_table_count() > LEVEL_0_TABLES && begun.elapsed() < LONGEST_PAUSE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Syncs everything, unless the database has failed or is only read. Checkpoints have synced what they acknowledged, so
    /// if this sync fails, or finds that the database has failed in the background, nothing is lost.
    pub(super) fn close(&self) {
        if self.may_write
            && self.failure.get().is_none()
            && let Err(error) = self.map_error(self.database.persist(PersistMode::SyncAll))
        {
            tracing::warn!(error = &error as &dyn Error, "the table failed while it was closed");
        }
    }

    /// The parts of fjall's own log that were dropped at opening.
    pub(super) fn torn(&self) -> &[String] {
        &self.torn
    }

    /// Calls `each` for every record of every shard, in order. Stops at the first record that cannot be read.
    pub(super) fn each_record(
        &self,
        mut each: impl FnMut(ShardId, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.records.iter().try_for_each(|guard| {
            let (shard, members) = self.checked(guard)?;
            let mut records = members.iter().filter(|(key, _)| key != POINTS);
            records.try_for_each(|(key, value)| each(shard, key, value))
        })
    }

    /// Whether any shard has a record.
    pub(super) fn has_records(&self) -> Result<bool, StoreError> {
        for guard in self.records.iter() {
            if self.checked(guard)?.0 != MARKER_SHARD {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The applied seq of every shard.
    pub(super) fn each_applied(&self) -> Result<Vec<(ShardId, Seq)>, StoreError> {
        let applied = self.applied.iter().map(|guard| {
            let (key, stored) = self.map_error(guard.into_inner())?;
            let shard = key[..].try_into().map_err(|_| self.mismatch(&key))?;
            let value = self.strip_checksum(&key, &stored)?;
            let seq = value.try_into().map_err(|_| self.mismatch(&key))?;
            Ok((ShardId(u16::from_be_bytes(shard)), Seq(u64::from_le_bytes(seq))))
        });
        applied.collect()
    }

    pub(super) fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        let applied = self.points(shard)?.and_then(|points| points.applied);
        Ok(applied.map_or(Seq::ZERO, |applied| applied.seq))
    }

    /// How far the records of the shard have come. `None` if it has none.
    pub(super) fn points(&self, shard: ShardId) -> Result<Option<Points>, StoreError> {
        let key = full_key(shard, POINTS);
        let Some(stored) = self.map_error(self.records.get(&key))? else { return Ok(None) };
        let value = self.strip_checksum(&key, &stored)?;
        Points::decode(value).map(Some).ok_or_else(|| self.mismatch(&key))
    }

    /// Checks that the records of the shard are not older than the last checkpoint that was finished.
    pub(super) fn check_age(&self, shard: ShardId) -> Result<(), StoreError> {
        let key = shard.0.to_be_bytes();
        let Some(stored) = self.map_error(self.applied.get(key))? else { return Ok(()) };
        let seq = self.strip_checksum(&key, &stored)?.try_into().map_err(|_| self.mismatch(&key))?;
        let finished = Seq(u64::from_le_bytes(seq));
        let applied = self.points(shard)?.and_then(|points| points.applied);
        if applied.is_some_and(|applied| applied.seq >= finished) {
            return Ok(());
        }
        Err(StoreError::Unusable(format!(
            "the parts of the table {} have different ages: the records of shard {} reach to append {}, but a checkpoint up to \
             append {} was finished",
            fjall_files::keyspace(&self.directory, self.records.id()).display(),
            shard.0,
            applied.map_or(0, |applied| applied.seq.0),
            finished.0
        )))
    }

    pub(super) fn get(&self, shard: ShardId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if is_history(key) {
            let found = self.last_at_or_before(shard, key, key)?;
            return Ok(found.map(|(_, value)| value));
        }
        let full = full_key(shard, key);
        match self.map_error(self.records.get(&full))? {
            Some(stored) => Ok(Some(Bytes::copy_from_slice(self.strip_checksum(&full, &stored)?))),
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
        if from >= POINTS {
            return Ok(Vec::new());
        }
        let range = self.records.range(full_key(shard, from)..full_key(shard, to.min(POINTS)));
        let mut page = Page::default();
        for guard in self.run_before(shard, from).into_iter().chain(range) {
            let (full, stored) = self.map_error(guard.into_inner())?;
            let value = self.strip_checksum(&full, &stored)?;
            let key = &full[SHARD_BYTES..];
            match is_history(key) {
                false => page.push(key, value),
                true => {
                    let members = self.unpack(&full, value)?;
                    let within = members.iter().filter(|(key, _)| *from <= **key && **key < *to);
                    within.for_each(|(key, value)| page.push(key, value));
                }
            }
            if page.ends.len() >= limit {
                page.ends.truncate(limit);
                break;
            }
        }
        Ok(page.into_records())
    }

    pub(super) fn last_at_or_before(
        &self,
        shard: ShardId,
        from: &[u8],
        at: &[u8],
    ) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        if from > at || from >= POINTS {
            return Ok(None);
        }
        if is_same_history(from, at)
            && let Some(found) = self.last_of_history(shard, from, at)?
        {
            return Ok(found);
        }
        let last = match at < POINTS {
            true => Bound::Included(full_key(shard, at)),
            false => Bound::Excluded(full_key(shard, POINTS)),
        };
        let mut range = self.records.range((Bound::Included(full_key(shard, from)), last));
        let Some(guard) = range.next_back().or_else(|| self.run_before(shard, from)) else { return Ok(None) };
        let (_, members) = self.checked(guard)?;
        Ok(members.into_iter().rfind(|(key, _)| *from <= **key && **key <= *at))
    }

    /// As [`OpenTable::last_at_or_before`], for two keys of one history. `None` if the run was removed that should have the
    /// record.
    #[expect(clippy::option_option, reason = "whether the record is known, and whether there is one")]
    fn last_of_history(
        &self,
        shard: ShardId,
        from: &[u8],
        at: &[u8],
    ) -> Result<Option<Option<(Bytes, Bytes)>>, StoreError> {
        let (first, full_at) = (full_key(shard, &runs::first_key(at)), full_key(shard, at));
        let reaches = |key: &fjall::UserKey, stored: &fjall::UserValue| {
            let run = stored.split_last_chunk::<CHECKSUM>().map_or(&[][..], |(run, _)| run);
            runs::reaches(&key[SHARD_BYTES..], run, at)
        };
        let found = history::find_run(&self.records, &first.into(), &full_at.into(), reaches);
        let Some(full) = self.map_error(found.map_err(fjall::Error::from))? else { return Ok(Some(None)) };
        // The newest value of the run: it may have grown, or it may have been removed.
        let Some(stored) = self.map_error(self.records.get(&full))? else { return Ok(None) };
        let value = self.strip_checksum(&full, &stored)?;
        let last = runs::last_at_or_before(&full[SHARD_BYTES..], value, from, at);
        Ok(Some(last.ok_or_else(|| self.mismatch(&full))?))
    }

    /// The run that begins before the key. It may contain the key.
    fn run_before(&self, shard: ShardId, key: &[u8]) -> Option<fjall::Guard> {
        let mut before = || self.records.range(full_key(shard, &[HISTORY])..full_key(shard, key)).next_back();
        is_history(key).then(&mut before).flatten()
    }

    /// The shard and the records of a stored record, which may be a run.
    fn checked(&self, guard: fjall::Guard) -> Result<(ShardId, Vec<(Bytes, Bytes)>), StoreError> {
        let (full, stored) = self.map_error(guard.into_inner())?;
        let value = self.strip_checksum(&full, &stored)?;
        let shard = full.first_chunk::<SHARD_BYTES>().ok_or_else(|| self.mismatch(&full))?;
        Ok((ShardId(u16::from_be_bytes(*shard)), self.unpack(&full, value)?))
    }

    fn unpack(&self, full_key: &[u8], value: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let key = Bytes::copy_from_slice(&full_key[SHARD_BYTES..]);
        runs::unpack(key, Bytes::copy_from_slice(value)).ok_or_else(|| self.mismatch(full_key))
    }

    fn strip_checksum<'a>(&self, full_key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], StoreError> {
        let (value, checksum) = stored
            .split_last_chunk::<CHECKSUM>()
            .filter(|_| full_key.len() >= SHARD_BYTES)
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
            detail: format!("the checksum of the record under {key} does not match"),
        }
    }

    /// Marks the table as that of this data directory.
    pub(super) fn mark_created(&self, directory_id: u64) -> Result<(), StoreError> {
        let key = full_key(MARKER_SHARD, CREATED);
        let mut ingestion = self.map_error(self.records.start_ingestion())?;
        let value = with_checksum(&key, &directory_id.to_le_bytes());
        self.map_error(ingestion.write(key, value))?;
        self.map_error(ingestion.finish())
    }

    pub(super) fn check_created(&self, directory_id: u64) -> Result<(), StoreError> {
        match self.get(MARKER_SHARD, CREATED)? {
            Some(marker) if *marker == directory_id.to_le_bytes() => Ok(()),
            _ => Err(damage::explain(
                &self.directory,
                "the table is not the one that was created here".to_string(),
            )),
        }
    }

    fn map_error<T>(&self, result: fjall::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| explain(&self.directory, &error))
    }
}

/// The records that a scan has found. All keys and values are in one buffer: an allocation for each would take longer than
/// reading the record.
#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    /// Where each key ends, and where its value does.
    ends: Vec<(usize, usize)>,
}

impl Page {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let end_of_key = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((end_of_key, self.bytes.len()));
    }

    fn into_records(self) -> Vec<(Bytes, Bytes)> {
        let bytes = Bytes::from(self.bytes);
        let mut begin = 0;
        let record = |(end_of_key, end): (usize, usize)| {
            let from = std::mem::replace(&mut begin, end);
            (bytes.slice(from..end_of_key), bytes.slice(end_of_key..end))
        };
        self.ends.into_iter().map(record).collect()
    }
}

fn full_key(shard: ShardId, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(SHARD_BYTES + key.len());
    full.extend_from_slice(&shard.0.to_be_bytes());
    full.extend_from_slice(key);
    full
}

fn with_checksum(full_key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut with_checksum = Vec::with_capacity(value.len() + CHECKSUM);
    with_checksum.extend_from_slice(value);
    with_checksum.extend_from_slice(&checksum_of(full_key, value).to_le_bytes());
    with_checksum
}

fn checksum_of(full_key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(full_key), value)
}

/// Converts fjall's error. An error of the operating system remains one; for any other, the files are searched for
/// damage.
fn explain(directory: &Path, error: &fjall::Error) -> StoreError {
    use fjall::Error::{Io, KeyspaceDeleted, Locked, Poisoned, Storage};
    match error {
        Io(source) | Storage(fjall::LsmError::Io(source)) if source.kind() != ErrorKind::UnexpectedEof => {
            let source = std::io::Error::new(source.kind(), source.to_string());
            StoreError::io("using", directory.display().to_string(), source)
        }
        // Nothing is damaged in these cases, so the files are not searched.
        Poisoned | Locked | KeyspaceDeleted => StoreError::Table(error.to_string()),
        _ => damage::explain(directory, error.to_string()),
    }
}

/// The error's text with that of its cause.
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
