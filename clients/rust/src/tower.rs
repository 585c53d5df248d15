//! A tower layer that limits the requests of a service.
//!
//! ```no_run
//! use http::Request;
//! use limina_client::{Limina, key_values, tower::{LimitLayer, OnUnavailable}};
//!
//! # fn example(client: Limina) {
//! let limit = LimitLayer::new(client, |request: &Request<String>| {
//!     let tenant = request.headers().get("x-tenant")?.to_str().ok()?.to_owned();
//!     Some(key_values! {"tenant": tenant, "route": request.uri().path().to_owned()})
//! })
//! .on_unavailable(OnUnavailable::Refuse);
//! # }
//! ```

use crate::{
    Error, Limina,
    types::{CheckReply, Keys, LimitOfRule, LimitStatus},
};
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};
use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tower::{Layer, Service};

/// What happens to requests while the limiter cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnavailable {
    /// They pass.
    Allow,
    /// They are answered with 503.
    Refuse,
}

/// Asks the limiter about each request, and answers 429 in place of the service where a limit refuses.
///
/// The limiter is asked once, without retries: a request that waits for retries costs its user more than [`OnUnavailable`] does.
/// If the limiter refuses to be asked, because of a wrong token or wrong key-values, the request is answered with 500, so that the
/// mistake does not switch the limits off. That response has the [`Error`] as an extension.
pub struct LimitLayer<F> {
    client: Limina,
    key_values: Arc<F>,
    on_unavailable: OnUnavailable,
}

impl<F> LimitLayer<F> {
    /// `key_values` says what a request is about, for the rules to match. `None`: the request is not limited.
    pub fn new<B>(client: Limina, key_values: F) -> LimitLayer<F>
    where
        F: Fn(&Request<B>) -> Option<Keys>,
    {
        let client = client.with_retries(0);
        LimitLayer { client, key_values: Arc::new(key_values), on_unavailable: OnUnavailable::Allow }
    }

    /// What happens to requests while the limiter cannot be asked. Default: they pass.
    pub fn on_unavailable(mut self, on_unavailable: OnUnavailable) -> LimitLayer<F> {
        self.on_unavailable = on_unavailable;
        self
    }
}

impl<F> Clone for LimitLayer<F> {
    fn clone(&self) -> Self {
        LimitLayer {
            client: self.client.clone(),
            key_values: self.key_values.clone(),
            on_unavailable: self.on_unavailable,
        }
    }
}

impl<S, F> Layer<S> for LimitLayer<F> {
    type Service = Limit<S, F>;

    fn layer(&self, inner: S) -> Limit<S, F> {
        Limit { inner, layer: self.clone() }
    }
}

/// A service whose requests are limited.
pub struct Limit<S, F> {
    inner: S,
    layer: LimitLayer<F>,
}

impl<S: Clone, F> Clone for Limit<S, F> {
    fn clone(&self) -> Self {
        Limit { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, F, B, R> Service<Request<B>> for Limit<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Request<B>) -> Option<Keys>,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready is the one to call; its clone takes its place.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let check = (self.layer.key_values)(&request).map(|key_values| self.layer.client.check(key_values));
        let on_unavailable = self.layer.on_unavailable;
        Box::pin(async move {
            let Some(check) = check else { return inner.call(request).await };
            let headers = match check.await {
                Ok(decision) if decision.allowed => rate_limit_headers(&decision),
                Ok(decision) => return Ok(limit_reached(&decision)),
                Err(Error::Unavailable { failure, .. }) => match on_unavailable {
                    OnUnavailable::Allow => HeaderMap::new(),
                    OnUnavailable::Refuse => return Ok(unavailable(failure.retry_after)),
                },
                Err(error) => return Ok(mistake(error)),
            };
            let mut response = inner.call(request).await?;
            response.headers_mut().extend(headers);
            Ok(response)
        })
    }
}

