//! Events as the contract tells them: what happens once, what is told about it and to whom, in which order, and what a
//! crash, a stop or a client that does not read changes about it.

mod bounds;
mod calls;
mod clocks;
mod crashes;
mod deletion;
mod errors;
mod examples;
mod idempotency;
pub(crate) mod lifecycle;
mod namespaces;
mod plain_paths;
mod real_clients;
mod server_sent;
mod settings;
mod stomp_connections;
mod stomp_floods;
mod stomp_octets;
mod stomp_races;
pub(crate) mod stomp_stalled;
mod stomp_subscriptions;
mod time_sync;
