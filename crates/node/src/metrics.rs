//! What operators see of shards and stores. Names are an interface: units stand in them, label values are bounded.

use crate::rule_checks::RuleChecks;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, histogram::exponential_buckets,
    },
    registry::{Registry, Unit},
};

/// All metrics of a node. Cheap to clone: every part is shared.
#[derive(Clone)]
pub struct Metrics {
    pub(crate) queue_depth: Gauge,
    pub(crate) decisions: Family<Decision, Counter>,
    pub(crate) unavailable: Family<Reason, Counter>,
    pub(crate) append_seconds: Histogram,
    pub(crate) append_requests: Histogram,
    pub(crate) append_records: Histogram,
    pub(crate) fetch_seconds: Histogram,
    pub(crate) shard_losses: Counter,
    pub(crate) shards_open: Gauge,
    pub(crate) nodes: Gauge,
    pub(crate) forwarded: Counter,
    pub(crate) shards_claimed: Counter,
    pub(crate) shards_given: Counter,
    pub(crate) shards_lost: Counter,
    pub(crate) opening_seconds: Histogram,
    pub(crate) renewal_failures: Counter,
    pub(crate) clock_steps: Counter,
    pub(crate) holds_expired: Counter,
    pub(crate) leases_expired: Counter,
    pub(crate) locks_expired: Counter,
    pub(crate) due_postponed: Counter,
    pub(crate) journal_bytes: Gauge,
    pub(crate) journal_segments: Gauge,
    pub(crate) journal_syncs: Counter,
    pub(crate) storage_full: Gauge,
    pub(crate) checkpoint_seconds: Histogram,
    pub(crate) checkpoint_failures: Counter,
    pub(crate) backlog_bytes: Gauge,
    pub(crate) backlog_records: Gauge,
    pub(crate) namespaces: Gauge,
    pub(crate) ledger_limits: Gauge,
    pub(crate) timers: Gauge,
    pub(crate) limiter_rules: Gauge,
    pub(crate) limiter_groups: Gauge,
    pub(crate) limiter_counters: Gauge,
    pub(crate) limiter_leases: Gauge,
    pub(crate) locks_held: Gauge,
    pub(crate) locks_waiting: Gauge,
    pub(crate) event_streams: Gauge,
    pub(crate) rule_checks: RuleChecks,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Decision {
    pub(crate) family: &'static str,
    pub(crate) outcome: &'static str,
}

/// Why nothing was decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Reason {
    pub(crate) code: &'static str,
}

