//! Calls of any path, with the retries of this client.

use crate::{
    body::Body,
    error::{Error, Result},
    reply::Reply,
    transport::{Answer, Request, Scope, random_id},
};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Write, time::Duration};

/// A request to any path of the API: for what this client has no method for.
///
/// ```no_run
/// # async fn example(client: limina_client::Limina) -> Result<(), limina_client::Error> {
/// let cluster = client.call(limina_client::Method::GET, "/v1/cluster").send::<serde_json::Value>().await?;
/// println!("{}", cluster.json());
/// # Ok(())
/// # }
/// ```
#[must_use = "a call does nothing until it is sent"]
pub struct Call {
    scope: Scope,
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    /// The error says why the body cannot be written as JSON.
    body: Option<Result<Bytes>>,
    key: Key,
    safe: bool,
    wait: Duration,
    text: bool,
    is_check: bool,
}

enum Key {
    /// The client makes a key if the method is POST or PUT.
    Automatic,
    None,
    Given(String),
}

impl Call {
    /// Adds a parameter to the query.
    pub fn query(mut self, name: &str, value: impl ToString) -> Call {
        self.query.push((name.to_owned(), value.to_string()));
        self
    }

    /// The body: anything that serializes to a JSON object.
    pub fn body(self, document: &(impl Serialize + ?Sized)) -> Call {
        self.with_body(Body::of(document))
    }

    /// The request changes nothing, whatever its method is: it needs no key, and can be repeated.
    pub fn read_only(mut self) -> Call {
        self.key = Key::None;
        self.safe = true;
        self
    }

    /// Sends no `Idempotency-Key`. If the outcome is unknown, the request is then not repeated.
    pub fn without_key(mut self) -> Call {
        self.key = Key::None;
        self
    }

    /// Sends this `Idempotency-Key` instead of one that the client makes.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Call {
        self.key = Key::Given(key.into());
        self
    }

    /// Sends the request, and reads the answer. An answer without a body reads as `()`.
    pub async fn send<T: DeserializeOwned>(self) -> Result<Reply<T>> {
        self.ask().await?.reply()
    }

    /// Sends the request, and reads the answer as text: for what is not JSON.
    pub async fn text(mut self) -> Result<String> {
        self.text = true;
        let answer = self.ask().await?.success()?;
        String::from_utf8(answer.body.into()).map_err(|error| Error::unreadable(answer.status, error))
    }

    /// How long the server may wait before it answers, because the body has a `wait`. The timeout is then this much longer.
    pub fn wait(mut self, wait: Duration) -> Call {
        self.wait = wait;
        self
    }

    pub(crate) fn new(scope: &Scope, method: Method, path: impl Into<String>) -> Call {
        Call {
            scope: scope.clone(),
            safe: method == Method::GET,
            method,
            path: path.into(),
            query: Vec::new(),
            body: None,
            key: Key::Automatic,
            wait: Duration::ZERO,
            text: false,
            is_check: false,
        }
    }

    pub(crate) fn with_body(mut self, body: Body) -> Call {
        self.body = Some(body.bytes());
        self
    }

    /// The body, as JSON.
    pub(crate) fn with_json(mut self, json: Bytes) -> Call {
        self.body = Some(Ok(json));
        self
    }

    /// The request goes through the circuit breaker.
    pub(crate) fn for_check(mut self) -> Call {
        self.is_check = true;
        self
    }

    /// As [`Call::send`], except that an error other than `Unavailable` is returned as an answer.
    pub(crate) async fn ask(self) -> Result<Answer> {
        // The server's clock may run slower than this one, by a twentieth at most.
        let timeout = self.scope.timeout.saturating_add(self.wait.saturating_add(self.wait / 16));
        let request = self.request()?;
        let safe = self.safe || request.key.is_some();
        let transport = &self.scope.transport;
        transport.persist(&self.scope, (safe, self.is_check), |_| transport.attempt(&request, timeout)).await
    }

    /// One attempt, without retries.
    pub(crate) async fn once(self, timeout: Duration) -> Result<Answer> {
        self.scope.transport.attempt(&self.request()?, timeout).await?.success()
    }

    pub(crate) fn request(&self) -> Result<Request> {
        let key = match &self.key {
            Key::Given(key) => Some(key.clone()),
            Key::Automatic if [Method::POST, Method::PUT].contains(&self.method) => Some(random_id()?),
            Key::Automatic | Key::None => None,
        };
        Ok(Request {
            method: self.method.clone(),
            url: self.scope.url(&self.path, &self.query)?,
            body: self.body.clone().transpose()?,
            key,
            last_event_id: None,
            text: self.text,
            is_check: self.is_check,
        })
    }
}

impl Scope {
    pub(crate) fn call(&self, method: Method, path: impl Into<String>) -> Call {
        Call::new(self, method, path)
    }

    pub(crate) fn get(&self, path: impl Into<String>) -> Call {
        self.call(Method::GET, path)
    }

    pub(crate) fn post(&self, path: impl Into<String>) -> Call {
        self.call(Method::POST, path)
    }

    pub(crate) fn put(&self, path: impl Into<String>) -> Call {
        self.call(Method::PUT, path)
    }

    pub(crate) fn patch(&self, path: impl Into<String>) -> Call {
        self.call(Method::PATCH, path)
    }

    pub(crate) async fn delete(&self, path: impl Into<String>) -> Result<()> {
        self.call(Method::DELETE, path).send().await.map(Reply::into_inner)
    }

    /// The URL of a path: below the namespace, unless it is one of the server's own.
    pub(crate) fn url(&self, path: &str, query: &[(String, String)]) -> Result<String> {
        const WHOLE: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/openapi.json"];
        let mut whole = if path.starts_with("/v1/") || WHOLE.contains(&path) {
            path.to_owned()
        } else {
            format!("/v1/ns/{}{path}", segment(&self.namespace))
        };
        // A URL resolves `.` and `..`, which are valid names nowhere, to another path.
        let misleading = whole.split('/').skip(1).find(|part| ["", ".", ".."].contains(part));
        if let Some(name) = misleading {
            return Err(Error::invalid(format!("{name:?} is not a valid name")));
        }
        for (place, (name, value)) in query.iter().enumerate() {
            let separator = if place == 0 { '?' } else { '&' };
            // Writing to a string cannot fail.
            let _ = write!(whole, "{separator}{}={}", segment(name), segment(value));
        }
        Ok(format!("{}{whole}", self.transport.url))
    }
}

/// A name as one segment of a path.
pub(crate) fn segment(name: &str) -> impl std::fmt::Display {
    const OTHERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(name, OTHERS)
}
