//! Keeps this node's share of the shards.
//!
//! The store knows all nodes and who owns what. The manager looks at what it is shown whenever this node's tenure is renewed
//! (see [`crate::renewing`]), opens shards that are this node's, takes those whose owner is gone, and gives away what others
//! should have. Nothing here is needed for safety: a node that acts on an old view is refused by the store.

use crate::{
    AddressTaken, Joining, OpenError,
    driver::{self, Driver, HandedTime, NotOwned, Order, ShardContext},
    failure::catch_panic,
    node::{NodeOptions, Stores},
    ownership::{OwnershipAction, OwnershipPlanner},
    reach,
    renewing::{Bell, Renewing, Seen, announcement, every},
    service::{self, Location},
};
use limina_engine::{Command, Engine, Name, Page, Request, Time};
use limina_shard::ShardClock;
use limina_store::{
    Epoch, Handed, Journal, Member, NodeId, ShardId, ShardStore, StoreError, Table, Tenure, View,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::timeout,
};

/// How long to wait before a shard that could not be opened or given away is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How often a shard is tried to be given away.
const GIVE_ATTEMPTS: usize = 20;
/// For so long the next owner of a shard is waited for, and so often it is asked.
const HAND_OVER: Duration = Duration::from_secs(5);
const ASK_HEIR: Duration = Duration::from_millis(20);

