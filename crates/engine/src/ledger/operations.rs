//! `operations`: the state of each hold of an operation.

use super::{HeldLimitInfo, OperationInfo, Refusal, Reply, keys, state::Balance, state::Ledger};
use crate::{
    Name, Page, Position, Time, answer_size,
    ids::NamespaceId,
    reads::{ReadError, Reader},
    turn::{CannotRun, View},
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The largest number of limits in which one operation may hold, over all its hold requests. It bounds the size of its record.
pub const MAX_LIMITS_PER_OPERATION: usize = 1024;

/// The encoding of a hold is compact, so its JSON can be this many times larger than [`answer_size::estimate`] assumes.
const HOLD_FACTOR: usize = 4;

/// An operation as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// The position of the last hold request of this operation that held something.
    pub(crate) view: Position,
    /// In the order of holding; each limit once.
    pub(crate) holds: Vec<HeldLimit>,
}

/// An operation's hold in one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldLimit {
    pub(crate) limit: u32,
    pub(crate) value: i64,
    pub(crate) held_at: Position,
    pub(crate) expires_at: Option<Time>,
    pub(crate) state: HoldState,
    /// The sums of the limit right after the hold, so that a read as of the operation needs no other record.
    pub(crate) balance: Balance,
}

/// The state of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldState {
    /// The hold is open.
    Held,
    /// The hold is committed. This is final.
    Committed {
        /// The committed value; the rest of the hold was freed.
        value: i64,
        /// The position of the commit.
        at: Position,
    },
    /// The hold is rolled back: its value was freed. This is final.
    RolledBack {
        /// The position of the rollback.
        at: Position,
        /// Whether the hold expired, as opposed to a rollback by a client.
        expired: bool,
    },
}

impl Operation {
    pub(crate) fn hold_in(&self, limit: u32) -> Option<&HeldLimit> {
        self.holds.iter().find(|hold| hold.limit == limit)
    }

    /// The sums of a limit as of the operation's view. `None` if the hold in that limit is of an earlier hold request, or if
    /// there is none.
    pub(super) fn balance_of(&self, limit: u32) -> Option<Balance> {
        self.hold_in(limit).filter(|hold| hold.held_at == self.view).map(|hold| hold.balance)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.holds.iter().any(|hold| hold.state == HoldState::Held)
    }

    fn info(&self, ledger: &Ledger, operation_id: Name) -> OperationInfo {
        let holds = self.holds.iter().map(|hold| {
            let terms = &ledger.limit(hold.limit).terms;
            HeldLimitInfo {
                limit_name: terms.name.clone(),
                limit_id: terms.limit_id.clone(),
                value: hold.value,
                held_at: hold.held_at,
                expires_at: hold.expires_at,
                state: hold.state,
            }
        });
        OperationInfo { operation_id, position: self.view, holds: holds.collect() }
    }
}

pub(super) fn find(
    ledger: &Ledger,
    reader: &Reader<'_>,
    namespace: NamespaceId,
    id: &Name,
) -> Result<Option<Operation>, ReadError> {
    let operation: Option<Operation> = reader.get(keys::operation(namespace, id))?;
    match &operation {
        Some(operation) if !ledger.has_all_limits_of(operation) => Err(ReadError::Unreadable),
        _ => Ok(operation),
    }
}

pub(super) fn get(ledger: &Ledger, view: View<'_>, id: &Name) -> Result<Result<Reply, Refusal>, CannotRun> {
    let operation = view.read(|reader| find(ledger, reader, view.namespace, id))?;
    Ok(match operation {
        Some(operation) => Ok(Reply::Operation(operation.info(ledger, id.clone()))),
        None => Err(Refusal::OperationNotFound { operation_id: id.clone(), limit_name: None, state: None }),
    })
}

pub(super) fn list(
    ledger: &Ledger,
    view: View<'_>,
    only_held: bool,
    page: &Page<Name>,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    view.read(|reader| {
        let range = if only_held {
            keys::open_after(view.namespace, page.after.as_ref())
        } else {
            keys::operations_after(view.namespace, page.after.as_ref())
        };
        let scanned = reader.scan(range.start, range.end, page.limit())?;
        let ids: Vec<Name> = scanned
            .records
            .iter()
            .map(|(key, _)| keys::operation_id(key).ok_or(ReadError::Unreadable))
            .collect::<Result<_, _>>()?;
        // Look up all operations before looking at the first result, so that one round fetches all of them.
        let found: Vec<_> = ids.iter().map(|id| find(ledger, reader, view.namespace, id)).collect();
        let mut operations = Vec::with_capacity(ids.len());
        for (id, operation) in ids.into_iter().zip(found) {
            operations.push((id, operation?.ok_or(ReadError::Unreadable)?));
        }
        let infos = operations.into_iter().map(|(id, operation)| operation.info(ledger, id));
        let max_page = max_answer.min(answer_size::PAGE_BYTES);
        let (items, is_cut) = answer_size::fitting(infos, max_page / HOLD_FACTOR);
        let next = match is_cut {
            true => items.last().map(|item| item.operation_id.clone()),
            false => scanned.more_after.as_deref().and_then(keys::operation_id),
        };
        Ok(Ok(Reply::Operations { items, next }))
    })
}
