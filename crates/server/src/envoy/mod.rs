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
        route::{Call, post},
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
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout_at},
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

/// How long a request waits until its namespace has the rules of the configuration. Envoy itself waits for 20 ms, unless it is told
/// otherwise.
const MAX_WAIT_FOR_RULES: Duration = Duration::from_millis(250);

/// The most times that the limiter is asked about a request that misses a rule. Each time, the request may count in its other limits.
const MAX_ATTEMPTS: usize = 3;

/// The configuration that Envoy's requests are resolved with. Cheap to clone.
#[derive(Clone, Default)]
pub struct EnvoyLimits(Arc<Limits>);

/// What a request is resolved with.
#[derive(Clone, Default)]
struct Current {
    config: Arc<Config>,
    /// How often the server has looked for missing rules, and made them again where they were lost.
    searches: u64,
}

#[derive(Default)]
struct Limits {
    current: watch::Sender<Current>,
    count_refused: BTreeMap<String, CountRefused>,
    /// Namespaces in which a request has missed a rule.
    missing: Mutex<BTreeSet<Name>>,
    missed: Notify,
}

impl EnvoyLimits {
    /// Knows no domain yet. `count_refused` says for some domains which refused hits count.
    pub fn new(count_refused: BTreeMap<String, CountRefused>) -> EnvoyLimits {
        EnvoyLimits(Arc::new(Limits { count_refused, ..Limits::default() }))
    }

    /// Resolves requests with this configuration from now on, also those that miss a rule of a domain that it changes. Its rules should
    /// exist already.
    pub fn set(&self, config: Config) {
        self.0.current.send_modify(|current| current.config = Arc::new(config));
    }

    /// Lets the requests that wait for a missing rule ask the limiter again.
    pub fn retry_missing(&self) {
        self.0.current.send_modify(|current| current.searches += 1);
    }

    /// The configuration with which requests are resolved.
    pub fn config(&self) -> Arc<Config> {
        self.0.current.borrow().config.clone()
    }

    /// Waits until a request misses a rule that the configuration has. Returns the namespaces of such requests.
    pub async fn missing_rules(&self) -> BTreeSet<Name> {
        self.0.missed.notified().await;
        std::mem::take(&mut *self.0.missing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn report_missing(&self, namespace: Name) {
        self.0.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace);
        self.0.missed.notify_one();
    }

    /// The domains that have a setting of their own, and that the configuration does not have: perhaps a name is misspelt.
    pub fn unknown_domains<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = &'a str> {
        let domains = self.0.count_refused.keys().map(String::as_str);
        domains.filter(|domain| config.domain(domain).is_none())
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
    let namespace = Plan::check_request(request).map_err(invalid)?;
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
    let mut news = limits.0.current.subscribe();
    let mut current = news.borrow().clone();
    let deadline = Instant::now() + MAX_WAIT_FOR_RULES;
    for _ in 0..MAX_ATTEMPTS {
        let domain = current.config.domain(&request.domain);
        let mut plan = Plan::new(domain, request, limits.count_refused(&request.domain)).map_err(invalid)?;
        let Some(set) = plan.command().map_err(invalid)? else { return Ok(plan.respond(None)) };
        let command = Command::Limiter(limiter::Command::CheckSet(set));
        let scope = Scope::new(namespace.clone(), identity.clone());
        match app.ask(scope, None, command).await {
            Ok(Outcome::Limiter(Ok(Reply::Set(decision)))) if plan.has_all_rules(&decision) => {
                return Ok(plan.respond(Some(&decision)));
            }
            Ok(Outcome::Limiter(Ok(Reply::Set(_)))) => limits.report_missing(namespace.clone()),
            other => {
                return Err(status::answer(other, StatusCode::OK).err().unwrap_or_else(status::unreadable));
            }
        }
        // Without its rule, a limit would count nothing and refuse nothing. The rules are being changed, or the namespace was deleted.
        // What the request has taken from its other limits meanwhile stays taken.
        let is_new = |next: &Current| {
            let domain = next.config.domain(&request.domain);
            let is_same = domain.map(std::ptr::from_ref)
                == current.config.domain(&request.domain).map(std::ptr::from_ref);
            next.searches != current.searches || !is_same
        };
        current = match timeout_at(deadline, news.wait_for(is_new)).await {
            Ok(Ok(next)) => next.clone(),
            Ok(Err(_)) | Err(_) => break,
        };
    }
    let detail = "The namespace does not have the rules of Envoy's configuration.";
    Err(Failure::new(Code::ShardUnavailable, detail))
}
