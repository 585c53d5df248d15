//! The limiter: checks, leases and counters.

use crate::{
    Guard, Pages, Reply,
    batch::{self, Kind},
    body::{self, Body},
    call::segment,
    error::Result,
    transport::{FOREVER, Scope, random_share},
    types::{CheckReply, Counter, CounterReply, Keys, Lease as HeldLease, LeaseGrant},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use reqwest::Method;
use serde::Serialize;
use std::{future::IntoFuture, mem, time::Duration};
use tokio::time::Instant;

/// A check: `client.check(key_values).hits(2).await`.
#[must_use = "a check does nothing until it is awaited"]
#[derive(Clone)]
pub struct Check {
    scope: Scope,
    /// The beginning of the body: the key-values. A program makes more checks than other calls, so the body of a check is written
    /// at once, without a map of its fields.
    json: Vec<u8>,
    options: CheckOptions,
    key: Option<String>,
    alone: bool,
}

/// The fields of a check beside its key-values.
#[derive(Clone, Default)]
struct CheckOptions {
    hits: Option<u64>,
    dry_run: bool,
    require_match: bool,
    report: bool,
}

impl Check {
    pub(crate) fn new(scope: &Scope, key_values: impl Into<Keys>) -> Check {
        let mut json = Vec::with_capacity(128);
        json.extend_from_slice(b"{\"key_values\":");
        // Key-values are strings, numbers and booleans, so this cannot fail.
        let _written = serde_json::to_writer(&mut json, &key_values.into());
        Check { scope: scope.clone(), json, options: CheckOptions::default(), key: None, alone: false }
    }

    /// How much to take. 0 takes nothing and only reports. Default: 1.
    pub fn hits(mut self, hits: u64) -> Check {
        self.options.hits = Some(hits);
        self
    }

    /// Decides, but takes nothing.
    pub fn dry_run(mut self) -> Check {
        self.options.dry_run = true;
        self
    }

    /// If no rule applies, the check fails instead of being allowed.
    pub fn require_match(mut self) -> Check {
        self.options.require_match = true;
        self
    }

    /// It has happened already: it is counted, whatever the limits say.
    pub fn report(mut self) -> Check {
        self.options.report = true;
        self
    }

    /// Makes the check repeatable, and durable even where only relaxed rules apply. It then travels alone.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Check {
        self.key = Some(key.into());
        self
    }

    /// Sends the check without others. Its reply has the [`headers`](Reply::headers) of the answer.
    pub fn alone(mut self) -> Check {
        self.alone = true;
        self
    }

    async fn decide(mut self) -> Result<Reply<CheckReply>> {
        let body = self.options.complete(mem::take(&mut self.json));
        let answer = if self.alone || self.key.is_some() {
            let call = self.scope.post(Kind::Check.path()).with_json(body).for_check();
            let call = match self.key {
                Some(key) => call.idempotency_key(key),
                None => call.without_key(),
            };
            // Boxed, so that the future of a check that travels with others is small.
            Box::pin(call.ask()).await?
        } else {
            batch::send(&self.scope, Kind::Check, body).await?
        };
        // The problem document of a refused check has the fields of a reply.
        if answer.code() == "LimitReached" { answer.parse() } else { answer.reply() }
    }
}

impl CheckOptions {
    /// Appends the fields to the body, and ends it.
    fn complete(&self, mut json: Vec<u8>) -> Bytes {
        if let Some(hits) = self.hits {
            json.extend_from_slice(format!(",\"hits\":{hits}").as_bytes());
        }
        let flags =
            [("dry_run", self.dry_run), ("require_match", self.require_match), ("report", self.report)];
        for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
            json.extend_from_slice(format!(",\"{name}\":true").as_bytes());
        }
        json.push(b'}');
        json.into()
    }
}

impl IntoFuture for Check {
    type Output = Result<Reply<CheckReply>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.decide())
    }
}

/// A check that is repeated until it is allowed: `client.wait(key_values, at_most).await`.
///
/// It returns the last refusal if it cannot be allowed in time, or if time alone does not cure it: to wait for slots, take a lease.
#[must_use = "a check does nothing until it is awaited"]
pub struct Wait {
    check: Check,
    at_most: Duration,
}

impl Wait {
    pub(crate) fn new(check: Check, at_most: Duration) -> Wait {
        Wait { check, at_most: at_most.min(FOREVER) }
    }

    /// How much to take. Default: 1.
    pub fn hits(mut self, hits: u64) -> Wait {
        self.check = self.check.hits(hits);
        self
    }

    /// If no rule applies, the check fails instead of being allowed.
    pub fn require_match(mut self) -> Wait {
        self.check = self.check.require_match();
        self
    }

    async fn repeat(self) -> Result<Reply<CheckReply>> {
        let deadline = Instant::now() + self.at_most;
        loop {
            let decision = self.check.clone().await?;
            let left = deadline.duration_since(Instant::now());
            let wait = decision
                .retry_after_ms
                .map(|span| Duration::from_millis(span.0))
                .filter(|wait| *wait <= left);
            let Some(wait) = wait.filter(|_| !decision.allowed) else { return Ok(decision) };
            // Callers that were refused together should not come back together.
            let jitter = (wait / 10).max(Duration::from_millis(10)).mul_f64(random_share());
            tokio::time::sleep((wait + jitter).min(left)).await;
        }
    }
}

