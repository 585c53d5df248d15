//! The commands about locks, and the limits within which they can be built.
//!
//! `Deserialize` does not check these limits: see [`UncheckedRequest`](crate::UncheckedRequest).

use crate::{Invalid, Millis, Name, Page, Position, key_values::KeyValues, selection::Query};
use alloc::{format, vec::Vec};
use limina_api::invalid::{check_distinct, check_duration, check_items};
use serde::{Deserialize, Serialize};

/// A command about locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Hold some locks, all at once or not at all.
    Acquire(Acquire),
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
            Command::Acquire(acquire) => acquire.validate(),
            Command::List { query, page } => query.validate().and_then(|()| page.validate()),
            Command::Abandon(_) | Command::Heartbeat { .. } | Command::Release { .. } | Command::Get(_) => {
                Ok(())
            }
        }
    }
}

/// A request for locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    pub(super) id: Name,
    pub(super) session: Name,
    pub(super) locks: Vec<Lock>,
    pub(super) ttl: Millis,
    pub(super) wait: Millis,
    pub(super) owner: Option<Name>,
}

impl Acquire {
    /// The most locks that one request may ask for. It asks for at least one.
    pub const MAX_LOCKS: usize = 64;
    /// The shortest ttl.
    pub const MIN_TTL: Millis = Millis(100);
    /// The longest ttl.
    pub const MAX_TTL: Millis = Millis::DAY;
    /// The longest time that a request may wait.
    pub const MAX_WAIT: Millis = Millis(5 * 60 * 1000);

    /// Asks for each lock once; every lock has at least one key-value. The request does not wait, and the grant has no
    /// owner, unless [`Acquire::with_wait`] and [`Acquire::with_owner`] say so.
    ///
    /// `id` becomes the id of the grant. The caller draws it; the same id again finds the grant that it made. `session` is
    /// the holder's secret word, also drawn by the caller: without it nobody can heartbeat or release the grant, except
    /// an operator. `ttl` is how long the locks are held without a heartbeat.
    pub fn new(id: Name, session: Name, locks: Vec<Lock>, ttl: Millis) -> Result<Acquire, Invalid> {
        let acquire = Acquire { id, session, locks, ttl, wait: Millis(0), owner: None };
        acquire.validate()?;
        Ok(acquire)
    }

    /// Waits this long for locks that others hold. 0 refuses the request at once.
    pub fn with_wait(self, wait: Millis) -> Result<Acquire, Invalid> {
        check_wait(wait)?;
        Ok(Acquire { wait, ..self })
    }

    /// The client's own word for the holder. Other clients can read it.
    #[must_use]
    pub fn with_owner(self, owner: Option<Name>) -> Acquire {
        Acquire { owner, ..self }
    }

    /// The same request from another connection: with an id and a session of its own.
    #[must_use]
    pub fn with_id(self, id: Name, session: Name) -> Acquire {
        Acquire { id, session, ..self }
    }

    /// The id of the grant to be.
    pub fn id(&self) -> &Name {
        &self.id
    }

    /// The holder's secret word.
    pub fn session(&self) -> &Name {
        &self.session
    }

    /// The locks, in the client's order.
    pub fn locks(&self) -> &[Lock] {
        &self.locks
    }

    /// How long the locks are held without a heartbeat.
    pub fn ttl(&self) -> Millis {
        self.ttl
    }

    /// How long the request waits for locks that others hold.
    pub fn wait(&self) -> Millis {
        self.wait
    }

    /// The client's own word for the holder.
    pub fn owner(&self) -> Option<&Name> {
        self.owner.as_ref()
    }

    fn validate(&self) -> Result<(), Invalid> {
        check_items("locks", self.locks.len(), 1..=Acquire::MAX_LOCKS)?;
        for (index, lock) in self.locks.iter().enumerate() {
            check_items("key_values", lock.key_values.len(), 1..=KeyValues::MAX_KEYS)
                .map_err(|invalid| invalid.within_item("locks", index))?;
        }
        let locks = self.locks.iter().map(|lock| &lock.key_values);
        check_distinct(locks, |index| format!("locks[{index}].key_values"))?;
        check_duration("ttl", self.ttl, Acquire::MIN_TTL..=Acquire::MAX_TTL)?;
        check_wait(self.wait)
    }
}

fn check_wait(wait: Millis) -> Result<(), Invalid> {
    check_duration("wait", wait, Millis(0)..=Acquire::MAX_WAIT)
}

/// One lock of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// The lock's identity: two requests mean the same lock if these are equal. At least one.
    pub key_values: KeyValues,
    /// Whether others may hold the lock at the same time.
    pub mode: Mode,
}

/// Whether others may hold a lock at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Nobody else may hold the lock.
    Exclusive,
    /// Others may hold the lock too, if they share it.
    Shared,
}

impl Mode {
    /// Whether two grants with these modes cannot hold the same lock at the same time.
    pub fn conflicts(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}
