//! The replies and refusals of locks.

use crate::{Listed, Millis, Name, Position, QuotaExceeded, key_values::KeyValues};
use limina_api::locks::GrantInfo;
use serde::{Deserialize, Serialize};

/// The reply to a command that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The locks are held.
    Granted {
        /// The grant.
        grant: GrantInfo,
        /// The session secret. Only the holder may see it.
        session: Name,
    },
    /// The request no longer waits, and no grant exists for it alone.
    Abandoned,
    /// The grant expires one ttl from now.
    Extended(GrantInfo),
    /// The grant has ended.
    Released,
    /// A grant as it is now.
    Grant(GrantInfo),
    /// A page of the grants, the oldest first.
    Grants(Listed<GrantInfo, Position>),
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    /// One of the locks is held, or an earlier request waits for it, and this request does not wait.
    LockHeld(Blocked),
    /// The request has waited for as long as it may.
    LockWaitTimeout(Blocked),
    /// There is no grant with this id.
    LockNotFound {
        /// The id of the request.
        lock_id: Name,
    },
    /// The session secret is not that of the holder.
    SessionMismatch {
        /// The id of the request.
        lock_id: Name,
    },
    /// The grant is a part of a decision, which is open. Only the decision as a whole can be changed.
    PartOfOperation {
        /// The id of the request.
        lock_id: Name,
        /// The decision.
        operation_id: Name,
    },
    /// The namespace would have more than its quota allows. Nothing has changed.
    QuotaExceeded(QuotaExceeded),
}

impl From<QuotaExceeded> for Refusal {
    fn from(exceeded: QuotaExceeded) -> Refusal {
        Refusal::QuotaExceeded(exceeded)
    }
}

impl Refusal {
    /// The error code in problem documents, metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::LockHeld(_) => "LockHeld",
            Refusal::LockWaitTimeout(_) => "LockWaitTimeout",
            Refusal::LockNotFound { .. } => "LockNotFound",
            Refusal::SessionMismatch { .. } => "SessionMismatch",
            Refusal::PartOfOperation { .. } => "PartOfOperation",
            Refusal::QuotaExceeded(_) => "QuotaExceeded",
        }
    }
}

/// Why a request for locks cannot be granted now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// The first lock of the request that is not available.
    pub key_values: KeyValues,
    /// The holder of that lock; if several share it, the oldest. `None` if nobody holds it, and only earlier requests block
    /// this one.
    pub holder: Option<Holder>,
    /// The number of other requests that wait for that lock.
    pub waiting: usize,
}

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The grant's id.
    pub lock_id: Name,
    /// The name that the holder gave itself.
    pub owner: Option<Name>,
    /// The time until the grant expires, unless there is a heartbeat.
    pub expires_in: Millis,
}
