//! A shard of another node, loaded as far as that is possible before this node owns it.

use super::load_engine;
use crate::{
    Budget, OpenError,
    memory::{Kind, MemoryFull, Priority, Reservation},
};
use bytes::Bytes;
use limina_engine::{Engine, Loading, record};
use limina_store::{
    Batch, Epoch, FilteredKeys, Journal, Preparation, ShardId, ShardStore, ShardStoreOptions, StoreError,
    Table,
};
use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// How many records are read at a time. Fewer than in an opening: look-ups for this node's clients share the connections.
const PAGE: usize = 2_048;
/// Approximate memory for each record in the lists below, besides its key and value.
const RECORD_BYTES: usize = 96;

/// The resident records of a shard, up to an append of its present owner.
pub(crate) struct PreparedShard<S> {
    shard: ShardId,
    preparation: Preparation<S, S>,
    /// The resident records of the table, sorted by key.
    table: Vec<(Bytes, Bytes)>,
    /// The newest after-images of the resident records that have changed since.
    changes: BTreeMap<Bytes, Option<Bytes>>,
    /// How many of the preparation's appends are in `changes`.
    seen: usize,
    /// Built from all of these records. `None` if it could not follow a change: then it is built again when this node owns the shard.
    engine: Option<Engine>,
    memory: Reservation,
}

