//! The commands of the ledger, and the limits within which they can be built.
//!
//! `Deserialize` does not check these limits: it reads the engine's own records, and the parts of an
//! [`UncheckedRequest`](crate::UncheckedRequest), which are checked afterwards.

use crate::{Invalid, Millis, Name, Page, Position};
use alloc::{format, vec::Vec};
use core::ops::Deref;
use limina_api::Context;
use limina_api::invalid::{check_distinct, check_duration, check_items};
use serde::{Deserialize, Serialize};

/// A command of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Create a limit.
    CreateLimit(NewLimit),
    /// Change a limit's ceiling or context.
    PatchLimit {
        /// The limit.
        name: Name,
        /// The new ceiling.
        ceiling: Patch<i64>,
        /// The new context.
        context: Patch<Context>,
    },
    /// Delete a limit with its history.
    DeleteLimit(Name),
    /// Read a limit.
    GetLimit(Name),
    /// A page of the limits, by name.
    ListLimits(Page<Name>),
    /// The limits that are nearest to their ceilings. The command looks at a bounded number of limits, by name: the reply
    /// has the nearest ones among these, and the name of the last limit that it looked at.
    ListLimitsByUse(Page<Name>),
    /// Hold, commit or roll back.
    Transfer(Transfer),
    /// Set when the open holds of an operation expire.
    Extend(Extend),
    /// Several transfers, in order. Each of them succeeds or is refused on its own.
    Batch(Batch),
    /// The values of limits, now or as of some moment.
    Values(Values),
    /// An operation's state in every limit.
    GetOperation(Name),
    /// A page of the operations, by id.
    ListOperations {
        /// Which operations are listed.
        filter: OperationFilter,
        /// The page.
        page: Page<Name>,
    },
    /// A page of a limit's history, by position.
    ListEntries {
        /// The limit.
        limit_name: Name,
        /// The page.
        page: Page<Position>,
    },
}

impl Command {
    /// Whether the command may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Command::CreateLimit(_)
            | Command::PatchLimit { .. }
            | Command::DeleteLimit(_)
            | Command::Transfer(_)
            | Command::Extend(_)
            | Command::Batch(_) => true,
            Command::GetLimit(_)
            | Command::ListLimits(_)
            | Command::ListLimitsByUse(_)
            | Command::Values(_)
            | Command::GetOperation(_)
            | Command::ListOperations { .. }
            | Command::ListEntries { .. } => false,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self {
            Command::CreateLimit(new) => new.context.validate(),
            Command::PatchLimit { name: _, ceiling: _, context: Patch::Set(context) } => context.validate(),
            Command::PatchLimit { name: _, ceiling: _, context: Patch::Keep | Patch::Remove } => Ok(()),
            Command::Transfer(transfer) => transfer.validate(),
            Command::Batch(batch) => batch.validate(),
            Command::Values(values) => values.validate(),
            Command::Extend(extend) => check_expiry(extend.expires_after),
            Command::ListLimits(page)
            | Command::ListLimitsByUse(page)
            | Command::ListOperations { filter: _, page } => page.validate(),
            Command::ListEntries { limit_name: _, page } => page.validate(),
            Command::DeleteLimit(_) | Command::GetLimit(_) | Command::GetOperation(_) => Ok(()),
        }
    }
}

/// A limit to be created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewLimit {
    /// The limit's name within the namespace.
    pub name: Name,
    /// The client's own id for the limit.
    pub limit_id: Option<Name>,
    /// The client's words about the limit.
    pub context: Context,
    /// The most that commits and positive open holds together may reach. None means no ceiling.
    pub ceiling: Option<i64>,
}

/// A field of a PATCH.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Patch<T> {
    /// The request does not mention the field: it keeps its value.
    Keep,
    /// The request says `null`: the value is removed.
    Remove,
    /// The field gets this value.
    Set(T),
}

/// A command that moves values in limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Transfer {
    /// Hold values.
    Hold(Hold),
    /// Commit or roll back what is held.
    Finish(Finalization),
}

impl Transfer {
    /// The operation whose values are moved.
    pub fn operation_id(&self) -> &Name {
        match self {
            Transfer::Hold(hold) => &hold.operation_id,
            Transfer::Finish(finalization) => &finalization.operation_id,
        }
    }

    fn validate(&self) -> Result<(), Invalid> {
        match self {
            Transfer::Hold(hold) => hold.validate(),
            Transfer::Finish(finalization) => finalization.validate(),
        }
    }
}

/// Several transfers in one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch(Vec<Transfer>);

