//! Several nodes on one PostgreSQL, tested from outside: real processes, their HTTP contract and their signals.
//!
//! Every test has its own nodes and its own database. The expected behaviour is taken from `docs/cluster.md` and the
//! contract alone.

mod certificates;
mod chaos;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod database;
mod decisions;
mod fail_over;
mod followers;
mod forwarding;
mod holders;
mod link;
mod paused;
mod placement;
mod refusals;
mod repeats;
mod rolling;
mod setup;
mod standby;
mod traffic;
mod went_back;

use common::{events, harness, ledger, limiter, load, locks, raw, reply, shape, sse, stomp, websocket};
