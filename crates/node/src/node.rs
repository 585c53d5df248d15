//! Starts and stops a node.

use crate::{
    AddressTaken, Joining, Metrics, NodeOptions, OpenError, Service,
    checkpointer::Checkpointer,
    clock::Clocks,
    cluster::{Others, TenureGuard},
    driver::{self, Driver, Order, ShardContext},
    failure::{NodeFailure, catch_panic},
    filter_loader::FilterLoader,
    ownership_manager::{OwnershipManager, Stage},
    registration::register,
    service::{self, Location},
    stores::Stores,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use limina_engine::Stats;
use limina_store::{Journal, ShardId, Sharding, Table, Tenure};
use std::{sync::Arc, time::Instant};
use tokio::{sync::watch, task::JoinHandle};

/// A running node, which serves shards on a [`Service`].
///
/// Stop it with [`Node::stop`]. If it is dropped instead, it stops in the background, and rejects requests meanwhile with
/// [`crate::Unavailable::ShardUnavailable`].
pub struct Node {
    service: Service,
    serving: Serving,
    /// The checkpointer, and the task that reads filters.
    background: [JoinHandle<()>; 2],
    stop: watch::Sender<bool>,
    leaving: Leaving,
}

/// How a node among others leaves them.
struct Leaving {
    stage: watch::Sender<Stage>,
    /// Whether all of its shards are given away.
    has_left: watch::Receiver<bool>,
}

/// The tasks that serve shards.
enum Serving {
    /// The store belongs to this node alone: one task for each shard.
    Alone(Vec<(watch::Sender<Order>, JoinHandle<()>)>),
    /// Other nodes share the store: the ownership manager starts the tasks of this node's shards.
    AmongOthers(JoinHandle<()>),
}

impl Node {
    /// Opens every shard of a store that belongs to this node alone, and serves them on `service`. Returns when all shards
    /// are open. If one cannot be opened, this fails, because the shard's namespaces would be missing.
    pub async fn start<J: Journal, T: Table>(
        service: Service,
        metrics: Metrics,
        journal: Arc<J>,
        table: Arc<T>,
        sharding: Sharding,
        options: NodeOptions,
    ) -> Result<Node, OpenError> {
        let begin = Instant::now();
        let clocks = Clocks::new();
        let tenure_guard = TenureGuard::alone(clocks.clone());
        let context = ShardContext::new(&service, &metrics, clocks, tenure_guard, &options);
        let stores = Stores::default();
        let opener = &context.opener;
        let open = |shard| {
            let (options, filtered) = (options.store.clone(), context.filtered.clone());
            let opening = driver::open(journal.clone(), table.clone(), shard, options, filtered);
            async move { opener.run(opening).await.map(|(store, engine)| (shard, store, engine)) }
        };
        let openings = stream::iter((0..sharding.shards).map(|shard| open(ShardId(shard))));
        let opened: Result<Vec<_>, OpenError> = openings.buffered(opener.threads()).try_collect().await;
        // If one shard fails, the openings of others may still use the store, which the caller may want to open again.
        opener.until_idle().await;
        let opened = opened?;
        opened.iter().for_each(|(shard, store, _)| stores.insert(*shard, store.clone()));
        let loaded = Stats::sum(opened.iter().map(|(_, _, engine)| engine.stats()));
        tracing::info!(
            shards = sharding.shards,
            namespaces = loaded.namespaces,
            ledger_limits = loaded.sizes.ledger_limits,
            rules = loaded.sizes.limiter.rules,
            counters = loaded.sizes.limiter.counters,
            leases = loaded.sizes.limiter.leases,
            locks = loaded.sizes.locks.held,
            elapsed_ms = begin.elapsed().as_millis() as u64,
            "shards opened"
        );

        service.start(sharding, None);
        let tasks = opened.into_iter().map(|(shard, store, engine)| {
            let (sender, receiver) = service::shard_channel(options.queue.clone(), metrics.clone());
            service.set_location(shard, Location::Local(Arc::new(sender)));
            let mut driver = Driver::new(shard, store, context.clone(), receiver);
            driver.set_gauges(&engine);
            // The shard is loaded and its channel takes requests, so it is ready before its task runs.
            service.set_open(shard, true);
            let (order, orders) = watch::channel(Order::Serve);
            let (service, stores) = (service.clone(), stores.clone());
            let task = tokio::spawn(async move {
                if let Err(panic) = catch_panic(driver.run(engine, None, orders)).await {
                    stores.remove(shard);
                    service.shard_failed(shard, panic);
                }
            });
            (order, task)
        });
        let serving = Serving::Alone(tasks.collect());
        let leaving = Leaving { stage: watch::Sender::new(Stage::Share), has_left: watch::channel(true).1 };
        Ok(Node::with(service, serving, journal, stores, metrics, &options, leaving))
    }

    /// Joins the nodes that share the store, takes a share of the shards, and serves on `service`. Requests for other shards are
    /// forwarded to their owners.
    ///
    /// Returns when the node is registered; [`Service::until_served`] returns when every shard is served. If another node has
    /// the same address, this waits until that node's tenure has expired, and fails if the tenure is renewed instead.
    pub async fn join<S: Journal + Table + Tenure>(
        service: Service,
        metrics: Metrics,
        store: Arc<S>,
        sharding: Sharding,
        joining: Joining,
        options: NodeOptions,
    ) -> Result<Node, AddressTaken> {
        register(&*store, &joining).await?;
        let clocks = Clocks::new();
        let tenure_guard = TenureGuard::shared(clocks.clone());
        let context = ShardContext::new(&service, &metrics, clocks, tenure_guard.clone(), &options);
        let (able, peers, max_wait) = (store.clone(), joining.peers.clone(), joining.tenure * 2);
        service.start(
            sharding,
            Some(Others::new(store.me(), peers, tenure_guard, move || able.is_available(), max_wait)),
        );
        let stores = Stores::default();
        let manager = OwnershipManager::new(store.clone(), context, options.clone(), joining, stores.clone());
        let (stage, stages) = watch::channel(Stage::Share);
        let (left, has_left) = watch::channel(false);
        let manager = manager.run(stages, left);
        let manager = tokio::spawn(service.clone().run_background("ownership manager", manager));
        let serving = Serving::AmongOthers(manager);
        let leaving = Leaving { stage, has_left };
        Ok(Node::with(service, serving, store, stores, metrics, &options, leaving))
    }

    fn with<J: Journal, T: Table>(
        service: Service,
        serving: Serving,
        journal: Arc<J>,
        stores: Stores<J, T>,
        metrics: Metrics,
        options: &NodeOptions,
        leaving: Leaving,
    ) -> Node {
        let (stop, stopping) = watch::channel(false);
        let (journal_bytes, memory) = (options.journal_bytes, service.memory().clone());
        let filters =
            FilterLoader { stores: stores.clone(), metrics: metrics.clone(), memory: memory.clone() };
        let filters = filters.run(stopping.clone());
        let checkpointer = Checkpointer { journal, stores, metrics, journal_bytes, memory };
        let checkpointer = checkpointer.run(stopping);
        let background = [
            tokio::spawn(service.clone().run_background("checkpointer", checkpointer)),
            tokio::spawn(service.clone().run_background("filter loader", filters)),
        ];
        Node { service, serving, background, stop, leaving }
    }

    /// Resolves when a task of the node has panicked. A node that has failed does not recover: stop it, and start a new one in
    /// a new process. Never resolves if the node does not fail, not even after it was stopped.
    pub fn failed(&self) -> impl Future<Output = NodeFailure> + Send + use<> {
        let mut failure = self.service.failure();
        async move {
            let failed = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
            match failed {
                Some(failure) => failure,
                None => std::future::pending().await,
            }
        }
    }

    /// Gives all shards of this node to other nodes, and returns when that is done. Meanwhile and afterwards, requests are
    /// served: those for shards in other nodes are forwarded. Then call [`Node::stop`]. Returns false at once if there is no
    /// other node that could take the shards.
    pub fn leave(&self) -> impl Future<Output = bool> + Send + use<> {
        let has_successor = self.service.others().is_some_and(Others::has_successor);
        if has_successor {
            self.service.begin_leave();
            self.leaving.stage.send_if_modified(|stage| {
                let is_earlier = *stage < Stage::Leave;
                *stage = Stage::Leave.max(*stage);
                is_earlier
            });
        }
        let mut has_left = self.leaving.has_left.clone();
        async move {
            if has_successor {
                // An error means that the manager has ended.
                let _left_or_ended = has_left.wait_for(|has_left| *has_left).await;
            }
            has_successor
        }
    }

    /// Stops the node: rejects new requests, answers the accepted ones, and hands its shards to other nodes, if there are any.
    pub async fn stop(self) {
        self.service.begin_stop();
        self.leaving.stage.send_replace(Stage::End);
        match self.serving {
            Serving::Alone(tasks) => {
                let close = |(order, task): (watch::Sender<Order>, JoinHandle<()>)| {
                    order.send_replace(Order::Close { to: None });
                    task
                };
                join(tasks.into_iter().map(close).collect::<Vec<_>>()).await;
                // The checkpointer ends after the shards: an append may wait for a checkpoint.
                let _nobody_listens = self.stop.send(true);
            }
            Serving::AmongOthers(manager) => {
                join([manager]).await;
                // The next owners of the shards do not need what is being written or read here, and the store may hang.
                self.background.iter().for_each(JoinHandle::abort);
            }
        }
        join(self.background).await;
    }
}

async fn join(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    for task in tasks {
        if let Err(error) = task.await
            && !error.is_cancelled()
        {
            tracing::error!(%error, "a task failed");
        }
    }
}
