//! Look-ups of records by their keys: those that wait, of all shards, are answered by one statement.
//!
//! Nearly every new operation looks its id up once. With many shards, each of which serves a few clients, one statement for each
//! look-up would cost the server more than the look-up itself.

use super::{
    pool::{Pool, closed},
    queue::Queue,
    table::{Key, get_many},
};
use crate::{ShardId, StoreError};
use bytes::Bytes;
use std::sync::Arc;
use tokio::{sync::oneshot, task::JoinHandle};

/// The most keys in one statement, unless a single look-up has more.
const STATEMENT_KEYS: usize = 1_024;

pub(super) struct LookUps {
    queue: Arc<Queue<PendingLookUp>>,
}

struct PendingLookUp {
    shard: ShardId,
    keys: Vec<Bytes>,
    answer: oneshot::Sender<Result<Vec<Option<Bytes>>, StoreError>>,
}

impl LookUps {
    /// Starts as many tasks as the pool has connections. Others may use the pool too.
    pub(super) fn start(pool: &Arc<Pool>, connections: usize) -> (LookUps, Vec<JoinHandle<()>>) {
        let queue: Arc<Queue<PendingLookUp>> = Arc::default();
        let tasks = (0..connections).map(|_| tokio::spawn(ask(queue.clone(), pool.clone()))).collect();
        (LookUps { queue }, tasks)
    }

    /// The values under these keys of a shard.
    pub(super) async fn get_many(
        &self,
        shard: ShardId,
        keys: Vec<Bytes>,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.queue.push(PendingLookUp { shard, keys, answer }).map_err(|_| closed())?;
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    pub(super) fn close(&self) {
        self.queue.close();
    }
}

/// Accepts as many look-ups as fit into one statement.
fn bounded() -> impl FnMut(&PendingLookUp) -> bool {
    let mut count = 0;
    move |waiting| {
        let fits = count == 0 || count + waiting.keys.len() <= STATEMENT_KEYS;
        // What comes behind a look-up that does not fit does not fit either, so that none waits for ever.
        count = if fits { count + waiting.keys.len() } else { STATEMENT_KEYS };
        fits
    }
}

async fn ask(queue: Arc<Queue<PendingLookUp>>, pool: Arc<Pool>) {
    while let Some((group, turn)) = queue.group(bounded()).await {
        let keys = group.iter().flat_map(|PendingLookUp { shard, keys, .. }| {
            keys.iter().map(|bytes| Key { shard: *shard, bytes })
        });
        let mut found = turn.run(get_many(&*pool, keys.collect())).await.map(Vec::into_iter);
        for PendingLookUp { keys, answer, .. } in group {
            // The caller may be gone.
            let _ = answer.send(match &mut found {
                Ok(values) => Ok(values.by_ref().take(keys.len()).collect()),
                Err(error) => Err(error.again()),
            });
        }
    }
}
