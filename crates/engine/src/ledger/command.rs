//! What can be asked of the ledger.

use crate::{Millis, Name, Page, Position};
use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use serde::{Deserialize, Serialize};

/// A limit's context: a client's own words about it (provider, terminal, …).
pub type Context = BTreeMap<Box<str>, Box<str>>;

/// A command of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Make a limit.
    CreateLimit(NewLimit),
    /// Change a limit's ceiling or context.
    PatchLimit {
        /// Which.
        name: Name,
        /// The new ceiling.
        ceiling: Patch<i64>,
        /// The new context.
        context: Patch<Context>,
    },
    /// Read a limit.
    GetLimit(Name),
    /// A part of the limits, by name.
    ListLimits(Page<Name>),
    /// Hold, commit or roll back.
    Transfer(Transfer),
    /// Several of these, each on its own, in order.
    Batch(Vec<Transfer>),
    /// The values of limits, now or as of some moment.
    Values {
        /// Which; each once.
        limit_names: Vec<Name>,
        /// When.
        as_of: AsOf,
    },
    /// An operation's state in every limit.
    GetOperation(Name),
    /// A part of the operations, by id.
    ListOperations {
        /// Only those with an open hold.
        only_held: bool,
        /// Which part.
        page: Page<Name>,
    },
    /// A part of a limit's history, by position.
    ListEntries {
        /// Which limit.
        limit_name: Name,
        /// Which part.
        page: Page<Position>,
    },
}

impl Command {
    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Command::CreateLimit(_)
            | Command::PatchLimit { .. }
            | Command::Transfer(_)
            | Command::Batch(_) => true,
            Command::GetLimit(_)
            | Command::ListLimits(_)
            | Command::Values { .. }
            | Command::GetOperation(_)
            | Command::ListOperations { .. }
            | Command::ListEntries { .. } => false,
        }
    }
}

/// A limit to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewLimit {
    /// Its name within the namespace.
    pub name: Name,
    /// The client's own id for it.
    pub limit_id: Option<Name>,
    /// The client's words about it.
    pub context: Context,
    /// What commits and positive open holds together must not pass.
    pub ceiling: Option<i64>,
}

/// A field of a PATCH: left alone, removed, or set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Patch<T> {
    /// Not mentioned.
    Keep,
    /// `null`.
    Remove,
    /// A new value.
    Set(T),
}

/// What moves values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Transfer {
    /// Hold.
    Hold(Hold),
    /// Commit or roll back.
    Finish(Finalization),
}

impl Transfer {
    /// Whose it is.
    pub fn operation_id(&self) -> &Name {
        match self {
            Transfer::Hold(hold) => &hold.operation_id,
            Transfer::Finish(finalization) => &finalization.operation_id,
        }
    }
}

/// Hold values in several limits, all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// The client's id for the operation.
    pub operation_id: Name,
    /// What to hold where; each limit once, at least one.
    pub changes: Vec<Change>,
    /// Pass over limits in which the operation has an open hold already.
    pub skip_existing_holds: bool,
    /// Make limits that are missing.
    pub create_missing: bool,
    /// Roll back by itself after this time.
    pub expires_after: Option<Millis>,
}

/// What to hold in one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The limit.
    pub limit_name: Name,
    /// How much; may be negative or 0.
    pub value: i64,
    /// For a limit that is made by this hold.
    pub limit_id: Option<Name>,
    /// For a limit that is made by this hold.
    pub context: Context,
}

/// Finish holds of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finalization {
    /// How.
    pub finish: Finish,
    /// Whose holds.
    pub operation_id: Name,
    /// Which, each limit once; without this, all that are open, at their held values.
    pub changes: Option<Vec<FinalizationChange>>,
}

/// The two ways in which a hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finish {
    /// The value, or a part of it, counts for good.
    Commit,
    /// The value is freed.
    Rollback,
}

/// How to finish the hold in one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinalizationChange {
    /// The limit.
    pub limit_name: Name,
    /// What to commit, if not all that is held. A rollback always frees all, whatever stands here.
    pub value: Option<i64>,
}

/// The moment for which values are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AsOf {
    /// The latest.
    Now,
    /// The view of an operation: at its last hold request that held something.
    Operation(Name),
    /// After the change at this position, and before the next.
    Position(Position),
}
