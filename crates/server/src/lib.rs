//! The front ends: they turn network messages into requests to the service, and outcomes into answers.
//!
//! This crate only translates. It must not decide anything that the engine could decide, keep state between requests, or
//! know how something is stored. Only `from_wire` and `to_wire` convert between wire types ([`limina_api`]) and the
//! engine's types, and only `status` knows which HTTP status a refusal has.
//!
//! Read in this order: [`backend`] (the interface to the service), `http/mod.rs` (the layers of the HTTP front end),
//! `http/app.rs` (what every handler has), `http/routes.rs` (the routes, and the right that each needs), `http/ledger.rs` and
//! `http/limiter` (the calls of two families), `http/extract.rs` (the conventions of requests), `http/status` (the statuses of
//! answers), `http/service.rs` (the way of a request). `access` decides whether a request may pass. [`rules_file`] reads rules
//! from a TOML file. `stomp` pushes events over WebSocket. `envoy` is Envoy's rate limit service over gRPC. `liminator` is
//! Liminator's Thrift interface. `tls` loads certificates. `peers` is the protocol between nodes.

#[cfg(not(feature = "openapi"))]
extern crate limina_openapi_off as utoipa;

mod access;
pub mod backend;
mod envoy;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod http;
mod liminator;
mod peers;
pub mod rules_file;
mod stomp;
mod tls;

pub use access::{InvalidOrigin, Origin, Policy};
pub use backend::Backend;
pub use envoy::EnvoyLimits;
#[cfg(feature = "openapi")]
pub use http::generated_openapi;
pub use http::{
    App, AppOptions, Metrics, OPENAPI_JSON, Serving, Shutdown, rights_table, serve, serve_envoy, serve_peers,
};
pub use peers::{IdentityError, PeerClient};
pub use tls::{LoadedTls, Tls, TlsFileError, TlsFiles};