fn limit_reached<R: From<String>>(decision: &CheckReply) -> Response<R> {
    let refusing = decision.limits.iter().filter(|limit| limit.exceeded && !limit.shadow);
    let problem = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "A limit is reached",
        "code": "LimitReached",
        "violated-policies": refusing.map(policy_name).collect::<Vec<_>>(),
        "retry_after_ms": decision.retry_after_ms,
    });
    let retry_after = decision.retry_after_ms.map(|span| Duration::from_millis(span.0));
    let mut response = answer(StatusCode::TOO_MANY_REQUESTS, retry_after, problem);
    response.headers_mut().extend(rate_limit_headers(decision));
    response
}

fn unavailable<R: From<String>>(retry_after: Option<Duration>) -> Response<R> {
    let problem =
        json!({"type": "about:blank", "title": "The limiter is not available", "code": "LimiterUnavailable"});
    let retry_after = retry_after.unwrap_or(Duration::from_secs(1));
    answer(StatusCode::SERVICE_UNAVAILABLE, Some(retry_after), problem)
}

fn mistake<R: From<String>>(error: Error) -> Response<R> {
    let problem =
        json!({"type": "about:blank", "title": "The limiter refuses to be asked", "code": "LimiterRefuses"});
    let mut response = answer(StatusCode::INTERNAL_SERVER_ERROR, None, problem);
    response.extensions_mut().insert(error);
    response
}

fn answer<R: From<String>>(
    status: StatusCode,
    retry_after: Option<Duration>,
    mut problem: Value,
) -> Response<R> {
    problem["status"] = status.as_u16().into();
    let mut response = Response::new(R::from(problem.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(retry_after) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds(retry_after)));
    }
    response
}

fn seconds(duration: Duration) -> u64 {
    duration.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

/// `RateLimit-Policy` and `RateLimit` for the tightest limits, as the server writes them. The length of a window is not part of a
/// check's answer, so the policy leaves it out.
fn rate_limit_headers(decision: &CheckReply) -> HeaderMap {
    const MAX_LIMITS: usize = 8;
    let mut enforced: Vec<_> = decision
        .limits
        .iter()
        .filter_map(|limit| match limit.limit {
            LimitOfRule::AtMost(most) if !limit.shadow && limit.rule.is_some() => Some((limit, most)),
            _ => None,
        })
        .collect();
    // Fractions are compared as products: `a / b < c / d` if `a × d < c × b`.
    enforced.sort_by(|(a, limit_of_a), (b, limit_of_b)| {
        let share = |one: &LimitStatus, others: u64| {
            u128::from(one.remaining.unwrap_or_default()) * u128::from(others.max(1))
        };
        let shares = share(a, *limit_of_b).cmp(&share(b, *limit_of_a));
        b.exceeded.cmp(&a.exceeded).then(shares).then(a.remaining.cmp(&b.remaining))
    });
    let (mut policies, mut states) = (Vec::new(), Vec::new());
    for (limit, most) in enforced.into_iter().take(MAX_LIMITS) {
        let name = policy_name(limit);
        let retry = decision.retry_after_ms.filter(|_| limit.exceeded);
        let reset = limit.reset_ms.into_iter().chain(retry).min();
        let reset = reset.map_or(String::new(), |ms| format!(";t={}", seconds(Duration::from_millis(ms.0))));
        policies.push(format!("\"{name}\";q={most}"));
        states.push(format!("\"{name}\";r={}{reset}", limit.remaining.unwrap_or_default()));
    }
    let mut headers = HeaderMap::new();
    if !policies.is_empty() {
        // A name consists of printable ASCII, see below.
        if let (Ok(policy), Ok(state)) = (policies.join(", ").try_into(), states.join(", ").try_into()) {
            headers.insert("ratelimit-policy", policy);
            headers.insert("ratelimit", state);
        }
    }
    headers
}

/// The name of a limit, percent-encoded where a structured field's string cannot hold it.
fn policy_name(limit: &LimitStatus) -> String {
    const OTHERS: &AsciiSet = &CONTROLS.add(b'"').add(b'\\').add(b'%');
    let names = limit.rule.iter().chain(&limit.override_name);
    names.map(|name| utf8_percent_encode(name, OTHERS).to_string()).collect::<Vec<_>>().join("/")
}
