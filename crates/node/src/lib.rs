//! Runs shards: tokio drives the sans-IO loop of `limina-shard` over a store and the real clock.
//!
//! [`Service`] is what front ends see: a request goes in, an outcome comes out, and how many shards, threads or files
//! stand behind it is not theirs to know. This crate must never know a wire format.

pub mod service;

pub use service::{Service, Unavailable};
