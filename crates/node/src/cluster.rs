//! What a node knows of the others.

use crate::{Peers, clock::Clocks};
use limina_store::{NodeId, ShardId, View};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// Until when it is sure that nobody takes this node's shards away, by its own monotonic clock; and whether the store answers
/// at all. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct TenureGuard {
    until: Arc<AtomicU64>,
    is_away: Arc<watch::Sender<bool>>,
    clocks: Clocks,
}

impl TenureGuard {
    /// Of a node that is alone: for ever.
    pub(crate) fn alone(clocks: Clocks) -> TenureGuard {
        TenureGuard { until: Arc::new(AtomicU64::new(u64::MAX)), is_away: Arc::default(), clocks }
    }

    /// Of a node that must renew it: not begun yet.
    pub(crate) fn shared(clocks: Clocks) -> TenureGuard {
        TenureGuard { until: Arc::new(AtomicU64::new(0)), ..TenureGuard::alone(clocks) }
    }

    /// It was renewed by a request sent at that time.
    pub(crate) fn renewed(&self, sent_at_micros: u64, span: Duration) {
        let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        self.until.store(sent_at_micros.saturating_add(span), Ordering::Release);
    }

    pub(crate) fn is_sure(&self) -> bool {
        self.left() > Duration::ZERO
    }

    /// How long the tenure still surely lasts.
    pub(crate) fn left(&self) -> Duration {
        let until = self.until.load(Ordering::Acquire);
        Duration::from_micros(until.saturating_sub(self.clocks.monotonic()))
    }

    /// The store answered a renewal, or failed to. It is away once a renewal has failed and the tenure has run out: until
    /// then it may be back soon, and requests wait for it.
    pub(crate) fn heard_of_store(&self, has_answered: bool) {
        let is_away = !has_answered && !self.is_sure();
        self.is_away.send_if_modified(|was_away| std::mem::replace(was_away, is_away) != is_away);
    }

    /// Whether the store is away, now and whenever that changes.
    pub(crate) fn is_away(&self) -> watch::Receiver<bool> {
        self.is_away.subscribe()
    }
}

/// The other nodes.
pub(crate) struct Others {
    me: NodeId,
    peers: Arc<dyn Peers>,
    tenure_guard: TenureGuard,
    /// Whether the store can do everything, as far as is known.
    is_able: Box<dyn Fn() -> bool + Send + Sync>,
    patience: Duration,
    view: Mutex<View>,
    /// Every shard was served once since this node came.
    was_complete: watch::Sender<bool>,
}

impl Others {
    pub(crate) fn new(
        me: NodeId,
        peers: Arc<dyn Peers>,
        tenure_guard: TenureGuard,
        is_able: impl Fn() -> bool + Send + Sync + 'static,
        patience: Duration,
    ) -> Others {
        let (view, was_complete) = (Mutex::default(), watch::Sender::new(false));
        Others { me, peers, tenure_guard, is_able: Box::new(is_able), patience, view, was_complete }
    }

    pub(crate) fn peers(&self) -> &dyn Peers {
        &*self.peers
    }

    /// Whether the store does not answer, so that nothing can be done here.
    pub(crate) fn store_is_away(&self) -> bool {
        *self.tenure_guard.is_away.borrow()
    }

    /// How long a request waits until somebody serves its shard.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// What the store showed; and whether all that is to be served here is.
    pub(crate) fn handle_view(&self, view: View, is_open: impl Fn(ShardId) -> bool) {
        let is_live = |id| view.members.iter().any(|member| member.id == id && member.is_live);
        let is_served = view.shards.iter().all(|holding| match holding.owner {
            Some(owner) if owner == self.me => is_open(holding.shard),
            Some(owner) => is_live(owner),
            None => false,
        });
        *self.lock() = view;
        if is_served {
            self.was_complete.send_replace(true);
        }
    }

    /// Where another node is reached, if it is alive.
    pub(crate) fn address(&self, node: NodeId) -> Option<Arc<str>> {
        let view = self.lock();
        let member = view.members.iter().find(|member| member.id == node && member.is_live);
        member.filter(|_| node != self.me).map(|member| member.address.as_str().into())
    }

    pub(crate) fn is_ready(&self) -> bool {
        *self.was_complete.borrow() && self.tenure_guard.is_sure() && (self.is_able)()
    }

    /// Returns when every shard was served once.
    pub(crate) async fn until_complete(&self) {
        let mut was_complete = self.was_complete.subscribe();
        let _still_there = was_complete.wait_for(|was_complete| *was_complete).await;
    }

    pub(crate) fn cluster(&self, is_ready: bool, is_open: impl Fn(ShardId) -> bool) -> Cluster {
        let view = self.lock();
        let nodes = view.members.iter().map(|member| NodeStatus {
            node: member.id.to_string(),
            address: Some(member.address.clone()),
            is_ready: if member.id == self.me { is_ready } else { member.is_live && !member.is_leaving },
            is_leaving: member.is_leaving,
        });
        let is_live = |id| view.members.iter().any(|member| member.id == id && member.is_live);
        let shards = view.shards.iter().map(|holding| ShardStatus {
            shard: holding.shard.0,
            owner: holding.owner.map(|owner| owner.to_string()),
            epoch: Some(holding.epoch.0),
            is_open: match holding.owner {
                Some(owner) if owner == self.me => is_open(holding.shard),
                owner => owner.is_some_and(is_live),
            },
        });
        Cluster { me: self.me.to_string(), nodes: nodes.collect(), shards: shards.collect() }
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All nodes and all shards, as one node sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The node that was asked.
    pub me: String,
    /// The nodes, by name.
    pub nodes: Vec<NodeStatus>,
    /// The shards, by number.
    pub shards: Vec<ShardStatus>,
}

/// A node as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// Where other nodes reach it, if there may be any.
    pub address: Option<String>,
    /// Whether it serves requests; of another node: whether it is alive and stays.
    pub is_ready: bool,
    /// Whether it is about to stop.
    pub is_leaving: bool,
}

/// A shard as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// Its number.
    pub shard: u16,
    /// The name of the node that owns it.
    pub owner: Option<String>,
    /// How often it was taken, given or opened, where several nodes may.
    pub epoch: Option<u64>,
    /// Whether it serves requests now; of another node's shard: whether that node is alive.
    pub is_open: bool,
}

impl Cluster {
    /// The name of a node that is alone.
    const ALONE: &str = "local";

    /// One node has everything.
    pub(crate) fn alone(is_ready: bool, open: impl Iterator<Item = bool>) -> Cluster {
        let me = || Cluster::ALONE.to_owned();
        let node = NodeStatus { node: me(), address: None, is_ready, is_leaving: false };
        let shards = open.zip(0..).map(|(is_open, shard)| ShardStatus {
            shard,
            owner: Some(me()),
            epoch: None,
            is_open,
        });
        Cluster { me: me(), nodes: vec![node], shards: shards.collect() }
    }
}
