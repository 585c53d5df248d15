//! Keeps this node's tenure, and its share of the shards.
//!
//! The store knows all nodes and who owns what. The keeper renews this node's tenure there, looks at what it is shown,
//! opens shards that are this node's, takes those whose owner is gone, and gives away what others should have. Nothing here
//! is needed for safety: a node that acts on an old view is refused by the store.

use crate::{
    OpenError,
    driver::{self, Driver, Finished, Order, Surroundings},
    keeping::{Act, Keeping},
    node::{EndWithShard, NodeOptions, Stores},
    service::{self, At},
};
use limina_engine::{Command, Engine, Name, Page, Request};
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
    sync::{Notify, watch},
    task::JoinSet,
    time::{MissedTickBehavior, timeout},
};

/// How often a tenure is renewed while it lasts, at least.
const RENEWALS: u32 = 5;
/// However long it lasts, the others are looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long to wait before a shard that could not be opened or given away is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How often a shard is tried to be given away.
const GIVE_ATTEMPTS: usize = 20;
/// For so long the next owner of a shard is waited for, and so often it is asked.
const HAND_OVER: Duration = Duration::from_secs(5);
const ASK_HEIR: Duration = Duration::from_millis(20);

pub(crate) struct Keeper<S> {
    store: Arc<S>,
    around: Surroundings,
    options: NodeOptions,
    /// Where other nodes reach this one, and for how long it is thought alive.
    address: String,
    tenure: Duration,
    stores: Stores<S, S>,
    keeping: Keeping,
    tasks: JoinSet<(ShardId, Finished)>,
    /// What each shard's task was last told.
    orders: BTreeMap<ShardId, watch::Sender<Order>>,
    /// Told when a shard is served here.
    opened: Arc<Notify>,
    /// Since when the store does not answer.
    failing: Option<Instant>,
}

impl<S: Journal + Table + Tenure> Keeper<S> {
    pub(crate) fn new(
        store: Arc<S>,
        around: Surroundings,
        options: NodeOptions,
        address: String,
        tenure: Duration,
        stores: Stores<S, S>,
    ) -> Keeper<S> {
        Keeper {
            keeping: Keeping::new(store.me(), tenure),
            store,
            around,
            options,
            address,
            tenure,
            stores,
            tasks: JoinSet::new(),
            orders: BTreeMap::new(),
            opened: Arc::default(),
            failing: None,
        }
    }

