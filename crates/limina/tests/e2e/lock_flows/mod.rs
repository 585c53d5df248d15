//! Locks over HTTP, and what needs a real process: crashes, stops, hang-ups, crowds, the real clock. The semantics are
//! tested by the scripts in `crates/engine/tests/testdata/locks`.

mod calls;
mod crashes;
mod crowds;
mod errors;
mod hang_ups;
mod idempotency;
mod leases;
mod namespaces;
mod philosophers;
mod sets;
mod stops;
mod tokens;
mod waits;
