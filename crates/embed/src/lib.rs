//! Limina inside your own process: *may this happen now?*
//!
//! Limina decides five kinds of questions, durably and in one total order for each namespace:
//!
//! - the **ledger** moves amounts between *available*, *held* and *committed*, never above a ceiling: [`ledger`];
//! - the **limiter** counts against rules, in windows or as concurrent use: [`limiter`];
//! - **locks** are held for a time, by one holder or several, with fencing tokens: [`locks`];
//! - **events** are accepted once in a given time, and followers see every change: [`events`];
//! - **decisions** do all of this at one instant or not at all, and settle later what really happened: [`decisions`].
//!
//! This crate runs all of it as a library, without a server and without a network. A call returns when its result is
//! durable.
//!
//! ```
//! use limina_embed::{Limina, ledger::{Hold, NewLimit}};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let limina = Limina::in_memory().await?; // Or Limina::open("./data").await?
//!     let ledger = limina.namespace("shop")?.ledger();
//!
//!     ledger.create_limit(NewLimit::new("budget").ceiling(1_000)).await?;
//!     ledger.hold(Hold::new("order-17").change("budget", 700)).await?;
//!     let refused = ledger.hold(Hold::new("order-18").change("budget", 700)).await;
//!     assert!(refused.unwrap_err().refusal().is_some(), "1400 is more than 1000");
//!     ledger.commit("order-17").await?;
//!
//!     limina.close().await?;
//!     Ok(())
//! }
//! ```
//!
//! # Handles
//!
//! [`Limina`], [`Namespace`] and the handles of the families are cheap to clone, and are `Send` and `Sync`. Each of them keeps
//! the instance alive. [`Limina::close`] ends it for all handles.
//!
//! # Errors
//!
//! [`Error::Refused`] is a decision, [`Error::Failed`] is the absence of one. See [`Error`].
//!
//! # Retries
//!
//! A call whose outcome is unknown is safe to repeat under an idempotency key: see [`Ledger::idempotency_key`], which the
//! other families have as well. Operations of the ledger and decisions are also safe to repeat under their operation id.
//!
//! # Runtime
//!
//! Limina runs on the tokio runtime in which it was opened. That runtime needs its timer (`enable_time` or `enable_all`).
//! Poll and drop the futures of this crate within a tokio runtime, which may be another one.
//!
//! # Features
//!
//! | feature | store | default |
//! |---|---|---|
//! | `embedded` | a directory of this process: `Limina::open` | yes |
//! | `postgres` | a PostgreSQL database: `Limina::postgres` | no |
//!
//! [`Limina::in_memory`] needs no feature.
//!
//! This crate must never know a wire format or a front end.

mod builder;
mod call;
pub mod decisions;
mod error;
pub mod events;
mod instance;
pub mod ledger;
pub mod limiter;
pub mod locks;
#[cfg(feature = "postgres")]
mod postgres;

pub use builder::{Builder, OpenError};
pub use decisions::Decisions;
pub use error::{Error, Failure};
pub use events::Events;
pub use instance::InstanceFailure;
pub use ledger::Ledger;
pub use limina_engine::{
    Invalid, InvalidName, KeyValues, Keys, Listed, Millis, Name, Position, Quota, QuotaExceeded, QuotaTable,
    Reason, Time, key_values::OwnedValue as KeyValue, outcome::NamespaceInfo, quotas::QuotaSection,
    selection,
};
pub use limina_node::{
    Metrics, NoRandomNumbers, NodeFailure, RefusalListener, RefusedRequest, Service,
    refusals::{ListeningEnded, RefusalNews},
};
pub use limina_store::StoreError;
pub use limiter::Limiter;
pub use locks::Locks;

use call::Caller;
use instance::{Instance, Running};
use limina_engine::{Command, Outcome};
use std::{fmt, sync::Arc};

/// An instance of Limina. Cheap to clone; all clones are the same instance.
///
/// Call [`Limina::close`] before the process ends. If the last handle is dropped without it, the instance ends in the
/// background. If the process ends first, the next start has more to read. In no case is anything lost that a call
/// returned, except what a rule or a store promises to forget: relaxed checks, and the store in memory.
#[derive(Clone)]
pub struct Limina {
    instance: Arc<Instance>,
}

impl Limina {
    /// Opens the store in this directory, or creates it, with the default options.
    ///
    /// A directory belongs to one instance at a time, in this process or any other.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// let limina = limina_embed::Limina::open(directory.path()).await?;
    /// assert!(limina_embed::Limina::open(directory.path()).await.is_err(), "it is in use");
    /// limina.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "embedded")]
    pub async fn open(directory: impl AsRef<std::path::Path>) -> Result<Limina, OpenError> {
        Limina::builder().open(directory).await
    }

