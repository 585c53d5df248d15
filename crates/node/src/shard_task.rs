//! One shard of a node among others, from its opening until it is given away.

use crate::{
    NodeOptions, OpenError,
    driver::{self, Closed, Driver, HandedTime, NotOwned, Order, ShardContext},
    preparer::Preparing,
    service::{self, Location},
    stores::Stores,
    tenure_renewal::RenewalControl,
};
use limina_engine::{Command, Engine, Name, Page, Request, Time};
use limina_shard::ShardClock;
use limina_store::{Journal, NodeId, ShardId, ShardStore, StoreError, Table, Tenure};
use std::{
    collections::BTreeMap,
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::timeout};

/// How long to wait before a shard that could not be opened or given away is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How many times a node tries to give a shard away.
const GIVE_ATTEMPTS: usize = 20;
/// The longest time to wait until the next owner serves a shard, and how often it is asked.
const HAND_OVER: Duration = Duration::from_secs(5);
const ASK_NEXT_OWNER_EVERY: Duration = Duration::from_millis(20);

/// How a shard's task ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// It was ordered to close.
    Closed,
    /// Another node has taken the shard, which was served here.
    NotOwned,
    /// Another node owned the shard before it was served here: the view that led to its opening was outdated.
    NeverServed,
    /// It panicked, with this message.
    Panicked(String),
}

type Opened<S> = (Arc<ShardStore<S, S>>, Driver<S, S>, Engine);

pub(crate) struct ShardTask<S> {
    pub(crate) shard: ShardId,
    /// The last owner's shard time, if it handed the shard to this node.
    pub(crate) handed: Option<HandedTime>,
    /// What was read of the shard before this node owned it.
    pub(crate) prepared: Option<Preparing<S>>,
    pub(crate) store: Arc<S>,
    pub(crate) stores: Stores<S, S>,
    pub(crate) context: ShardContext,
    pub(crate) options: NodeOptions,
    pub(crate) renewal: RenewalControl,
    pub(crate) orders: watch::Receiver<Order>,
}

impl<S: Journal + Table + Tenure> ShardTask<S> {
    pub(crate) async fn run(mut self) -> Finished {
        let shard = self.shard;
        let (store, driver, engine) = match self.open().await {
            Ok(opened) => opened,
            Err(finished) => return finished,
        };
        let finished = driver.run(engine, self.handed, self.orders.clone()).await;
        self.stores.remove(shard);
        let order = *self.orders.borrow();
        match (finished, order) {
            (Ok(Closed::Stored(clock)), Order::Close { to }) => self.give(&store, to, clock).await,
            (Ok(_), _) => Finished::Closed,
            (Err(NotOwned), _) => Finished::NotOwned,
        }
    }

    /// Opens the shard. Retries until that succeeds, another node has taken the shard, or the shard is to be closed.
    async fn open(&mut self) -> Result<Opened<S>, Finished> {
        loop {
            let begun = Instant::now();
            let error = match self.try_open().await {
                Ok(opened) => {
                    let elapsed_ms = begun.elapsed().as_millis() as u64;
                    let handed = self.handed.is_some();
                    tracing::info!(shard = self.shard.0, handed, elapsed_ms, "serving a shard");
                    let metrics = &self.context.metrics.cluster;
                    metrics.opening_seconds.observe(begun.elapsed().as_secs_f64());
                    return Ok(opened);
                }
                Err(OpenError::Store { source: StoreError::NotOwned, .. }) => {
                    return Err(Finished::NeverServed);
                }
                Err(error) => error,
            };
            tracing::error!(error = &error as &dyn Error, "a shard cannot be opened; trying again");
            // Holders of locks cannot send heartbeats meanwhile.
            self.handed = None;
            let _waited = timeout(RETRY_PAUSE, self.orders.changed()).await;
            if matches!(*self.orders.borrow(), Order::Close { .. }) {
                return Err(Finished::Closed);
            }
        }
    }

    async fn try_open(&mut self) -> Result<Opened<S>, OpenError> {
        let shard = self.shard;
        let (options, filtered) = (self.options.store.clone(), self.context.filtered.clone());
        let prepared = match self.prepared.take() {
            Some(preparing) => preparing.take().await,
            None => None,
        };
        let (store, engine) = match prepared {
            Some(prepared) => {
                let (store, engine, tail) = self.context.opener.run(prepared.open(options, filtered)).await?;
                if let Some(tail) = tail {
                    tracing::debug!(
                        shard = shard.0,
                        tail,
                        "a shard was prepared; only the tail of its journal was read"
                    );
                    self.context.metrics.cluster.shards_prepared.inc();
                }
                (store, engine)
            }
            None => {
                let opening = driver::open(self.store.clone(), self.store.clone(), shard, options, filtered);
                self.context.opener.run(opening).await?
            }
        };
        let (store, engine) = self.jump_if_restored(store, engine).await?;
        let metrics = self.context.metrics.clone();
        let (sender, receiver) = service::shard_channel(self.options.queue.clone(), metrics);
        self.stores.insert(shard, store.clone());
        let driver = Driver::new(shard, store.clone(), self.context.clone(), receiver);
        self.context.service.set_location(shard, Location::Local(Arc::new(sender)));
        self.renewal.renew_now();
        Ok((store, driver, engine))
    }

    /// This node may have seen more of the shard, which another node owned, than the store has now.
    async fn jump_if_restored(
        &self,
        store: Arc<ShardStore<S, S>>,
        mut engine: Engine,
    ) -> Result<(Arc<ShardStore<S, S>>, Engine), OpenError> {
        if store.lost().is_none() {
            return Ok((store, engine));
        }
        let (shard, metrics) = (self.shard, self.context.metrics.clone());
        let jumping = async move {
            driver::jump_if_restored(&store, shard, &mut engine, &BTreeMap::new(), &metrics).await?;
            Ok((store, engine))
        };
        self.context.opener.run(jumping).await
    }

    /// Gives the shard away. If the store does not answer for long, the next owner claims the shard when this node's tenure
    /// has expired.
    async fn give(&self, store: &ShardStore<S, S>, to: Option<NodeId>, mut clock: ShardClock) -> Finished {
        for _ in 0..GIVE_ATTEMPTS {
            let (Time(time), _) = clock.advance(self.context.clocks.read());
            match self.store.give(self.shard, store.epoch(), to, time).await {
                Ok(true) => {
                    self.context.service.set_location_node(self.shard, to);
                    if let Some(to) = to {
                        self.wait_for_next_owner(to).await;
                    }
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
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
        Finished::Closed
    }

    /// Waits until the next owner serves the shard, so that only a few shards are unavailable at the same time. A next owner that
    /// has died is not waited for: this node may have to serve the shard again, which it cannot while this task runs.
    async fn wait_for_next_owner(&self, next: NodeId) {
        let Some(others) = self.context.service.others() else { return };
        let command = Command::ListNamespaces(Page::new(None, 1).expect("one item is a page"));
        let namespace = Name::new("default").expect("a valid name");
        let request = Request::new(namespace, command);
        let asking = async {
            while let Some(address) = others.address(next)
                && others.peers().ask(&address, self.shard, &request).await.is_err()
            {
                tokio::time::sleep(ASK_NEXT_OWNER_EVERY).await;
            }
        };
        let _whether_in_time = timeout(HAND_OVER, asking).await;
    }
}
