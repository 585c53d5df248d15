//! Why a request has no outcome.

use super::admission::Overloaded;
use crate::memory::MemoryFull;
use serde::{Deserialize, Serialize};

/// Why there is no outcome. Except for [`Unavailable::OutcomeUnknown`], nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error, Serialize, Deserialize)]
pub enum Unavailable {
    /// The request would have waited for too long, or too much waits already.
    #[error("the server is overloaded; try again shortly")]
    Overloaded {
        /// The time after which the request may be accepted, as estimated from what waits now.
        retry_after_ms: u64,
    },
    /// The memory budget has no room for the request.
    #[error("the memory budget is used up; try again shortly")]
    MemoryFull,
    /// The process is stopping.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The store has no room for more writes.
    #[error("the storage is full; reads go on")]
    StorageFull,
    /// The shard is being opened, its store does not answer, or its task has panicked.
    #[error("the shard is not available at the moment")]
    ShardUnavailable,
    /// The request may or may not have been executed.
    #[error(
        "it is not known whether this was done; repeat it under the same key or operation id to find out"
    )]
    OutcomeUnknown,
}

impl Unavailable {
    /// What [`Unavailable::code`] returns.
    pub const CODES: [&str; 5] =
        ["Overloaded", "ShuttingDown", "StorageFull", "ShardUnavailable", "OutcomeUnknown"];

    /// The code in problem documents, metrics and logs.
    pub fn code(self) -> &'static str {
        match self {
            Unavailable::Overloaded { .. } | Unavailable::MemoryFull => "Overloaded",
            Unavailable::ShuttingDown => "ShuttingDown",
            Unavailable::StorageFull => "StorageFull",
            Unavailable::ShardUnavailable => "ShardUnavailable",
            Unavailable::OutcomeUnknown => "OutcomeUnknown",
        }
    }
}

impl From<Overloaded> for Unavailable {
    fn from(overloaded: Overloaded) -> Unavailable {
        let retry_after_ms = u64::try_from(overloaded.retry_after.as_millis()).unwrap_or(u64::MAX);
        Unavailable::Overloaded { retry_after_ms }
    }
}

impl From<MemoryFull> for Unavailable {
    fn from(MemoryFull: MemoryFull) -> Unavailable {
        Unavailable::MemoryFull
    }
}
