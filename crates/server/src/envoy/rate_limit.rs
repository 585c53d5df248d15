//! The rate limit service: whether Envoy lets a request pass.

use super::{
    grpc::{self, MAX_MESSAGE},
    limits::Current,
};
use crate::{
    access::Scope,
    http::{
        App, RequestContext,
        extract::read_body,
        problem::{Code, Failure},
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
    Command, Outcome,
    limiter::{self, Reply},
};
use limina_envoy::{
    Plan,
    messages::{RateLimitRequest, RateLimitResponse},
    read_request, write_response,
};
use prost::Message;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a request waits until its namespace has the rules of the configuration. Envoy itself waits for 20 ms, unless it is told
/// otherwise.
const MAX_WAIT_FOR_RULES: Duration = Duration::from_millis(250);

/// The most times that the limiter is asked about a request that misses a rule. Each time, the request may count in its other limits.
const MAX_ATTEMPTS: usize = 3;

pub(super) async fn should_rate_limit(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (mut parts, body) = request.into_parts();
    let body = grpc::read(&parts, body, &app).await?;
    let request = RateLimitRequest::decode(body)
        .map_err(|error| Failure::invalid("body", format!("must be a RateLimitRequest: {error}")))?;
    let response = decide(&app, &mut parts, &request).await?;
    Ok(grpc::message(status::envoy::decided(response.overall_code()), &response))
}

pub(super) async fn should_rate_limit_json(
    State(app): State<App>,
    request: Request,
) -> Result<Response, Failure> {
    let (mut parts, body) = request.into_parts();
    let body = read_body(&parts, body, MAX_MESSAGE, app.body_timeout()).await?;
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
    let mut news = limits.subscribe();
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
