//! Reads shards that other nodes will give to this one, while their owners still serve them.

use crate::{
    Budget,
    driver::{NotPrepared, PreparedShard},
    opener::Opener,
    tenure_renewal::RenewalControl,
};
use limina_store::{Epoch, Journal, ShardId, StoreError, Table};
use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};
use tokio::{sync::Mutex, task::AbortHandle, time::sleep};

/// How often the appends of the present owner are read.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);
/// How long to wait before a shard that could not be prepared is read again, and how often it is tried.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const ATTEMPTS: usize = 5;
/// How long a prepared shard stays in memory after its epoch has changed. Its owner may have given it to this node.
const KEPT_AFTER_OWNER: Duration = Duration::from_secs(1);

/// Prepares a few shards, a small part of them at the same time.
pub(crate) struct Preparer<S> {
    store: Arc<S>,
    memory: Budget,
    renewal: RenewalControl,
    opener: Opener,
    preparing: BTreeMap<ShardId, Preparing<S>>,
}

/// A shard that is being prepared, or is prepared. Dropping it ends the preparation.
pub(crate) struct Preparing<S> {
    shard: ShardId,
    renewal: RenewalControl,
    /// Empty until the shard is prepared.
    prepared: Arc<Mutex<Option<PreparedShard<S>>>>,
    task: AbortHandle,
}

impl<S: Journal + Table> Preparer<S> {
    pub(crate) fn new(store: Arc<S>, memory: Budget, renewal: RenewalControl) -> Preparer<S> {
        Preparer { store, memory, renewal, opener: Opener::in_background(), preparing: BTreeMap::new() }
    }

    /// Begins to read a shard whose owner has this epoch. When that is done, the renewals of this node announce it.
    pub(crate) fn begin(&mut self, shard: ShardId, epoch: Epoch) {
        let prepared = Arc::default();
        let reading = Reading {
            store: self.store.clone(),
            memory: self.memory.clone(),
            renewal: self.renewal.clone(),
            opener: self.opener.clone(),
            shard,
            epoch,
            prepared: Arc::clone(&prepared),
        };
        let task = tokio::spawn(reading.run()).abort_handle();
        let preparing = Preparing { shard, renewal: self.renewal.clone(), prepared, task };
        self.preparing.insert(shard, preparing);
    }

    /// Drops what was read of a shard.
    pub(crate) fn discard(&mut self, shard: ShardId) {
        self.preparing.remove(&shard);
    }

    /// What was read of a shard that this node now owns.
    pub(crate) fn take(&mut self, shard: ShardId) -> Option<Preparing<S>> {
        self.preparing.remove(&shard)
    }
}

impl<S> Preparing<S> {
    /// The prepared shard. `None` if it could not be prepared in time.
    pub(crate) async fn take(self) -> Option<PreparedShard<S>> {
        self.task.abort();
        // The task may be reading appends. Then it ends at once, and leaves those that it has read.
        self.prepared.lock().await.take()
    }
}

impl<S> Drop for Preparing<S> {
    fn drop(&mut self) {
        self.task.abort();
        self.renewal.set_prepared(self.shard, false);
    }
}

/// The task of one shard.
struct Reading<S> {
    store: Arc<S>,
    memory: Budget,
    renewal: RenewalControl,
    opener: Opener,
    shard: ShardId,
    epoch: Epoch,
    prepared: Arc<Mutex<Option<PreparedShard<S>>>>,
}

impl<S: Journal + Table> Reading<S> {
    async fn run(self) {
        for _ in 0..ATTEMPTS {
            let error = self.prepare_and_follow().await;
            tracing::debug!(
                shard = self.shard.0,
                error = &error as &dyn Error,
                "a shard that will be given to this node could not be prepared"
            );
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Loads the shard, and then follows its owner until that fails: the shard has another epoch, or the owner has released appends
    /// that were not read yet. If the owner has given the shard to this node, it is taken in a moment, and [`PreparedShard::open`]
    /// finds out whether what was read still fits.
    async fn prepare_and_follow(&self) -> NotPrepared {
        let load = PreparedShard::load(self.store.clone(), self.shard, self.epoch, self.memory.clone());
        match self.opener.run(load).await {
            Ok(prepared) => *self.prepared.lock().await = Some(prepared),
            Err(error) => return error,
        }
        self.renewal.set_prepared(self.shard, true);
        loop {
            sleep(FOLLOW_EVERY).await;
            let mut slot = self.prepared.lock().await;
            // The shard was taken, and this task is about to be aborted.
            let Some(prepared) = slot.as_mut() else { return std::future::pending().await };
            let Err(error) = prepared.follow().await else { continue };
            drop(slot);
            self.renewal.set_prepared(self.shard, false);
            if let NotPrepared::Store(StoreError::NotOwned) = error {
                sleep(KEPT_AFTER_OWNER).await;
            }
            *self.prepared.lock().await = None;
            return error;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;
    use limina_store::memory::{Memory, MemoryOptions};

    /// Between the hand-over and the moment when this node learns of it, the task may look for appends once more.
    #[tokio::test(start_paused = true)]
    async fn a_shard_that_was_just_given_to_this_node_stays_prepared() {
        let shard = ShardId(0);
        let store = Arc::new(Memory::new(&MemoryOptions::default()).unwrap());
        let (memory, renewal) = (Budget::new(u64::MAX, &Metrics::new()), RenewalControl::default());
        let mut preparer = Preparer::new(store.clone(), memory, renewal.clone());
        preparer.begin(shard, store.take(shard).await.unwrap());
        while renewal.prepared().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        // The owner gives the shard away. The task sees that, and announces the shard no longer.
        store.take(shard).await.unwrap();
        while !renewal.prepared().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        let preparing = preparer.take(shard).expect("it was begun");
        assert!(preparing.take().await.is_some(), "what was read is gone");
    }
}
