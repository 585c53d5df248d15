//! What a node knows about the cluster: its own tenure, the other nodes, and who owns which shard.

use crate::{Peers, clock::Clocks};
use limina_store::{Member, NodeId, ShardId, View};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// The tenure of a node on a store of its own never expires.
const FOR_EVER: u64 = u64::MAX;

/// How long this node's tenure lasts, by the node's own monotonic clock, and whether the store answers. A clone shares the state.
#[derive(Debug, Clone)]
pub(crate) struct TenureGuard {
    /// Until then no other node can take the shards that this node has served since `sure_since`. In microseconds.
    sure_until: Arc<AtomicU64>,
    /// When the last renewal was sent. In microseconds.
    sure_since: Arc<AtomicU64>,
    /// When the tenure expires, unless another node ends it before. In microseconds.
    expires_at: Arc<AtomicU64>,
    is_store_away: Arc<watch::Sender<bool>>,
    clocks: Clocks,
}

impl TenureGuard {
    /// For a node on a store of its own: the tenure never expires.
    pub(crate) fn alone(clocks: Clocks) -> TenureGuard {
        TenureGuard::until(FOR_EVER, clocks)
    }

    /// For a node that must renew its tenure, and has not done so yet.
    pub(crate) fn shared(clocks: Clocks) -> TenureGuard {
        TenureGuard::until(0, clocks)
    }

    fn until(micros: u64, clocks: Clocks) -> TenureGuard {
        let until = || Arc::new(AtomicU64::new(micros));
        TenureGuard {
            sure_until: until(),
            sure_since: until(),
            expires_at: until(),
            is_store_away: Arc::default(),
            clocks,
        }
    }

    /// The tenure was renewed for `span` by a request that was sent at this time. The answer has shown all shards that this node
    /// served then.
    pub(crate) fn renewed(&self, sent_at_micros: u64, span: Duration) {
        let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        self.sure_since.store(sent_at_micros, Ordering::Release);
        self.set(sent_at_micros.saturating_add(span));
    }

    /// Other nodes have taken shards of this node, or its address.
    pub(crate) fn revoke(&self) {
        self.set(0);
    }

    /// This node's session with the store has ended. Until the next renewal, other nodes may end the tenure before it expires.
    pub(crate) fn doubt(&self) {
        self.sure_until.store(0, Ordering::Release);
    }

    /// The machine was suspended, and with it the monotonic clock. Nothing is certain until the next renewal.
    pub(crate) fn handle_suspension(&self) {
        if self.expires_at.load(Ordering::Acquire) != FOR_EVER {
            self.doubt();
        }
    }

    fn set(&self, until_micros: u64) {
        self.sure_until.store(until_micros, Ordering::Release);
        self.expires_at.store(until_micros, Ordering::Release);
    }

    /// Whether no other node can have taken a shard that this node has served since `since`, in microseconds. A shard that was opened
    /// after the last renewal was sent may have been taken while it was loaded.
    pub(crate) fn is_sure(&self, since: u64) -> bool {
        self.sure_until.load(Ordering::Acquire) > self.clocks.monotonic()
            && self.sure_since.load(Ordering::Acquire) >= since
    }

    /// Time until the tenure expires. Zero if it has.
    pub(crate) fn left(&self) -> Duration {
        let until = self.expires_at.load(Ordering::Acquire);
        Duration::from_micros(until.saturating_sub(self.clocks.monotonic()))
    }

    /// The store answered a renewal, or failed to answer. The store counts as away once a renewal has failed and the tenure
    /// has expired. Until then it may soon be back, and requests wait for it.
    pub(crate) fn handle_renewal(&self, has_answered: bool) {
        let is_away = !has_answered && self.left().is_zero();
        self.is_store_away.send_if_modified(|was_away| std::mem::replace(was_away, is_away) != is_away);
    }