    /// Opens an instance whose data are gone when it ends. For tests, and for state that need not last.
    pub async fn in_memory() -> Result<Limina, OpenError> {
        Limina::builder().in_memory().await
    }

    /// Opens the store in the PostgreSQL database at this URL, or creates it in the schema `limina`.
    ///
    /// The instance must be the only one on the database: a second one, or a server, fails with
    /// [`OpenError::DatabaseInUse`]. After a crash, opening waits until the tenure of the crashed process has run out
    /// ([`Builder::tenure`]). Several processes can share a database as a cluster: see [`Builder::cluster`].
    #[cfg(feature = "postgres")]
    pub async fn postgres(url: &str) -> Result<Limina, OpenError> {
        Limina::builder().postgres(url).await
    }

    /// Options, for an instance that does not use the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(service: Service, running: Running) -> Limina {
        Limina { instance: Arc::new(Instance::new(service, running)) }
    }

    /// A handle to the namespace with this name. A namespace is created by the first write to it. Two namespaces share
    /// nothing.
    pub fn namespace(&self, name: &str) -> Result<Namespace, InvalidName> {
        Ok(Namespace { caller: Caller::new(self.instance.clone(), Name::new(name)?) })
    }

    /// The namespaces by name: at most `limit` of those that follow `after`. Pass `next` of one answer as `after` of the
    /// next call.
    pub async fn namespaces(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Listed<NamespaceInfo, Name>, Failure> {
        let page = call::page(after, limit)?;
        let items = self.instance.service.namespaces(page).await?;
        let next = items.last().filter(|_| items.len() >= limit).map(|last| last.name.clone());
        Ok(Listed { items, next })
    }

    /// Listens to what is refused, in one namespace or in all: first the latest refusals, up to a thousand, then new ones as they
    /// happen. A listener that is too slow misses some, and learns how many.
    pub fn refusals(&self, namespace: Option<Name>) -> Result<RefusalListener, Failure> {
        let listening = self.instance.service.listen_to_refusals(namespace);
        listening.map_err(|full| limina_node::Unavailable::from(full).into())
    }

    /// The service behind this instance, for a front end.
    pub fn service(&self) -> &Service {
        &self.instance.service
    }

    /// Returns when the instance cannot be used any more, and why: its table could not be opened again after a failure, or a
    /// task has panicked. Calls that need the failed part return [`Failure::Unavailable`] or [`Failure::OutcomeUnknown`];
    /// nothing that was acknowledged is lost. Close the instance and open the store again, best in a new process. If the
    /// instance does not fail, this never returns.
    pub async fn failed(&self) -> InstanceFailure {
        self.instance.failed().await
    }

    /// Gives all shards to the other nodes of a cluster. Returns when they are given away. Calls are answered meanwhile and
    /// afterwards, from the other nodes. Call this before [`Limina::close`] if clients still send requests to this process.
    /// Returns false at once if there is no other node.
    pub async fn leave(&self) -> bool {
        self.instance.leave().await
    }

    /// Ends the instance: new calls fail with [`Failure::Closed`], calls in progress are answered, and the store is
    /// flushed and closed. When this returns, the directory can be opened again. If the returned future is dropped, the
    /// instance ends nevertheless.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.instance.close().await
    }
}

impl fmt::Debug for Limina {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limina").finish_non_exhaustive()
    }
}

/// A namespace: the unit of atomicity and of order. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Namespace {
    caller: Caller,
}

impl Namespace {
    /// The name of the namespace.
    pub fn name(&self) -> &Name {
        self.caller.namespace()
    }

    /// Limits as accounts: hold, commit, roll back.
    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.caller.clone())
    }

    /// Rate limits and limits of concurrent use.
    pub fn limiter(&self) -> Limiter {
        Limiter::new(self.caller.clone())
    }

    /// Locks with a time to live.
    pub fn locks(&self) -> Locks {
        Locks::new(self.caller.clone())
    }

    /// Streams of events that happen once.
    pub fn events(&self) -> Events {
        Events::new(self.caller.clone())
    }

    /// Decisions over all families: take, hold, lock and submit at one instant, settle the actual later.
    pub fn decisions(&self) -> Decisions {
        Decisions::new(self.caller.clone())
    }

    /// Deletes the namespace with everything in it. Returns false if the namespace did not exist.
    pub async fn delete(&self) -> Result<bool, Failure> {
        match self.caller.call(Command::DeleteNamespace).await? {
            Outcome::NamespaceDeleted => Ok(true),
            Outcome::NamespaceNotFound => Ok(false),
            outcome => Err(call::failure(&outcome)),
        }
    }
}
