//! The stores of the shards that a node serves.

use limina_store::{ShardId, ShardStore};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type ByShard<J, T> = BTreeMap<ShardId, Arc<ShardStore<J, T>>>;

/// The stores of the shards that this node serves. A clone shares them.
pub(crate) struct Stores<J, T>(Arc<Mutex<ByShard<J, T>>>);

impl<J, T> Stores<J, T> {
    pub(crate) fn insert(&self, shard: ShardId, store: Arc<ShardStore<J, T>>) {
        self.lock().insert(shard, store);
    }

    pub(crate) fn remove(&self, shard: ShardId) {
        self.lock().remove(&shard);
    }

    pub(crate) fn all(&self) -> ByShard<J, T> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ByShard<J, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J, T> Default for Stores<J, T> {
    fn default() -> Stores<J, T> {
        Stores(Arc::default())
    }
}

impl<J, T> Clone for Stores<J, T> {
    fn clone(&self) -> Stores<J, T> {
        Stores(self.0.clone())
    }
}
