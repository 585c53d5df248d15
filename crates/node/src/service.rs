//! The facade that every front end speaks to.

use limina_engine::{Name, Outcome, Page, Request, outcome::NamespaceInfo};

/// Hands requests to the shard of their namespace. Cheap to clone.
#[derive(Clone)]
pub struct Service {}

/// Why there is no outcome. Except for [`Unavailable::OutcomeUnknown`], nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unavailable {
    /// The shard's queue is full.
    #[error("more is asked than can be done; try again shortly")]
    Overloaded,
    /// The process is stopping.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// There is no room for more writes.
    #[error("the storage is full; reads go on")]
    StorageFull,
    /// The shard is being opened, or its store does not answer.
    #[error("the shard is not available at the moment")]
    ShardUnavailable,
    /// It may or may not have been done.
    #[error("it is not known whether this was done; repeat it under the same key or operation id to find out")]
    OutcomeUnknown,
}

impl Service {
    /// Does what is asked, and returns when it is durable.
    pub async fn submit(&self, request: Request) -> Result<Outcome, Unavailable> {
        let _ = request;
        Err(Unavailable::ShardUnavailable)
    }

    /// A part of all namespaces, by name.
    pub async fn namespaces(&self, page: Page<Name>) -> Result<Vec<NamespaceInfo>, Unavailable> {
        let _ = page;
        Err(Unavailable::ShardUnavailable)
    }

    /// Whether requests are served: every shard is open and the process is not stopping.
    pub fn is_ready(&self) -> bool {
        false
    }
}
