//! The store for several nodes: a PostgreSQL database that they share.
//!
//! Journal and table are tables of the schema `limina`, which is created and migrated here. A shard's row in
//! `limina.shard` decides who may write: each append and each part of a checkpoint compares the shard's epoch in the
//! same statement that writes, and a node that takes a shard changes the epoch there. So an old owner cannot write,
//! whatever it believes, and however late its statements arrive.
//!
//! A database may go back to an older state, with older epochs: see the module `known`. So the same statements also compare the owner, and
//! the number of the shard's last append.
//!
//! A connection runs one statement at a time, so each kind of work has its own connections: appends, confirms,
//! look-ups, checkpoints, changes of ownership, renewals. All are made at the start, and made again after a loss. While
//! the database cannot be reached, calls fail at once.

mod appends;
mod at_rest;
mod checkpoint;
mod confirms;
mod connections;
mod connector;
mod errors;
mod filters;
mod hosts;
mod known;
mod loader;
mod lookups;
mod members;
mod pool;
mod pooling;
mod presence;
mod queue;
mod release;
mod row;
mod schema;
mod session;
mod shards;
mod snapshot;
mod table;
mod tenures;
mod timelines;
mod tls;
mod unreleased;

use crate::{
    Announcement, AppendError, ConfirmError, Epoch, FilterPart, FreeSpace, Journal, JournalStats,
    LostAppends, NodeId, Records, Seq, ShardId, Sharding, StoreError, StoredFilter, Table, Tenure, View,
    segmented::Append,
};
use appends::Appends;
pub use at_rest::append_at_rest;
use bytes::Bytes;
use confirms::Confirms;
use connections::{
    APPEND_CONNECTIONS, CHECKPOINT_CONNECTIONS, CONFIRM_CONNECTIONS, CONNECTIONS, OWNERSHIP_CONNECTIONS,
    READ_CONNECTIONS, RENEW_CONNECTIONS,
};
use connector::Connector;
use known::KnownShards;
pub use loader::PostgresLoader;
use lookups::LookUps;
use pool::Pool;
use release::Releases;
use session::Notifications;
pub use snapshot::PostgresSnapshot;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenures::Tenures;
use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinHandle},
};
use unreleased::Unreleased;

/// A part of a checkpoint writes much and no client waits for it, so its timeout is longer than others.
const CHECKPOINT_ANSWER: Duration = Duration::from_secs(60);

/// The settings of a PostgreSQL store.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The node that uses the store.
    pub node: NodeId,
    /// The number of shards. `None` means 64 for a new schema, and whatever an existing one has. An existing schema is
    /// refused if it has another number.
    pub shards: Option<u16>,
    /// A connection that gives no answer for this long counts as hung and is replaced. Appends have twice that time.
    pub patience: Duration,
}

/// The store in a database, as one node uses it. Dropping it is like killing the process, except that appends in the
/// queue are still sent. [`Postgres::close`] waits for them.
pub struct Postgres {
    me: NodeId,
    sharding: Sharding,
    connector: Arc<Connector>,
    known: Arc<KnownShards>,
    tenures: Tenures,
    appends: Appends,
    confirms: Confirms,
    releases: Arc<Releases>,
    unreleased: Arc<Mutex<Unreleased>>,
    look_ups: LookUps,
    readers: Arc<Pool>,
    tasks: Pool,
    renewers: Arc<Pool>,
    checkpointers: Arc<Pool>,
    changed: Arc<Notify>,
    disconnected: Arc<Notify>,
    /// Tasks that finish their work when the store is closed.
    workers: Mutex<Vec<JoinHandle<()>>>,
    /// The tasks that remove released appends, and that look for nodes whose sessions have ended. They are aborted when the
    /// store is closed.
    background: [AbortHandle; 2],
}

