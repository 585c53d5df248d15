//! Several nodes that share one store in memory, with a clock that the test advances.

use super::{Memory, MemoryOptions};
use crate::{
    Announcement, AppendError, ConfirmError, Epoch, Fingerprint, FreeSpace, HandOver, Journal, JournalStats,
    Member, NodeId, Records, Seq, ShardId, ShardRow, StoreError, Table, Tenure, View,
};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// A node that owns nothing is removed this long after its tenure has expired.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A store in memory that several nodes share. Every future is ready at once, except [`Tenure::changed`].
pub struct Cluster {
    memory: Memory,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Duration,
    members: BTreeMap<NodeId, NodeRow>,
    owners: Vec<Owner>,
    signals: BTreeMap<NodeId, ChangeSignals>,
}

/// Wakes a node that waits for changes, or for the end of its session.
#[derive(Clone, Default)]
struct ChangeSignals {
    changed: Arc<Notify>,
    disconnected: Arc<Notify>,
}

struct NodeRow {
    address: String,
    host: String,
    started_at: Duration,
    is_leaving: bool,
    expires_at: Duration,
    certificate: Option<Fingerprint>,
    prepared: Vec<ShardId>,
    is_connected: bool,
}

#[derive(Clone, Copy, Default)]
struct Owner {
    node: Option<NodeId>,
    handed: Option<HandedOverAt>,
}

/// Shard time in milliseconds, and the time of the hand-over.
#[derive(Clone, Copy)]
struct HandedOverAt(u64, Duration);

/// The store as one node uses it.
pub struct MemoryNode {
    cluster: Arc<Cluster>,
    me: NodeId,
    signals: ChangeSignals,
}

impl Cluster {
    /// Creates an empty store. Its shards have no owner.
    pub fn new(options: &MemoryOptions) -> Result<Arc<Cluster>, StoreError> {
        let owners = vec![Owner::default(); usize::from(options.shards)];
        let state = Mutex::new(State { owners, ..State::default() });
        Ok(Arc::new(Cluster { memory: Memory::new(options)?, state }))
    }

    /// The store as this node uses it. Other nodes see the node after its first renewal.
    pub fn node(self: &Arc<Cluster>, me: NodeId) -> Arc<MemoryNode> {
        let signals = self.lock().signals.entry(me).or_default().clone();
        Arc::new(MemoryNode { cluster: self.clone(), me, signals })
    }

    /// Ends the session of a node, as if the node's process had died or its connection had been reset. The node has a new
    /// session when it renews.
    pub fn disconnect(&self, node: NodeId) {
        let mut state = self.lock();
        if let Some(known) = state.members.get_mut(&node) {
            known.is_connected = false;
        }
        state.signals.entry(node).or_default().disconnected.notify_one();
        state.tell(node);
    }

    /// Advances the clock.
    pub fn advance(&self, time: Duration) {
        self.lock().now += time;
    }

    /// The present owner of the shard, and its epoch.
    pub fn owner(&self, shard: ShardId) -> Result<(Option<NodeId>, Epoch), StoreError> {
        let mut state = self.lock();
        Ok((state.owner(shard)?.node, self.epoch(shard)?))
    }

    /// The underlying store, for requesting faults.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    fn epoch(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        self.memory.with(|live| live.journal.epoch(shard))
    }

    fn next_epoch(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        self.memory.with(|live| live.journal.take(shard))?
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn owner(&mut self, shard: ShardId) -> Result<&mut Owner, StoreError> {
        let owner = self.owners.get_mut(usize::from(shard.0));
        owner.ok_or_else(|| StoreError::Unusable(format!("there is no shard {}", shard.0)))
    }

    /// Notifies every node except `me` of a change.
    fn tell(&self, me: NodeId) {
        for (_, signals) in self.signals.iter().filter(|(id, _)| **id != me) {
            signals.changed.notify_one();
        }
    }

    /// Does nothing if another live node has the address.
    fn renew(&mut self, me: NodeId, announcement: Announcement) {
        let Announcement { address, host, is_leaving, tenure, certificate, prepared } = announcement;
        let now = self.now;
        let owners = &self.owners;
        let owns = |id: NodeId| owners.iter().any(|owner| owner.node == Some(id));
        self.members.retain(|id, member| *id == me || member.expires_at + REMEMBERED >= now || owns(*id));
        let is_occupied = |(id, member): (&NodeId, &NodeRow)| {
            *id != me && member.address == address && member.expires_at > now
        };
        if self.members.iter().any(is_occupied) {
            return;
        }
        self.members.retain(|id, member| *id == me || member.address != address);
        let known = self.members.get(&me);
        let is_same = |known: &NodeRow| known.is_leaving == is_leaving && known.prepared == prepared;
        let is_known = known.is_some_and(|known| is_same(known) && known.expires_at > now);
        let started_at = known.map_or(now, |known| known.started_at);
        let expires_at = now + tenure;
        let is_connected = true;
        let known = NodeRow {
            address,
            host,
            started_at,
            is_leaving,
            expires_at,
            certificate,
            prepared,
            is_connected,
        };
        self.members.insert(me, known);
        if !is_known {
            self.tell(me);
        }
    }

    fn members(&self) -> Vec<Member> {
        let member = |(id, known): (&NodeId, &NodeRow)| Member {
            id: *id,
            address: known.address.clone(),
            host: known.host.clone(),
            age: self.now.saturating_sub(known.started_at),
            is_live: self.is_live(*id),
            is_connected: known.is_connected || !self.is_live(*id),
            expires_in: known.expires_at.saturating_sub(self.now),
            is_leaving: known.is_leaving,
            certificate: known.certificate,
            prepared: known.prepared.clone(),
        };
        self.members.iter().map(member).collect()
    }

    fn is_live(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|known| known.expires_at > self.now)
    }
}

