//! Carries out what [`OwnershipPlanner`] decides about this node's shards.
//!
//! The store knows all nodes and who owns what. Whenever this node's tenure is renewed (see [`crate::tenure_renewal`]), the
//! manager gets a new view. It opens shards that this node owns, claims shards whose owner is not alive, and gives away
//! shards that other nodes should have. Safety does not depend on this code: if a node acts on an old view, the store
//! rejects it.

use crate::{
    Joining, NodeOptions,
    driver::{HandedTime, Order, ShardContext},
    failure::catch_panic,
    ownership::{OwnershipAction, OwnershipPlanner, UnownedShard},
    preparer::Preparer,
    reachability,
    service::Location,
    shard_task::{Finished, ShardTask},
    stores::Stores,
    tenure_renewal::{RenewalControl, SeenView, TenureRenewal},
};
use limina_engine::Time;
use limina_store::{HandOver, Journal, Member, NodeId, ShardId, Table, Tenure, View};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};

/// What the ownership manager is to do. Later stages include the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Hold a share of the shards.
    Share,
    /// Give all shards away, and continue to report where they are.
    Leave,
    /// Give all shards away, and end.
    End,
}

pub(crate) struct OwnershipManager<S> {
    store: Arc<S>,
    context: ShardContext,
    options: NodeOptions,
    joining: Arc<Joining>,
    stores: Stores<S, S>,
    planner: OwnershipPlanner,
    tasks: JoinSet<(ShardId, Finished)>,
    /// Tries of addresses, and whether the address refused the connection.
    probes: JoinSet<(NodeId, bool)>,
    /// The last order to each shard's task.
    orders: BTreeMap<ShardId, watch::Sender<Order>>,
    renewal: RenewalControl,
    /// Reads shards that other nodes will give to this one.
    preparer: Preparer<S>,
    /// When the last view arrived, by this node's monotonic clock, in microseconds.
    seen_at: u64,
    /// The tasks that check whether each node can be reached.
    reachability: BTreeMap<NodeId, AbortHandle>,
}

impl<S: Journal + Table + Tenure> OwnershipManager<S> {
    pub(crate) fn new(
        store: Arc<S>,
        context: ShardContext,
        options: NodeOptions,
        joining: Joining,
        stores: Stores<S, S>,
    ) -> OwnershipManager<S> {
        let renewal = RenewalControl::default();
        let memory = context.service.memory().clone();
        OwnershipManager {
            planner: OwnershipPlanner::new(store.me(), joining.tenure),
            preparer: Preparer::new(store.clone(), memory, renewal.clone()),
            store,
            context,
            options,
            joining: Arc::new(joining),
            stores,
            tasks: JoinSet::new(),
            probes: JoinSet::new(),
            orders: BTreeMap::new(),
            renewal,
            seen_at: 0,
            reachability: BTreeMap::new(),
        }
    }

    /// Runs until [`Stage::End`]. Reports to `left` when all shards are given away, or when none can be given away because the store is
    /// away.
    pub(crate) async fn run(mut self, mut stages: watch::Receiver<Stage>, left: watch::Sender<bool>) {
        let (mut seen, mut renewing) = self.renew();
        let mut is_store_away = self.context.tenure_guard.is_store_away();
        let mut stage = Stage::Share;
        loop {
            let gives_up = self.planner.is_leaving() && *is_store_away.borrow_and_update();
            if self.planner.has_left() || gives_up {
                left.send_replace(true);
                if stage == Stage::End {
                    break;
                }
            }
            tokio::select! {
                Ok(()) = seen.changed() => {
                    let SeenView { view, at } = seen.borrow_and_update().clone();
                    self.handle_view(view, at).await;
                }
                Some(ended) = self.tasks.join_next() => {
                    self.handle_ended(ended);
                    while let Some(ended) = self.tasks.try_join_next() {
                        self.handle_ended(ended);
                    }
                    // Decide the next step by a new view.
                    self.renewal.renew_now();
                }
                Some(probed) = self.probes.join_next() => {
                    if let Ok((node, is_refused)) = probed
                        && let Some(action) = self.planner.handle_probe(node, is_refused)
                    {
                        self.act(action).await;
                    }
                }
                Ok(()) = is_store_away.changed() => {}
                // Without renewals there are no more views, and the tenure expires.
                _ = renewing.join_next() => break,
                changed = stages.changed(), if stage < Stage::End => {
                    // An error means that the node was dropped.
                    stage = changed.map_or(Stage::End, |()| *stages.borrow_and_update());
                    if stage > Stage::Share && !self.planner.is_leaving() {
                        self.planner.leave();
                        self.renewal.leave();
                    }
                }
            }
        }
        self.renewal.end();
        let _ended = renewing.join_next().await;
        self.reachability.values().for_each(AbortHandle::abort);
        if let Err(error) = self.store.leave().await {
            tracing::warn!(
                error = &error as &dyn Error,
                "this node could not be removed from the cluster; its tenure will expire"
            );
        }
    }