    /// Whether the store is away, now and whenever that changes.
    pub(crate) fn is_store_away(&self) -> watch::Receiver<bool> {
        self.is_store_away.subscribe()
    }
}

/// The other nodes.
pub(crate) struct Others {
    me: NodeId,
    peers: Arc<dyn Peers>,
    tenure_guard: TenureGuard,
    /// Asks the store whether it can do everything at the moment.
    is_available: Box<dyn Fn() -> bool + Send + Sync>,
    max_wait: Duration,
    view: Mutex<View>,
    /// Whether every shard has been served at the same moment, once since this node joined.
    was_complete: watch::Sender<bool>,
}

impl Others {
    pub(crate) fn new(
        me: NodeId,
        peers: Arc<dyn Peers>,
        tenure_guard: TenureGuard,
        is_available: impl Fn() -> bool + Send + Sync + 'static,
        max_wait: Duration,
    ) -> Others {
        let (view, was_complete) = (Mutex::default(), watch::Sender::new(false));
        Others { me, peers, tenure_guard, is_available: Box::new(is_available), max_wait, view, was_complete }
    }

    pub(crate) fn peers(&self) -> &dyn Peers {
        &*self.peers
    }

    /// Whether the store does not answer, so that this node cannot serve any shard.
    pub(crate) fn store_is_away(&self) -> bool {
        *self.tenure_guard.is_store_away.borrow()
    }

    /// The longest time that a request waits until a node serves its shard.
    pub(crate) fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// Remembers what the store showed. `is_open` tells which shards this node serves.
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

    /// The address of another node, if that node is alive.
    pub(crate) fn address(&self, node: NodeId) -> Option<Arc<str>> {
        let view = self.lock();
        let member = view.members.iter().find(|member| member.id == node && member.is_live);
        member.filter(|_| node != self.me).map(|member| member.address.as_str().into())
    }

    /// Whether another node is there that can take this node's shards.
    pub(crate) fn has_successor(&self) -> bool {
        let stays = |member: &Member| member.id != self.me && member.is_live && !member.is_leaving;
        self.lock().members.iter().any(stays)
    }

    pub(crate) fn is_ready(&self) -> bool {
        *self.was_complete.borrow() && !self.tenure_guard.left().is_zero() && (self.is_available)()
    }

    /// Returns when every shard has been served once.
    pub(crate) async fn until_complete(&self) {
        let mut was_complete = self.was_complete.subscribe();
        let _still_there = was_complete.wait_for(|was_complete| *was_complete).await;
    }

    pub(crate) fn cluster(&self, is_ready: bool, is_open: impl Fn(ShardId) -> bool) -> Cluster {
        Cluster::of(&self.lock(), self.me, is_ready, !self.store_is_away(), is_open)
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All nodes and all shards, as one node sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The name of the node that gives this view.
    pub me: String,
    /// All nodes, ordered by name.
    pub nodes: Vec<NodeStatus>,
    /// All shards, ordered by number.
    pub shards: Vec<ShardStatus>,
}

/// The state of a node, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The name of the node.
    pub node: String,
    /// The address at which other nodes reach this one. None on a store that is not shared.
    pub address: Option<String>,
    /// For the node that gives the view: whether it serves requests. For another node: whether it is alive and does not leave; false
    /// while the store does not answer, because this node cannot know it then.
    pub is_ready: bool,
    /// Whether the node is stopping, and gives its shards away.
    pub is_leaving: bool,
}

/// The state of a shard, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// The number of the shard.
    pub shard: u16,
    /// The name of the node that owns the shard. None if no node does.
    pub owner: Option<String>,
    /// The epoch of the shard. None on a store that is not shared.
    pub epoch: Option<u64>,
    /// For a shard of the node that gives the view: whether it serves requests. For another node's shard: whether that node is
    /// alive. False while the store does not answer.
    pub is_open: bool,
}

impl Cluster {
    /// The name of a node on a store of its own.
    const ALONE: &str = "local";

