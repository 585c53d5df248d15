//! Several nodes on one store: who is alive, and how shards move.

use super::instruments::seconds;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) nodes: Gauge,
    pub(crate) forwarded: Counter,
    pub(crate) shards_claimed: Counter,
    pub(crate) shards_given: Counter,
    pub(crate) shards_lost: Counter,
    pub(crate) shards_prepared: Counter,
    pub(crate) opening_seconds: Histogram,
    pub(crate) renewal_failures: Counter,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            nodes: Gauge::default(),
            forwarded: Counter::default(),
            shards_claimed: Counter::default(),
            shards_given: Counter::default(),
            shards_lost: Counter::default(),
            shards_prepared: Counter::default(),
            opening_seconds: seconds(0.001, 16),
            renewal_failures: Counter::default(),
        }
    }
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        let r = r.sub_registry_with_prefix("cluster");
        let nodes = "Nodes that are alive, this one included; 0 on a store of its own";
        r.register("nodes", nodes, self.nodes.clone());
        r.register("forwarded", "Requests that another node was asked for", self.forwarded.clone());
        let claimed = "Shards taken over because nobody served them";
        r.register("shards_claimed", claimed, self.shards_claimed.clone());
        r.register("shards_given", "Shards given to other nodes", self.shards_given.clone());
        r.register("shards_lost", "Shards that another node took over", self.shards_lost.clone());
        let prepared = "Shards that this node had read before it got them, so that only the tail of the journal was left to read";
        r.register("shards_prepared", prepared, self.shards_prepared.clone());
        let opening = "From taking a shard until it serves requests";
        r.register_with_unit("shard_opening", opening, Unit::Seconds, self.opening_seconds.clone());
        let failures = "Times the tenure could not be renewed";
        r.register("renewal_failures", failures, self.renewal_failures.clone());
    }
}
