//! Decisions: limits, holds, locks and an event, all of it or nothing, under one operation id.

use crate::{
    Guard, Pages, Reply,
    body::{self, Body},
    call::segment,
    error::{Done, Error, Result},
    transport::{Scope, random_id},
    types::{Decision, Keys},
};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::json;
use std::{
    future::IntoFuture,
    ops::Deref,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use tokio::runtime::Handle;

/// A request for a decision. It becomes a [`DecisionGuard`].
///
/// ```no_run
/// use limina_client::key_values;
///
/// # async fn example(client: limina_client::Limina) -> Result<(), limina_client::Error> {
/// let decision = client
///     .decide()
///     .check(key_values! {"tenant": "acme", "meter": "requests"})
///     .estimate("tokens", key_values! {"tenant": "acme", "meter": "tokens"}, 4000)
///     .hold("budget/acme", 52_000)
///     .await?;
/// let used = call_the_model().await; // If this fails, dropping the guard rolls the decision back.
/// decision.commit().hits("tokens", used).record().await?;
/// # Ok(())
/// # }
/// # async fn call_the_model() -> u64 { 812 }
/// ```
#[must_use = "nothing is decided until the request is awaited"]
#[derive(Clone)]
pub struct Decide {
    scope: Scope,
    body: Body,
    operation_id: Option<String>,
    ttl: Duration,
    wait: Duration,
}

impl Decide {
    pub(crate) fn new(scope: &Scope) -> Decide {
        let ttl = Duration::from_secs(60);
        Decide { scope: scope.clone(), body: Body::default(), operation_id: None, ttl, wait: Duration::ZERO }
    }

    /// The id under which retries and the end find the decision. Default: the client makes one that cannot be guessed.
    pub fn operation_id(mut self, id: impl Into<String>) -> Decide {
        self.operation_id = Some(id.into());
        self
    }

    /// How long the decision lives without a heartbeat. Default: 60 s.
    pub fn ttl(mut self, ttl: Duration) -> Decide {
        self.ttl = ttl;
        self
    }

    /// How long to wait for locks and slots: up to 5 min. Default: not at all.
    pub fn wait(mut self, wait: Duration) -> Decide {
        self.wait = wait;
        self.with("wait", body::duration(wait))
    }

    /// A name for this client, which everybody can read.
    pub fn owner(self, owner: impl Into<String>) -> Decide {
        self.with("owner", owner.into())
    }

    /// Takes one hit from every limit that applies.
    pub fn check(self, key_values: impl Into<Keys>) -> Decide {
        self.and("checks", json!({"key_values": body::key_values(key_values)}))
    }

    /// Takes hits from every limit that applies.
    pub fn take(self, key_values: impl Into<Keys>, hits: u64) -> Decide {
        self.and("checks", json!({"key_values": body::key_values(key_values), "hits": hits}))
    }

    /// Takes hits whose real number [`Commit::hits`] says later, under this name.
    pub fn estimate(self, name: &str, key_values: impl Into<Keys>, hits: u64) -> Decide {
        let key_values = body::key_values(key_values);
        self.and("checks", json!({"name": name, "key_values": key_values, "hits": hits, "estimate": true}))
    }

    /// Holds a value in a limit of the ledger.
    pub fn hold(self, limit_name: &str, value: i64) -> Decide {
        self.and("holds", json!({"limit_name": limit_name, "value": value}))
    }

    /// Holds a value in a limit of the ledger, which is created with this ceiling if it does not exist.
    pub fn hold_new(self, limit_name: &str, value: i64, ceiling: i64) -> Decide {
        let hold = json!({"limit_name": limit_name, "value": value, "ceiling": ceiling});
        self.and("holds", hold).create_missing()
    }

    /// Creates the limits of the ledger that do not exist.
    pub fn create_missing(self) -> Decide {
        self.with("create_missing", true)
    }

    /// Takes an exclusive lock.
    pub fn lock(self, key_values: impl Into<Keys>) -> Decide {
        self.and("locks", json!({"key_values": body::key_values(key_values)}))
    }

    /// Takes a lock that others may hold at the same time, if they share it too.
    pub fn lock_shared(self, key_values: impl Into<Keys>) -> Decide {
        self.and("locks", json!({"key_values": body::key_values(key_values), "mode": "shared"}))
    }

    /// Submits an event, which is published after the commit.
    pub fn event(self, stream: &str, event: &str) -> Decide {
        self.with("event", json!({"stream": stream, "event": event}))
    }

    /// If a slot or a ceiling refuses, the error names those who hold it.
    pub fn explain(self) -> Decide {
        self.with("explain", true)
    }

    /// Adds the fields of a document in the form of the API, except `operation_id`, `ttl`, `wait` and `dry_run`.
    pub fn document(mut self, document: &impl Serialize) -> Decide {
        self.body = self.body.with_document(document);
        self
    }

    /// Decides nothing: returns what would be decided now. Fails with `Refused` where it would be refused.
    pub async fn dry_run(mut self) -> Result<Reply<Decision>> {
        self.body.fields.remove("wait");
        let id = self.operation_id.map_or_else(random_id, Ok)?;
        let body =
            self.body.with("operation_id", id).with("ttl", body::duration(self.ttl)).with("dry_run", true);
        self.scope.post("/decisions").with_body(body).read_only().send().await
    }

    fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Decide {
        self.body = self.body.with(name, value);
        self
    }

    fn and(mut self, name: &str, item: serde_json::Value) -> Decide {
        self.body = self.body.and(name, item);
        self
    }

    async fn decide(self) -> Result<DecisionGuard> {
        let own_id = self.operation_id.is_none();
        let id = self.operation_id.map_or_else(random_id, Ok)?;
        let body = self.body.with("operation_id", id.as_str()).with("ttl", body::duration(self.ttl));
        let mut forgotten = Forgotten { scope: &self.scope, operation_id: &id, armed: own_id };
        let result = self.scope.post("/decisions").with_body(body).wait(self.wait).ask().await;
        // From here on the guard ends it, also if nobody waits for the guard.
        forgotten.armed &= matches!(result, Err(Error::Unavailable { done: Done::Unknown, .. }));
        let path = |decision: &Decision| path(&decision.operation_id);
        let guard = Guard::new(&self.scope, self.ttl, result?, path).await?;
        Ok(DecisionGuard { guard, scope: self.scope.clone() })
    }
}

impl IntoFuture for Decide {
    type Output = Result<DecisionGuard>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.decide())
    }
}

