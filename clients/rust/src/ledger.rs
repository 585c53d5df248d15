//! The ledger: reserve an amount, then commit it or give it back.

use crate::{
    Pages, Reply,
    batch::{self, Kind},
    body::{self, Body},
    call::segment,
    error::Result,
    transport::Scope,
    types::{Entry, FinalizationReply, HoldReply, Limit, Operation, ValuesReply},
};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};
use std::{future::IntoFuture, time::Duration};

/// `client.ledger()`
///
/// ```no_run
/// # async fn example(client: limina_client::Limina) -> Result<(), limina_client::Error> {
/// let ledger = client.ledger();
/// ledger.hold("payment-4711").change("provider-7/daily", 250).await?;
/// ledger.commit("payment-4711").change("provider-7/daily", 199).await?;
/// # Ok(())
/// # }
/// ```
pub struct Ledger<'c> {
    pub(crate) scope: &'c Scope,
}

impl<'c> Ledger<'c> {
    /// Holds amounts in limits, in all of them or in none. Fails with `Refused` if a ceiling would be exceeded.
    pub fn hold(&self, operation_id: impl Into<String>) -> Hold {
        let body = Body::default().with("operation_id", operation_id.into());
        Hold { scope: self.scope.clone(), body }
    }

    /// Commits what the operation holds. Without changes, all of it.
    pub fn commit(&self, operation_id: impl Into<String>) -> Finalize {
        self.finalize(operation_id, true)
    }

    /// Gives back what the operation holds. Without changes, all of it.
    pub fn rollback(&self, operation_id: impl Into<String>) -> Finalize {
        self.finalize(operation_id, false)
    }

    fn finalize(&self, operation_id: impl Into<String>, commit: bool) -> Finalize {
        let body = Body::default().with("operation_id", operation_id.into());
        Finalize { scope: self.scope.clone(), body, commit }
    }

    /// The latest values of limits.
    pub async fn values(&self, limit_names: &[&str]) -> Result<Reply<ValuesReply>> {
        self.values_with(Body::default().with("limit_names", json!(limit_names))).await
    }

    /// The values that an operation saw when it held.
    pub async fn values_of(&self, operation_id: &str, limit_names: &[&str]) -> Result<Reply<ValuesReply>> {
        let body = Body::default().with("limit_names", json!(limit_names));
        self.values_with(body.with("operation_id", operation_id)).await
    }

    /// The values at a position.
    pub async fn values_at(&self, position: u64, limit_names: &[&str]) -> Result<Reply<ValuesReply>> {
        self.values_with(Body::default().with("limit_names", json!(limit_names)).with("position", position))
            .await
    }

    async fn values_with(&self, body: Body) -> Result<Reply<ValuesReply>> {
        self.scope.post("/ledger/values").with_body(body).read_only().send().await
    }

    /// Every open hold of the operation expires this long after now; `None`: never.
    pub async fn extend(
        &self,
        operation_id: &str,
        expires_after: Option<Duration>,
    ) -> Result<Reply<Operation>> {
        let body = Body::default().with("operation_id", operation_id);
        let body = body
            .with("expires_after", expires_after.map_or(Value::Null, |after| body::duration(after).into()));
        self.scope.post("/ledger/extend").with_body(body).send().await
    }

    /// One operation with its holds.
    pub async fn operation(&self, operation_id: &str) -> Result<Reply<Operation>> {
        self.scope.get(format!("/ledger/operations/{}", segment(operation_id))).send().await
    }

    /// The operations with open holds; `.filter("older_than", "1h")`, `.filter("limit_name", …)`.
    pub fn operations(&self) -> Pages<Operation> {
        Pages::get(self.scope, "/ledger/operations").filter("state", "held")
    }

    /// The limits themselves.
    pub fn limits(&self) -> Limits<'c> {
        Limits { scope: self.scope }
    }
}

/// A hold: `client.ledger().hold(operation_id).change(limit, value).await`.
#[must_use = "a hold does nothing until it is awaited"]
pub struct Hold {
    scope: Scope,
    body: Body,
}

impl Hold {
    /// Holds a value in a limit. It may be negative.
    pub fn change(mut self, limit_name: &str, value: i64) -> Hold {
        self.body = self.body.and("changes", json!({"limit_name": limit_name, "value": value}));
        self
    }

    /// Creates the limits that do not exist.
    pub fn create_missing(mut self) -> Hold {
        self.body = self.body.with("create_missing", true);
        self
    }

    /// Skips the limits in which the operation already holds the same value.
    pub fn skip_existing_holds(mut self) -> Hold {
        self.body = self.body.with("skip_existing_holds", true);
        self
    }

    /// Rolls the holds back automatically after this time.
    pub fn expires_after(mut self, after: Duration) -> Hold {
        self.body = self.body.with("expires_after", body::duration(after));
        self
    }

    /// Adds the fields of a document in the form of the API.
    pub fn document(mut self, document: &impl Serialize) -> Hold {
        self.body = self.body.with_document(document);
        self
    }
}

impl IntoFuture for Hold {
    type Output = Result<Reply<HoldReply>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { batch::send(&self.scope, Kind::Hold, self.body.bytes()?).await?.reply() })
    }
}

/// A commit or a rollback: `client.ledger().commit(operation_id).await`.
#[must_use = "a commit or rollback does nothing until it is awaited"]
pub struct Finalize {
    scope: Scope,
    body: Body,
    commit: bool,
}

impl Finalize {
    /// Finishes the hold in this limit, at this value. The rest is freed; a rollback frees all of it.
    pub fn change(mut self, limit_name: &str, value: i64) -> Finalize {
        self.body = self.body.and("changes", json!({"limit_name": limit_name, "value": value}));
        self
    }

    /// Adds the fields of a document in the form of the API.
    pub fn document(mut self, document: &impl Serialize) -> Finalize {
        self.body = self.body.with_document(document);
        self
    }

    async fn finish(self) -> Result<Reply<FinalizationReply>> {
        if self.commit {
            batch::send(&self.scope, Kind::Commit, self.body.bytes()?).await?.reply()
        } else {
            self.scope.post("/ledger/rollback").with_body(self.body).send().await
        }
    }
}

impl IntoFuture for Finalize {
    type Output = Result<Reply<FinalizationReply>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.finish())
    }
}

/// `client.ledger().limits()`
pub struct Limits<'c> {
    scope: &'c Scope,
}

impl Limits<'_> {
    /// Creates a limit. The document has its `name`, and may have a `ceiling`.
    pub async fn create(&self, limit: &impl Serialize) -> Result<Reply<Limit>> {
        self.scope.post("/ledger/limits").body(limit).send().await
    }

    /// All limits; `.filter("order", "used")` begins with those nearest to their ceilings.
    pub fn list(&self) -> Pages<Limit> {
        Pages::get(self.scope, "/ledger/limits")
    }

    /// One limit with its values.
    pub async fn get(&self, name: &str) -> Result<Reply<Limit>> {
        self.scope.get(limit_path(name)).send().await
    }

    /// Changes the ceiling or the context.
    pub async fn patch(&self, name: &str, changes: &impl Serialize) -> Result<Reply<Limit>> {
        self.scope.patch(limit_path(name)).body(changes).send().await
    }

    /// Deletes the limit with its history, unless a hold is open in it.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.scope.delete(limit_path(name)).await
    }

    /// The history of the limit.
    pub fn entries(&self, name: &str) -> Pages<Entry> {
        Pages::get(self.scope, format!("{}/entries", limit_path(name)))
    }
}

fn limit_path(name: &str) -> String {
    format!("/ledger/limits/{}", segment(name))
}
