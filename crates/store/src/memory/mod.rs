//! A store in memory, for tests and the simulator: the real journal on a simulated disk, and a sorted map as the table.
//!
//! Every future is ready at once, so it can be polled without a runtime. Faults are requested beforehand:
//!
//! - [`Memory::fail_append`] makes the next append fail in one of three ways;
//! - [`Memory::fence`] takes ownership of a shard, as another node would;
//! - [`Memory::fail_table_reads`] and [`Memory::fail_checkpoint`] concern the table;
//! - [`Memory::limit_space`] limits the disk's space, and [`Memory::disk`] returns the disk for faults of single writes
//!   and syncs;
//! - [`Memory::crash`] simulates a loss of power, [`Memory::kill`] the end of the process; [`Memory::open`] opens the
//!   surviving data.
//!
//! [`Cluster`] lets several nodes share one store.

mod cluster;

pub use cluster::{Cluster, MemoryNode};

use crate::{
    AppendError, ConfirmError, Epoch, FreeSpace, HISTORY, Journal, JournalStats, Records, Seq, ShardId,
    Sharding, ShardingKey, StoreError, Table,
    disk::{Disk, SimulatedDisk},
    runs::{self, is_history},
    segmented::{Append, Salts, SegmentedJournal, SegmentedOptions},
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

/// The settings of a store in memory.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// The number of shards.
    pub shards: u16,
    /// The length of a journal segment, in bytes.
    pub segment_bytes: u64,
    /// With fewer available bytes than this, [`Journal::free_space`] returns [`FreeSpace::Reserve`].
    pub reserve_bytes: u64,
    /// The seed of the journal's salts. Each opening needs a different one.
    pub seed: u64,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions { shards: 8, segment_bytes: 64 << 10, reserve_bytes: 128 << 10, seed: 0 }
    }
}

/// A sharding with a fixed key, so that a test finds every namespace in the same shard in every run.
pub const fn sharding(shards: u16) -> Sharding {
    Sharding { shards, key: ShardingKey::new([7; ShardingKey::BYTES]) }
}

/// A store in memory. After [`Memory::crash`] or [`Memory::kill`] every call fails.
pub struct Memory {
    live: Mutex<Option<Live>>,
}

struct Live {
    journal: SegmentedJournal<SimulatedDisk>,
    remains: SurvivingData,
    reserve_bytes: u64,
    faults: Faults,
}

/// What survives the end of a process: the disk and the table.
#[derive(Debug, Clone, Default)]
pub struct SurvivingData {
    /// The journal's disk. A test can damage bytes here before it opens the store again.
    pub disk: SimulatedDisk,
    tables: BTreeMap<u16, ShardTable>,
}

#[derive(Debug, Clone, Default)]
struct ShardTable {
    /// Histories are packed into runs, as in the embedded table, so that the simulator tests runs too.
    stored: BTreeMap<Bytes, Bytes>,
    applied: u64,
}

#[derive(Debug, Default)]
struct Faults {
    appends: VecDeque<AppendFault>,
    reads: u64,
    checkpoint: Option<usize>,
}

/// How a requested fault makes an append fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendFault {
    /// The append is rejected and did not happen.
    NotDone,
    /// The caller cannot know the outcome; the append happened. The shard must be taken again.
    UnknownButHappened,
    /// The caller cannot know the outcome; the append did not happen. The shard must be taken again.
    UnknownAndDidNotHappen,
}

impl Memory {
    /// Creates an empty store.
    pub fn new(options: &MemoryOptions) -> Result<Self, StoreError> {
        Self::open_with(SurvivingData::default(), options, false)
    }

    /// Opens the data that survived a crash or a kill.
    pub fn open(remains: SurvivingData, options: &MemoryOptions) -> Result<Self, StoreError> {
        Self::open_with(remains, options, true)
    }

