//! One HTTP exchange, and its repetition.
//!
//! The rule for repetitions: an attempt that certainly did nothing is always repeated. An attempt whose outcome is unknown is
//! repeated only if the request is safe to repeat: a read, or a request with a key under which the server recognizes it.

use crate::{
    batch::Queues,
    breaker::Circuit,
    error::{Done, Error, Result, unavailability},
    reply::Reply,
};
use bytes::Bytes;
use limina_api::{Problem, RequestId};
use reqwest::{
    Method, Response,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::{
    error,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// The longest time that this client counts with. Beyond it the clock could overflow.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// What all clients of one server share: its address, the connections, the budget of retries, and the queues of batches.
pub(crate) struct Transport {
    pub(crate) http: reqwest::Client,
    pub(crate) url: String,
    pub(crate) token: Option<HeaderValue>,
    pub(crate) budget: Budget,
    pub(crate) queues: Queues,
    pub(crate) circuit: Circuit,
    #[cfg(feature = "tower")]
    pub(crate) undecided: crate::Undecided,
}

/// Where and how patiently to call: a server, a namespace, a timeout.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) transport: Arc<Transport>,
    pub(crate) namespace: Arc<str>,
    /// For one attempt.
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
}

pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) body: Option<Bytes>,
    /// The `Idempotency-Key`. Every attempt of one call sends the same.
    pub(crate) key: Option<String>,
    pub(crate) last_event_id: Option<u64>,
    /// The answer is a text. The answer to every other request is JSON, or empty.
    pub(crate) text: bool,
    /// It asks for a check, or for several. Only such requests go through the circuit breaker: their callers know what to do without an
    /// answer.
    pub(crate) is_check: bool,
}

/// An HTTP answer, or one item of the answer to a batch.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    /// The problem document, if `status` says that there is a problem.
    pub(crate) problem: Option<Box<Problem>>,
    pub(crate) retry_after: Option<Duration>,
    /// When the attempt that was answered left.
    pub(crate) sent_at: Instant,
    /// The headers that a service passes on to its own client. Empty for an item of a batch.
    pub(crate) headers: Headers,
}

pub(crate) type Headers = Vec<(HeaderName, HeaderValue)>;

impl Transport {
    /// Sends a request once. Returns any HTTP answer; fails with `Unavailable` if there is none.
    pub(crate) async fn attempt(&self, request: &Request, timeout: Duration) -> Result<Answer> {
        if !request.is_check {
            return self.exchange(request, timeout).await;
        }
        let attempt = self.circuit.begin(Instant::now())?;
        let result = self.exchange(request, timeout).await;
        let failed = match &result {
            Ok(answer) => answer.unavailability().is_some(),
            Err(error) => matches!(error, Error::Unavailable { .. }),
        };
        if failed {
            attempt.failed(Instant::now())
        } else {
            attempt.answered()
        }
        result
    }

    async fn exchange(&self, request: &Request, timeout: Duration) -> Result<Answer> {
        let sent_at = Instant::now();
        let exchange = async { read(self.send(request).await?, sent_at, request.text).await };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Error::unavailable(Done::Unknown, format!("no answer within {timeout:?}"))),
        }
    }

    /// Opens a stream that has no end. `timeout` is for the head of the answer.
    pub(crate) async fn open(&self, request: &Request, timeout: Duration) -> Result<Response> {
        let sent_at = Instant::now();
        let exchange = async {
            let response = self.send(request).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            let answer = read(response, sent_at, false).await?;
            Err(Error::of(answer.status, answer.problem, answer.retry_after))
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Error::unavailable(Done::Unknown, format!("no answer within {timeout:?}"))),
        }
    }

    /// Repeats `attempt` as the rule above allows. Returns an answer that is not `Unavailable`.
    pub(crate) async fn persist<F>(
        &self,
        scope: &Scope,
        (safe, is_check): (bool, bool),
        mut attempt: impl FnMut(u32) -> F,
    ) -> Result<Answer>
    where
        F: Future<Output = Result<Answer>>,
    {
        let mut unknown = false;
        let mut retry = 0;
        loop {
            let error = match attempt(retry).await {
                Ok(answer) if answer.unavailability().is_none() => {
                    self.budget.refund();
                    return Ok(answer);
                }
                Ok(answer) => Error::of(answer.status, answer.problem, answer.retry_after),
                Err(error) => error,
            };
            let Error::Unavailable { done, failure } = error else { return Err(error) };
            unknown |= done == Done::Unknown;
            retry += 1;
            let repeatable = safe || done == Done::No;
            let ends = is_check && self.circuit.is_open();
            if !repeatable || ends || !self.may_retry(scope, retry, failure.retry_after) {
                // A later attempt that did nothing does not undo an earlier one.
                return Err(Error::Unavailable {
                    done: if unknown { Done::Unknown } else { Done::No },
                    failure,
                });
            }
            tokio::time::sleep(pause(retry, failure.retry_after)).await;
        }
    }

    /// Whether there may be a retry number `retry` (1, 2, …). If so, it is taken from the budget.
    pub(crate) fn may_retry(&self, scope: &Scope, retry: u32, retry_after: Option<Duration>) -> bool {
        retry <= scope.retries && retry_after.is_none_or(|wait| wait <= scope.timeout) && self.budget.take()
    }

    async fn send(&self, request: &Request) -> Result<Response> {
        let mut builder = self.http.request(request.method.clone(), &request.url);
        if let Some(token) = &self.token {
            builder = builder.header(AUTHORIZATION, token);
        }
        if let Some(key) = &request.key {
            builder = builder.header("idempotency-key", key);
        }
        if let Some(clock) = request.last_event_id {
            builder = builder.header("last-event-id", clock);
        }
        if let Some(body) = &request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        builder.send().await.map_err(network_error)
    }
}

