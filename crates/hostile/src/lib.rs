//! Hostile clients, played one scenario after the other against a server in a process of its own.
//!
//! A scenario does what a careless or hostile tenant can do: it does not read what it asked for, does not finish what it
//! sends, or sends what is expensive. Meanwhile an honest client of another namespace of the same shard sends requests at a
//! steady pace. A scenario has bounds: for the server's memory, for the honest client's latency, and for the time until the
//! server has recovered. [`print()`] prints the result of all scenarios as one table.
//!
//! This crate knows the HTTP contract and nothing of the server's code. It must never be needed by the server.

mod h2;
mod honest;
mod http;
mod machine;
mod report;
mod scenario;
mod scenarios;
mod server;
mod stage;
mod stomp;
mod tally;

pub use report::print;
pub use scenario::{Outcome, Scenario, Settings};
pub use scenarios::all;

/// An error that ends a scenario. It is printed; no code distinguishes its causes.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
