//! Front ends: what comes over the network becomes a request to the service, and its outcome an answer.
//!
//! Translation only. Nothing here decides anything that the engine could decide, keeps state between requests, or
//! knows how something is stored. Wire types ([`limina_wire`]) live at this edge alone: `from_wire` and `to_wire` are
//! the only places that know both them and the engine's types, and `status` is the only place that knows which HTTP
//! status a refusal has.
//!
//! Read in this order: [`backend`] (what a front end speaks to), then `http/mod.rs` (the routes), `http/ledger.rs`
//! and `http/limiter` (the families' calls), `http/extract.rs` (the conventions of requests), `http/status` (those of
//! answers). [`rules_file`] is the other way in: rules that stand in a file. `peers` is how one
//! node asks another.

pub mod backend;
mod http;
mod peers;
pub mod rules_file;
mod stomp;

pub use backend::Backend;
pub use http::{App, Metrics, openapi_json, serve};
pub use peers::{HttpPeers, InvalidSecret, Secret};
