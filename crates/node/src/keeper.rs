//! Keeps this node's tenure, and its share of the shards.
//!
//! The store knows all nodes and who owns what. The keeper renews this node's tenure there, looks at what it is shown,
//! opens shards that are this node's, takes those whose owner is gone, and gives away what others should have. Nothing here
//! is needed for safety: a node that acts on an old view is refused by the store.

use crate::{
    OpenError,
    driver::{self, Driver, Finished, Order, Surroundings},
    node::{EndWithShard, NodeOptions, Stores},
    placement::{Move, plan},
    service::{self, At},
};
use limina_engine::Engine;
use limina_shard::Opening;
use limina_store::{
    Announcement, Holding, Journal, Member, NodeId, ShardId, ShardStore, StoreError, Table, Tenure, View,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, timeout},
};

/// How often a tenure is renewed while it lasts.
const RENEWALS: u32 = 5;
/// How long to wait before a shard that could not be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(500);

pub(crate) struct Keeper<S> {
    pub(crate) store: Arc<S>,
    pub(crate) around: Surroundings,
    pub(crate) options: NodeOptions,
    pub(crate) announcement: Announcement,
    pub(crate) stores: Stores<S, S>,
    tasks: JoinSet<(ShardId, Finished)>,
    /// Shards whose tasks run, and what each was last told.
    running: BTreeMap<ShardId, watch::Sender<Order>>,
    view: View,
    /// Since when the store does not answer.
    failing: Option<Instant>,
}

impl<S: Journal + Table + Tenure> Keeper<S> {
    pub(crate) fn new(
        store: Arc<S>,
        around: Surroundings,
        options: NodeOptions,
        announcement: Announcement,
        stores: Stores<S, S>,
    ) -> Keeper<S> {
        Keeper {
            store,
            around,
            options,
            announcement,
            stores,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            view: View::default(),
            failing: None,
        }
    }

    /// Keeps until it is told to stop, then gives everything away.
    pub(crate) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut tick = tokio::time::interval(self.announcement.tenure / RENEWALS);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let store = self.store.clone();
        while !self.announcement.is_leaving || !self.running.is_empty() {
            tokio::select! {
                _ = tick.tick() => {}
                () = store.changed() => {}
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                _ = stopping.changed(), if !self.announcement.is_leaving => self.announcement.is_leaving = true,
            }
            while let Some(ended) = self.tasks.try_join_next() {
                self.ended(ended);
            }
            self.renew().await;
        }
        if let Err(error) = self.store.leave().await {
            tracing::warn!(
                error = &error as &dyn Error,
                "the others could not be told that this node leaves"
            );
        }
    }

    async fn renew(&mut self) {
        let tenure = self.announcement.tenure;
        let sent_at = self.around.clocks.monotonic();
        let answer = timeout(tenure, self.store.renew(self.announcement.clone())).await;
        let answer = answer.unwrap_or_else(|_| Err(StoreError::Unavailable("it does not answer".to_owned())));
        match answer {
            Ok(view) => {
                self.around.tenancy.renewed(sent_at, tenure);
                if let Some(since) = self.failing.take() {
                    tracing::info!(
                        after_ms = since.elapsed().as_millis() as u64,
                        "the tenure is renewed again"
                    );
                }
                self.see(view).await;
            }
            Err(error) => {
                self.around.metrics.renewal_failures.inc();
                if self.failing.is_none() {
                    tracing::error!(
                        error = &error as &dyn Error,
                        "the tenure could not be renewed; trying again"
                    );
                    self.failing = Some(Instant::now());
                }
            }
        }
    }

    /// Acts on what the store shows.
    async fn see(&mut self, view: View) {
        self.tell_changes(&view);
        self.view = view;
        let me = self.store.me();
        for holding in self.view.shards.clone() {
            match self.running.get(&holding.shard) {
                Some(_) if holding.owner == Some(me) => {}
                // It may have been taken away while this node was thought dead. The store tells.
                Some(order) => {
                    order.send_if_modified(|order| matches!(order, Order::Serve));
                }
                None if holding.owner == Some(me) => self.open(holding),
                None => self.around.service.set_at(holding.shard, self.whereabouts(holding.owner)),
            }
        }
        for step in plan(&self.view, me) {
            match step {
                Move::Claim { shard, seen } => match self.store.claim(shard, seen).await {
                    Ok(true) => {
                        let from = self.view.shards.iter().find(|holding| holding.shard == shard);
                        let from = from.and_then(|holding| holding.owner).map(|owner| owner.to_string());
                        tracing::info!(shard = shard.0, from, "taking a shard over: nobody serves it");
                        self.around.metrics.shards_claimed.inc();
                        self.open(Holding { shard, epoch: seen, owner: Some(me), is_handed: false });
                    }
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(
                            shard = shard.0,
                            error = &error as &dyn Error,
                            "a shard could not be taken"
                        );
                    }
                },
                Move::Give { shard, to } => self.give(shard, to),
            }
        }
        if let Some(others) = self.around.service.others() {
            others.see(self.view.clone(), |shard| self.around.service.is_open(shard));
        }
        self.around.metrics.nodes.set(self.live().count() as i64);
    }

    fn live(&self) -> impl Iterator<Item = &Member> {
        self.view.members.iter().filter(|member| member.is_live)
    }

    fn whereabouts(&self, owner: Option<NodeId>) -> At {
        let member = self.live().find(|member| Some(member.id) == owner && member.id != self.store.me());
        member.map_or(At::Nowhere, |member| At::There(member.address.as_str().into()))
    }

    /// Who came and who went.
    fn tell_changes(&self, view: &View) {
        let live = |view: &View| -> BTreeSet<(NodeId, String)> {
            let live = view.members.iter().filter(|member| member.is_live);
            live.map(|member| (member.id, member.address.clone())).collect()
        };
        let (before, now) = (live(&self.view), live(view));
        for (node, address) in now.difference(&before) {
            tracing::info!(%node, address, me = *node == self.store.me(), "a node is here");
        }
        for (node, address) in before.difference(&now) {
            tracing::info!(%node, address, "a node is gone");
        }
    }

    fn open(&mut self, holding: Holding) {
        let shard = holding.shard;
        let (order, orders) = watch::channel(Order::Serve);
        self.running.insert(shard, order);
        let opening = if holding.is_handed { Opening::HandedOver } else { Opening::Interrupted };
        let task = ShardTask {
            shard,
            opening,
            store: self.store.clone(),
            stores: self.stores.clone(),
            around: self.around.clone(),
            options: self.options.clone(),
            orders,
        };
        self.tasks.spawn(async move {
            let _ends = EndWithShard(shard);
            (shard, task.run().await)
        });
    }

    /// Tells a shard to end and be given away. One that is still being opened is left alone, unless this node leaves.
    fn give(&mut self, shard: ShardId, to: Option<NodeId>) {
        let Some(order) = self.running.get(&shard) else { return };
        if !self.announcement.is_leaving && !self.around.service.is_open(shard) {
            return;
        }
        let is_new = order.send_if_modified(|order| {
            let is_new = matches!(order, Order::Serve);
            *order = Order::Close { to };
            is_new
        });
        if is_new {
            let to = to.map(|to| to.to_string());
            tracing::info!(shard = shard.0, to, "giving a shard away");
            // What was taken is answered; what comes now waits for the next owner.
            self.around.service.set_at(shard, At::Nowhere);
            self.around.metrics.shards_given.inc();
        }
    }

    fn ended(&mut self, ended: Result<(ShardId, Finished), tokio::task::JoinError>) {
        let Ok((shard, finished)) = ended else { return };
        let order = self.running.remove(&shard).map(|order| *order.borrow());
        match (finished, order) {
            (Finished::NotOwned, _) => {
                tracing::warn!(shard = shard.0, "a shard was taken over by another node");
                self.around.metrics.shards_lost.inc();
                self.around.service.set_at(shard, At::Nowhere);
            }
            (Finished::Closed, Some(Order::Close { to })) => {
                self.around.service.set_at(shard, self.whereabouts(to));
            }
            (Finished::Closed, _) => self.around.service.set_at(shard, At::Nowhere),
        }
    }
}

