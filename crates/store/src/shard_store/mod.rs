//! The layer above journal and table, written once for every store.
//!
//! It keeps the records since the last checkpoint in memory: the *active* overlay, and while a checkpoint runs the
//! *frozen* one. Records enter only when their append is durable, and a frozen overlay ends with a durable append, so
//! no look-up sees and no checkpoint holds what could still be lost. A look-up goes active → frozen → table, in that
//! order, because that is the order in which a record moves.

mod look_up;

pub use look_up::{Answer, Read};

use crate::{
    AppendError, Batch, ConfirmError, Epoch, Journal, Records, Room, Seq, ShardId, StoreError, Table,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest key that is taken: what the embedded table takes, with some room.
pub const MAX_KEY_BYTES: usize = 60_000;

/// When checkpoints are due, and when appends wait for them.
#[derive(Debug, Clone)]
pub struct ShardStoreOptions {
    /// From so many bytes on a checkpoint is due. [`Backlog::due`] tells.
    pub soft_bytes: usize,
    /// Above so many bytes appends wait until a checkpoint has taken some. Whoever appends must not be the one who
    /// checkpoints then; `usize::MAX` turns the waiting off. While checkpoints fail, appends are refused instead, and
    /// from half of it on [`ShardStore::room`] says [`Room::Reserve`].
    pub hard_bytes: usize,
}

impl Default for ShardStoreOptions {
    fn default() -> Self {
        ShardStoreOptions { soft_bytes: 64 << 20, hard_bytes: 256 << 20 }
    }
}

/// What waits for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Records in memory.
    pub records: usize,
    /// The bytes they take, about.
    pub bytes: usize,
    /// The first append that the table does not contain, if there is one: the journal must keep it.
    pub since: Option<Seq>,
    /// Whether there is enough for a checkpoint, or one failed.
    pub due: bool,
}

/// One shard's records, as durable as its journal.
pub struct ShardStore<J, T> {
    journal: Arc<J>,
    table: Arc<T>,
    shard: ShardId,
    options: ShardStoreOptions,
    state: Mutex<State>,
    /// Held while a checkpoint runs.
    checkpointing: tokio::sync::Mutex<()>,
    /// Told at the end of each checkpoint, whether it succeeded or failed.
    checkpointed: tokio::sync::Notify,
}

struct State {
    epoch: Epoch,
    /// The last append that is durable and in the overlay.
    seq: Seq,
    /// The table contains the shard up to here.
    applied: Seq,
    active: Records,
    frozen: Option<Frozen>,
    /// The last checkpoint failed.
    is_failing: bool,
    /// An append was begun and its success was not seen: no other may follow before the shard is taken again.
    adrift: bool,
}

#[derive(Clone)]
struct Frozen {
    records: Arc<Records>,
    upto: Seq,
}

impl<J: Journal, T: Table> ShardStore<J, T> {
    /// Takes the shard over and reads what the table does not contain yet.
    pub async fn open(
        journal: Arc<J>,
        table: Arc<T>,
        shard: ShardId,
        options: ShardStoreOptions,
    ) -> Result<Self, StoreError> {
        let epoch = journal.take(shard).await?;
        let applied = table.applied(shard).await?;
        let store = ShardStore {
            journal,
            table,
            shard,
            options,
            state: Mutex::new(State {
                epoch,
                seq: applied,
                applied,
                active: Records::default(),
                frozen: None,
                is_failing: false,
                adrift: true,
            }),
            checkpointing: tokio::sync::Mutex::new(()),
            checkpointed: tokio::sync::Notify::new(),
        };
        store.journal.release(shard, applied);
        store.catch_up(epoch).await?;
        Ok(store)
    }

    /// Takes the shard over again, after an append whose outcome is unknown, was not waited for, or was fenced. What the
    /// journal accepted after our last append enters the overlay.
    pub async fn retake(&self) -> Result<(), StoreError> {
        self.lock().adrift = true;
        let epoch = self.journal.take(self.shard).await?;
        self.catch_up(epoch).await
    }

    async fn catch_up(&self, epoch: Epoch) -> Result<(), StoreError> {
        loop {
            let after = self.seq();
            let part = self.journal.tail(self.shard, epoch, after).await?;
            let mut state = self.lock();
            if part.is_empty() {
                state.epoch = epoch;
                state.adrift = false;
                return Ok(());
            }
            for (seq, payload) in part {
                let batch = Batch::decode(payload).map_err(|malformed| StoreError::Corrupt {
                    path: format!("the journal of shard {}, append {}", self.shard.0, seq.0),
                    offset: malformed.offset as u64,
                    detail: malformed.problem.to_string(),
                })?;
                state.active.insert_again(&batch);
                state.seq = seq;
            }
        }
    }

