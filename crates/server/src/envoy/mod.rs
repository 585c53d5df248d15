//! Envoy's door: the rate limit service over gRPC and as JSON, and gRPC's health service.
//!
//! [`limina_envoy`] knows what a request means; the engine decides it with one command. `limits` is the configuration, `grpc`
//! the form of gRPC. `rate_limit` and `health` answer the calls.

mod grpc;
mod health;
mod limits;
mod rate_limit;

pub(crate) use grpc::answer_as_grpc;
pub use limits::EnvoyLimits;

use crate::{
    access::Needs,
    http::route::{Call, post},
};

/// The routes: path, `operation` label in metrics, and call.
pub(crate) fn routes() -> Vec<(&'static str, &'static str, Call)> {
    vec![
        (
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            "should_rate_limit",
            post(Needs::Domain, rate_limit::should_rate_limit).over_grpc(),
        ),
        ("/json", "should_rate_limit_json", post(Needs::Domain, rate_limit::should_rate_limit_json)),
        (
            "/grpc.health.v1.Health/Check",
            "grpc_health_check",
            post(Needs::Nothing, health::check).over_grpc(),
        ),
        (
            "/grpc.health.v1.Health/Watch",
            "grpc_health_watch",
            post(Needs::Nothing, health::watch).over_grpc(),
        ),
    ]
}
