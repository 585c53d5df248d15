//! The commands of the ledger.
//!
//! `Deserialize` does not check these limits: it reads the engine's own records, and the parts of an
//! [`UncheckedRequest`](crate::UncheckedRequest), which are checked afterwards.

use crate::{Invalid, Millis, Name, Page, Position};
use alloc::vec::Vec;
use core::ops::Deref;
use limina_api::{
    invalid::check_items,
    ledger::{Extend, Finalization, Hold, LimitPatch, NewLimit, Values},
};
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
        /// What changes.
        patch: LimitPatch,
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
            Command::CreateLimit(new) => new.validate(),
            Command::PatchLimit { name: _, patch } => patch.validate(),
            Command::Transfer(transfer) => transfer.validate(),
            Command::Batch(batch) => batch.validate(),
            Command::Values(values) => values.validate(),
            Command::Extend(extend) => extend.validate(),
            Command::ListLimits(page)
            | Command::ListLimitsByUse(page)
            | Command::ListOperations { filter: _, page } => page.validate(),
            Command::ListEntries { limit_name: _, page } => page.validate(),
            Command::DeleteLimit(_) | Command::GetLimit(_) | Command::GetOperation(_) => Ok(()),
        }
    }
}

/// A command that moves values in limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Transfer {
    /// Hold values.
    Hold(Hold),
    /// Commit or roll back what is held.
    Finish(Finish, Finalization),
}

impl Transfer {
    /// The operation whose values are moved.
    pub fn operation_id(&self) -> &Name {
        match self {
            Transfer::Hold(hold) => &hold.operation_id,
            Transfer::Finish(_, finalization) => &finalization.operation_id,
        }
    }

    fn validate(&self) -> Result<(), Invalid> {
        match self {
            Transfer::Hold(hold) => hold.validate(),
            Transfer::Finish(_, finalization) => finalization.validate(),
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

/// The two ways in which a hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finish {
    /// The value, or a part of it, counts for good.
    Commit,
    /// The value is freed.
    Rollback,
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