    /// The last append that is durable and visible here.
    pub fn seq(&self) -> Seq {
        self.lock().seq
    }

    /// The epoch under which we own the shard, or did.
    pub fn epoch(&self) -> Epoch {
        self.lock().epoch
    }

    /// Whether there is room for more: in the journal, and, while checkpoints fail, in memory.
    pub fn room(&self) -> Room {
        let state = self.lock();
        match state.is_failing && state.bytes() > self.options.hard_bytes / 2 {
            true => Room::Reserve,
            false => self.journal.room(),
        }
    }

    /// Appends the batch, each key once, as number `seq`. On success they are durable, and look-ups see
    /// them. After [`AppendError::Unknown`], or when this future was dropped, only [`ShardStore::retake`] helps.
    pub async fn append(&self, seq: Seq, batch: impl Into<Batch>) -> Result<(), AppendError> {
        let batch = batch.into();
        self.wait_for_checkpoint().await?;
        if let Some(long) = batch.images().find(|record| record.key.len() > MAX_KEY_BYTES) {
            let detail = format!("a key of {} bytes is longer than {MAX_KEY_BYTES}", long.key.len());
            return Err(AppendError::NotDone(StoreError::Unusable(detail)));
        }
        let epoch = self.begin_append(seq)?;
        match self.journal.append(self.shard, epoch, seq, batch.payload().clone()).await {
            Ok(()) => {
                let mut state = self.lock();
                state.active.insert(&batch);
                state.seq = seq;
                state.adrift = false;
                Ok(())
            }
            Err(error @ AppendError::Unknown(_)) => Err(error),
            Err(surely_not) => {
                self.lock().adrift = false;
                Err(surely_not)
            }
        }
    }

    /// Takes back an append that was begun and surely not sent; says whether there was one. Whether or not, only
    /// [`ShardStore::retake`] helps afterwards.
    pub fn withdraw(&self) -> bool {
        self.journal.withdraw(self.shard)
    }

    fn begin_append(&self, seq: Seq) -> Result<Epoch, AppendError> {
        let mut state = self.lock();
        let refuse = |detail: String| Err(AppendError::NotDone(StoreError::Unavailable(detail)));
        if state.adrift {
            return refuse(
                "the outcome of an earlier append is open: the shard must be taken again".to_string(),
            );
        }
        if seq != state.seq.next() {
            return refuse(format!("append {} does not follow {}", seq.0, state.seq.0));
        }
        state.adrift = true;
        Ok(state.epoch)
    }

    /// Holds an append back while memory is above its bound. While checkpoints fail, nobody knows for how long that would
    /// be, so the append is refused.
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

    /// Returns when it is sure that we still owned the shard at a moment after the call began.
    pub async fn confirm(&self) -> Result<(), ConfirmError> {
        let epoch = self.epoch();
        self.journal.confirm(self.shard, epoch).await
    }

    /// What waits for a checkpoint. An idle shard that keeps old journal alive is the caller's to checkpoint.
    pub fn backlog(&self) -> Backlog {
        let state = self.lock();
        let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.records.len());
        Backlog {
            records: state.active.len() + frozen,
            bytes: state.bytes(),
            since: (state.seq > state.applied).then(|| state.applied.next()),
            due: state.bytes() >= self.options.soft_bytes || state.frozen.is_some(),
        }
    }

    /// Brings the table up to the last durable append and lets the journal go up to there; returns that append, or
    /// nothing where there was nothing to do. One that failed can be repeated. Two never run at once.
    pub async fn checkpoint(&self) -> Result<Option<Seq>, StoreError> {
        let _alone = self.checkpointing.lock().await;
        let Some((epoch, frozen)) = self.freeze() else { return Ok(None) };
        let written = self.table.checkpoint(self.shard, epoch, frozen.upto, frozen.records).await;
        if let Err(error) = written {
            self.lock().is_failing = true;
            self.checkpointed.notify_waiters();
            return Err(error);
        }
        let contained = {
            let mut state = self.lock();
            state.is_failing = false;
            state.applied = frozen.upto;
            state.frozen.take()
        };
        // Freeing takes its time: nobody should wait for the lock meanwhile.
        drop(contained);
        self.journal.release(self.shard, frozen.upto);
        self.checkpointed.notify_waiters();
        Ok(Some(frozen.upto))
    }

    /// What the next checkpoint takes: what an earlier one left behind, or all that is active.
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
    fn bytes(&self) -> usize {
        self.active.bytes() + self.frozen.as_ref().map_or(0, |frozen| frozen.records.bytes())
    }
}
