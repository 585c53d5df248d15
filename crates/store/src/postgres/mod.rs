//! The store of several nodes: a PostgreSQL database that they share.
//!
//! Journal and table are tables of the schema `limina`, which is made and migrated here. A shard's row in `limina.shard`
//! decides: each append and each part of a checkpoint compares the shard's epoch in the same statement that writes, and
//! whoever takes a shard over changes it there. So an old owner cannot write, whatever it believes, and however late what
//! it sent arrives.
//!
//! Each kind of work has connections of its own, since a connection does one thing after the other: appends, confirms,
//! look-ups, checkpoints, changes of ownership, renewals. All of them are made at the start, and made again when they are lost.
//! While the database is not there, calls fail at once.

mod appends;
mod checkpoint;
mod confirms;
mod connection;
mod filling;
mod hosts;
mod members;
mod pool;
mod queue;
mod release;
mod row;
mod schema;
mod shards;
mod snapshot;
mod table;
mod timelines;
mod tls;
mod unreleased;

use crate::{
    Announcement, AppendError, ConfirmError, Epoch, Journal, JournalStats, NodeId, Records, Room, Seq,
    ShardId, StoreError, Table, Tenure, View, segmented::Append,
};
use appends::{Appends, WRITERS};
use bytes::Bytes;
use confirms::{ASKERS, Confirms};
use connection::{Connector, Ears};
pub use filling::PostgresFilling;
use pool::Pool;
use release::Releases;
use schema::Meta;
pub use snapshot::PostgresSnapshot;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinHandle},
};
use unreleased::Unreleased;

/// Connections for look-ups.
const READERS: usize = 2;
/// Connections for changes of ownership.
const KEEPERS: usize = 1;
/// Connections for renewals, which also hear what other nodes say.
const RENEWERS: usize = 1;
/// Connections for checkpoints and for removing what is released.
const CHECKPOINTERS: usize = 1;
/// How many connections a node has.
const CONNECTIONS: usize = WRITERS + ASKERS + READERS + KEEPERS + RENEWERS + CHECKPOINTERS;

/// A part of a checkpoint writes much: nobody waits for it, so it has more time than others.
const CHECKPOINT_ANSWER: Duration = Duration::from_secs(60);

/// How a store over PostgreSQL is made.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The node that uses it.
    pub node: NodeId,
    /// How many shards there are. It is fixed when the schema is made (64 if nothing else is asked for); asking for
    /// another number later is refused.
    pub shards: Option<u16>,
    /// A connection that gives no answer for so long hangs, and is replaced. Appends have twice that time.
    pub patience: Duration,
}

/// The store in a database, as one node uses it. Dropping it ends it as a killed process would, but for appends that were
/// handed over: these are still sent. [`Postgres::close`] waits for them.
pub struct Postgres {
    me: NodeId,
    meta: Meta,
    appends: Appends,
    confirms: Confirms,
    releases: Arc<Releases>,
    unreleased: Arc<Mutex<Unreleased>>,
    readers: Pool,
    keepers: Pool,
    renewers: Pool,
    checkpointers: Arc<Pool>,
    changed: Arc<Notify>,
    /// Those that finish their work when the store is closed.
    workers: Mutex<Vec<JoinHandle<()>>>,
    /// This one need not.
    releasing: AbortHandle,
}