impl IntoFuture for Wait {
    type Output = Result<Reply<CheckReply>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.repeat())
    }
}

/// A request for a lease: `client.lease(key_values, ttl).wait(…).await`. It becomes a [`Guard`].
#[must_use = "a lease is not requested until it is awaited"]
pub struct Lease {
    scope: Scope,
    body: Body,
    ttl: Duration,
    wait: Duration,
}

impl Lease {
    pub(crate) fn new(scope: &Scope, key_values: impl Into<Keys>, ttl: Duration) -> Lease {
        let body = Body::default().with("key_values", body::key_values(key_values));
        Lease { scope: scope.clone(), body: body.with("ttl", body::duration(ttl)), ttl, wait: Duration::ZERO }
    }

    /// How much to take. Default: 1.
    pub fn hits(self, hits: u64) -> Lease {
        self.with("hits", hits)
    }

    /// How long to wait for slots: up to 5 min. Default: not at all.
    pub fn wait(mut self, wait: Duration) -> Lease {
        self.wait = wait;
        self.with("wait", body::duration(wait))
    }

    /// A name for this client, which everybody can read.
    pub fn owner(self, owner: impl Into<String>) -> Lease {
        self.with("owner", owner.into())
    }

    /// If no rule applies, the lease is refused instead of granted.
    pub fn require_match(self) -> Lease {
        self.with("require_match", true)
    }

    fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Lease {
        self.body = self.body.with(name, value);
        self
    }

    async fn take(self) -> Result<Guard<LeaseGrant>> {
        let answer = self.scope.post("/limiter/leases").with_body(self.body).wait(self.wait).ask().await?;
        let path = |grant: &LeaseGrant| lease_path(&grant.lease_id);
        Guard::new(&self.scope, self.ttl, answer, path).await
    }
}

impl IntoFuture for Lease {
    type Output = Result<Guard<LeaseGrant>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.take())
    }
}

/// `client.counters()`: what is in use, for exact key-values.
pub struct Counters<'c> {
    pub(crate) scope: &'c Scope,
}

impl Counters<'_> {
    /// Takes (a positive number, as a check does) or gives back (a negative one).
    pub async fn add(&self, key_values: impl Into<Keys>, counters: i64) -> Result<Reply<CounterReply>> {
        let body = Body::default().with("key_values", body::key_values(key_values));
        self.scope.post("/limiter/counters").with_body(body.with("counters", counters)).send().await
    }

    /// Sets the part that no lease holds, without asking any rule.
    pub async fn set(&self, key_values: impl Into<Keys>, counters: i64) -> Result<Reply<Counter>> {
        let body = Body::default().with("key_values", body::key_values(key_values));
        self.scope.put("/limiter/counters/set").with_body(body.with("counters", counters)).send().await
    }

    /// The counters that a query finds, such as `{"where": {"tenant": "acme"}}`.
    pub fn query(&self, query: &impl Serialize) -> Pages<Counter> {
        Pages::query(self.scope, "/limiter/counters/query", Body::of(query))
    }
}

/// `client.leases()`: who holds what. To take a lease, use [`Limina::lease`](crate::Limina::lease).
pub struct Leases<'c> {
    pub(crate) scope: &'c Scope,
}

impl Leases<'_> {
    /// All leases; `.filter("owner", …)` for those of one owner.
    pub fn list(&self) -> Pages<HeldLease> {
        Pages::get(self.scope, "/limiter/leases")
    }

    /// One lease.
    pub async fn get(&self, lease_id: &str) -> Result<Reply<HeldLease>> {
        self.scope.get(lease_path(lease_id)).send().await
    }

    /// Extends a lease by its `ttl`, for a program that got the lease's ids from another one.
    pub async fn heartbeat(&self, lease_id: &str, session_id: &str) -> Result<Reply<HeldLease>> {
        let body = Body::default().with("session_id", session_id);
        self.scope
            .post(format!("{}/heartbeat", lease_path(lease_id)))
            .with_body(body)
            .without_key()
            .send()
            .await
    }

    /// Ends a lease, for a program that got the lease's ids from another one.
    pub async fn release(&self, lease_id: &str, session_id: &str) -> Result<()> {
        let call = self.scope.call(Method::DELETE, lease_path(lease_id));
        call.query("session_id", session_id).send().await.map(Reply::into_inner)
    }

    /// Ends somebody else's lease, as an operator.
    pub async fn force_release(&self, lease_id: &str) -> Result<()> {
        let call = self.scope.call(Method::DELETE, lease_path(lease_id));
        call.query("force", true).send().await.map(Reply::into_inner)
    }
}

fn lease_path(lease_id: &str) -> String {
    format!("/limiter/leases/{}", segment(lease_id))
}