    fn open_with(
        remains: SurvivingData,
        options: &MemoryOptions,
        must_exist: bool,
    ) -> Result<Self, StoreError> {
        let segmented = SegmentedOptions {
            shards: options.shards,
            segment_bytes: options.segment_bytes,
            must_exist,
            salts: Salts::Seeded(options.seed),
            ..SegmentedOptions::default()
        };
        let (mut journal, _) = SegmentedJournal::open(Arc::new(remains.disk.clone()), segmented)?;
        for shard in (0..options.shards).map(ShardId) {
            let applied = remains.tables.get(&shard.0).map_or(Seq::ZERO, |table| Seq(table.applied));
            journal.check_applied(shard, applied)?;
            journal.release(shard, applied);
        }
        let (reserve_bytes, faults) = (options.reserve_bytes, Faults::default());
        Ok(Memory { live: Mutex::new(Some(Live { journal, remains, reserve_bytes, faults })) })
    }

    /// Simulates a loss of power. The seed decides which unsynced data survives.
    pub fn crash(&self, seed: u64) -> SurvivingData {
        let remains = self.kill();
        remains.disk.crash(seed);
        remains
    }

    /// Simulates a killed process. Everything that was written survives, synced or not.
    pub fn kill(&self) -> SurvivingData {
        let live = self.lock().take();
        live.map(|live| live.remains).unwrap_or_default()
    }

    /// Seals the last frame, as the embedded store does after some idle milliseconds. Then a damaged last frame cannot
    /// be mistaken for a torn one.
    pub fn idle(&self) -> Result<(), StoreError> {
        self.with(|live| live.journal.seal())?
    }

    /// Makes the next append fail. Repeated calls concern the following appends, in order.
    pub fn fail_append(&self, fault: AppendFault) {
        let _ = self.with(|live| live.faults.appends.push_back(fault));
    }

    /// Takes ownership of the shard, as another node would.
    pub fn fence(&self, shard: ShardId) {
        let _ = self.with(|live| live.journal.take(shard));
    }

    /// Makes the next `number` look-ups in the table fail.
    pub fn fail_table_reads(&self, number: u64) {
        let _ = self.with(|live| live.faults.reads = number);
    }

    /// Makes the next checkpoint fail after this many records, like a crash in the middle of it.
    pub fn fail_checkpoint(&self, after_records: usize) {
        let _ = self.with(|live| live.faults.checkpoint = Some(after_records));
    }

    /// Limits the total size of the journal's files, in bytes. `None` means no limit.
    pub fn limit_space(&self, bytes: Option<u64>) {
        let _ = self.with(|live| live.remains.disk.limit_space(bytes));
    }

    /// The journal's disk, for faults of single writes and syncs. `None` after a crash or kill.
    pub fn disk(&self) -> Option<SimulatedDisk> {
        self.with(|live| live.remains.disk.clone()).ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Live) -> T) -> Result<T, StoreError> {
        match self.lock().as_mut() {
            Some(live) => Ok(act(live)),
            None => Err(StoreError::Unavailable("the simulated process is gone".to_string())),
        }
    }

    fn read_table<T>(&self, shard: ShardId, read: impl FnOnce(&ShardTable) -> T) -> Result<T, StoreError> {
        self.with(|live| {
            if live.faults.reads > 0 {
                live.faults.reads -= 1;
                return Err(StoreError::Table("simulated failure of a look-up".to_string()));
            }
            Ok(read(live.remains.tables.entry(shard.0).or_default()))
        })?
    }
}

impl Journal for Memory {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        self.with(|live| live.journal.take(shard))?
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        self.with(|live| live.journal.tail(shard, epoch, after))?
    }

    async fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> Result<(), AppendError> {
        let append = Append { shard, epoch, seq, payload };
        self.with(|live| live.append(append)).map_err(AppendError::NotDone)?
    }

    async fn confirm(&self, shard: ShardId, epoch: Epoch, _: Seq) -> Result<(), ConfirmError> {
        match self.with(|live| live.journal.epoch(shard)).map_err(ConfirmError::Failed)? {
            current if current == epoch => Ok(()),
            _ => Err(ConfirmError::Fenced),
        }
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        let _ = self.with(|live| live.journal.release(shard, upto));
    }

    fn free_space(&self) -> FreeSpace {
        let scarce =
            self.with(|live| live.remains.disk.available().is_ok_and(|bytes| bytes < live.reserve_bytes));
        if scarce.unwrap_or(false) { FreeSpace::Reserve } else { FreeSpace::Ample }
    }

    fn stats(&self) -> JournalStats {
        self.with(|live| live.journal.stats()).unwrap_or_default()
    }
}

