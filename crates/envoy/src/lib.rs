//! Envoy's rate limit service without a server: its messages, the configuration of envoyproxy/ratelimit, and what a request
//! means.
//!
//! [`load`] reads the YAML files exactly as envoyproxy/ratelimit does: it refuses what the original refuses, and names file,
//! line and reason. A [`Config`] has one [`Domain`] for each file. [`Domain::rules`] are the rules of the rule set `envoy` in the
//! namespace of the domain's name. [`Plan`] finds the limit of each descriptor of a request, makes one command of the limiter,
//! and turns the decision into the response.
//!
//! This crate never opens a socket or a file, has no clock, and decides nothing: the engine does.

mod config;
mod domain;
mod json;
pub mod messages;
mod metadata;
mod pattern;
mod plan;
mod rules;
mod yaml;

pub use config::{ConfigError, Ignored, load};
pub use domain::{Config, CountRefused, Domain};
pub use json::{read_request, write_response};
pub use plan::{InvalidRequest, Plan};
