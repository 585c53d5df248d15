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
    Error, Limina, Reply,
    types::{CheckReply, Keys},
};
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use serde::Deserialize;
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
/// Responses have the `RateLimit-Policy` and `RateLimit` of the limiter. Requests without a decision are counted in
/// [`Limina::undecided`], and the log gets one warning a minute.
///
/// The limiter is asked once, without retries: a request that waits for retries costs its user more than [`OnUnavailable`] does.
/// If the limiter refuses to be asked, because of a wrong token or wrong key-values, the request is answered with 500, so that the
/// mistake does not switch the limits off. That response has the [`Error`] as an extension.
pub struct LimitLayer<F> {
    client: Limina,
    key_values: Arc<F>,
    on_unavailable: OnUnavailable,
    headers: bool,
    on_undecided: Option<Callback>,
}

type Callback = Arc<dyn Fn(&Error) + Send + Sync>;

impl<F> LimitLayer<F> {
    /// `key_values` says what a request is about, for the rules to match. `None`: the request is not limited.
    pub fn new<B>(client: Limina, key_values: F) -> LimitLayer<F>
    where
        F: Fn(&Request<B>) -> Option<Keys>,
    {
        let client = client.with_retries(0);
        LimitLayer {
            client,
            key_values: Arc::new(key_values),
            on_unavailable: OnUnavailable::Allow,
            headers: true,
            on_undecided: None,
        }
    }

    /// What happens to requests while the limiter cannot be asked. Default: they pass.
    pub fn on_unavailable(mut self, on_unavailable: OnUnavailable) -> LimitLayer<F> {
        self.on_unavailable = on_unavailable;
        self
    }

    /// Whether responses have `RateLimit-Policy` and `RateLimit`. Default: true. The server sends them only with a single check, so
    /// with `false` the checks of concurrent requests travel together.
    pub fn headers(mut self, headers: bool) -> LimitLayer<F> {
        self.headers = headers;
        self
    }

    /// Called for each request without a decision.
    pub fn on_undecided(mut self, callback: impl Fn(&Error) + Send + Sync + 'static) -> LimitLayer<F> {
        self.on_undecided = Some(Arc::new(callback));
        self
    }
}

impl<F> Clone for LimitLayer<F> {
    fn clone(&self) -> Self {
        LimitLayer {
            client: self.client.clone(),
            key_values: self.key_values.clone(),
            on_unavailable: self.on_unavailable,
            headers: self.headers,
            on_undecided: self.on_undecided.clone(),
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
        let layer = &self.layer;
        let with_headers = layer.headers;
        let check = (layer.key_values)(&request).map(|key_values| {
            let check = layer.client.check(key_values);
            if with_headers { check.alone() } else { check }
        });
        let (client, on_unavailable) = (layer.client.clone(), layer.on_unavailable);
        let on_undecided = layer.on_undecided.clone();
        Box::pin(async move {
            let Some(check) = check else { return inner.call(request).await };
            let headers = match check.await {
                Ok(decision) if decision.allowed => headers(&decision, with_headers),
                Ok(decision) => return Ok(limit_reached(&decision, with_headers)),
                Err(error @ Error::Unavailable { .. }) => {
                    client.undecided().count(&error, on_unavailable == OnUnavailable::Allow);
                    if let Some(callback) = on_undecided {
                        callback(&error);
                    }
                    match on_unavailable {
                        OnUnavailable::Allow => HeaderMap::new(),
                        OnUnavailable::Refuse => return Ok(unavailable(error.failure().retry_after)),
                    }
                }
                Err(error) => return Ok(mistake(error)),
            };
            let mut response = inner.call(request).await?;
            response.headers_mut().extend(headers);
            Ok(response)
        })
    }
}

fn limit_reached<R: From<String>>(decision: &Reply<CheckReply>, with_headers: bool) -> Response<R> {
    /// What the problem document has beside the fields of a decision.
    #[derive(Default, Deserialize)]
    struct Refusal {
        #[serde(rename = "violated-policies", default)]
        violated_policies: Vec<String>,
    }
    // A refusal without this field is a refusal all the same.
    let Refusal { violated_policies } = serde_json::from_str(decision.json()).unwrap_or_default();
    let problem = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "A limit is reached",
        "code": "LimitReached",
        "violated-policies": violated_policies,
        "retry_after_ms": decision.retry_after_ms,
    });
    let retry_after = decision.retry_after_ms.map(|span| Duration::from_millis(span.0));
    let mut response = answer(StatusCode::TOO_MANY_REQUESTS, retry_after, problem);
    response.headers_mut().extend(headers(decision, with_headers));
    response
}

/// What the limiter says about its limits.
fn headers(decision: &Reply<CheckReply>, with_headers: bool) -> HeaderMap {
    let headers = if with_headers { decision.headers() } else { &[] };
    headers.iter().cloned().collect()
}

fn unavailable<R: From<String>>(retry_after: Option<Duration>) -> Response<R> {
    let problem =
        json!({"type": "about:blank", "title": "The limiter is not available", "code": "LimiterUnavailable"});
    let retry_after = retry_after.unwrap_or(Duration::from_secs(1));
    answer(StatusCode::SERVICE_UNAVAILABLE, Some(retry_after.max(Duration::from_millis(1))), problem)
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