async fn read(response: Response, sent_at: Instant, text: bool) -> Result<Answer> {
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let is_json = is_json(response.headers());
    let headers = passed_on(response.headers());
    let body = response.bytes().await.map_err(network_error)?;
    if status.is_success() {
        // A success that is neither JSON nor 204 comes from something between client and server.
        if status.as_u16() != 204 && !is_json && !text {
            return Err(Error::unreadable(status.as_u16(), "it is not JSON"));
        }
    } else if status.as_u16() < 400 {
        // A redirection is a mistake in the URL, and must not switch limits off as `Unavailable` may.
        return Err(Error::of(status.as_u16(), None, None));
    }
    Ok(Answer { headers, ..Answer::new(status.as_u16(), body, retry_after, sent_at) })
}

/// A failure of the network. If no connection was opened, the request was never sent.
fn network_error(error: reqwest::Error) -> Error {
    let done = if error.is_connect() || error.is_builder() { Done::No } else { Done::Unknown };
    let is_builder = error.is_builder();
    // The URL of a release contains the session, which is a secret.
    let error = error.without_url();
    let mut message = error.to_string();
    let mut source = error::Error::source(&error);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    if is_builder { Error::invalid(message) } else { Error::unavailable(done, message) }
}

/// The headers of an answer that a service passes on to its own client. Only checks, leases and decisions have them.
fn passed_on(headers: &HeaderMap) -> Headers {
    const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
    const STATE: HeaderName = HeaderName::from_static("ratelimit");
    let names = [POLICY, STATE, RETRY_AFTER].into_iter();
    names.filter_map(|name| headers.get(&name).map(|value| (name, value.clone()))).collect()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(FOREVER))
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.contains("json"))
}

impl Answer {
    pub(crate) fn new(status: u16, body: Bytes, retry_after: Option<Duration>, sent_at: Instant) -> Answer {
        let problem = if status < 400 { None } else { problem(&body) };
        Answer { status, body, problem, retry_after, sent_at, headers: Headers::new() }
    }

    pub(crate) fn code(&self) -> &str {
        self.problem.as_ref().map_or("", |problem| &problem.code)
    }

    pub(crate) fn unavailability(&self) -> Option<Done> {
        unavailability(self.status, self.code())
    }

    /// The reply, if this is a success.
    pub(crate) fn reply<T: DeserializeOwned>(self) -> Result<Reply<T>> {
        self.success()?.parse()
    }

    pub(crate) fn success(self) -> Result<Answer> {
        if self.status < 400 {
            return Ok(self);
        }
        Err(Error::of(self.status, self.problem, self.retry_after))
    }

    /// Reads the body, whatever the status is. A body that is absent is `null`.
    pub(crate) fn parse<T: DeserializeOwned>(self) -> Result<Reply<T>> {
        let json = if self.body.is_empty() { Bytes::from_static(b"null") } else { self.body };
        // Validating the text as a whole is faster than string by string, which `from_slice` does.
        let text = str::from_utf8(&json).map_err(|error| Error::unreadable(self.status, error))?;
        let value = serde_json::from_str(text).map_err(|error| Error::unreadable(self.status, error))?;
        Ok(Reply::new(value, json, self.headers))
    }
}

/// Reads a problem document. Something between client and server may send one with fewer fields than Limina does.
fn problem(body: &[u8]) -> Option<Box<Problem>> {
    let mut fields: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let mut text = |name| match fields.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let code = text("code")?.into();
    let (kind, title, detail) = (text("type"), text("title"), text("detail"));
    let request_id = text("request_id").and_then(|id| RequestId::new(id.as_bytes()));
    let status = fields.remove("status").and_then(|status| status.as_u64()?.try_into().ok());
    Some(Box::new(Problem {
        kind: kind.unwrap_or_default(),
        title: title.unwrap_or_default().into(),
        status: status.unwrap_or_default(),
        detail: detail.unwrap_or_default(),
        code,
        request_id,
        extensions: fields,
    }))
}

/// How many retries a client may still make. It keeps a fleet of clients from multiplying the load of a server in trouble.
pub(crate) struct Budget {
    tenths: AtomicU32,
}

impl Budget {
    const FULL: u32 = 100;

    pub(crate) fn full() -> Budget {
        Budget { tenths: AtomicU32::new(Budget::FULL) }
    }

    fn take(&self) -> bool {
        self.tenths.fetch_update(Relaxed, Relaxed, |tenths| tenths.checked_sub(10)).is_ok()
    }

    fn refund(&self) {
        let more = |tenths| (tenths < Budget::FULL).then_some(tenths + 1);
        let _already_full = self.tenths.fetch_update(Relaxed, Relaxed, more);
    }
}

/// The pause before retry 1, 2, …: random, so that clients do not return together, and after what the server asked for.
pub(crate) fn pause(retry: u32, retry_after: Option<Duration>) -> Duration {
    let longest = Duration::from_millis(100 << retry.saturating_sub(1).min(5)).min(Duration::from_secs(2));
    retry_after.unwrap_or_default() + longest.mul_f64(random_share())
}

/// A random number between 0 and 1.
pub(crate) fn random_share() -> f64 {
    f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX)
}

/// 128 random bits as a text.
pub(crate) fn random_id() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::unavailable(Done::No, format!("no random numbers: {error}")))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
