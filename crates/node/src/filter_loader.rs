//! Reads the filters of keys, one shard at a time, in the background. Until a filter is read, its keys are looked up.

use crate::{Budget, Metrics, memory::Kind, stores::Stores};
use limina_store::{Journal, Table};
use prometheus_client::metrics::counter::Counter;
use std::{
    error::Error,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::timeout};

/// How often the loader looks for shards without a filter.
const PERIOD: Duration = Duration::from_millis(100);
/// How long to wait after a filter that could not be read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct FilterLoader<J, T> {
    pub(crate) stores: Stores<J, T>,
    pub(crate) metrics: Metrics,
    pub(crate) memory: Budget,
}

impl<J: Journal, T: Table> FilterLoader<J, T> {
    pub(crate) async fn run(self, mut stopping: watch::Receiver<bool>) {
        let mut account = self.memory.account(Kind::Cache);
        let mut failed: Option<Instant> = None;
        while !*stopping.borrow() {
            // The sender is gone if the node was dropped.
            if let Ok(Err(_)) = timeout(PERIOD, stopping.changed()).await {
                return;
            }
            self.report();
            let stores = self.stores.all();
            // What clients need goes first: without a filter, look-ups only cost more.
            if self.memory.is_short() {
                stores.values().for_each(|store| store.drop_filter());
            }
            account.set(stores.values().map(|store| store.filter_bytes()).sum());
            if failed.is_some_and(|at| at.elapsed() < RETRY_PAUSE) {
                continue;
            }
            failed = None;
            for (shard, store) in stores.iter().filter(|(_, store)| store.needs_filter()) {
                if *stopping.borrow() || failed.is_some() {
                    break;
                }
                let begun = Instant::now();
                match store.load_filter().await {
                    Ok(ids) => {
                        let elapsed_ms = begun.elapsed().as_millis() as u64;
                        tracing::debug!(
                            shard = shard.0,
                            ids,
                            elapsed_ms,
                            "the filter of a shard's ids is there"
                        );
                    }
                    Err(error) => {
                        let error = &error as &dyn Error;
                        tracing::debug!(
                            shard = shard.0,
                            error,
                            "the filter of a shard's ids could not be read"
                        );
                        failed = Some(Instant::now());
                    }
                }
            }
        }
    }

    fn report(&self) {
        let set = |metric: &Counter, count: &AtomicU64| {
            metric.inc_by(count.load(Ordering::Relaxed).saturating_sub(metric.get()));
        };
        let store = &self.metrics.store;
        set(&store.look_ups_filtered, &store.filter_counts.absent);
        set(&store.look_ups_stored, &store.filter_counts.looked_up);
    }
}
