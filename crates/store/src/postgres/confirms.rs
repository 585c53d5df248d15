//! Confirms: those that wait, of all shards, are checked by one statement that is sent after all of them were
//! requested.

use super::{
    connections::CONFIRM_CONNECTIONS,
    pool::{Pool, closed},
    queue::Queue,
    row::{from_node, from_shard, number},
};
use crate::{ConfirmError, Epoch, NodeId, Seq, ShardId, StoreError};
use std::sync::Arc;
use tokio::{sync::oneshot, task::JoinHandle};

/// Compares epochs and owners, and whether the database still has all appends that this node has seen. With a synchronous standby, the statement also writes, so that its commit waits for the standby. So
/// a server that was cut off and replaced cannot answer.
const CONFIRM: &str = "
    SELECT EXISTS (
            SELECT FROM limina.shard
            WHERE id = asked.shard AND epoch = asked.epoch AND owner = $4 AND seq >= asked.seq
        ),
        (SELECT pg_logical_emit_message(true, 'limina', '')
         WHERE current_setting('synchronous_standby_names') <> '')::text
    FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS asked (shard, epoch, seq, place)
    ORDER BY place";

pub(super) struct Confirms {
    queue: Arc<Queue<PendingConfirm>>,
    pool: Arc<Pool>,
}

struct PendingConfirm {
    shard: ShardId,
    epoch: Epoch,
    seq: Seq,
    answer: oneshot::Sender<Result<(), ConfirmError>>,
}

impl Confirms {
    /// Starts the tasks on a pool of [`CONFIRM_CONNECTIONS`] connections.
    pub(super) fn start(pool: Pool, me: NodeId) -> (Confirms, Vec<JoinHandle<()>>) {
        let (queue, pool) = (Arc::new(Queue::default()), Arc::new(pool));
        let asker = |_| tokio::spawn(ask(queue.clone(), pool.clone(), me));
        let askers = (0..CONFIRM_CONNECTIONS).map(asker).collect();
        (Confirms { queue, pool }, askers)
    }

    pub(super) fn is_available(&self) -> bool {
        self.pool.is_available()
    }

    pub(super) async fn confirm(&self, shard: ShardId, epoch: Epoch, seq: Seq) -> Result<(), ConfirmError> {
        let (answer, answered) = oneshot::channel();
        let pushed = self.queue.push(PendingConfirm { shard, epoch, seq, answer });
        pushed.map_err(|_| ConfirmError::Failed(closed()))?;
        answered.await.unwrap_or_else(|_| Err(ConfirmError::Failed(closed())))
    }

    pub(super) fn close(&self) {
        self.queue.close();
    }
}

async fn ask(queue: Arc<Queue<PendingConfirm>>, pool: Arc<Pool>, me: NodeId) {
    while let Some((group, turn)) = queue.group(|_| true).await {
        let current = turn.run(current(&pool, me, &group)).await;
        for (place, waiting) in group.into_iter().enumerate() {
            let answer = match &current {
                Ok(current) if current[place] => Ok(()),
                Ok(_) => Err(ConfirmError::Fenced),
                Err(error) => Err(ConfirmError::Failed(error.again())),
            };
            // The caller may be gone.
            let _ = waiting.answer.send(answer);
        }
    }
}

/// For each request, whether this node owns the shard under this epoch, with all of these appends.
async fn current(pool: &Pool, me: NodeId, group: &[PendingConfirm]) -> Result<Vec<bool>, StoreError> {
    let shards: Vec<i32> = group.iter().map(|waiting| from_shard(waiting.shard)).collect();
    let epochs: Vec<i64> = group.iter().map(|waiting| number(waiting.epoch.0)).collect();
    let seqs: Vec<i64> = group.iter().map(|waiting| number(waiting.seq.0)).collect();
    let rows = pool.query(CONFIRM, &[&shards, &epochs, &seqs, &from_node(me)]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
