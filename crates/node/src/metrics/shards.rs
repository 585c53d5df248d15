//! The loop of every shard: appends, look-ups, openings.

use super::instruments::{counts, replace, seconds};
use limina_engine::Stats;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) append_seconds: Histogram,
    pub(crate) append_requests: Histogram,
    pub(crate) append_records: Histogram,
    pub(crate) fetch_seconds: Histogram,
    pub(crate) losses: Counter,
    pub(crate) open: Gauge,
    pub(crate) clock_steps: Counter,
    pub(crate) due_postponed: Counter,
    namespaces: Gauge,
    timers: Gauge,
    resident_bytes: Gauge,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            append_seconds: seconds(0.000_05, 18),
            append_requests: counts(),
            append_records: counts(),
            fetch_seconds: seconds(0.000_05, 18),
            losses: Counter::default(),
            open: Gauge::default(),
            clock_steps: Counter::default(),
            due_postponed: Counter::default(),
            namespaces: Gauge::default(),
            timers: Gauge::default(),
            resident_bytes: Gauge::default(),
        }
    }
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        let append = "From handing a batch to the journal until it is durable";
        r.register_with_unit("append_duration", append, Unit::Seconds, self.append_seconds.clone());
        r.register("append_batch_requests", "Requests answered by one append", self.append_requests.clone());
        r.register("append_batch_records", "Records written by one append", self.append_records.clone());
        let fetch = "Looking up stored records for a round of requests";
        r.register_with_unit("fetch_duration", fetch, Unit::Seconds, self.fetch_seconds.clone());
        let losses = "Times a shard dropped its memory and opened again";
        r.register("shard_losses", losses, self.losses.clone());
        r.register("shards_open", "Shards that serve requests", self.open.clone());
        let clock_steps =
            "Steps of the wall clock that were not followed, counted by each shard that saw them";
        r.register("clock_steps", clock_steps, self.clock_steps.clone());
        let due_postponed = "Due work put off since a record could not be read";
        r.register("due_postponed", due_postponed, self.due_postponed.clone());
        r.register("namespaces", "Namespaces", self.namespaces.clone());
        r.register("timers", "Timers that wait", self.timers.clone());
        let resident = "Estimated memory of the state of all namespaces";
        r.register_with_unit("resident_state", resident, Unit::Bytes, self.resident_bytes.clone());
    }

    pub(super) fn replace_stats(&self, old: &Stats, new: &Stats) {
        replace(&self.namespaces, old.namespaces, new.namespaces);
        replace(&self.timers, old.timers, new.timers);
        replace(&self.resident_bytes, old.sizes.resident_bytes as usize, new.sizes.resident_bytes as usize);
    }
}