impl Tenure for MemoryNode {
    fn me(&self) -> NodeId {
        self.me
    }

    async fn renew(&self, announcement: Announcement) -> Result<View, StoreError> {
        let mut state = self.cluster.lock();
        state.renew(self.me, announcement);
        let now = state.now;
        let holding = |(shard, owner): (usize, &Owner)| {
            let shard = ShardId(shard as u16);
            let epoch = self.cluster.epoch(shard)?;
            let handed =
                |HandedOverAt(shard_time_ms, at)| HandOver { shard_time_ms, ago: now.saturating_sub(at) };
            Ok(ShardRow { shard, epoch, owner: owner.node, handed: owner.handed.map(handed) })
        };
        let shards = state.owners.iter().enumerate().map(holding).collect::<Result<_, StoreError>>()?;
        Ok(View { members: state.members(), shards, went_back: Vec::new() })
    }

    async fn end_tenure(&self, node: NodeId) -> Result<bool, StoreError> {
        let mut state = self.cluster.lock();
        let now = state.now;
        let known = state.members.get_mut(&node);
        let Some(known) = known.filter(|known| !known.is_connected && known.expires_at > now) else {
            return Ok(false);
        };
        known.expires_at = now;
        state.tell(self.me);
        Ok(true)
    }

    async fn claim(&self, wanted: Vec<(ShardId, Epoch)>) -> Result<Vec<ShardId>, StoreError> {
        let mut state = self.cluster.lock();
        let mut claimed = Vec::new();
        for (shard, seen) in wanted {
            let owner = state.owner(shard)?.node;
            if self.cluster.epoch(shard)? == seen && !owner.is_some_and(|owner| state.is_live(owner)) {
                *state.owner(shard)? = Owner { node: Some(self.me), handed: None };
                self.cluster.next_epoch(shard)?;
                claimed.push(shard);
            }
        }
        Ok(claimed)
    }

    async fn give(
        &self,
        shard: ShardId,
        epoch: Epoch,
        to: Option<NodeId>,
        shard_time_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut state = self.cluster.lock();
        if state.owner(shard)?.node != Some(self.me) || self.cluster.epoch(shard)? != epoch {
            return Ok(false);
        }
        let handed = to.map(|_| HandedOverAt(shard_time_ms, state.now));
        *state.owner(shard)? = Owner { node: to, handed };
        state.tell(self.me);
        self.cluster.next_epoch(shard).map(|_| true)
    }

    async fn leave(&self) -> Result<(), StoreError> {
        let mut state = self.cluster.lock();
        state.members.remove(&self.me);
        for (shard, owner) in state.owners.iter_mut().enumerate() {
            if owner.node == Some(self.me) {
                *owner = Owner::default();
                self.cluster.next_epoch(ShardId(shard as u16))?;
            }
        }
        state.tell(self.me);
        Ok(())
    }

    async fn disconnected(&self) {
        self.signals.disconnected.notified().await;
    }

    async fn changed(&self) {
        self.signals.changed.notified().await;
    }

    fn is_available(&self) -> bool {
        true
    }
}

impl Journal for MemoryNode {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        {
            let mut state = self.cluster.lock();
            let owner = state.owner(shard)?;
            if owner.node != Some(self.me) {
                return Err(StoreError::NotOwned);
            }
            owner.handed = None;
        }
        self.cluster.next_epoch(shard)
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        self.cluster.memory.tail(shard, epoch, after).await
    }

    async fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> Result<(), AppendError> {
        self.cluster.memory.append(shard, epoch, seq, payload).await
    }

    async fn confirm(&self, shard: ShardId, epoch: Epoch, seq: Seq) -> Result<(), ConfirmError> {
        self.cluster.memory.confirm(shard, epoch, seq).await
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.cluster.memory.release(shard, upto);
    }

    fn free_space(&self) -> FreeSpace {
        self.cluster.memory.free_space()
    }

    fn stats(&self) -> JournalStats {
        self.cluster.memory.stats()
    }
}

impl Table for MemoryNode {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        self.cluster.memory.applied(shard).await
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.cluster.memory.get_many(shard, keys).await
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.cluster.memory.scan(shard, from, to, limit).await
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        self.cluster.memory.last_at_or_before(shard, ranges).await
    }

    /// A checkpoint by a node that no longer owns the shard is rejected. `Memory` alone does not check this, because it
    /// has one node.
    async fn checkpoint(
        &self,
        shard: ShardId,
        epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        match self.cluster.epoch(shard)? == epoch {
            true => self.cluster.memory.checkpoint(shard, epoch, upto, records).await,
            false => Err(StoreError::NotOwned),
        }
    }
}
