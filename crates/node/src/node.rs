//! Starting and stopping.

use crate::{
    Metrics, Service,
    checkpointer::Checkpointer,
    clock::Clocks,
    driver::{self, Driver},
    service,
};
use limina_engine::Stats;
use limina_shard::Options as ShardOptions;
use limina_store::{Journal, ShardId, ShardStore, ShardStoreOptions, StoreError, Table};
use std::{sync::Arc, time::Instant};
use tokio::task::JoinHandle;

/// Bounds of a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Of each shard's loop.
    pub shard: ShardOptions,
    /// Of each shard's overlay.
    pub store: ShardStoreOptions,
    /// The journal may hold so many bytes before the shards that pin its oldest segment are checkpointed.
    pub journal_bytes: u64,
}

impl Default for NodeOptions {
    fn default() -> NodeOptions {
        NodeOptions {
            shard: ShardOptions::default(),
            store: ShardStoreOptions::default(),
            journal_bytes: 1 << 30,
        }
    }
}

/// Why a shard could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store.
    #[error("opening shard {shard}")]
    Store {
        /// Which.
        shard: u16,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// A stored record.
    #[error("opening shard {shard}")]
    Record {
        /// Which.
        shard: u16,
        /// Which record.
        #[source]
        source: limina_engine::engine::BadRecord,
    },
}

/// All shards of one process.
pub struct Node {
    service: Service,
    shards: Vec<JoinHandle<()>>,
    checkpointer: JoinHandle<()>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl Node {
    /// Opens every shard and starts serving on `service`. Returns when all are open; a shard that cannot be opened
    /// fails the whole, since its namespaces would be missing.
    pub async fn start<J: Journal, T: Table>(
        service: Service,
        metrics: Metrics,
        journal: Arc<J>,
        table: Arc<T>,
        shards: u16,
        options: NodeOptions,
    ) -> Result<Node, OpenError> {
        let begin = Instant::now();
        let clocks = Clocks::new();
        let (stop, stopping) = tokio::sync::watch::channel(false);
        let mut ways = Vec::new();
        let mut drivers = Vec::new();
        let mut stores = Vec::new();
        for shard in (0..shards).map(ShardId) {
            let store = ShardStore::open(journal.clone(), table.clone(), shard, options.store.clone()).await;
            let store = Arc::new(store.map_err(|source| OpenError::Store { shard: shard.0, source })?);
            let engine = driver::load_engine(&store, shard).await?;
            let (way, arrivals) = service::way(options.shard.max_queue);
            ways.push(way);
            stores.push(store.clone());
            drivers.push((shard, store, engine, arrivals));
        }
        let loaded = Stats::sum(drivers.iter().map(|(_, _, engine, _)| engine.stats()));
        tracing::info!(
            shards,
            namespaces = loaded.namespaces,
            ledger_limits = loaded.sizes.ledger_limits,
            rules = loaded.sizes.limiter.rules,
            counters = loaded.sizes.limiter.counters,
            leases = loaded.sizes.limiter.leases,
            locks = loaded.sizes.locks.held,
            elapsed_ms = begin.elapsed().as_millis() as u64,
            "shards opened"
        );

        service.start(ways);
        // All are loaded and their queues take requests: from now on the node is ready, whichever task runs first.
        (0..shards).for_each(|shard| service.set_open(ShardId(shard), true));
        let shards = drivers.into_iter().map(|(shard, store, engine, arrivals)| {
            let options = options.shard.clone();
            let driver = Driver::new(
                shard,
                store,
                service.clone(),
                metrics.clone(),
                clocks.clone(),
                options,
                arrivals,
            );
            let stopping = stopping.clone();
            tokio::spawn(async move {
                let _ends = EndWithShard(shard);
                driver.run(engine, stopping).await;
            })
        });
        let shards = shards.collect();
        let checkpointer = Checkpointer { journal, stores, metrics, journal_bytes: options.journal_bytes };
        let checkpointer = tokio::spawn(checkpointer.run(stopping));
        Ok(Node { service, shards, checkpointer, stop })
    }

    /// Answers what was taken, then ends. New requests are refused from now on.
    pub async fn stop(self) {
        self.service.begin_stop();
        let _nobody_listens = self.stop.send(true);
        for shard in self.shards {
            if let Err(error) = shard.await {
                tracing::error!(%error, "a shard's task failed");
            }
        }
        if let Err(error) = self.checkpointer.await {
            tracing::error!(%error, "the checkpointer's task failed");
        }
    }
}

/// A shard whose task has panicked answers nobody any more, and what it had in memory is not to be trusted. The process
/// ends: whatever is acknowledged is on disk, and the next start reads it from there.
struct EndWithShard(ShardId);

impl Drop for EndWithShard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(shard = self.0.0, "a shard's task has panicked; the process ends");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The process that ends is this test itself, started again.
    #[tokio::test]
    async fn a_shard_that_panics_ends_the_process() {
        if std::env::var_os("LIMINA_PANIC").is_some() {
            let shard = tokio::spawn(async {
                let _ends = EndWithShard(ShardId(3));
                panic!("on purpose");
            });
            let _joined = shard.await;
            return;
        }
        let test = "node::tests::a_shard_that_panics_ends_the_process";
        let program = std::env::current_exe().expect("this test is a program");
        let status = Command::new(program).args(["--exact", test]).env("LIMINA_PANIC", "1").output();
        assert!(status.is_ok_and(|output| output.status.code().is_none()), "a signal ends it");
    }
}