impl Postgres {
    /// Connects, and creates or migrates the schema. It tries once; if the database cannot be reached, the caller may
    /// retry.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Postgres, StoreError> {
        let PostgresOptions { node, shards, patience } = options;
        let connector = Connector::new(url, patience)?;
        let session = pooling::connect(&connector).await?;
        let sharding = schema::prepare(session, connector.location(), shards).await?;
        let changed: Arc<Notify> = Arc::default();
        let disconnected: Arc<Notify> = Arc::default();
        let own = row::from_node(node).to_string();
        let notifications =
            Notifications { own, changed: changed.clone(), disconnected: disconnected.clone() };
        let pool = |size, answer, notifications| Pool::connect(&connector, size, answer, notifications);
        let (writers, askers, readers, tasks, renewers, checkpointers) = tokio::try_join!(
            pool(APPEND_CONNECTIONS, patience, None),
            pool(CONFIRM_CONNECTIONS, patience, None),
            pool(READ_CONNECTIONS, patience, None),
            pool(OWNERSHIP_CONNECTIONS, patience, None),
            // A hung connection is given up after half a tenure, so that another one renews before the tenure expires.
            pool(RENEW_CONNECTIONS, patience / 2, Some(notifications)),
            pool(CHECKPOINT_CONNECTIONS, CHECKPOINT_ANSWER.max(patience), None),
        )?;
        let (database, connections) = (connector.location(), CONNECTIONS);
        tracing::info!(database, shards = sharding.shards, connections, "opened the store");
        let (unreleased, known) = (Arc::default(), Arc::default());
        let (appends, writing) = Appends::start(writers, 2 * patience, node, &unreleased, &known);
        let (confirms, asking) = Confirms::start(askers, node);
        let readers = Arc::new(readers);
        let (look_ups, looking_up) = LookUps::start(&readers, READ_CONNECTIONS);
        let checkpointers = Arc::new(checkpointers);
        let releases: Arc<Releases> = Arc::default();
        let renewers = Arc::new(renewers);
        let releasing = tokio::spawn(release::run(releases.clone(), checkpointers.clone())).abort_handle();
        let watching = tokio::spawn(presence::watch(renewers.clone(), node, changed.clone())).abort_handle();
        Ok(Postgres {
            me: node,
            sharding,
            connector,
            known,
            tenures: Tenures::default(),
            appends,
            confirms,
            releases,
            unreleased,
            look_ups,
            readers,
            tasks,
            renewers,
            checkpointers,
            changed,
            disconnected,
            workers: Mutex::new(writing.into_iter().chain(asking).chain(looking_up).collect()),
            background: [releasing, watching],
        })
    }

    /// How the database's namespaces are distributed over its shards, since the schema was created. It is the same for
    /// every node.
    pub fn sharding(&self) -> Sharding {
        self.sharding
    }

    /// Finishes the appends in the queue and closes the store. Later calls fail.
    pub async fn close(&self) {
        self.stop();
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            // A task that panicked has nothing left to finish.
            let _ = worker.await;
        }
    }

    fn stop(&self) {
        self.appends.close();
        self.confirms.close();
        self.look_ups.close();
        for pool in [&*self.readers, &self.tasks, &*self.renewers, &*self.checkpointers] {
            pool.close();
        }
        self.background.iter().for_each(AbortHandle::abort);
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
        let taken = shards::take(&self.tasks, self.me, shard, self.known.epoch(shard)).await;
        match &taken {
            Ok((epoch, last)) => {
                self.known.taken(shard, *epoch, *last);
                if self.known.lost(shard).is_some() {
                    self.unreleased().forget(shard);
                }
                self.unreleased().take(shard);
            }
            Err(StoreError::NotOwned) => self.unreleased().forget(shard),
            Err(_) => {}
        }
        taken.map(|(epoch, _)| epoch)
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        let (last, tail) = shards::tail(&*self.readers, shard, epoch, after).await?;
        self.known.observe(shard, epoch, last);
        let mut unreleased = self.unreleased();
        if unreleased.is_taken(shard) {
            tail.iter().for_each(|(seq, payload)| unreleased.add(shard, *seq, payload.len()));
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

    async fn confirm(&self, shard: ShardId, epoch: Epoch, seq: Seq) -> Result<(), ConfirmError> {
        self.confirms.confirm(shard, epoch, seq).await
    }

    fn lost(&self, shard: ShardId) -> Option<LostAppends> {
        self.known.lost(shard)
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.unreleased().release(shard, upto);
        // If the store is closed, nothing has to be released: the next opening does it.
        let _ = self.releases.push((shard, upto));
    }

    fn withdraw(&self, shard: ShardId) -> bool {
        self.appends.withdraw(shard)
    }

    fn free_space(&self) -> FreeSpace {
        self.appends.free_space()
    }

    fn stats(&self) -> JournalStats {
        let is_other_database = self.connector.timelines.is_other_database();
        JournalStats { is_other_database, ..self.unreleased().stats() }
    }
}

impl Table for Postgres {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        table::applied(&*self.readers, shard).await
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.look_ups.get_many(shard, keys).await
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        table::scan(&*self.readers, shard, &from, &to, limit).await
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        table::last_at_or_before(&*self.readers, shard, &ranges).await
    }

    async fn checkpoint(
        &self,
        shard: ShardId,
        epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        checkpoint::checkpoint(&self.checkpointers, self.me, shard, epoch, upto, records).await
    }

    fn has_filters(&self) -> bool {
        true
    }

    async fn scan_keys(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<Bytes>, StoreError> {
        table::scan_keys(&*self.readers, shard, &from, &to, limit).await
    }

    async fn store_filter(
        &self,
        shard: ShardId,
        epoch: Epoch,
        upto: Seq,
        changed: Vec<FilterPart>,
        parts: usize,
    ) -> Result<(), StoreError> {
        filters::store(&self.checkpointers, self.me, shard, epoch, upto, changed, parts).await
    }

    async fn load_filter(&self, shard: ShardId) -> Result<Option<StoredFilter>, StoreError> {
        filters::load(&self.checkpointers, shard).await
    }
}

impl Tenure for Postgres {
    fn me(&self) -> NodeId {
        self.me
    }

    async fn renew(&self, announcement: Announcement) -> Result<View, StoreError> {
        let view = members::renew(&self.renewers, self.me, announcement, &self.known).await?;
        self.tenures.check(&self.renewers, self.me, &view.members).await?;
        Ok(view)
    }

    async fn end_tenure(&self, node: NodeId) -> Result<bool, StoreError> {
        presence::end_tenure(&self.tasks, self.me, node).await
    }

    async fn claim(&self, wanted: Vec<(ShardId, Epoch)>) -> Result<Vec<ShardId>, StoreError> {
        shards::claim(&self.tasks, self.me, &wanted).await
    }

    async fn give(
        &self,
        shard: ShardId,
        epoch: Epoch,
        to: Option<NodeId>,
        shard_time_ms: u64,
    ) -> Result<bool, StoreError> {
        let given = shards::give(&self.tasks, self.me, shard, epoch, to, shard_time_ms).await?;
        self.unreleased().forget(shard);
        Ok(given)
    }

    async fn leave(&self) -> Result<(), StoreError> {
        members::leave(&self.tasks, self.me).await
    }

    async fn disconnected(&self) {
        self.disconnected.notified().await;
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    fn is_available(&self) -> bool {
        let pools = [&*self.readers, &self.tasks, &*self.renewers];
        self.appends.is_available()
            && self.confirms.is_available()
            && pools.iter().all(|pool| pool.is_available())
    }
}
