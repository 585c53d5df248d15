//! The journal, the table, and what the table does not contain yet.

use super::instruments::seconds;
use limina_store::FilterCounts;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) journal_bytes: Gauge,
    pub(crate) journal_segments: Gauge,
    pub(crate) journal_syncs: Counter,
    pub(crate) storage_full: Gauge,
    pub(crate) checkpoint_seconds: Histogram,
    pub(crate) checkpoint_failures: Counter,
    pub(crate) backlog_bytes: Gauge,
    pub(crate) backlog_records: Gauge,
    pub(crate) restores: Counter,
    pub(crate) lost_appends: Counter,
    pub(crate) lost_positions: Counter,
    pub(crate) other_database: Gauge,
    pub(crate) look_ups_filtered: Counter,
    pub(crate) look_ups_stored: Counter,
    /// What the two counters above are set to.
    pub(crate) filter_counts: Arc<FilterCounts>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            journal_bytes: Gauge::default(),
            journal_segments: Gauge::default(),
            journal_syncs: Counter::default(),
            storage_full: Gauge::default(),
            checkpoint_seconds: seconds(0.001, 18),
            checkpoint_failures: Counter::default(),
            backlog_bytes: Gauge::default(),
            backlog_records: Gauge::default(),
            restores: Counter::default(),
            lost_appends: Counter::default(),
            lost_positions: Counter::default(),
            other_database: Gauge::default(),
            look_ups_filtered: Counter::default(),
            look_ups_stored: Counter::default(),
            filter_counts: Arc::default(),
        }
    }
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        let journal = "What the journal holds on disk";
        r.register_with_unit("journal", journal, Unit::Bytes, self.journal_bytes.clone());
        let segments = "Segment files that hold unreleased appends";
        r.register("journal_segments", segments, self.journal_segments.clone());
        r.register("journal_syncs", "Syncs of journal files since the start", self.journal_syncs.clone());
        let full = "1 while clients' writes are refused for lack of room";
        r.register("storage_full", full, self.storage_full.clone());
        let checkpoint = "Bringing the table up to date with one shard's journal";
        r.register_with_unit(
            "checkpoint_duration",
            checkpoint,
            Unit::Seconds,
            self.checkpoint_seconds.clone(),
        );
        let failures = "Checkpoints that failed and are tried again";
        r.register("checkpoint_failures", failures, self.checkpoint_failures.clone());
        let backlog = "Records in memory that the table does not contain yet";
        r.register_with_unit("checkpoint_backlog", backlog, Unit::Bytes, self.backlog_bytes.clone());
        r.register("checkpoint_backlog_records", backlog, self.backlog_records.clone());
        let restores = "Times a shard found its database in an older state, and serves that";
        r.register("database_restores", restores, self.restores.clone());
        let lost = "Appends that the database has lost by going back to an older state";
        r.register("database_lost_appends", lost, self.lost_appends.clone());
        let lost = "Positions that shards had in memory, and the database has lost";
        r.register("database_lost_positions", lost, self.lost_positions.clone());
        let other =
            "1 while the database's server has another database than the one that this node began with";
        r.register("database_replaced", other, self.other_database.clone());
        let filtered = "Look-ups of ids that a filter answered: the id is new";
        r.register("look_ups_filtered", filtered, self.look_ups_filtered.clone());
        let stored = "Look-ups of ids in the database, because the filter was not there or did not know that the id is new";
        r.register("look_ups_stored", stored, self.look_ups_stored.clone());
    }
}
