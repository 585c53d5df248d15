//! The commands about decisions.
//!
//! `Deserialize` does not check the requests in them: see [`UncheckedRequest`](crate::UncheckedRequest).

use crate::{Invalid, MAX_BATCH, Millis, Name, Page, Position, limiter::Take};
use alloc::{sync::Arc, vec::Vec};
use core::ops::Deref;
use limina_api::{
    decisions::{Decide, PartCheck, Parts, Settle},
    invalid::{check_duration, check_items},
};
use serde::{Deserialize, Serialize};

/// A command about decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Take, hold, lock and submit at one instant, or nothing.
    Decide(DecideRequest),
    /// It has happened, at these amounts.
    Settle(Settle),
    /// It has not happened.
    Rollback(Name),
    /// All of it lives for its ttl from now on.
    Heartbeat(Name),
    /// What became of each part.
    Get(Name),
    /// Several decisions, commits and rollbacks, in order. Each of them succeeds or is refused on its own.
    Batch(Batch),
    /// The client of a waiting [`Decide`] has gone: the request stops waiting. A decision that was made stays.
    Abandon {
        /// The operation.
        operation_id: Name,
        /// The request: [`DecideRequest::waiter`].
        waiter: Name,
    },
    /// A page of the open decisions, the oldest first.
    List {
        /// Only the decisions of this owner. None means all.
        owner: Option<Name>,
        /// Only decisions that were made more than this long ago.
        older_than: Option<Millis>,
        /// The page.
        page: Page<Position>,
    },
}

impl Command {
    /// Whether the command may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Command::Decide(request) => !request.wanted.dry_run(),
            Command::Settle(_)
            | Command::Rollback(_)
            | Command::Heartbeat(_)
            | Command::Batch(_)
            | Command::Abandon { .. } => true,
            Command::Get(_) | Command::List { .. } => false,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self {
            Command::Decide(request) => request.wanted.validate(),
            Command::Settle(settle) => settle.validate(),
            Command::Batch(batch) => batch.validate(),
            Command::List { owner: _, older_than: _, page } => page.validate(),
            Command::Rollback(_) | Command::Heartbeat(_) | Command::Abandon { .. } | Command::Get(_) => {
                Ok(())
            }
        }
    }
}

/// Several decisions, commits and rollbacks in one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch(Vec<BatchItem>);

/// One item of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum BatchItem {
    /// As [`Command::Decide`]. It must not wait.
    Decide(DecideRequest),
    /// As [`Command::Settle`].
    Settle(Settle),
    /// As [`Command::Rollback`].
    Rollback(Name),
}

impl Batch {
    /// Takes the items, from 1 to [`MAX_BATCH`], in the order in which they are to be done.
    pub fn new(items: Vec<BatchItem>) -> Result<Batch, Invalid> {
        let batch = Batch(items);
        batch.validate()?;
        Ok(batch)
    }

    fn validate(&self) -> Result<(), Invalid> {
        check_items("operations", self.0.len(), 1..=MAX_BATCH)?;
        self.0.iter().enumerate().try_for_each(|(index, item)| {
            item.validate().map_err(|invalid| invalid.within_item("operations", index))
        })
    }
}

impl Deref for Batch {
    type Target = [BatchItem];

    fn deref(&self) -> &[BatchItem] {
        &self.0
    }
}

impl BatchItem {
    /// The operation.
    pub fn operation_id(&self) -> &Name {
        match self {
            BatchItem::Decide(request) => request.wanted.operation_id(),
            BatchItem::Settle(settle) => &settle.operation_id,
            BatchItem::Rollback(id) => id,
        }
    }

    /// About how much work the item is.
    pub(crate) fn weight(&self) -> usize {
        match self {
            BatchItem::Decide(request) => weight(&request.wanted),
            BatchItem::Settle(_) | BatchItem::Rollback(_) => 16,
        }
    }

    fn validate(&self) -> Result<(), Invalid> {
        match self {
            BatchItem::Decide(DecideRequest { wanted, waiter: _ }) => {
                wanted.validate()?;
                check_duration("wait", wanted.wait(), Millis(0)..=Millis(0))
            }
            BatchItem::Settle(settle) => settle.validate(),
            BatchItem::Rollback(_) => Ok(()),
        }
    }
}

/// A request to decide, with what its caller has drawn for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecideRequest {
    /// What is asked.
    pub wanted: Arc<Decide>,
    /// What identifies the request among all requests under the same operation id if it waits, so that [`Command::Abandon`] ends the
    /// wait of this request alone. The caller draws a new one for each request. A request without it cannot be abandoned.
    pub waiter: Option<Name>,
}

impl From<Decide> for DecideRequest {
    fn from(wanted: Decide) -> DecideRequest {
        DecideRequest { wanted: Arc::new(wanted), waiter: None }
    }
}

/// The checks as entries of the limiter.
pub(super) fn takes(request: &Decide) -> Vec<Take> {
    let checks = request.parts().checks.iter();
    let hits = |check: &PartCheck| i64::try_from(check.hits).unwrap_or(i64::MAX);
    checks
        .map(|check| Take::new(check.key_values.clone(), hits(check)).expect("the check is valid"))
        .collect()
}

/// About how much work the request is, in units of about a microsecond.
pub(crate) fn weight(request: &Decide) -> usize {
    let Parts { checks, holds, locks, event, .. } = request.parts();
    8 + 4 * (checks.len() + holds.len() + locks.len() + usize::from(event.is_some()))
}