impl Batch {
    /// The most transfers. A batch has at least one.
    pub const MAX_TRANSFERS: usize = 8_192;

    /// Takes the transfers in the order in which they are to be done.
    pub fn new(transfers: Vec<Transfer>) -> Result<Batch, Invalid> {
        check_items("operations", transfers.len(), 1..=Batch::MAX_TRANSFERS)?;
        Ok(Batch(transfers))
    }

    fn validate(&self) -> Result<(), Invalid> {
        check_items("operations", self.0.len(), 1..=Batch::MAX_TRANSFERS)?;
        let mut transfers = self.0.iter().enumerate();
        transfers.try_for_each(|(index, transfer)| {
            transfer.validate().map_err(|invalid| invalid.within_item("operations", index))
        })
    }
}

impl Deref for Batch {
    type Target = [Transfer];

    fn deref(&self) -> &[Transfer] {
        &self.0
    }
}

/// The most limits that one hold, commit or rollback may name.
pub const MAX_CHANGES: usize = 64;

/// Hold values in several limits: in all of them, or in none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    pub(super) operation_id: Name,
    pub(super) changes: Vec<Change>,
    pub(super) skip_existing_holds: bool,
    pub(super) create_missing: bool,
    pub(super) expires_after: Option<Millis>,
}

impl Hold {
    /// The shortest time after which a hold can expire.
    pub const MIN_EXPIRY: Millis = Millis(1);
    /// The longest time after which a hold can expire.
    pub const MAX_EXPIRY: Millis = Millis(366 * Millis::DAY.0);

    /// Holds what `changes` say, which name from 1 to [`MAX_CHANGES`] limits, each once. Every limit must exist, the
    /// operation must not hold anything in any of them, and the hold does not expire; the `with_…` methods change that.
    pub fn new(operation_id: Name, changes: Vec<Change>) -> Result<Hold, Invalid> {
        check_limits(changes.iter().map(|change| &change.limit_name))?;
        Ok(Hold {
            operation_id,
            changes,
            skip_existing_holds: false,
            create_missing: false,
            expires_after: None,
        })
    }

    /// Whether limits in which the operation has an open hold of the same value already are passed over.
    #[must_use]
    pub fn with_skip_existing_holds(self, skip_existing_holds: bool) -> Hold {
        Hold { skip_existing_holds, ..self }
    }

    /// Whether limits that do not exist are created.
    #[must_use]
    pub fn with_create_missing(self, create_missing: bool) -> Hold {
        Hold { create_missing, ..self }
    }

    /// The time after which the hold is rolled back automatically. None means never.
    pub fn with_expires_after(self, expires_after: Option<Millis>) -> Result<Hold, Invalid> {
        check_expiry(expires_after)?;
        Ok(Hold { expires_after, ..self })
    }

    /// The client's id for the operation.
    pub fn operation_id(&self) -> &Name {
        &self.operation_id
    }

    /// What to hold in which limit, in the client's order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether limits in which the operation has an open hold of the same value already are passed over.
    pub fn skip_existing_holds(&self) -> bool {
        self.skip_existing_holds
    }

    /// Whether limits that do not exist are created.
    pub fn create_missing(&self) -> bool {
        self.create_missing
    }

    /// The time after which the hold is rolled back automatically. None means never.
    pub fn expires_after(&self) -> Option<Millis> {
        self.expires_after
    }

    fn validate(&self) -> Result<(), Invalid> {
        check_limits(self.changes.iter().map(|change| &change.limit_name))?;
        for (index, change) in self.changes.iter().enumerate() {
            change.context.validate().map_err(|invalid| invalid.within_item("changes", index))?;
        }
        check_expiry(self.expires_after)
    }
}

fn check_expiry(expires_after: Option<Millis>) -> Result<(), Invalid> {
    match expires_after {
        Some(span) => check_duration("expires_after", span, Hold::MIN_EXPIRY..=Hold::MAX_EXPIRY),
        None => Ok(()),
    }
}

/// Checks the limits that `changes` name.
fn check_limits<'a>(names: impl ExactSizeIterator<Item = &'a Name> + Clone) -> Result<(), Invalid> {
    check_items("changes", names.len(), 1..=MAX_CHANGES)?;
    check_distinct(names, |index| format!("changes[{index}].limit_name"))
}

/// What to hold in one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The limit.
    pub limit_name: Name,
    /// The value to hold. It may be negative or 0.
    pub value: i64,
    /// The client's id for the limit, if this hold creates it.
    pub limit_id: Option<Name>,
    /// The client's words about the limit, if this hold creates it.
    pub context: Context,
    /// The limit's ceiling, if this hold creates it. The hold itself must not exceed it.
    pub ceiling: Option<i64>,
}