    /// Starts the task that renews the tenure. The task ends with the returned set: a node whose manager is gone must not
    /// keep its shards.
    fn renew(&self) -> (watch::Receiver<SeenView>, JoinSet<()>) {
        let (seen, receiver) = watch::channel(SeenView::default());
        let renewal = TenureRenewal {
            store: self.store.clone(),
            context: self.context.clone(),
            joining: self.joining.clone(),
            stores: self.stores.clone(),
            control: self.renewal.clone(),
            seen,
        };
        let service = self.context.service.clone();
        let renewal = service.run_background("renewal of the tenure", renewal.run());
        (receiver, JoinSet::from_iter([renewal]))
    }

    /// Acts on a view of the store.
    async fn handle_view(&mut self, view: View, at: u64) {
        self.log_changes(&view);
        self.seen_at = at;
        let service = self.context.service.clone();
        let is_open = |shard| service.is_open(shard);
        let actions = self.planner.handle_view(Duration::from_micros(at), view, is_open);
        let view = self.planner.view();
        self.context.metrics.cluster.nodes.set(live(view).count() as i64);
        if let Some(others) = service.others() {
            others.handle_view(view.clone(), is_open);
        }
        for action in actions {
            self.act(action).await;
        }
    }

    /// Claims shards whose owners are not alive, in one call, and opens those that it gets.
    async fn claim(&mut self, unowned: Vec<UnownedShard>) {
        let shards = unowned.iter().map(|unowned| (unowned.shard, unowned.seen)).collect();
        let claimed = match self.store.claim(shards).await {
            Ok(claimed) => claimed,
            Err(error) => {
                let shards = unowned.len();
                let error = &error as &dyn Error;
                return tracing::warn!(shards, error, "shards without a live owner could not be claimed");
            }
        };
        for UnownedShard { shard, from, .. } in unowned {
            if !claimed.contains(&shard) {
                continue;
            }
            let from = from.map(|from| from.to_string());
            tracing::info!(shard = shard.0, from, "taking a shard over: nobody serves it");
            self.context.metrics.cluster.shards_claimed.inc();
            if self.planner.claimed(shard) {
                self.open(shard, None);
            }
        }
    }

    async fn act(&mut self, action: OwnershipAction) {
        match action {
            OwnershipAction::Open { shard, handed } => self.open(shard, handed),
            OwnershipAction::Claim { shards } => self.claim(shards).await,
            OwnershipAction::Probe { node } => self.probe(node),
            OwnershipAction::EndTenure { node } => self.end_tenure(node).await,
            OwnershipAction::Prepare { shard, epoch } => self.preparer.begin(shard, epoch),
            OwnershipAction::Discard { shard } => self.preparer.discard(shard),
            OwnershipAction::CheckOwnership { shard } => {
                if let Some(order) = self.orders.get(&shard) {
                    // The same order again means: check.
                    order.send_modify(|_| {});
                }
            }
            OwnershipAction::Close { shard, to } => {
                let Some(order) = self.orders.get(&shard) else { return };
                let name = to.map(|to| to.to_string());
                tracing::info!(shard = shard.0, to = name, "giving a shard away");
                self.context.metrics.cluster.shards_given.inc();
                // The shard answers the requests that it has. Later ones wait for the next owner.
                self.context.service.set_location(shard, Location::Unknown);
                order.send_replace(Order::Close { to });
            }
            OwnershipAction::Place { shard, at } => self.context.service.set_location_node(shard, at),
        }
    }

