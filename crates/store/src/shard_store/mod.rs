//! The layer above journal and table, the same for every store.
//!
//! It keeps the records since the last checkpoint in memory: in the *active* overlay, and while a checkpoint runs also
//! in the *frozen* one. Records enter the overlay only when their append is durable, and a frozen overlay ends with a
//! durable append. So look-ups and checkpoints never contain something that could still be lost. A look-up goes active
//! → frozen → table, because that is the order in which a record moves.

mod filtering;
mod look_up;
mod preparation;
mod replay;

pub use filtering::{FilterCounts, FilterPart, FilteredKeys, StoredFilter};
pub use look_up::{Answer, FullScan, Read};
pub use preparation::Preparation;

use crate::{
    AppendError, Batch, ConfirmError, Epoch, FreeSpace, Journal, LostAppends, Records, Seq, ShardId,
    StoreError, Table,
};
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest key, in bytes: slightly less than what the embedded table accepts.
pub const MAX_KEY_BYTES: usize = 60_000;

/// The size of an overlay, in bytes, from which the end of a sweep is worth a checkpoint.
const MANY_REMOVALS: usize = 1 << 20;

/// When a checkpoint is due, and when appends wait for one.
#[derive(Debug, Clone)]
pub struct ShardStoreOptions {
    /// Size of the overlay, in bytes, from which a checkpoint is due; see [`Backlog::due`].
    pub soft_bytes: usize,
    /// Size of the overlay, in bytes, above which appends wait for a checkpoint. The task that appends must not be the
    /// one that checkpoints, or it would wait for itself; `usize::MAX` turns the waiting off. If the last checkpoint
    /// failed, appends above this size fail instead, and from half of it on [`ShardStore::free_space`] returns
    /// [`FreeSpace::Reserve`].
    pub hard_bytes: usize,
}

impl Default for ShardStoreOptions {
    fn default() -> Self {
        ShardStoreOptions { soft_bytes: 64 << 20, hard_bytes: 256 << 20 }
    }
}

/// The records that the table does not contain yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Number of records in memory.
    pub records: usize,
    /// Their approximate size, in bytes.
    pub bytes: usize,
    /// The first append that the table does not contain, if there is one. The journal must keep it and all later ones.
    pub since: Option<Seq>,
    /// Whether a checkpoint should run now: there is enough to write, a scan waits for it, or the last checkpoint failed.
    pub due: bool,
}

/// The records of one shard, as durable as its journal.
pub struct ShardStore<J, T> {
    journal: Arc<J>,
    table: Arc<T>,
    shard: ShardId,
    options: ShardStoreOptions,
    state: Mutex<State>,
    filtering: filtering::Filtering,
    /// Held while a checkpoint runs.
    checkpointing: tokio::sync::Mutex<()>,
    /// Notified at the end of each checkpoint, successful or not.
    checkpointed: tokio::sync::Notify,
}

struct State {
    epoch: Epoch,
    /// The last append that is durable and in the overlay.
    seq: Seq,
    /// The table contains the shard up to this append.
    applied: Seq,
    active: Records,
    frozen: Option<Frozen>,
    /// Whether the last checkpoint failed.
    is_failing: bool,
    /// The next checkpoint is due at once; see [`ShardStore::prepare_scan`] and [`ShardStore::handle_swept`].
    is_checkpoint_wanted: bool,
    /// An append was begun, and its success was not seen. No other append may follow before the shard is taken again.
    must_retake: bool,
    /// How often the shard was taken again. An append that was begun before the last time changes nothing in this state any more: what
    /// became of it was read from the journal.
    retakes: u64,
}

#[derive(Clone)]
struct Frozen {
    records: Arc<Records>,
    upto: Seq,
}

impl<J: Journal, T: Table> ShardStore<J, T> {
    /// Takes ownership of the shard, and reads from the journal what the table does not contain yet.
    pub async fn open(
        journal: Arc<J>,
        table: Arc<T>,
        shard: ShardId,
        options: ShardStoreOptions,
    ) -> Result<Self, StoreError> {
        let epoch = journal.take(shard).await?;
        let applied = table.applied(shard).await?;
        let store = ShardStore::with(journal, table, shard, options, State::new(epoch, applied));
        store.finish_opening(epoch, applied, |_| {}).await?;
        Ok(store)
    }