impl Change {
    /// Holds a value. If this hold creates the limit, the limit has no id, no context and no ceiling.
    pub fn new(limit_name: Name, value: i64) -> Change {
        Change { limit_name, value, limit_id: None, context: Context::default(), ceiling: None }
    }
}

/// Set when the open holds of an operation expire: all of them at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extend {
    pub(super) operation_id: Name,
    pub(super) expires_after: Option<Millis>,
}

impl Extend {
    /// The holds expire so long after the request, between [`Hold::MIN_EXPIRY`] and [`Hold::MAX_EXPIRY`]. None means never.
    pub fn new(operation_id: Name, expires_after: Option<Millis>) -> Result<Extend, Invalid> {
        check_expiry(expires_after)?;
        Ok(Extend { operation_id, expires_after })
    }

    /// The operation whose open holds get another expiry.
    pub fn operation_id(&self) -> &Name {
        &self.operation_id
    }

    /// The time from the request until the holds expire. None means that they never do.
    pub fn expires_after(&self) -> Option<Millis> {
        self.expires_after
    }
}

/// Commit or roll back the holds of an operation: all that are named, or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finalization {
    pub(super) finish: Finish,
    pub(super) operation_id: Name,
    pub(super) changes: Option<Vec<FinalizationChange>>,
}

impl Finalization {
    /// Finishes the holds that `changes` name, from 1 to [`MAX_CHANGES`] limits, each once. None finishes every open hold
    /// of the operation, at its held value.
    pub fn new(
        finish: Finish,
        operation_id: Name,
        changes: Option<Vec<FinalizationChange>>,
    ) -> Result<Finalization, Invalid> {
        let finalization = Finalization { finish, operation_id, changes };
        finalization.validate()?;
        Ok(finalization)
    }

    /// Whether the holds are committed or rolled back.
    pub fn finish(&self) -> Finish {
        self.finish
    }

    /// The operation whose holds are finished.
    pub fn operation_id(&self) -> &Name {
        &self.operation_id
    }

    /// The holds to finish, in the client's order. None means every open hold, at its held value.
    pub fn changes(&self) -> Option<&[FinalizationChange]> {
        self.changes.as_deref()
    }

    fn validate(&self) -> Result<(), Invalid> {
        match &self.changes {
            Some(changes) => check_limits(changes.iter().map(|change| &change.limit_name)),
            None => Ok(()),
        }
    }
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
    /// The value to commit. None commits all that is held. A rollback frees all that is held and ignores the value.
    pub value: Option<i64>,
}

/// A question for the values of limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Values {
    pub(super) limit_names: Vec<Name>,
    pub(super) as_of: AsOf,
}

impl Values {
    /// The most limits that one question may name.
    pub const MAX_LIMITS: usize = 1000;

    /// Asks for from 1 to [`Values::MAX_LIMITS`] limits, each once.
    pub fn new(limit_names: Vec<Name>, as_of: AsOf) -> Result<Values, Invalid> {
        let values = Values { limit_names, as_of };
        values.validate()?;
        Ok(values)
    }

    /// The limits, in the client's order, which is the order of the answer.
    pub fn limit_names(&self) -> &[Name] {
        &self.limit_names
    }

    /// The moment for which the values are read.
    pub fn as_of(&self) -> &AsOf {
        &self.as_of
    }

    fn validate(&self) -> Result<(), Invalid> {
        check_items("limit_names", self.limit_names.len(), 1..=Values::MAX_LIMITS)?;
        check_distinct(self.limit_names.iter(), |index| format!("limit_names[{index}]"))
    }
}

/// Which operations are listed: those with at least one hold that meets all of these conditions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationFilter {
    /// The hold is open.
    pub only_held: bool,
    /// The hold was made more than this long ago.
    pub older_than: Option<Millis>,
    /// The hold is in this limit.
    pub limit_name: Option<Name>,
}

impl OperationFilter {
    /// Lists the operations with an open hold.
    pub fn held() -> OperationFilter {
        OperationFilter { only_held: true, ..OperationFilter::default() }
    }

    /// Whether no condition has to be tested: the open operations have an index of their own.
    pub(super) fn finds_by_state(&self) -> bool {
        self.older_than.is_none() && self.limit_name.is_none()
    }
}

/// The moment for which values are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AsOf {
    /// The latest change.
    Now,
    /// The view of an operation: at its last hold request that held something.
    Operation(Name),
    /// After the change at this position, and before the next change.
    Position(Position),
}
