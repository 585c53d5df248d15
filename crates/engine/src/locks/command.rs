//! The commands about locks.
//!
//! `Deserialize` does not check them: see [`UncheckedRequest`](crate::UncheckedRequest).

use crate::{Invalid, Name, Page, Position, selection::Query};
use limina_api::locks::Acquire;
use serde::{Deserialize, Serialize};

/// A command about locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Hold some locks, all at once or not at all.
    Acquire(LockRequest),
    /// The client of the request with this id has hung up. The request stops waiting. If it was answered with a grant, and
    /// no other request was, the grant ends. A grant that was also returned to a retry under the same idempotency key stays.
    Abandon(Name),
    /// Extend a grant: its ttl starts again now.
    Heartbeat {
        /// The grant.
        id: Name,
        /// The session of the holder.
        session: Name,
    },
    /// End a grant.
    Release {
        /// The grant.
        id: Name,
        /// The session of the holder. None is for operators, who need no session.
        session: Option<Name>,
    },
    /// Read a grant.
    Get(Name),
    /// A page of the grants, the oldest first.
    List {
        /// The conditions on the key-values of the grants' locks.
        query: Query,
        /// The page.
        page: Page<Position>,
    },
}

impl Command {
    /// Whether the command may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Command::Acquire(_)
            | Command::Abandon(_)
            | Command::Heartbeat { .. }
            | Command::Release { .. } => true,
            Command::Get(_) | Command::List { .. } => false,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self {
            Command::Acquire(request) => request.wanted.validate(),
            Command::List { query, page } => query.validate().and_then(|()| page.validate()),
            Command::Abandon(_) | Command::Heartbeat { .. } | Command::Release { .. } | Command::Get(_) => {
                Ok(())
            }
        }
    }
}

/// A request for locks, with the ids that its caller has drawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRequest {
    /// The id of the grant to be. The same id again finds the grant that it made.
    pub id: Name,
    /// The holder's secret word: without it nobody can heartbeat or release the grant, except an operator.
    pub session: Name,
    /// What the client asks for.
    pub wanted: Acquire,
}