    fn with(
        journal: Arc<J>,
        table: Arc<T>,
        shard: ShardId,
        options: ShardStoreOptions,
        state: State,
    ) -> ShardStore<J, T> {
        ShardStore {
            journal,
            table,
            shard,
            options,
            state: Mutex::new(state),
            filtering: filtering::Filtering::default(),
            checkpointing: tokio::sync::Mutex::new(()),
            checkpointed: tokio::sync::Notify::new(),
        }
    }

    /// Reads the appends after the last known one, and calls `each` with them.
    async fn finish_opening(
        &self,
        epoch: Epoch,
        applied: Seq,
        each: impl FnMut(Batch) + Send,
    ) -> Result<(), StoreError> {
        self.journal.release(self.shard, applied);
        self.catch_up(epoch, each).await
    }

    /// Takes ownership of the shard again, after an append that was fenced, whose outcome is unknown, or whose future
    /// was dropped. Appends that the journal accepted after the last known one enter the overlay. If the store has gone back to an older
    /// state, this store has that state then: see [`ShardStore::lost`].
    pub async fn retake(&self) -> Result<(), StoreError> {
        {
            let mut state = self.lock();
            state.must_retake = true;
            state.retakes += 1;
        }
        let epoch = self.journal.take(self.shard).await?;
        if self.lost().is_some_and(|lost| self.seq() >= lost.first) {
            let applied = self.table.applied(self.shard).await?;
            self.forget_all(applied);
            return self.finish_opening(epoch, applied, |_| {}).await;
        }
        self.catch_up(epoch, |_| {}).await
    }

    /// The appends that the store has lost, according to what this node knew of the shard when it took the shard last: the store has gone
    /// back to an older state. `None` again after the next append.
    pub fn lost(&self) -> Option<LostAppends> {
        self.journal.lost(self.shard)
    }

    /// Drops everything that this store has in memory of a shard whose table has the appends up to `applied`.
    fn forget_all(&self, applied: Seq) {
        let forgotten = {
            let mut state = self.lock();
            let (epoch, retakes) = (state.epoch, state.retakes);
            std::mem::replace(&mut *state, State { retakes, ..State::new(epoch, applied) })
        };
        // Freeing many records takes time, so it happens outside the lock.
        drop(forgotten);
        self.filtering.reload();
        self.checkpointed.notify_waiters();
    }

    /// While a part of the journal enters the overlay, the store reads the next one.
    async fn catch_up(&self, epoch: Epoch, mut each: impl FnMut(Batch) + Send) -> Result<(), StoreError> {
        let mut part = self.journal.tail(self.shard, epoch, self.seq()).await?;
        while let Some((last, _)) = part.last() {
            let next = self.journal.tail(self.shard, epoch, *last);
            // The read is polled first, so that it has begun when the part is replayed.
            let (next, replayed) = tokio::join!(biased; next, async { self.replay(&part, &mut each) });
            replayed?;
            part = next?;
        }
        let mut state = self.lock();
        state.epoch = epoch;
        state.must_retake = false;
        Ok(())
    }

    fn replay(&self, part: &[(Seq, Bytes)], each: &mut impl FnMut(Batch)) -> Result<(), StoreError> {
        let mut state = self.lock();
        for (seq, payload) in part {
            let batch = replay::decode(self.shard, *seq, payload.clone())?;
            state.active.insert_replayed(&batch);
            state.seq = *seq;
            each(batch);
        }
        Ok(())
    }

    /// The last append that is durable and visible to look-ups.
    pub fn seq(&self) -> Seq {
        self.lock().seq
    }

    /// The epoch under which this store took the shard. Another node may own it under a newer one.
    pub fn epoch(&self) -> Epoch {
        self.lock().epoch
    }

