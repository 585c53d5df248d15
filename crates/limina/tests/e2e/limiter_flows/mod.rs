//! The limiter as its document tells it: rules and overrides, checks, windows, counters and leases.

mod batches;
mod checks;
mod counters;
mod documents;
mod durability;
mod errors;
mod headers;
mod idempotency;
mod leases;
mod lists;
mod metrics;
mod namespaces;
mod overrides;
mod queries;
mod races;
mod rules;
mod rules_file;
mod selections;
mod values;
mod windows;
mod windows_in_time;
