//! Several nodes over one store in memory, with a clock that is moved by hand.

use super::{Memory, MemoryOptions};
use crate::{
    Announcement, AppendError, ConfirmError, Epoch, Holding, Journal, JournalStats, Member, NodeId, Records,
    Room, Seq, ShardId, StoreError, Table, Tenure, View,
};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// A node that is dead for longer than this is forgotten.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A store in memory that several nodes share. Every future is ready at once, but for [`Tenure::changed`].
pub struct Cluster {
    memory: Memory,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Duration,
    members: BTreeMap<NodeId, Known>,
    owners: Vec<Owner>,
    told: BTreeMap<NodeId, Arc<Notify>>,
}

struct Known {
    address: String,
    is_leaving: bool,
    expires_at: Duration,
}

#[derive(Clone, Copy, Default)]
struct Owner {
    node: Option<NodeId>,
    is_handed: bool,
}

/// The store as one of the nodes uses it.
pub struct MemoryNode {
    cluster: Arc<Cluster>,
    me: NodeId,
    changed: Arc<Notify>,
}

impl Cluster {
    /// A new, empty store whose shards are nobody's.
    pub fn new(options: &MemoryOptions) -> Result<Arc<Cluster>, StoreError> {
        let owners = vec![Owner::default(); usize::from(options.shards)];
        let state = Mutex::new(State { owners, ..State::default() });
        Ok(Arc::new(Cluster { memory: Memory::new(options)?, state }))
    }

    /// The store as this node uses it. The others hear of the node when it first renews.
    pub fn node(self: &Arc<Cluster>, me: NodeId) -> Arc<MemoryNode> {
        let changed = self.lock().told.entry(me).or_default().clone();
        Arc::new(MemoryNode { cluster: self.clone(), me, changed })
    }

    /// Moves the clock.
    pub fn advance(&self, time: Duration) {
        self.lock().now += time;
    }

    /// The store itself, for what can go wrong.
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

    /// Everybody but `me` hears that something changed.
    fn tell(&self, me: NodeId) {
        for (_, told) in self.told.iter().filter(|(id, _)| **id != me) {
            told.notify_one();
        }
    }

    fn renew(&mut self, me: NodeId, announcement: Announcement) {
        let Announcement { address, is_leaving, tenure } = announcement;
        let now = self.now;
        self.members.retain(|_, member| member.expires_at + REMEMBERED >= now);
        for (_, member) in
            self.members.iter_mut().filter(|(id, member)| **id != me && member.address == address)
        {
            member.expires_at = member.expires_at.min(now);
        }
        let is_known = self.members.get(&me).is_some_and(|member| {
            member.address == address && member.is_leaving == is_leaving && member.expires_at > now
        });
        self.members.insert(me, Known { address, is_leaving, expires_at: now + tenure });
        if !is_known {
            self.tell(me);
        }
    }

    fn members(&self) -> Vec<Member> {
        let member = |(id, known): (&NodeId, &Known)| Member {
            id: *id,
            address: known.address.clone(),
            is_live: known.expires_at > self.now,
            is_leaving: known.is_leaving,
        };
        self.members.iter().map(member).collect()
    }
}

impl Tenure for MemoryNode {
    fn me(&self) -> NodeId {
        self.me
    }

    async fn renew(&self, announcement: Announcement) -> Result<View, StoreError> {
        let mut state = self.cluster.lock();
        state.renew(self.me, announcement);
        let holding = |(shard, owner): (usize, &Owner)| {
            let shard = ShardId(shard as u16);
            let epoch = self.cluster.epoch(shard)?;
            Ok(Holding { shard, epoch, owner: owner.node, is_handed: owner.is_handed })
        };
        let shards = state.owners.iter().enumerate().map(holding).collect::<Result<_, StoreError>>()?;
        Ok(View { members: state.members(), shards })
    }

    async fn claim(&self, shard: ShardId, seen: Epoch) -> Result<bool, StoreError> {
        let mut state = self.cluster.lock();
        if self.cluster.epoch(shard)? != seen {
            return Ok(false);
        }
        *state.owner(shard)? = Owner { node: Some(self.me), is_handed: false };
        self.cluster.next_epoch(shard).map(|_| true)
    }

    async fn give(&self, shard: ShardId, epoch: Epoch, to: Option<NodeId>) -> Result<bool, StoreError> {
        let mut state = self.cluster.lock();
        if state.owner(shard)?.node != Some(self.me) || self.cluster.epoch(shard)? != epoch {
            return Ok(false);
        }
        *state.owner(shard)? = Owner { node: to, is_handed: to.is_some() };
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

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Journal for MemoryNode {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        match self.cluster.lock().owner(shard)?.node == Some(self.me) {
            true => self.cluster.next_epoch(shard),
            false => Err(StoreError::NotOwned),
        }
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

    async fn confirm(&self, shard: ShardId, epoch: Epoch) -> Result<(), ConfirmError> {
        self.cluster.memory.confirm(shard, epoch).await
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.cluster.memory.release(shard, upto);
    }

    fn room(&self) -> Room {
        self.cluster.memory.room()
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

    /// Whoever does not own the shard any more is refused, which the store in memory alone, with its one node, is not.
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