    /// Whether clients' writes may be accepted: by the journal, and, while checkpoints fail, by the memory of the
    /// overlay.
    pub fn free_space(&self) -> FreeSpace {
        let state = self.lock();
        match state.is_failing && state.bytes() > self.options.hard_bytes / 2 {
            true => FreeSpace::Reserve,
            false => self.journal.free_space(),
        }
    }

    /// Appends the batch as number `seq`. On success it is durable and visible to look-ups. After
    /// [`AppendError::Unknown`], or if this future was dropped, no append succeeds before [`ShardStore::retake`].
    pub async fn append(&self, seq: Seq, batch: impl Into<Batch>) -> Result<(), AppendError> {
        self.append_under(self.epoch(), seq, batch).await
    }

    /// Like [`ShardStore::append`], if the shard has not been taken again since it had this epoch.
    pub async fn append_under(
        &self,
        epoch: Epoch,
        seq: Seq,
        batch: impl Into<Batch>,
    ) -> Result<(), AppendError> {
        let batch = batch.into();
        self.wait_for_checkpoint().await?;
        if let Some(long) = batch.images().find(|record| record.key.len() > MAX_KEY_BYTES) {
            let detail = format!("a key of {} bytes is longer than {MAX_KEY_BYTES}", long.key.len());
            return Err(AppendError::NotDone(StoreError::Unusable(detail)));
        }
        let retakes = self.begin_append(epoch, seq)?;
        let outcome = self.journal.append(self.shard, epoch, seq, batch.payload().clone()).await;
        let mut state = self.lock();
        // The caller may have dropped the task of this append and taken the shard again, while the task was being polled.
        if state.retakes != retakes {
            let detail = "the shard was taken again while an append was in flight".to_string();
            return Err(AppendError::Unknown(StoreError::Unavailable(detail)));
        }
        match outcome {
            Ok(()) => {
                state.active.insert(&batch);
                state.seq = seq;
                state.must_retake = false;
            }
            Err(AppendError::Unknown(_)) => {}
            Err(_) => state.must_retake = false,
        }
        outcome
    }

    /// Cancels an append that waits in a queue of the journal; see [`Journal::withdraw`]. In both cases
    /// [`ShardStore::retake`] must follow.
    pub fn withdraw(&self) -> bool {
        self.journal.withdraw(self.shard)
    }

    /// Returns how often the shard has been taken again so far.
    fn begin_append(&self, epoch: Epoch, seq: Seq) -> Result<u64, AppendError> {
        let mut state = self.lock();
        let refuse = |detail: String| Err(AppendError::NotDone(StoreError::Unavailable(detail)));
        if state.must_retake {
            return refuse(
                "the outcome of an earlier append is unknown: the shard must be taken again".to_string(),
            );
        }
        if epoch != state.epoch {
            return refuse("the shard was taken again".to_string());
        }
        if seq != state.seq.next() {
            return refuse(format!("append {} does not follow {}", seq.0, state.seq.0));
        }
        state.must_retake = true;
        Ok(state.retakes)
    }

    /// Waits while the overlay is above its bound. If the last checkpoint failed, the wait could be endless, so the
    /// append fails instead.
    async fn wait_for_checkpoint(&self) -> Result<(), AppendError> {
        loop {
            let checkpointed = self.checkpointed.notified();
            {
                let state = self.lock();
                if state.bytes() <= self.options.hard_bytes {
                    return Ok(());
                }
                if state.is_failing {
                    return Err(AppendError::Full);
                }
            }
            checkpointed.await;
        }
    }

    /// Proves that this store still owned the shard at some moment after this call began, and that no append was lost.
    pub async fn confirm(&self) -> Result<(), ConfirmError> {
        let (epoch, seq) = {
            let state = self.lock();
            (state.epoch, state.seq)
        };
        self.journal.confirm(self.shard, epoch, seq).await
    }

