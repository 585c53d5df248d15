//! What is answered about locks.

use super::command::Lock;
use crate::{Listed, Millis, Name, Position, Time, key_values::KeyValues};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An answer about locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// They are held from now on.
    Granted {
        /// The grant.
        grant: GrantInfo,
        /// The holder's word, for the holder alone.
        session: Name,
    },
    /// Nothing waits for that request any more, and nothing is held for it alone.
    Abandoned,
    /// They are held for their ttl from now on.
    Extended(GrantInfo),
    /// They are free.
    Released,
    /// A grant as it is now.
    Grant(GrantInfo),
    /// A part of the grants.
    Grants(Listed<GrantInfo, Position>),
}

/// Why it was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    /// One of the locks is held, or was asked for earlier, and the request does not wait.
    LockHeld(Blocked),
    /// The request has waited for as long as it would.
    LockWaitTimeout(Blocked),
    /// Nothing is held under this id.
    LockNotFound {
        /// The id.
        lock_id: Name,
    },
    /// The word is not the holder's.
    SessionMismatch {
        /// The id.
        lock_id: Name,
    },
}

impl Refusal {
    /// The word by which it is known.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::LockHeld(_) => "LockHeld",
            Refusal::LockWaitTimeout(_) => "LockWaitTimeout",
            Refusal::LockNotFound { .. } => "LockNotFound",
            Refusal::SessionMismatch { .. } => "SessionMismatch",
        }
    }
}

/// What stands in the way of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// The first of its locks that it cannot have.
    pub key_values: KeyValues,
    /// Who holds that; of several who share it, the one who has held it longest. None if nobody does, and earlier
    /// requests alone are in the way.
    pub holder: Option<Holder>,
    /// How many wait for that lock, without this request.
    pub waiting: usize,
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The grant's id.
    pub lock_id: Name,
    /// Its owner.
    pub owner: Option<Name>,
    /// For how long it still holds without a heartbeat.
    pub expires_in: Millis,
}

/// A grant as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrantInfo {
    /// Its id.
    pub id: Name,
    /// Whose it is.
    pub owner: Option<Name>,
    /// What it holds.
    pub locks: Vec<Lock>,
    /// How long it lives without a heartbeat.
    pub ttl: Millis,
    /// Since when.
    pub granted_at: Time,
    /// Until when.
    pub expires_at: Time,
    /// Grows with every grant of the namespace.
    pub fencing_token: Position,
    /// How many requests wait for any of its locks. Each counts once, as long as they are few; of a great many the
    /// longest queue counts.
    pub waiting: usize,
    /// The instant of this answer, from which spans are told.
    pub now: Time,
}
