//! Locks: exclusive or shared, one or several at once.

use crate::{
    Guard, Pages, Reply,
    body::{self, Body},
    call::segment,
    error::Result,
    transport::Scope,
    types::{Keys, Lock as HeldGrant, LockGrant},
};
use futures_util::future::BoxFuture;
use reqwest::Method;
use serde::Serialize;
use serde_json::json;
use std::{future::IntoFuture, time::Duration};

/// A request for locks: `client.lock(key_values, ttl).wait(…).await`. It becomes a [`Guard`].
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(client: limina_client::Limina) -> Result<(), limina_client::Error> {
/// let ttl = Duration::from_secs(30);
/// let guard = client.lock([("account", "a")], ttl).and([("account", "b")]).and_shared([("rates", "eur")]).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a lock is not requested until it is awaited"]
pub struct Lock {
    scope: Scope,
    body: Body,
    ttl: Duration,
    wait: Duration,
}

impl Lock {
    pub(crate) fn new(scope: &Scope, key_values: impl Into<Keys>, ttl: Duration) -> Lock {
        let body = Body::default().with("ttl", body::duration(ttl));
        Lock { scope: scope.clone(), body, ttl, wait: Duration::ZERO }.and(key_values)
    }

    /// Takes another lock together with the others: all at once, or none.
    pub fn and(self, key_values: impl Into<Keys>) -> Lock {
        self.with_lock(key_values, "exclusive")
    }

    /// Takes another lock together with the others, which it shares with other holders.
    pub fn and_shared(self, key_values: impl Into<Keys>) -> Lock {
        self.with_lock(key_values, "shared")
    }

    /// All locks that were named so far are shared with other holders.
    pub fn shared(mut self) -> Lock {
        if let Some(locks) = self.body.fields.get_mut("locks").and_then(|locks| locks.as_array_mut()) {
            for lock in locks {
                lock["mode"] = json!("shared");
            }
        }
        self
    }

    /// How long to wait: up to 5 min. Default: not at all.
    pub fn wait(mut self, wait: Duration) -> Lock {
        self.wait = wait;
        self.body = self.body.with("wait", body::duration(wait));
        self
    }

    /// A name for this client, which everybody can read.
    pub fn owner(mut self, owner: impl Into<String>) -> Lock {
        self.body = self.body.with("owner", owner.into());
        self
    }

    fn with_lock(mut self, key_values: impl Into<Keys>, mode: &str) -> Lock {
        let lock = json!({"key_values": body::key_values(key_values), "mode": mode});
        self.body = self.body.and("locks", lock);
        self
    }

    async fn take(self) -> Result<Guard<LockGrant>> {
        let answer = self.scope.post("/locks").with_body(self.body).wait(self.wait).ask().await?;
        let path = |grant: &LockGrant| lock_path(&grant.lock_id);
        Guard::new(&self.scope, self.ttl, answer, path).await
    }
}

impl IntoFuture for Lock {
    type Output = Result<Guard<LockGrant>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.take())
    }
}

/// `client.locks()`: who holds which lock. To take one, use [`Limina::lock`](crate::Limina::lock).
pub struct Locks<'c> {
    pub(crate) scope: &'c Scope,
}

impl Locks<'_> {
    /// All grants.
    pub fn list(&self) -> Pages<HeldGrant> {
        Pages::get(self.scope, "/locks")
    }

    /// One grant.
    pub async fn get(&self, lock_id: &str) -> Result<Reply<HeldGrant>> {
        self.scope.get(lock_path(lock_id)).send().await
    }

    /// The grants that a query finds, such as `{"where": {"job": "nightly"}}`.
    pub fn query(&self, query: &impl Serialize) -> Pages<HeldGrant> {
        Pages::query(self.scope, "/locks/query", Body::of(query))
    }

    /// Extends a grant by its `ttl`, for a program that got the grant's ids from another one.
    pub async fn heartbeat(&self, lock_id: &str, session_id: &str) -> Result<Reply<HeldGrant>> {
        let body = Body::default().with("session_id", session_id);
        self.scope
            .post(format!("{}/heartbeat", lock_path(lock_id)))
            .with_body(body)
            .without_key()
            .send()
            .await
    }

    /// Ends a grant, for a program that got the grant's ids from another one.
    pub async fn release(&self, lock_id: &str, session_id: &str) -> Result<()> {
        let call = self.scope.call(Method::DELETE, lock_path(lock_id));
        call.query("session_id", session_id).send().await.map(Reply::into_inner)
    }

    /// Ends somebody else's grant, as an operator.
    pub async fn force_release(&self, lock_id: &str) -> Result<()> {
        let call = self.scope.call(Method::DELETE, lock_path(lock_id));
        call.query("force", true).send().await.map(Reply::into_inner)
    }
}

fn lock_path(lock_id: &str) -> String {
    format!("/locks/{}", segment(lock_id))
}