    /// What the table does not contain yet. The caller must also checkpoint an idle shard that keeps old segments of
    /// the journal alive; `due` does not cover that case.
    pub fn backlog(&self) -> Backlog {
        let state = self.lock();
        let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.records.len());
        Backlog {
            records: state.active.len() + frozen,
            bytes: state.bytes(),
            since: (state.seq > state.applied).then(|| state.applied.next()),
            due: state.bytes() >= self.options.soft_bytes
                || state.frozen.is_some()
                || state.is_checkpoint_wanted,
        }
    }

    /// Brings the table up to the last durable append, releases the journal up to there, and returns that append.
    /// Returns `None` if there was nothing to write. A failed checkpoint can be repeated. Two never run at once.
    pub async fn checkpoint(&self) -> Result<Option<Seq>, StoreError> {
        let _alone = self.checkpointing.lock().await;
        let Some((epoch, frozen)) = self.freeze() else { return Ok(None) };
        self.filter_checkpoint(epoch, frozen.upto, &frozen.records).await;
        let written = self.table.checkpoint(self.shard, epoch, frozen.upto, frozen.records.clone()).await;
        let contained = {
            let mut state = self.lock();
            // If these records were dropped meanwhile, because the store has gone back to an older state, the checkpoint means nothing.
            let is_same = |now: &Frozen| Arc::ptr_eq(&now.records, &frozen.records);
            if !state.frozen.as_ref().is_some_and(is_same) {
                return written.map(|()| None);
            }
            if let Err(error) = written {
                state.is_failing = true;
                self.checkpointed.notify_waiters();
                return Err(error);
            }
            (state.is_failing, state.is_checkpoint_wanted) = (false, false);
            state.applied = frozen.upto;
            state.frozen.take()
        };
        // Freeing many records takes time, so it happens outside the lock.
        drop(contained);
        self.journal.release(self.shard, frozen.upto);
        self.checkpointed.notify_waiters();
        Ok(Some(frozen.upto))
    }

    /// Drops records from the table which nobody looks up any more, as far as that costs little: see [`Table::discard`].
    pub async fn discard(&self, from: Bytes, to: Bytes) -> Result<(), StoreError> {
        self.table.discard(self.shard, from, to).await
    }

    /// Whether a scan is quick. The overlay is not sorted until somebody needs that, and sorting all of it takes up to
    /// hundreds of milliseconds, for which nobody should wait on behalf of work in the background. If a scan is not quick, the
    /// next checkpoint is due at once, and from then on the overlay is sorted.
    pub fn prepare_scan(&self) -> bool {
        let mut state = self.lock();
        let frozen = state.frozen.as_ref().map(|frozen| &*frozen.records);
        let is_quick = frozen.into_iter().chain([&state.active]).all(Records::is_range_quick);
        if !is_quick {
            state.active.request_order();
        }
        state.is_checkpoint_wanted |= !is_quick;
        is_quick
    }

    /// A sweep has removed its last records. The table gives their space back only when it knows of the removals, so the next checkpoint
    /// is due at once, unless there are few.
    pub fn handle_swept(&self) {
        let mut state = self.lock();
        state.is_checkpoint_wanted |= state.bytes() >= MANY_REMOVALS;
    }

    /// The records for the next checkpoint: those that a failed one left frozen, or else all active ones.
    fn freeze(&self) -> Option<(Epoch, Frozen)> {
        let mut state = self.lock();
        if state.frozen.is_none() {
            if state.seq == state.applied {
                return None;
            }
            let next = state.active.next();
            let records = Arc::new(std::mem::replace(&mut state.active, next));
            state.frozen = Some(Frozen { records, upto: state.seq });
        }
        state.frozen.clone().map(|frozen| (state.epoch, frozen))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Nothing but what the table contains.
    fn new(epoch: Epoch, applied: Seq) -> State {
        State {
            epoch,
            seq: applied,
            applied,
            active: Records::default(),
            frozen: None,
            is_failing: false,
            is_checkpoint_wanted: false,
            must_retake: true,
            retakes: 0,
        }
    }

    fn bytes(&self) -> usize {
        self.active.bytes() + self.frozen.as_ref().map_or(0, |frozen| frozen.records.bytes())
    }
}
