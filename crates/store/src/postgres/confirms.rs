//! Confirms: the questions of all shards that wait go into one statement, which is sent after all of them were asked.

use super::{
    pool::{Pool, closed},
    queue::Queue,
    row::{from_shard, number},
};
use crate::{ConfirmError, Epoch, ShardId, StoreError};
use std::sync::Arc;
use tokio::{sync::oneshot, task::JoinHandle};

/// Two, each on a connection of its own, so that one can collect while the other is on its way.
pub(super) const ASKERS: usize = 2;

/// Whose epochs are current. Where there is a synchronous standby, the statement writes something, so that its commit
/// waits for it: a server that was cut off, and has a successor, answers nobody then.
const CONFIRM: &str = "
    SELECT EXISTS (SELECT FROM limina.shard WHERE id = asked.shard AND epoch = asked.epoch),
        (SELECT pg_logical_emit_message(true, 'limina', '')
         WHERE current_setting('synchronous_standby_names') <> '')::text
    FROM unnest($1::integer[], $2::bigint[]) WITH ORDINALITY AS asked (shard, epoch, place)
    ORDER BY place";

pub(super) struct Confirms {
    queue: Arc<Queue<PendingConfirm>>,
    pool: Arc<Pool>,
}

struct PendingConfirm {
    shard: ShardId,
    epoch: Epoch,
    answer: oneshot::Sender<Result<(), ConfirmError>>,
}

impl Confirms {
    /// Over a pool of [`ASKERS`] connections.
    pub(super) fn start(pool: Pool) -> (Confirms, Vec<JoinHandle<()>>) {
        let (queue, pool) = (Arc::new(Queue::default()), Arc::new(pool));
        let asker = |_| tokio::spawn(ask(queue.clone(), pool.clone()));
        let askers = (0..ASKERS).map(asker).collect();
        (Confirms { queue, pool }, askers)
    }

    pub(super) fn is_able(&self) -> bool {
        self.pool.is_able()
    }

    pub(super) async fn confirm(&self, shard: ShardId, epoch: Epoch) -> Result<(), ConfirmError> {
        let (answer, answered) = oneshot::channel();
        let pushed = self.queue.push(PendingConfirm { shard, epoch, answer });
        pushed.map_err(|_| ConfirmError::Failed(closed()))?;
        answered.await.unwrap_or_else(|_| Err(ConfirmError::Failed(closed())))
    }

    pub(super) fn close(&self) {
        self.queue.close();
    }
}

async fn ask(queue: Arc<Queue<PendingConfirm>>, pool: Arc<Pool>) {
    while let Some(group) = queue.group(|_| true).await {
        let current = current(&pool, &group).await;
        for (place, waiting) in group.into_iter().enumerate() {
            let answer = match &current {
                Ok(current) if current[place] => Ok(()),
                Ok(_) => Err(ConfirmError::Fenced),
                Err(error) => Err(ConfirmError::Failed(error.again())),
            };
            // Nobody may wait any more.
            let _ = waiting.answer.send(answer);
        }
    }
}

/// Of each, whether its epoch is the shard's.
async fn current(pool: &Pool, group: &[PendingConfirm]) -> Result<Vec<bool>, StoreError> {
    let shards: Vec<i32> = group.iter().map(|waiting| from_shard(waiting.shard)).collect();
    let epochs: Vec<i64> = group.iter().map(|waiting| number(waiting.epoch.0)).collect();
    let rows = pool.query(CONFIRM, &[&shards, &epochs]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
