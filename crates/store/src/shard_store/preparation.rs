//! Reads a shard that another node still owns, so that a planned hand-over has to read only the end of the journal.
//!
//! A preparation is a cache, and safety does not rest on it: [`Preparation::open`] takes the shard under a new epoch like any other
//! opening. It uses what was read only if it certainly belongs to the shard's present content. The epoch tells: between the read and
//! the opening it must have been raised exactly twice, by the owner that gave the shard to this node and by this node that took it.
//! An owner that did not know the outcome of an append raises it once more. A claim of a dead owner's shard and taking it raise it twice too, so
//! the caller must not open such a shard from a preparation.

use super::{ShardStore, ShardStoreOptions, State, look_up::successor, replay::decode};
use crate::{Batch, Epoch, Journal, Records, Seq, ShardId, StoreError, Table};
use bytes::Bytes;
use std::{ops::Range, sync::Arc};

/// What this node has read of a shard that another node owns.
pub struct Preparation<J, T> {
    journal: Arc<J>,
    table: Arc<T>,
    shard: ShardId,
    /// The owner's epoch.
    epoch: Epoch,
    /// The append that the table contained when the preparation began.
    applied: Seq,
    /// The last append that was read.
    seq: Seq,
    /// All appends after `applied`, up to `seq`.
    batches: Vec<(Seq, Batch)>,
    /// The records of these appends.
    overlay: Records,
    bytes: usize,
}

impl<J: Journal, T: Table> Preparation<J, T> {
    /// Reads the journal of a shard whose owner has this epoch, from the last checkpoint on. Fails if the epoch has changed.
    pub async fn begin(
        journal: Arc<J>,
        table: Arc<T>,
        shard: ShardId,
        epoch: Epoch,
    ) -> Result<Self, StoreError> {
        let applied = table.applied(shard).await?;
        let (batches, overlay) = (Vec::new(), Records::default());
        let mut preparation =
            Preparation { journal, table, shard, epoch, applied, seq: applied, batches, overlay, bytes: 0 };
        preparation.follow().await?;
        Ok(preparation)
    }

    /// Reads the appends that the owner has made since the last call, and returns their number. Fails if the shard has another
    /// epoch, or if the owner has released appends that were not read: then the shard must be prepared again, from the beginning.
    pub async fn follow(&mut self) -> Result<usize, StoreError> {
        let known = self.batches.len();
        loop {
            let part = self.journal.tail(self.shard, self.epoch, self.seq).await?;
            if part.is_empty() {
                return Ok(self.batches.len() - known);
            }
            for (seq, payload) in part {
                let batch = decode(self.shard, seq, payload)?;
                self.overlay.insert_replayed(&batch);
                self.bytes += batch.payload().len();
                self.batches.push((seq, batch));
                self.seq = seq;
            }
        }
    }

    /// The first `limit` records of the table in this range, which then begins after them. A checkpoint may run meanwhile, so some
    /// records may be newer than others. But a record that has changed since the preparation began is also among
    /// [`Preparation::batches`], once [`Preparation::follow`] was called after the last page.
    pub async fn next_page(
        &self,
        rest: &mut Range<Bytes>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if rest.is_empty() {
            return Ok(Vec::new());
        }
        let page = self.table.scan(self.shard, rest.start.clone(), rest.end.clone(), limit).await?;
        rest.start = match page.last() {
            Some((last, _)) if page.len() >= limit => successor(last),
            _ => rest.end.clone(),
        };
        Ok(page)
    }

    /// The appends that were read, in order, except for the first `skip` ones.
    pub fn batches(&self, skip: usize) -> impl Iterator<Item = &Batch> {
        self.batches[skip..].iter().map(|(_, batch)| batch)
    }

    /// The number of appends that were read.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether no append was read: the table contains all of them.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Approximate memory use, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.overlay.bytes()
    }

    /// Takes ownership of the shard, like [`ShardStore::open`], and reads only the appends that were not read yet. Returns them
    /// beside the store. `None` instead of them means that the preparation did not fit, and that the whole journal was read.
    pub async fn open(
        self,
        options: ShardStoreOptions,
    ) -> Result<(ShardStore<J, T>, Option<Vec<Batch>>), StoreError> {
        let Preparation { journal, table, shard, batches, overlay, .. } = self;
        let epoch = journal.take(shard).await?;
        let applied = table.applied(shard).await?;
        let is_continued = epoch.0 == self.epoch.0 + 2 && journal.lost(shard).is_none();
        if !is_continued || applied > self.seq {
            let store = ShardStore::with(journal, table, shard, options, State::new(epoch, applied));
            store.finish_opening(epoch, applied, |_| {}).await?;
            return Ok((store, None));
        }
        let mut state = State::new(epoch, applied);
        state.seq = self.seq;
        state.active = match applied == self.applied {
            true => overlay,
            // The owner has made a checkpoint. The overlay has only what came after it: a table may rely on getting the records of
            // histories once.
            false => {
                let mut rest = Records::default();
                let missing = batches.iter().filter(|(seq, _)| *seq > applied);
                missing.for_each(|(_, batch)| rest.insert_replayed(batch));
                rest
            }
        };
        drop(batches);
        let store = ShardStore::with(journal, table, shard, options, state);
        let mut tail = Vec::new();
        store.finish_opening(epoch, applied, |batch| tail.push(batch)).await?;
        Ok((store, Some(tail)))
    }
}
