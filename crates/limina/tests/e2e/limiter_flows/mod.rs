//! The limiter over HTTP, and what needs a real process or a real clock. The semantics are tested by the scripts in
//! `crates/engine/tests/testdata/limiter`.

mod batches;
mod calls;
mod documents;
mod durability;
mod errors;
mod headers;
mod idempotency;
mod leases;
mod metrics;
mod queries;
mod races;
mod rules;
mod rules_file;
mod values;
mod windows_in_time;