/// Why a shard could not be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPrepared {
    /// The store failed, or the shard has changed in a way that requires to begin again.
    #[error("the shard could not be read")]
    Store(#[source] StoreError),
    /// There is no memory for it.
    #[error("there is no memory for the shard")]
    Memory(#[source] MemoryFull),
}

impl From<StoreError> for NotPrepared {
    fn from(error: StoreError) -> NotPrepared {
        NotPrepared::Store(error)
    }
}

impl From<MemoryFull> for NotPrepared {
    fn from(error: MemoryFull) -> NotPrepared {
        NotPrepared::Memory(error)
    }
}

impl<S: Journal + Table> PreparedShard<S> {
    /// Reads a shard whose owner has this epoch.
    pub(crate) async fn load(
        store: Arc<S>,
        shard: ShardId,
        epoch: Epoch,
        memory: Budget,
    ) -> Result<PreparedShard<S>, NotPrepared> {
        let preparation = Preparation::begin(store.clone(), store, shard, epoch).await?;
        let memory = memory.reserve(Kind::State, preparation.bytes(), Priority::Buffer)?;
        let (table, changes) = (Vec::new(), BTreeMap::new());
        let mut prepared =
            PreparedShard { shard, preparation, table, changes, seen: 0, engine: None, memory };
        let mut rest: Range<Bytes> = record::key::residents();
        loop {
            let page = prepared.preparation.next_page(&mut rest, PAGE).await?;
            if page.is_empty() {
                break;
            }
            let bytes: usize = page.iter().map(|(key, value)| key.len() + value.len() + RECORD_BYTES).sum();
            prepared.memory.grow_to(prepared.memory.bytes() + bytes, Priority::Buffer)?;
            prepared.table.extend(page);
        }
        prepared.follow().await?;
        prepared.engine = build(prepared.table.iter().cloned(), prepared.changes.clone()).ok();
        let bytes = prepared.engine.as_ref().map_or(0, Engine::resident_bytes);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        prepared.memory.grow_to(prepared.memory.bytes().saturating_add(bytes), Priority::Buffer)?;
        Ok(prepared)
    }

    /// Reads what the owner has written since the last call. After an error, the shard can still be opened, but no longer be followed. If
    /// the future fails or is dropped, what it has read is not lost: the next call, or [`PreparedShard::open`], adds it.
    pub(crate) async fn follow(&mut self) -> Result<(), NotPrepared> {
        let before = self.preparation.bytes() + self.changes.len() * RECORD_BYTES;
        self.preparation.follow().await?;
        for batch in self.preparation.batches(self.seen) {
            change(&mut self.changes, &mut self.engine, batch);
        }
        self.seen = self.preparation.len();
        let after = self.preparation.bytes() + self.changes.len() * RECORD_BYTES;
        let more = after.saturating_sub(before);
        Ok(self.memory.grow_to(self.memory.bytes() + more, Priority::Buffer)?)
    }

    /// Takes the shard, reads the tail of its journal, and builds its engine. Also returns the number of appends in the tail.
    /// `None` means that the preparation did not fit, and that the shard was loaded from the beginning.
    pub(crate) async fn open(
        self,
        options: ShardStoreOptions,
        filtered: FilteredKeys,
    ) -> Result<(Arc<ShardStore<S, S>>, Engine, Option<usize>), OpenError> {
        let PreparedShard { shard, preparation, table, mut changes, seen, mut engine, memory } = self;
        // The task that follows the owner may have been aborted after it has read appends.
        preparation.batches(seen).for_each(|batch| change(&mut changes, &mut engine, batch));
        let opened = preparation.open(options).await;
        let (mut store, tail) = opened.map_err(|source| OpenError::Store { shard: shard.0, source })?;
        store.filter_keys(filtered);
        let store = Arc::new(store);
        let Some(tail) = tail else {
            drop((table, changes, engine, memory));
            let engine = load_engine(&store, shard).await?;
            return Ok((store, engine, None));
        };
        tail.iter().for_each(|batch| change(&mut changes, &mut engine, batch));
        let engine = match engine {
            Some(engine) => {
                // Freeing many records takes time, and clients wait for this shard.
                drop(tokio::task::spawn_blocking(move || drop((table, changes, memory))));
                engine
            }
            None => {
                let engine = build(table.into_iter(), changes);
                engine.map_err(|source| OpenError::Record { shard: shard.0, source })?
            }
        };
        Ok((store, engine, Some(tail.len())))
    }
}

/// Adds the resident records of an append.
fn change(changes: &mut BTreeMap<Bytes, Option<Bytes>>, engine: &mut Option<Engine>, batch: &Batch) {
    let range = record::key::residents();
    let residents: Vec<(Bytes, Option<Bytes>)> =
        batch.records().filter(|(key, _)| range.contains(key)).collect();
    // A damaged record is reported when the engine is built again.
    if let Some(mut amended) = engine.take()
        && amended.amend(residents.iter().cloned()).unwrap_or(false)
    {
        *engine = Some(amended);
    }
    changes.extend(residents);
}

/// Builds an engine from sorted records and later after-images.
fn build(
    table: impl Iterator<Item = (Bytes, Bytes)>,
    changes: BTreeMap<Bytes, Option<Bytes>>,
) -> Result<Engine, limina_engine::engine::BadRecord> {
    let mut loading = Loading::new(limina_engine::Options::default());
    let mut changes = changes.into_iter().peekable();
    for (key, value) in table {
        while let Some((before, value)) = changes.next_if(|(changed, _)| *changed < key) {
            if let Some(value) = value {
                loading.load(before, &value)?;
            }
        }
        let value = match changes.next_if(|(changed, _)| *changed == key) {
            Some((_, newer)) => newer,
            None => Some(value),
        };
        if let Some(value) = value {
            loading.load(key, &value)?;
        }
    }
    for (key, value) in changes.filter_map(|(key, value)| value.map(|value| (key, value))) {
        loading.load(key, &value)?;
    }
    Ok(loading.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metrics, driver::filtered_keys};
    use limina_store::{
        RecordRef,
        memory::{Memory, MemoryOptions},
    };

    /// A shard may be taken while its task waits for the end of the journal. What the task has read before is not read again.
    #[tokio::test]
    async fn appends_that_were_read_last_are_in_the_engine() {
        let (shard, options) = (ShardId(0), ShardStoreOptions::default());
        let store = Arc::new(Memory::new(&MemoryOptions::default()).unwrap());
        let owner = ShardStore::open(store.clone(), store.clone(), shard, options.clone()).await.unwrap();
        let metrics = Metrics::new();
        let memory = Budget::new(u64::MAX, &metrics);
        let mut prepared = PreparedShard::load(store.clone(), shard, owner.epoch(), memory).await.unwrap();

        let (key, mut value) = (record::key::sweep(0), Vec::new());
        record::encode_into(&record::Sweep { from: vec![2], to: vec![3] }, &mut value);
        let written = RecordRef { key: &key, value: Some(&value), is_first: true };
        owner.append(owner.seq().next(), Batch::new([written].into_iter())).await.unwrap();
        // As much of `PreparedShard::follow` as is done before the task is aborted.
        assert_eq!(prepared.preparation.follow().await.unwrap(), 1);

        // The owner gives the shard away.
        store.take(shard).await.unwrap();
        let (_, engine, tail) = prepared.open(options, filtered_keys(&metrics)).await.unwrap();
        assert_eq!(tail, Some(0));
        assert_eq!(engine.stats().sweeps, 1);
    }
}
