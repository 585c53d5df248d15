//! The names, types and units of the published metrics. They are an interface: operators' dashboards and alerts use them.

use limina_node::Metrics;
use prometheus_client::{encoding::text::encode, registry::Registry};

#[test]
fn metric_names_are_stable() {
    let mut registry = Registry::default();
    Metrics::new().register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes everything");
    let of = |keyword: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(keyword));
        let mut lines: Vec<&str> = lines.collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    assert_eq!(of("# TYPE limina_"), TYPES.trim());
    assert_eq!(of("# UNIT limina_"), UNITS.trim());
}

const TYPES: &str = "
abandoned counter
append_batch_records histogram
append_batch_requests histogram
append_duration_seconds histogram
checkpoint_backlog_bytes gauge
checkpoint_backlog_records gauge
checkpoint_duration_seconds histogram
checkpoint_failures counter
clock_steps counter
cluster_forwarded counter
cluster_nodes gauge
cluster_renewal_failures counter
cluster_shard_opening_seconds histogram
cluster_shards_claimed counter
cluster_shards_given counter
cluster_shards_lost counter
cluster_shards_prepared counter
database_lost_appends counter
database_lost_positions counter
database_replaced gauge
database_restores counter
decisions_expired counter
decisions_open gauge
due_postponed counter
event_streams gauge
fetch_duration_seconds histogram
journal_bytes gauge
journal_segments gauge
journal_syncs counter
ledger_holds_expired counter
ledger_limits gauge
limiter_counters gauge
limiter_groups gauge
limiter_leases gauge
limiter_leases_expired counter
limiter_rules gauge
locks_expired counter
locks_held gauge
locks_waiting gauge
look_ups_filtered counter
look_ups_stored counter
memory_limit_bytes gauge
memory_refusals counter
namespaces gauge
queue_depth gauge
queue_wait_seconds histogram
quota_refusals counter
resident_state_bytes gauge
shard_losses counter
shards_open gauge
storage_full gauge
timers gauge
unavailable counter
";

const UNITS: &str = "
append_duration_seconds seconds
checkpoint_backlog_bytes bytes
checkpoint_duration_seconds seconds
cluster_shard_opening_seconds seconds
fetch_duration_seconds seconds
journal_bytes bytes
memory_limit_bytes bytes
queue_wait_seconds seconds
resident_state_bytes bytes
";
