//! Envoy's door: the rate limit service over gRPC and as JSON, and gRPC's health service.
//!
//! [`limina_envoy`] knows what a request means; the engine decides it with one command. Here are the routes, the right that a
//! domain needs, and the forms of gRPC.

mod grpc;
mod health;

pub(crate) use grpc::answer_as_grpc;

use crate::{
    access::{Needs, Scope},
    http::{
        App, RequestContext,
        extract::read_body,
        problem::{Code, Failure},
        routes::{Call, post},
        status,
    },
};
use axum::{
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE, request::Parts},
    response::{IntoResponse, Response},
};
use limina_access::{Family, Level, Need};
use limina_engine::{
    Command, Name, Outcome,
    limiter::{self, Reply},
};
use limina_envoy::{
    Config, CountRefused, Plan,
    messages::{RateLimitRequest, RateLimitResponse},
    read_request, write_response,
};
use prost::Message;
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

/// The longest request.
const MAX_BODY: usize = 1 << 20;

/// The routes: path, `operation` label in metrics, and call.
pub(crate) fn routes() -> Vec<(&'static str, &'static str, Call)> {
    vec![
        (
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            "should_rate_limit",
            post(Needs::Domain, should_rate_limit).over_grpc(),
        ),
        ("/json", "should_rate_limit_json", post(Needs::Domain, should_rate_limit_json)),
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

/// The configuration that Envoy's requests are resolved with. Cheap to clone.
#[derive(Clone, Default)]
pub struct EnvoyLimits(Arc<Limits>);

#[derive(Default)]
struct Limits {
    config: RwLock<Arc<Config>>,
    count_refused: BTreeMap<String, CountRefused>,
}

impl EnvoyLimits {
    /// Knows no domain yet. `count_refused` says for some domains which refused hits count.
    pub fn new(count_refused: BTreeMap<String, CountRefused>) -> EnvoyLimits {
        EnvoyLimits(Arc::new(Limits { config: RwLock::default(), count_refused }))
    }

    /// Resolves requests with this configuration from now on. Its rules must exist already: without its rule, a descriptor has no
    /// limit.
    pub fn set(&self, config: Config) {
        *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// The configuration with which requests are resolved.
    pub fn config(&self) -> Arc<Config> {
        self.0.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count_refused(&self, domain: &str) -> CountRefused {
        self.0.count_refused.get(domain).copied().unwrap_or_default()
    }
}

async fn should_rate_limit(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (mut parts, body) = request.into_parts();
    let body = grpc::read(&parts, body, &app).await?;
    let request = RateLimitRequest::decode(body)
        .map_err(|error| Failure::invalid("body", format!("must be a RateLimitRequest: {error}")))?;
    let response = decide(&app, &mut parts, &request).await?;
    Ok(grpc::message(status::envoy::decided(response.overall_code()), &response))
}

async fn should_rate_limit_json(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (mut parts, body) = request.into_parts();
    let body = read_body(&parts, body, MAX_BODY, app.body_timeout()).await?;
    let request = read_request(&body).map_err(|error| Failure::invalid("body", error))?;
    let response = decide(&app, &mut parts, &request).await?;
    let json = [(CONTENT_TYPE, "application/json")];
    Ok((status::envoy::decided(response.overall_code()), json, write_response(&response)).into_response())
}

async fn decide(
    app: &App,
    parts: &mut Parts,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Failure> {
    let invalid = |error: limina_envoy::InvalidRequest| Failure::invalid("body", error.to_string());
    Plan::check_request(request).map_err(invalid)?;
    let Scope { identity, .. } =
        RequestContext::of_mut(&mut parts.extensions).scope.take().expect("the guard leaves the scope");
    let need = Need::Family(&request.domain, Family::Limiter, Level::Use);
    if let Err(failure) = identity.require(need) {
        app.policy().log_denial(&identity, "should_rate_limit", &failure);
        return Err(failure);
    }
    let Some(limits) = app.envoy() else {
        let detail = "The server has no configuration of Envoy's rate limits: start it with --envoy-config.";
        return Err(Failure::new(Code::NotFound, detail));
    };
    let config = limits.config();
    let domain = config.domain(&request.domain);
    let mut plan = Plan::new(domain, request, limits.count_refused(&request.domain)).map_err(invalid)?;
    let Some(set) = plan.command().map_err(invalid)? else { return Ok(plan.respond(None)) };
    let namespace =
        Name::new(&request.domain).expect("the domain is in the configuration, so it is a namespace");
    let command = Command::Limiter(limiter::Command::CheckSet(set));
    match app.ask(Scope::new(namespace, identity), None, command).await {
        Ok(Outcome::Limiter(Ok(Reply::Set(decision)))) => Ok(plan.respond(Some(&decision))),
        other => Err(status::answer(other, StatusCode::OK).err().unwrap_or_else(status::unreadable)),
    }
}