    /// Keeps until it is told to stop, then gives everything away.
    pub(crate) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut tick = tokio::time::interval(LOOK_EVERY.min(self.tenure / RENEWALS));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (store, opened) = (self.store.clone(), self.opened.clone());
        while !self.keeping.has_left() {
            tokio::select! {
                _ = tick.tick() => {}
                () = store.changed() => {}
                () = opened.notified() => {}
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                _ = stopping.changed(), if !self.keeping.is_leaving() => self.keeping.leave(),
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
        let announcement = Announcement {
            address: self.address.clone(),
            is_leaving: self.keeping.is_leaving(),
            tenure: self.tenure,
        };
        let sent_at = self.around.clocks.monotonic();
        let answer = timeout(self.tenure, self.store.renew(announcement)).await;
        let answer = answer.unwrap_or_else(|_| Err(StoreError::Unavailable("it does not answer".to_owned())));
        match answer {
            Ok(view) => {
                if self.is_current(&view) {
                    self.around.tenancy.renewed(sent_at, self.tenure);
                }
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

    /// Whether nobody else had one of the shards that are served here, at the instant of this view. A node that was thought
    /// dead may still have some in memory that were taken from it, and must not answer from there.
    fn is_current(&self, view: &View) -> bool {
        self.stores.all().into_iter().all(|(shard, store)| {
            let is_it = |holding: &&Holding| holding.shard == shard && holding.epoch == store.epoch();
            view.shards.iter().find(is_it).is_some_and(|holding| holding.owner == Some(self.store.me()))
        })
    }

    /// Acts on what the store shows.
    async fn see(&mut self, view: View) {
        self.tell_changes(&view);
        let service = self.around.service.clone();
        let is_open = |shard| service.is_open(shard);
        let now = Duration::from_micros(self.around.clocks.monotonic());
        let acts = self.keeping.see(now, view, is_open);
        let view = self.keeping.view();
        self.around.metrics.nodes.set(live(view).count() as i64);
        if let Some(others) = service.others() {
            others.see(view.clone(), is_open);
        }
        for act in acts {
            self.act(act).await;
        }
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Open { shard, opening } => self.open(shard, opening),
            Act::Claim { shard, seen, from } => match self.store.claim(shard, seen).await {
                Ok(true) => {
                    let from = from.map(|from| from.to_string());
                    tracing::info!(shard = shard.0, from, "taking a shard over: nobody serves it");
                    self.around.metrics.shards_claimed.inc();
                    if let Some(Act::Open { shard, opening }) = self.keeping.claimed(shard) {
                        self.open(shard, opening);
                    }
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
            Act::Look { shard } => {
                if let Some(order) = self.orders.get(&shard) {
                    // It is told the same again.
                    order.send_modify(|_| {});
                }
            }
            Act::Close { shard, to } => {
                let Some(order) = self.orders.get(&shard) else { return };
                let name = to.map(|to| to.to_string());
                tracing::info!(shard = shard.0, to = name, "giving a shard away");
                self.around.metrics.shards_given.inc();
                // What was taken is answered; what comes now waits for the next owner.
                self.around.service.set_at(shard, At::Nowhere);
                order.send_replace(Order::Close { to });
            }
            Act::Place { shard, at } => self.around.service.set_at_node(shard, at),
        }
    }

    /// Who came and who went.
    fn tell_changes(&self, view: &View) {
        let names = |view| -> BTreeSet<(NodeId, String)> {
            live(view).map(|member| (member.id, member.address.clone())).collect()
        };
        let (before, now) = (names(self.keeping.view()), names(view));
        for (node, address) in now.difference(&before) {
            tracing::info!(%node, address, me = *node == self.store.me(), "a node is here");
        }
        for (node, address) in before.difference(&now) {
            tracing::info!(%node, address, "a node is gone");
        }
    }

    fn open(&mut self, shard: ShardId, opening: Opening) {
        let (order, orders) = watch::channel(Order::Serve);
        self.orders.insert(shard, order);
        let task = ShardTask {
            shard,
            opening,
            store: self.store.clone(),
            stores: self.stores.clone(),
            around: self.around.clone(),
            options: self.options.clone(),
            opened: self.opened.clone(),
            orders,
        };
        self.tasks.spawn(async move {
            let _ends = EndWithShard(shard);
            (shard, task.run().await)
        });
    }

    fn ended(&mut self, ended: Result<(ShardId, Finished), tokio::task::JoinError>) {
        let Ok((shard, finished)) = ended else { return };
        self.keeping.ended(shard);
        self.orders.remove(&shard);
        if finished == Finished::NotOwned {
            tracing::warn!(shard = shard.0, "a shard was taken over by another node");
            self.around.metrics.shards_lost.inc();
            self.around.service.set_at(shard, At::Nowhere);
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
    opening: Opening,
    store: Arc<S>,
    stores: Stores<S, S>,
    around: Surroundings,
    options: NodeOptions,
    opened: Arc<Notify>,
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
        match (finished, order) {
            (Finished::Closed, Order::Close { to }) => self.give(&store, to).await,
            _ => finished,
        }
    }

    /// Gives the shard away. If the store does not answer for long, whoever should have it takes it when this node's
    /// tenure has run out.
    async fn give(&self, store: &ShardStore<S, S>, to: Option<NodeId>) -> Finished {
        for _ in 0..GIVE_ATTEMPTS {
            match self.store.give(self.shard, store.epoch(), to).await {
                Ok(true) => {
                    self.around.service.set_at_node(self.shard, to);
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
        let Some((others, address)) = self.around.service.other(self.shard) else { return };
        let command = Command::ListNamespaces(Page { after: None, limit: 1 });
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
                    let handed = self.opening == Opening::HandedOver;
                    tracing::info!(shard = self.shard.0, handed, elapsed_ms, "serving a shard");
                    self.around.metrics.opening_seconds.observe(begun.elapsed().as_secs_f64());
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
        let (way, arrivals) = service::way(self.options.shard.max_queue);
        let driver = Driver::new(shard, store.clone(), self.around.clone(), arrivals);
        self.stores.insert(shard, store.clone());
        self.around.service.set_at(shard, At::Here(Arc::new(way)));
        self.opened.notify_one();
        Ok((store, driver, engine))
    }
}