impl Live {
    fn append(&mut self, append: Append) -> Result<(), AppendError> {
        let failure = || StoreError::Unavailable("simulated failure of an append".to_string());
        let shard = append.shard;
        match self.faults.appends.pop_front() {
            None => self.append_really(append),
            Some(AppendFault::NotDone) => Err(AppendError::NotDone(failure())),
            Some(AppendFault::UnknownButHappened) => {
                self.append_really(append)?;
                self.journal.take(shard).map_err(AppendError::Unknown)?;
                Err(AppendError::Unknown(failure()))
            }
            Some(AppendFault::UnknownAndDidNotHappen) => {
                self.journal.take(shard).map_err(AppendError::Unknown)?;
                Err(AppendError::Unknown(failure()))
            }
        }
    }

    fn append_really(&mut self, append: Append) -> Result<(), AppendError> {
        self.journal.append(&[append]).pop().expect("one answer for one append")
    }
}

impl Table for Memory {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        self.read_table(shard, |table| Seq(table.applied))
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.read_table(shard, |table| keys.iter().map(|key| table.get(key)).collect())
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        self.read_table(shard, |table| table.scan(&from, &to).take(limit).collect())
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        self.read_table(shard, |table| {
            ranges.iter().map(|(from, at)| table.last_at_or_before(from, at)).collect()
        })
    }

    async fn checkpoint(
        &self,
        shard: ShardId,
        _epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        self.with(|live| {
            let fails_after = live.faults.checkpoint.take();
            let table = live.remains.tables.entry(shard.0).or_default();
            for (key, value) in runs::pack(records.sorted()).take(fails_after.unwrap_or(usize::MAX)) {
                match value {
                    Some(value) => {
                        table.stored.insert(Bytes::copy_from_slice(key), value.into_owned().into())
                    }
                    None => table.stored.remove(key),
                };
            }
            if fails_after.is_some() {
                return Err(StoreError::Table("simulated failure of a checkpoint".to_string()));
            }
            table.applied = table.applied.max(upto.0);
            Ok(())
        })?
    }
}

impl ShardTable {
    fn get(&self, key: &Bytes) -> Option<Bytes> {
        match is_history(key) {
            true => self.last_at_or_before(key, key).map(|(_, value)| value),
            false => self.stored.get(key).cloned(),
        }
    }

    fn scan(&self, from: &Bytes, to: &Bytes) -> impl Iterator<Item = (Bytes, Bytes)> {
        let stored = self.run_before(from).into_iter().chain(self.stored.range::<Bytes, _>(from..to));
        stored.flat_map(members).filter(move |(key, _)| from <= key && key < to)
    }

    fn last_at_or_before(&self, from: &Bytes, at: &Bytes) -> Option<(Bytes, Bytes)> {
        if from > at {
            return None;
        }
        let last = self.stored.range::<Bytes, _>(from..=at).next_back().or_else(|| self.run_before(from))?;
        members(last).into_iter().rfind(|(key, _)| from <= key && key <= at)
    }

    /// The run that begins before the key. It may contain the key.
    fn run_before(&self, key: &Bytes) -> Option<(&Bytes, &Bytes)> {
        let before = || self.stored.range(Bytes::from_static(&[HISTORY])..key.clone()).next_back();
        is_history(key).then(before).flatten()
    }
}

fn members((key, value): (&Bytes, &Bytes)) -> Vec<(Bytes, Bytes)> {
    runs::unpack(key.clone(), value.clone()).expect("memory is not damaged")
}