    /// The view of the node `me` among others. `is_current` is false while the store does not answer: then no shard here serves requests,
    /// and the view is too old to tell which other nodes are alive.
    fn of(
        view: &View,
        me: NodeId,
        is_ready: bool,
        is_current: bool,
        is_open: impl Fn(ShardId) -> bool,
    ) -> Cluster {
        let nodes = view.members.iter().map(|member| NodeStatus {
            node: member.id.to_string(),
            address: Some(member.address.clone()),
            is_ready: match member.id == me {
                true => is_ready,
                false => is_current && member.is_live && !member.is_leaving,
            },
            is_leaving: member.is_leaving,
        });
        let is_live = |id| view.members.iter().any(|member| member.id == id && member.is_live);
        let shards = view.shards.iter().map(|holding| ShardStatus {
            shard: holding.shard.0,
            owner: holding.owner.map(|owner| owner.to_string()),
            epoch: Some(holding.epoch.0),
            is_open: is_current
                && match holding.owner {
                    Some(owner) if owner == me => is_open(holding.shard),
                    owner => owner.is_some_and(is_live),
                },
        });
        Cluster { me: me.to_string(), nodes: nodes.collect(), shards: shards.collect() }
    }

    /// The view of a node on a store of its own.
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

#[cfg(test)]
mod tests {
    use super::*;
    use limina_store::{Epoch, ShardRow};

    #[test]
    fn the_store_is_away_only_when_the_tenure_has_expired() {
        let clocks = Clocks::new();
        let guard = TenureGuard::shared(clocks.clone());
        guard.renewed(clocks.monotonic(), Duration::from_secs(3_600));
        assert!(guard.is_sure(0));
        guard.doubt();
        guard.handle_renewal(false);
        assert!(!guard.is_sure(0), "another node may end the tenure");
        assert!(!*guard.is_store_away().borrow(), "the session was lost a moment ago");
        guard.revoke();
        guard.handle_renewal(false);
        assert!(*guard.is_store_away().borrow());
        guard.handle_renewal(true);
        assert!(!*guard.is_store_away().borrow());
    }

    #[test]
    fn other_nodes_and_all_shards_are_shown_as_well_only_while_the_store_answers() {
        let member = |id| Member {
            id: NodeId(id),
            address: format!("node-{id}"),
            host: String::new(),
            age: Duration::ZERO,
            is_live: true,
            is_connected: true,
            expires_in: Duration::from_secs(1),
            is_leaving: id == 3,
            certificate: None,
            prepared: Vec::new(),
        };
        let shard = |id| ShardRow {
            shard: ShardId(id),
            epoch: Epoch(1),
            owner: Some(NodeId(id.into())),
            handed: None,
        };
        let (members, shards) = ([1, 2, 3].map(member).into(), [1, 2].map(shard).into());
        let view = View { members, shards, went_back: Vec::new() };
        let check = |is_current, nodes: [bool; 3], shards: [bool; 2]| {
            let cluster = Cluster::of(&view, NodeId(1), true, is_current, |_| true);
            assert_eq!(cluster.nodes.iter().map(|node| node.is_ready).collect::<Vec<_>>(), nodes);
            assert_eq!(cluster.shards.iter().map(|shard| shard.is_open).collect::<Vec<_>>(), shards);
        };
        check(true, [true, true, false], [true, true]);
        check(false, [true, false, false], [false, false]);
    }

    #[test]
    fn a_renewal_covers_the_shards_that_were_served_when_it_was_sent() {
        let clocks = Clocks::new();
        let guard = TenureGuard::shared(clocks.clone());
        let hour = Duration::from_secs(3_600);
        guard.renewed(1_000, hour);
        assert!(guard.is_sure(1_000));
        assert!(!guard.is_sure(1_001), "it was being loaded");
        guard.renewed(2_000, hour);
        assert!(guard.is_sure(1_001));
        assert!(TenureGuard::alone(clocks).is_sure(u64::MAX));
    }
}
