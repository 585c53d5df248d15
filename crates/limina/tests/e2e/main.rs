//! Limina tested from outside: the binary, its HTTP contract, its signals and its files, and nothing of its code.
//!
//! Every test starts its own server on port 0 in its own directory. Expected answers follow from the contract alone.
//! Where the contract leaves a form open, only `shape.rs` knows the form.

#![allow(clippy::too_many_lines, reason = "a test may be one long list of cases")]

mod access;
mod around;
mod clients;
mod command_line;
#[path = "../common/mod.rs"]
mod common;
mod concurrency;
mod conventions;
mod decision_flows;
mod durability;
mod envoy;
mod event_flows;
mod failing_disk;
#[path = "../../../store/tests/faults/mod.rs"]
mod faults;
mod full_disk;
mod guides;
mod h2;
mod hostile;
mod ledger_flows;
mod lifecycle;
mod limiter_flows;
mod lock_flows;
mod memory;
mod moving;
mod quotas;
mod reference;
mod refusals;
mod restored;
mod systemd;
mod tls;
mod verify;

use common::{
    decisions, events, harness, ledger, limiter, load, locks, raw, reply, shape, sse, stomp, websocket,
};