/// Rolls back a decision that may have been made under an id that only this client knows, if nobody waits for it any more.
struct Forgotten<'d> {
    scope: &'d Scope,
    operation_id: &'d str,
    armed: bool,
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        if self.armed
            && let Ok(runtime) = Handle::try_current()
        {
            let call = self.scope.post(format!("{}/rollback", path(self.operation_id)));
            runtime.spawn(call.ask());
        }
    }
}

/// A decision that is open. Dropping the guard rolls back what was not committed.
///
/// It dereferences to the [`Guard`], and so to the [`Decision`].
#[must_use = "dropping the guard of a decision rolls it back"]
pub struct DecisionGuard {
    guard: Guard<Decision>,
    scope: Scope,
}

impl DecisionGuard {
    /// It has happened. What the commit does not name ends as it was estimated or held.
    ///
    /// If the commit fails with `Unavailable` and [`Done::Unknown`], dropping the guard does not roll back: commit again, or let the
    /// `ttl` decide.
    pub fn commit(&self) -> Commit<'_> {
        let call = CommitCall { scope: &self.scope, path: path(&self.guard.operation_id) };
        Commit { call, guard: Some(&self.guard), body: Body::default() }
    }

    /// It has not happened.
    pub async fn rollback(self) -> Result<()> {
        self.guard.release().await
    }

    /// Rolls back what was not committed, and waits until that has succeeded or failed.
    pub async fn leave(self) {
        self.guard.leave().await;
    }
}

impl Deref for DecisionGuard {
    type Target = Guard<Decision>;

    fn deref(&self) -> &Guard<Decision> {
        &self.guard
    }
}

