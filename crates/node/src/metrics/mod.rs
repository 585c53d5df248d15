//! The metrics of a node, one file for each subject.
//!
//! A node counts whether or not anyone reads the metrics. [`Metrics::register`] publishes them, and is the only function of
//! this crate that takes a Prometheus type. Names are an interface: they contain the unit, and every label has a bounded
//! number of values.

mod cluster;
mod decisions;
mod events;
mod instruments;
mod ledger;
mod limiter;
mod locks;
mod memory;
mod requests;
mod rule_checks;
mod shards;
mod store;
mod unmatched_checks;

pub(crate) use rule_checks::CountedChecks;

use limina_engine::Stats;
use prometheus_client::registry::Registry;

/// All metrics of a node. A clone shares the counters of its original.
#[derive(Clone, Default)]
pub struct Metrics {
    pub(crate) requests: requests::Metrics,
    pub(crate) shards: shards::Metrics,
    pub(crate) store: store::Metrics,
    pub(crate) cluster: cluster::Metrics,
    pub(crate) ledger: ledger::Metrics,
    pub(crate) limiter: limiter::Metrics,
    pub(crate) locks: locks::Metrics,
    pub(crate) events: events::Metrics,
    pub(crate) decisions: decisions::Metrics,
    pub(crate) memory: memory::Metrics,
}

impl Metrics {
    /// New metrics, all at zero and not published.
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// Publishes the metrics in `registry`, with the prefix `limina_`. Call this once for each registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("limina");
        self.requests.register(registry);
        self.shards.register(registry);
        self.store.register(registry);
        self.cluster.register(registry);
        self.ledger.register(registry);
        self.limiter.register(registry);
        self.locks.register(registry);
        self.events.register(registry);
        self.decisions.register(registry);
        self.memory.register(registry);
    }

    fn replace_stats(&self, old: &Stats, new: &Stats) {
        self.shards.replace_stats(old, new);
        self.ledger.replace_sizes(&old.sizes, &new.sizes);
        self.limiter.replace_sizes(&old.sizes, &new.sizes);
        self.locks.replace_sizes(&old.sizes, &new.sizes);
        self.events.replace_sizes(&old.sizes, &new.sizes);
        self.decisions.replace_sizes(&old.sizes, &new.sizes);
    }
}

/// What one shard contributes to the gauges that add up all shards. The contribution ends when this is dropped.
pub(crate) struct ShardGauges {
    metrics: Metrics,
    stats: Stats,
}

impl ShardGauges {
    pub(crate) fn new(metrics: Metrics) -> ShardGauges {
        ShardGauges { metrics, stats: Stats::default() }
    }

    pub(crate) fn set(&mut self, stats: Stats) {
        self.metrics.replace_stats(&self.stats, &stats);
        self.stats = stats;
    }
}

impl Drop for ShardGauges {
    fn drop(&mut self) {
        self.set(Stats::default());
    }
}