    fn probe(&mut self, node: NodeId) {
        let address = self.context.service.others().and_then(|others| others.address(node));
        let peers = self.joining.peers.clone();
        self.probes.spawn(async move {
            let is_refused = match address {
                Some(address) => peers.is_refused(&address).await,
                None => false,
            };
            (node, is_refused)
        });
    }

    /// Ends the tenure of a node whose process has died.
    async fn end_tenure(&mut self, node: NodeId) {
        match self.store.end_tenure(node).await {
            Ok(true) => {
                tracing::warn!(%node, "a node has died: its session with the store has ended, and nobody listens at its address");
            }
            // The node has renewed meanwhile, or another node was faster.
            Ok(false) => {}
            Err(error) => {
                let error = &error as &dyn Error;
                return tracing::warn!(%node, error, "the tenure of a dead node could not be ended; it will expire");
            }
        }
        self.renewal.renew_now();
    }

    /// Logs which nodes have come and gone, and checks whether new ones can be reached.
    fn log_changes(&mut self, view: &View) {
        let names = |view| -> BTreeSet<(NodeId, String)> {
            live(view).map(|member| (member.id, member.address.clone())).collect()
        };
        let (before, now) = (names(self.planner.view()), names(view));
        for (node, address) in now.difference(&before) {
            let is_me = *node == self.store.me();
            tracing::info!(%node, address, me = is_me, "a node has joined");
            let check =
                reachability::check(self.joining.peers.clone(), *node, address.as_str().into(), is_me);
            self.reachability.insert(*node, tokio::spawn(check).abort_handle());
        }
        for (node, address) in before.difference(&now) {
            tracing::info!(%node, address, "a node has left, or its tenure has expired");
            if let Some(check) = self.reachability.remove(node) {
                check.abort();
            }
        }
    }

    fn open(&mut self, shard: ShardId, handed: Option<HandOver>) {
        // Only a hand-over proves that what was prepared is still true. An append of an owner that died may have been read here and then
        // have been lost with a database server, and a claim raises the epoch as often as a hand-over does.
        let prepared = self.preparer.take(shard).filter(|_| handed.is_some());
        // `ago` was measured when the store made the view, a little before `seen_at`. So this time may be behind, never ahead.
        let handed = handed.map(|HandOver { shard_time_ms, ago }| HandedTime {
            time: Time(shard_time_ms.saturating_add(ago.as_millis() as u64)),
            monotonic: self.seen_at,
        });
        let (order, orders) = watch::channel(Order::Serve);
        self.orders.insert(shard, order);
        let task = ShardTask {
            shard,
            handed,
            prepared,
            store: self.store.clone(),
            stores: self.stores.clone(),
            context: self.context.clone(),
            options: self.options.clone(),
            renewal: self.renewal.clone(),
            orders,
        };
        self.tasks.spawn(async move {
            let finished = catch_panic(task.run()).await;
            (shard, finished.unwrap_or_else(Finished::Panicked))
        });
    }

    fn handle_ended(&mut self, ended: Result<(ShardId, Finished), tokio::task::JoinError>) {
        let Ok((shard, finished)) = ended else { return };
        self.orders.remove(&shard);
        match finished {
            Finished::Closed => self.planner.ended(shard),
            Finished::NotOwned => {
                self.planner.ended(shard);
                tracing::warn!(shard = shard.0, "a shard was taken over by another node");
                self.context.metrics.cluster.shards_lost.inc();
                self.context.service.set_location(shard, Location::Unknown);
            }
            Finished::NeverServed => {
                self.planner.ended(shard);
                self.context.service.set_location(shard, Location::Unknown);
            }
            Finished::Panicked(panic) => {
                self.planner.failed(shard);
                self.stores.remove(shard);
                self.context.service.shard_failed(shard, panic);
            }
        }
    }
}

fn live(view: &View) -> impl Iterator<Item = &Member> {
    view.members.iter().filter(|member| member.is_live)
}