/// A commit: `decision.commit().hits("tokens", 812).await`.
#[must_use = "a commit does nothing until it is awaited"]
pub struct Commit<'d> {
    call: CommitCall<'d>,
    guard: Option<&'d Guard<Decision>>,
    body: Body,
}

struct CommitCall<'d> {
    scope: &'d Scope,
    path: String,
}

impl<'d> Commit<'d> {
    /// The real hits of a check that was an estimate.
    pub fn hits(mut self, check: &str, hits: u64) -> Commit<'d> {
        self.body = self.body.and("checks", json!({"name": check, "hits": hits}));
        self
    }

    /// The value to commit in a limit of the ledger.
    pub fn value(mut self, limit_name: &str, value: i64) -> Commit<'d> {
        self.body = self.body.and("holds", json!({"limit_name": limit_name, "value": value}));
        self
    }

    /// It has happened anyway: amounts beyond what was held, and a decision that has expired, are booked too.
    pub fn record(mut self) -> Commit<'d> {
        self.body = self.body.with("record", true);
        self
    }

    /// Adds the fields of a document in the form of the API.
    pub fn document(mut self, document: &impl Serialize) -> Commit<'d> {
        self.body = self.body.with_document(document);
        self
    }

    async fn commit(self) -> Result<Reply<Decision>> {
        let call = self.call.scope.post(format!("{}/commit", self.call.path)).with_body(self.body);
        let Some(guard) = self.guard else { return call.send().await };
        let keeper = guard.keeper();
        // It has happened, and the commit may be recorded, even if nobody waits for its answer. A rollback would contradict both.
        keeper.ended.store(true, SeqCst);
        let ending = Ending::begin(&keeper.ending);
        let result = call.send().await;
        drop(ending);
        match &result {
            Ok(_) => guard.stop(),
            Err(Error::Unavailable { done: Done::Unknown, .. }) => {}
            Err(_) => keeper.ended.store(false, SeqCst),
        }
        result
    }
}

impl<'d> IntoFuture for Commit<'d> {
    type Output = Result<Reply<Decision>>;
    type IntoFuture = BoxFuture<'d, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.commit())
    }
}

struct Ending<'k>(&'k AtomicBool);

impl<'k> Ending<'k> {
    fn begin(flag: &'k AtomicBool) -> Ending<'k> {
        flag.store(true, SeqCst);
        Ending(flag)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// `client.decisions()`: decisions by their id, without a guard.
pub struct Decisions<'c> {
    pub(crate) scope: &'c Scope,
}

impl<'c> Decisions<'c> {
    /// Decides without a guard, on a document in the form of the API: whoever knows its `operation_id` commits it or rolls it back.
    pub async fn create(&self, decision: &impl Serialize, wait: Duration) -> Result<Reply<Decision>> {
        self.scope.post("/decisions").body(decision).wait(wait).send().await
    }

    /// What became of a decision.
    pub async fn get(&self, operation_id: &str) -> Result<Reply<Decision>> {
        self.scope.get(path(operation_id)).send().await
    }

    /// Decisions; `.filter("state", "open")`, `.filter("owner", …)`, `.filter("older_than", "1h")`.
    pub fn list(&self) -> Pages<Decision> {
        Pages::get(self.scope, "/decisions")
    }

    /// It has happened.
    pub fn commit(&self, operation_id: &str) -> Commit<'c> {
        let call = CommitCall { scope: self.scope, path: path(operation_id) };
        Commit { call, guard: None, body: Body::default() }
    }

    /// It has not happened.
    pub async fn rollback(&self, operation_id: &str) -> Result<Reply<Decision>> {
        self.scope.post(format!("{}/rollback", path(operation_id))).send().await
    }

    /// Lets the decision live for its `ttl` from now on.
    pub async fn heartbeat(&self, operation_id: &str) -> Result<Reply<Decision>> {
        self.scope.post(format!("{}/heartbeat", path(operation_id))).without_key().send().await
    }
}

fn path(operation_id: &str) -> String {
    format!("/decisions/{}", segment(operation_id))
}