impl Postgres {
    /// Connects, and makes or migrates the schema. It tries once: a database that is not there may be tried again.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Postgres, StoreError> {
        let PostgresOptions { node, shards, patience } = options;
        let connector = Connector::new(url, patience)?;
        let meta = schema::prepare(&connector, shards).await?;
        let changed: Arc<Notify> = Arc::default();
        let ears = Ears { own: row::from_node(node).to_string(), changed: changed.clone() };
        let pool = |size, answer, ears| Pool::connect(&connector, size, answer, ears);
        let (writers, askers, readers, keepers, renewers, checkpointers) = tokio::try_join!(
            pool(WRITERS, patience, None),
            pool(ASKERS, patience, None),
            pool(READERS, patience, None),
            pool(KEEPERS, patience, None),
            pool(RENEWERS, patience, Some(ears)),
            pool(CHECKPOINTERS, CHECKPOINT_ANSWER.max(patience), None),
        )?;
        let (database, connections) = (connector.place(), CONNECTIONS);
        tracing::info!(database, shards = meta.shards, connections, "opened the store");
        let unreleased = Arc::default();
        let (appends, writing) = Appends::start(writers, 2 * patience, &unreleased);
        let (confirms, asking) = Confirms::start(askers);
        let checkpointers = Arc::new(checkpointers);
        let releases: Arc<Releases> = Arc::default();
        let releasing = tokio::spawn(release::run(releases.clone(), checkpointers.clone())).abort_handle();
        Ok(Postgres {
            me: node,
            meta,
            appends,
            confirms,
            releases,
            unreleased,
            readers,
            keepers,
            renewers,
            checkpointers,
            changed,
            workers: Mutex::new(writing.into_iter().chain(asking).collect()),
            releasing,
        })
    }

    /// How many shards the schema was made with.
    pub fn shards(&self) -> u16 {
        self.meta.shards
    }

    /// A secret that all nodes over this database know, and nobody else: 64 hexadecimal digits, made with the schema.
    pub fn secret(&self) -> &str {
        &self.meta.secret
    }

    /// Ends the store well: appends that were handed over are finished. Whatever is asked afterwards is refused.
    pub async fn close(&self) {
        self.stop();
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            // One that panicked has nothing left to finish.
            let _ = worker.await;
        }
    }

    fn stop(&self) {
        self.appends.close();
        self.confirms.close();
        for pool in [&self.readers, &self.keepers, &self.renewers, &*self.checkpointers] {
            pool.close();
        }
        self.releasing.abort();
    }

    fn unreleased(&self) -> MutexGuard<'_, Unreleased> {
        self.unreleased.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Journal for Postgres {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        shards::take(&self.keepers, self.me, shard).await
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        let tail = shards::tail(&self.readers, shard, epoch, after).await?;
        let mut unreleased = self.unreleased();
        for (seq, payload) in &tail {
            unreleased.add(shard, *seq, payload.len());
        }
        Ok(tail)
    }

    async fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> Result<(), AppendError> {
        self.appends.append(Append { shard, epoch, seq, payload }).await
    }

    async fn confirm(&self, shard: ShardId, epoch: Epoch) -> Result<(), ConfirmError> {
        self.confirms.confirm(shard, epoch).await
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.unreleased().release(shard, upto);
        // A store that is closed has nothing to release; the next opening does it.
        let _ = self.releases.push((shard, upto));
    }

    fn withdraw(&self, shard: ShardId) -> bool {
        self.appends.withdraw(shard)
    }

    fn room(&self) -> Room {
        self.appends.room()
    }

    fn stats(&self) -> JournalStats {
        self.unreleased().stats()
    }
}

impl Table for Postgres {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        table::applied(&self.readers, shard).await
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        table::get_many(&self.readers, shard, &keys).await
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        table::scan(&self.readers, shard, &from, &to, limit).await
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        table::last_at_or_before(&self.readers, shard, &ranges).await
    }

    async fn checkpoint(
        &self,
        shard: ShardId,
        epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        checkpoint::checkpoint(&self.checkpointers, shard, epoch, upto, records).await
    }
}

impl Tenure for Postgres {
    fn me(&self) -> NodeId {
        self.me
    }

    async fn renew(&self, announcement: Announcement) -> Result<View, StoreError> {
        members::renew(&self.renewers, self.me, announcement).await
    }

    async fn claim(&self, wanted: Vec<(ShardId, Epoch)>) -> Result<Vec<ShardId>, StoreError> {
        shards::claim(&self.keepers, self.me, &wanted).await
    }

    async fn give(
        &self,
        shard: ShardId,
        epoch: Epoch,
        to: Option<NodeId>,
        shard_time_ms: u64,
    ) -> Result<bool, StoreError> {
        let given = shards::give(&self.keepers, self.me, shard, epoch, to, shard_time_ms).await?;
        self.unreleased().forget(shard);
        Ok(given)
    }

    async fn leave(&self) -> Result<(), StoreError> {
        members::leave(&self.keepers, self.me).await
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    fn is_able(&self) -> bool {
        let pools = [&self.readers, &self.keepers, &self.renewers];
        self.appends.is_able() && self.confirms.is_able() && pools.iter().all(|pool| pool.is_able())
    }
}