impl Metrics {
    /// Makes the metrics and enters them in the registry.
    pub fn register(registry: &mut Registry) -> Metrics {
        let seconds = || Histogram::new(exponential_buckets(0.000_05, 2.0, 18));
        let counts = || Histogram::new(exponential_buckets(1.0, 2.0, 15));
        let m = Metrics {
            queue_depth: Gauge::default(),
            decisions: Family::default(),
            unavailable: Family::default(),
            append_seconds: seconds(),
            append_requests: counts(),
            append_records: counts(),
            fetch_seconds: seconds(),
            shard_losses: Counter::default(),
            shards_open: Gauge::default(),
            nodes: Gauge::default(),
            forwarded: Counter::default(),
            shards_claimed: Counter::default(),
            shards_given: Counter::default(),
            shards_lost: Counter::default(),
            opening_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            renewal_failures: Counter::default(),
            clock_steps: Counter::default(),
            holds_expired: Counter::default(),
            leases_expired: Counter::default(),
            locks_expired: Counter::default(),
            due_postponed: Counter::default(),
            journal_bytes: Gauge::default(),
            journal_segments: Gauge::default(),
            journal_syncs: Counter::default(),
            storage_full: Gauge::default(),
            checkpoint_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 18)),
            checkpoint_failures: Counter::default(),
            backlog_bytes: Gauge::default(),
            backlog_records: Gauge::default(),
            namespaces: Gauge::default(),
            ledger_limits: Gauge::default(),
            timers: Gauge::default(),
            limiter_rules: Gauge::default(),
            limiter_groups: Gauge::default(),
            limiter_counters: Gauge::default(),
            limiter_leases: Gauge::default(),
            locks_held: Gauge::default(),
            locks_waiting: Gauge::default(),
            event_streams: Gauge::default(),
            rule_checks: RuleChecks::default(),
        };
        let r = registry.sub_registry_with_prefix("limina");
        r.register("queue_depth", "Requests that were taken and not answered yet", m.queue_depth.clone());
        r.register("decisions", "Requests decided, by family and outcome", m.decisions.clone());
        r.register("unavailable", "Requests not decided, by code", m.unavailable.clone());
        let append = "From handing a batch to the journal until it is durable";
        r.register_with_unit("append_duration", append, Unit::Seconds, m.append_seconds.clone());
        r.register("append_batch_requests", "Requests answered by one append", m.append_requests.clone());
        r.register("append_batch_records", "Records written by one append", m.append_records.clone());
        let fetch = "Looking up stored records for a round of requests";
        r.register_with_unit("fetch_duration", fetch, Unit::Seconds, m.fetch_seconds.clone());
        r.register(
            "shard_losses",
            "Times a shard dropped its memory and opened again",
            m.shard_losses.clone(),
        );
        r.register("shards_open", "Shards that serve requests", m.shards_open.clone());
        let cluster = r.sub_registry_with_prefix("cluster");
        cluster.register(
            "nodes",
            "Nodes that are alive, this one included; 0 on a store of its own",
            m.nodes.clone(),
        );
        cluster.register("forwarded", "Requests that another node was asked for", m.forwarded.clone());
        cluster.register(
            "shards_claimed",
            "Shards taken over because nobody served them",
            m.shards_claimed.clone(),
        );
        cluster.register("shards_given", "Shards given to other nodes", m.shards_given.clone());
        cluster.register("shards_lost", "Shards that another node took over", m.shards_lost.clone());
        let opening = "From taking a shard until it serves requests";
        cluster.register_with_unit("shard_opening", opening, Unit::Seconds, m.opening_seconds.clone());
        cluster.register(
            "renewal_failures",
            "Times the tenure could not be renewed",
            m.renewal_failures.clone(),
        );
        r.register(
            "clock_steps",
            "Steps of the wall clock that were not followed, counted by each shard that saw them",
            m.clock_steps.clone(),
        );
        r.register(
            "ledger_holds_expired",
            "Holds rolled back because their time had run out",
            m.holds_expired.clone(),
        );
        r.register(
            "limiter_leases_expired",
            "Leases given back because their time had run out",
            m.leases_expired.clone(),
        );
        r.register(
            "locks_expired",
            "Locks taken back because their holders gave no sign of life",
            m.locks_expired.clone(),
        );
        r.register(
            "due_postponed",
            "Due work put off since a record could not be read",
            m.due_postponed.clone(),
        );
        r.register_with_unit(
            "journal",
            "What the journal holds on disk",
            Unit::Bytes,
            m.journal_bytes.clone(),
        );
        r.register(
            "journal_segments",
            "Segment files that hold unreleased appends",
            m.journal_segments.clone(),
        );
        r.register("journal_syncs", "Syncs of journal files since the start", m.journal_syncs.clone());
        r.register(
            "storage_full",
            "1 while clients' writes are refused for lack of room",
            m.storage_full.clone(),
        );
        let checkpoint = "Bringing the table up to date with one shard's journal";
        r.register_with_unit("checkpoint_duration", checkpoint, Unit::Seconds, m.checkpoint_seconds.clone());
        r.register(
            "checkpoint_failures",
            "Checkpoints that failed and are tried again",
            m.checkpoint_failures.clone(),
        );
        let backlog = "Records in memory that the table does not contain yet";
        r.register_with_unit("checkpoint_backlog", backlog, Unit::Bytes, m.backlog_bytes.clone());
        r.register("checkpoint_backlog_records", backlog, m.backlog_records.clone());
        r.register("namespaces", "Namespaces", m.namespaces.clone());
        r.register("ledger_limits", "Ledger limits", m.ledger_limits.clone());
        r.register("timers", "Timers that wait", m.timers.clone());
        r.register("limiter_rules", "Rules", m.limiter_rules.clone());
        r.register(
            "limiter_groups",
            "Groups of rules and overrides that count something",
            m.limiter_groups.clone(),
        );
        r.register("limiter_counters", "Counters above zero", m.limiter_counters.clone());
        r.register("limiter_leases", "Leases that live", m.limiter_leases.clone());
        r.register("locks_held", "Grants of locks that live", m.locks_held.clone());
        r.register("locks_waiting", "Requests that wait for locks", m.locks_waiting.clone());
        r.register("event_streams", "Streams of events", m.event_streams.clone());
        r.register(
            "limiter_rule_checks",
            "Checks by rule and result; rules beyond the first thousand share an empty name",
            m.rule_checks.family(),
        );
        m
    }
}
