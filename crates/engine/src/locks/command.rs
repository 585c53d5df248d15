//! What can be asked about locks.

use crate::{Millis, Name, Page, Position, key_values::KeyValues, selection::Query};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// How many locks one request may ask for.
pub const MAX_LOCKS: usize = 64;

/// A command about locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Hold some locks, all at once or not at all.
    Acquire(Acquire),
    /// The request of this id has hung up. It waits no more; a grant that was told to this request alone ends. A grant that
    /// was also told to another request, a retry under the same idempotency key, stays.
    Abandon(Name),
    /// Hold them for their ttl from now on.
    Heartbeat {
        /// Which.
        id: Name,
        /// The holder's word.
        session: Name,
    },
    /// Hold them no longer.
    Release {
        /// Which.
        id: Name,
        /// The holder's word; none for an operator, who needs none.
        session: Option<Name>,
    },
    /// Read a grant.
    Get(Name),
    /// A part of the grants, the oldest first.
    List {
        /// What to look for among the key-values of their locks.
        query: Query,
        /// Which part.
        page: Page<Position>,
    },
}

impl Command {
    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Command::Acquire(_)
            | Command::Abandon(_)
            | Command::Heartbeat { .. }
            | Command::Release { .. } => true,
            Command::Get(_) | Command::List { .. } => false,
        }
    }
}

/// A request for locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// What the grant will be called. Drawn where the request came in; the same id again finds the grant it made.
    pub id: Name,
    /// The holder's secret word, with which alone it heartbeats and releases.
    pub session: Name,
    /// Which, at least one and each once.
    pub locks: Vec<Lock>,
    /// For how long they are held without a heartbeat.
    pub ttl: Millis,
    /// For how long to wait for them.
    pub wait: Millis,
    /// Whose they will be, for those who look.
    pub owner: Option<Name>,
}

/// One lock of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// The lock: exactly these key-values.
    pub key_values: KeyValues,
    /// How.
    pub mode: Mode,
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// By nobody else.
    Exclusive,
    /// By others too who share it.
    Shared,
}

impl Mode {
    /// Whether two cannot hold the same lock so at the same time.
    pub fn conflicts(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}
