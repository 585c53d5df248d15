//! Events over HTTP, STOMP and server-sent events, and what needs a real process: crashes, stops, clients that do not
//! read, the real clock. The semantics are tested by the scripts in `crates/engine/tests/testdata/events`.

mod calls;
mod clocks;
mod crashes;
mod deletion;
mod errors;
mod idempotency;
pub(crate) mod lifecycle;
mod namespaces;
mod plain_paths;
mod real_clients;
mod server_sent;
mod stomp_connections;
mod stomp_floods;
mod stomp_octets;
mod stomp_races;
pub(crate) mod stomp_stalled;
mod stomp_subscriptions;
mod time_sync;