/// Registers a node. Where another one has its address, that may be the same process before it crashed: its tenure is waited
/// for. A node that leaves is waited for as well. One that goes on renewing is another process that was given the same address.
pub(crate) async fn arrive<S: Tenure>(store: &S, joining: &Joining) -> Result<(), AddressTaken> {
    let tenure = joining.tenure;
    let mut until = None;
    let mut is_failing = false;
    loop {
        let mut pause = every(tenure);
        match timeout(tenure, store.renew(announcement(joining, false))).await {
            Ok(Ok(view)) => {
                is_failing = false;
                let Some(other) = view.occupant(&joining.address, store.me()) else { return Ok(()) };
                let now = tokio::time::Instant::now();
                let until = *until.get_or_insert_with(|| {
                    let (address, node, host) = (&joining.address, other.id, &other.host);
                    tracing::warn!(
                        address, %node, host,
                        "another node has this node's address; waiting whether its tenure runs out"
                    );
                    now + tenure.max(other.expires_in) + pause
                });
                if now >= until && !other.is_leaving {
                    let Member { id, host, age, .. } = other.clone();
                    return Err(AddressTaken { address: joining.address.clone(), node: id, host, age });
                }
                pause = pause.min(other.expires_in + Duration::from_millis(10));
            }
            failed => {
                let error =
                    failed.unwrap_or_else(|_| Err(StoreError::Unavailable("it does not answer".to_owned())));
                if let (Err(error), false) = (error, std::mem::replace(&mut is_failing, true)) {
                    tracing::error!(
                        error = &error as &dyn Error,
                        "this node could not be registered; trying again"
                    );
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

pub(crate) struct OwnershipManager<S> {
    store: Arc<S>,
    context: ShardContext,
    options: NodeOptions,
    joining: Arc<Joining>,
    stores: Stores<S, S>,
    planner: OwnershipPlanner,
    tasks: JoinSet<(ShardId, Finished)>,
    /// What each shard's task was last told.
    orders: BTreeMap<ShardId, watch::Sender<Order>>,
    bell: Bell,
    /// When the last view was here, by this node's monotonic clock.
    seen_at: u64,
    /// Those who look whether nodes are reached.
    looking: BTreeMap<NodeId, AbortHandle>,
}

/// How a shard's task ended.
#[derive(Debug, PartialEq, Eq)]
enum Finished {
    /// As it was told to.
    Closed,
    /// Another node has taken the shard.
    NotOwned,
    /// It panicked, with this message.
    Panicked(String),
}

impl<S: Journal + Table + Tenure> OwnershipManager<S> {
    pub(crate) fn new(
        store: Arc<S>,
        context: ShardContext,
        options: NodeOptions,
        joining: Joining,
        stores: Stores<S, S>,
    ) -> OwnershipManager<S> {
        OwnershipManager {
            planner: OwnershipPlanner::new(store.me(), joining.tenure),
            store,
            context,
            options,
            joining: Arc::new(joining),
            stores,
            tasks: JoinSet::new(),
            orders: BTreeMap::new(),
            bell: Bell::default(),
            seen_at: 0,
            looking: BTreeMap::new(),
        }
    }

    /// Keeps until it is told to stop, then gives everything away.
    pub(crate) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let (mut seen, mut renewing) = self.renew();
        while !self.planner.has_left() {
            tokio::select! {
                Ok(()) = seen.changed() => {
                    let Seen { view, at } = seen.borrow_and_update().clone();
                    self.handle_view(view, at).await;
                }
                Some(ended) = self.tasks.join_next() => {
                    self.ended(ended);
                    while let Some(ended) = self.tasks.try_join_next() {
                        self.ended(ended);
                    }
                    // What comes next is decided by how it is now.
                    self.bell.ring();
                }
                _ = stopping.changed(), if !self.planner.is_leaving() => {
                    self.planner.leave();
                    self.bell.leave();
                }
            }
        }
        self.bell.end();
        let _ended = renewing.join_next().await;
        self.looking.values().for_each(AbortHandle::abort);
        if let Err(error) = self.store.leave().await {
            tracing::warn!(
                error = &error as &dyn Error,
                "the others could not be told that this node leaves"
            );
        }
    }

    /// Starts the task that renews the tenure. The task ends with the returned set: a node whose manager is gone must not
    /// keep its shards.
    fn renew(&self) -> (watch::Receiver<Seen>, JoinSet<()>) {
        let (seen, receiver) = watch::channel(Seen::default());
        let renewing = Renewing {
            store: self.store.clone(),
            context: self.context.clone(),
            joining: self.joining.clone(),
            stores: self.stores.clone(),
            bell: self.bell.clone(),
            seen,
        };
        let service = self.context.service.clone();
        let renewing = service.run_background("renewal of the tenure", renewing.run());
        (receiver, JoinSet::from_iter([renewing]))
    }

    /// Acts on what the store shows.
    async fn handle_view(&mut self, view: View, at: u64) {
        self.tell_changes(&view);
        self.seen_at = at;
        let service = self.context.service.clone();
        let is_open = |shard| service.is_open(shard);
        let acts = self.planner.handle_view(Duration::from_micros(at), view, is_open);
        let view = self.planner.view();
        self.context.metrics.cluster.nodes.set(live(view).count() as i64);
        if let Some(others) = service.others() {
            others.handle_view(view.clone(), is_open);
        }
        let mut wanted = Vec::new();
        for act in acts {
            match act {
                OwnershipAction::Claim { shard, seen, from } => wanted.push((shard, seen, from)),
                act => self.act(act),
            }
        }
        self.claim(wanted).await;
    }

    /// Claims shards that nobody serves, all at once, and opens those that it gets.
    async fn claim(&mut self, wanted: Vec<(ShardId, Epoch, Option<NodeId>)>) {
        if wanted.is_empty() {
            return;
        }
        let shards = wanted.iter().map(|(shard, seen, _)| (*shard, *seen)).collect();
        let claimed = match self.store.claim(shards).await {
            Ok(claimed) => claimed,
            Err(error) => {
                let shards = wanted.len();
                let error = &error as &dyn Error;
                return tracing::warn!(shards, error, "shards that nobody serves could not be taken over");
            }
        };
        for (shard, _, from) in wanted.into_iter().filter(|(shard, ..)| claimed.contains(shard)) {
            let from = from.map(|from| from.to_string());
            tracing::info!(shard = shard.0, from, "taking a shard over: nobody serves it");
            self.context.metrics.cluster.shards_claimed.inc();
            if let Some(open) = self.planner.claimed(shard) {
                self.act(open);
            }
        }
    }

    fn act(&mut self, act: OwnershipAction) {
        match act {
            OwnershipAction::Open { shard, handed } => self.open(shard, handed),
            OwnershipAction::Claim { .. } => unreachable!("claims are made together"),
            OwnershipAction::CheckOwnership { shard } => {
                if let Some(order) = self.orders.get(&shard) {
                    // It is told the same again.
                    order.send_modify(|_| {});
                }
            }
            OwnershipAction::Close { shard, to } => {
                let Some(order) = self.orders.get(&shard) else { return };
                let name = to.map(|to| to.to_string());
                tracing::info!(shard = shard.0, to = name, "giving a shard away");
                self.context.metrics.cluster.shards_given.inc();
                // What was taken is answered; what comes now waits for the next owner.
                self.context.service.set_location(shard, Location::Unknown);
                order.send_replace(Order::Close { to });
            }
            OwnershipAction::Place { shard, at } => self.context.service.set_location_node(shard, at),
        }
    }

    /// Who came and who went.
    fn tell_changes(&mut self, view: &View) {
        let names = |view| -> BTreeSet<(NodeId, String)> {
            live(view).map(|member| (member.id, member.address.clone())).collect()
        };
        let (before, now) = (names(self.planner.view()), names(view));
        for (node, address) in now.difference(&before) {
            let is_me = *node == self.store.me();
            tracing::info!(%node, address, me = is_me, "a node is here");
            let look = reach::look(self.joining.peers.clone(), *node, address.as_str().into(), is_me);
            self.looking.insert(*node, tokio::spawn(look).abort_handle());
        }
        for (node, address) in before.difference(&now) {
            tracing::info!(%node, address, "a node is gone");
            if let Some(looking) = self.looking.remove(node) {
                looking.abort();
            }
        }
    }

    fn open(&mut self, shard: ShardId, handed: Option<Handed>) {
        // When the view was made is not known, only that it was before it arrived: less may have passed, never more.
        let handed = handed.map(|Handed { shard_time_ms, ago }| HandedTime {
            time: Time(shard_time_ms.saturating_add(ago.as_millis() as u64)),
            monotonic: self.seen_at,
        });
        let (order, orders) = watch::channel(Order::Serve);
        self.orders.insert(shard, order);
        let task = ShardTask {
            shard,
            handed,
            store: self.store.clone(),
            stores: self.stores.clone(),
            context: self.context.clone(),
            options: self.options.clone(),
            bell: self.bell.clone(),
            orders,
        };
        self.tasks.spawn(async move {
            let finished = catch_panic(task.run()).await;
            (shard, finished.unwrap_or_else(Finished::Panicked))
        });
    }

    fn ended(&mut self, ended: Result<(ShardId, Finished), tokio::task::JoinError>) {
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

/// What is needed to serve a shard.
type Opened<S> = (Arc<ShardStore<S, S>>, Driver<S, S>, Engine);

/// One shard of this node, from its opening to its end.
struct ShardTask<S> {
    shard: ShardId,
    handed: Option<HandedTime>,
    store: Arc<S>,
    stores: Stores<S, S>,
    context: ShardContext,
    options: NodeOptions,
    bell: Bell,
    orders: watch::Receiver<Order>,
}

impl<S: Journal + Table + Tenure> ShardTask<S> {
    async fn run(mut self) -> Finished {
        let shard = self.shard;
        let (store, driver, engine) = match self.open().await {
            Ok(opened) => opened,
            Err(finished) => return finished,
        };
        let finished = driver.run(engine, self.handed, self.orders.clone()).await;
        self.stores.remove(shard);
        let order = *self.orders.borrow();
        match (finished, order) {
            (Ok(clock), Order::Close { to }) => self.give(&store, to, clock).await,
            (Ok(_), Order::Serve) => Finished::Closed,
            (Err(NotOwned), _) => Finished::NotOwned,
        }
    }

    /// Gives the shard away. If the store does not answer for long, whoever should have it takes it when this node's
    /// tenure has run out.
    async fn give(&self, store: &ShardStore<S, S>, to: Option<NodeId>, mut clock: ShardClock) -> Finished {
        for _ in 0..GIVE_ATTEMPTS {
            let (Time(time), _) = clock.advance(self.context.clocks.read());
            match self.store.give(self.shard, store.epoch(), to, time).await {
                Ok(true) => {
                    self.context.service.set_location_node(self.shard, to);
                    self.wait_for_heir().await;
                    return Finished::Closed;
                }
                Ok(false) => return Finished::NotOwned,
                Err(error) => {
                    let shard = self.shard.0;
                    tracing::warn!(
                        shard,
                        error = &error as &dyn Error,
                        "a shard could not be given away; trying again"
                    );
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
        Finished::Closed
    }

    /// Waits until the next owner serves the shard, so that not all that is given away is on its way at once.
    async fn wait_for_heir(&self) {
        let Some((others, address)) = self.context.service.other(self.shard) else { return };
        let command = Command::ListNamespaces(Page::new(None, 1).expect("one item is a page"));
        let namespace = Name::new("default").expect("a valid name");
        let request = Request { namespace, idempotency: None, command };
        let asking = async {
            while others.peers().ask(&address, self.shard, &request).await.is_err() {
                tokio::time::sleep(ASK_HEIR).await;
            }
        };
        let _whether_in_time = timeout(HAND_OVER, asking).await;
    }

    /// Opens it, and tries until that succeeds, or it is not ours any more, or is to be closed.
    async fn open(&mut self) -> Result<Opened<S>, Finished> {
        loop {
            let begun = Instant::now();
            let error = match self.try_open().await {
                Ok(opened) => {
                    let elapsed_ms = begun.elapsed().as_millis() as u64;
                    let handed = self.handed.is_some();
                    tracing::info!(shard = self.shard.0, handed, elapsed_ms, "serving a shard");
                    self.context.metrics.cluster.opening_seconds.observe(begun.elapsed().as_secs_f64());
                    return Ok(opened);
                }
                Err(OpenError::Store { source: StoreError::NotOwned, .. }) => return Err(Finished::NotOwned),
                Err(error) => error,
            };
            tracing::error!(error = &error as &dyn Error, "a shard cannot be opened; trying again");
            let _waited = timeout(TRY_AGAIN, self.orders.changed()).await;
            if matches!(*self.orders.borrow(), Order::Close { .. }) {
                return Err(Finished::Closed);
            }
        }
    }

    async fn try_open(&self) -> Result<Opened<S>, OpenError> {
        let shard = self.shard;
        let options = self.options.store.clone();
        let store = ShardStore::open(self.store.clone(), self.store.clone(), shard, options).await;
        let store = Arc::new(store.map_err(|source| OpenError::Store { shard: shard.0, source })?);
        let engine = driver::load_engine(&store, shard).await?;
        let (way, receiver) = service::shard_channel(self.options.shard.max_queue);
        let driver = Driver::new(shard, store.clone(), self.context.clone(), receiver);
        self.stores.insert(shard, store.clone());
        self.context.service.set_location(shard, Location::Local(Arc::new(way)));
        self.bell.ring();
        Ok((store, driver, engine))
    }
}