/// What is needed to serve a shard.
type Opened<S> = (Arc<ShardStore<S, S>>, Driver<S, S>, Engine);

/// One shard of this node, from its opening to its end.
struct ShardTask<S> {
    shard: ShardId,
    opening: Opening,
    store: Arc<S>,
    stores: Stores<S, S>,
    around: Surroundings,
    options: NodeOptions,
    orders: watch::Receiver<Order>,
}

impl<S: Journal + Table + Tenure> ShardTask<S> {
    async fn run(mut self) -> Finished {
        let shard = self.shard;
        let (store, driver, engine) = match self.open().await {
            Ok(opened) => opened,
            Err(finished) => return finished,
        };
        let finished = driver.run(engine, self.opening, self.orders.clone()).await;
        self.stores.remove(shard);
        let order = *self.orders.borrow();
        if let (Finished::Closed, Order::Close { to }) = (finished, order) {
            match self.store.give(shard, store.epoch(), to).await {
                Ok(true) => {}
                Ok(false) => return Finished::NotOwned,
                // Whoever should have it takes it when this node's tenure has run out, if it does not come to it before.
                Err(error) => {
                    tracing::warn!(
                        shard = shard.0,
                        error = &error as &dyn Error,
                        "a shard could not be given away"
                    );
                }
            }
        }
        finished
    }

    /// Opens it, and tries until that succeeds, or it is not ours any more, or is to be closed.
    async fn open(&mut self) -> Result<Opened<S>, Finished> {
        loop {
            let begun = Instant::now();
            let error = match self.try_open().await {
                Ok(opened) => {
                    let elapsed_ms = begun.elapsed().as_millis() as u64;
                    let handed = self.opening == Opening::HandedOver;
                    tracing::info!(shard = self.shard.0, handed, elapsed_ms, "serving a shard");
                    self.around.metrics.opening_seconds.observe(begun.elapsed().as_secs_f64());
                    return Ok(opened);
                }
                Err(OpenError::Store { source: StoreError::NotOwned, .. }) => return Err(Finished::NotOwned),
                Err(error) => error,
            };
            tracing::error!(error = &error as &dyn Error, "a shard cannot be opened; trying again");
            let _waited = timeout(OPEN_AGAIN, self.orders.changed()).await;
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
        let (way, arrivals) = service::way(self.options.shard.max_queue);
        let driver = Driver::new(shard, store.clone(), self.around.clone(), arrivals);
        self.stores.insert(shard, store.clone());
        self.around.service.set_at(shard, At::Here(Arc::new(way)));
        Ok((store, driver, engine))
    }
}
