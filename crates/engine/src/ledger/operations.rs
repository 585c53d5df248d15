//! `operations`: the state of each hold of an operation.

use super::{
    balance::Balance,
    command::OperationFilter,
    keys, limits,
    reply::{HoldState, Refusal, Reply},
    state::{DeletedLimit, Ledger},
};
use crate::{
    Listed, Millis, Name, Page, Position, Time, answer_size,
    ids::NamespaceId,
    reads::{ReadError, Reader},
    record::{self, key::Key},
    turn::{CannotRun, View},
};
use alloc::vec::Vec;
use bytes::Bytes;
use limina_api::ledger::{self as api, OperationHold, State};
use serde::{Deserialize, Serialize};

/// The largest number of limits in which one operation may hold, over all its hold requests. It bounds the size of its record.
pub const MAX_LIMITS_PER_OPERATION: usize = 1024;

/// The encoding of a hold is compact, so its JSON can be this many times larger than [`answer_size::estimate`] assumes.
const HOLD_FACTOR: usize = 4;

/// The number of operations that one command looks at. Each of them is fetched, and may have many holds.
const LOOKED_AT: usize = 128;

/// The number of deleted limits whose names one command looks up, unless its first operation has more.
const DELETED_LIMITS: usize = MAX_LIMITS_PER_OPERATION;

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
    pub(crate) position: Position,
    pub(crate) held_at: Time,
    pub(crate) expires_at: Option<Time>,
    pub(crate) state: HoldState,
    /// The sums of the limit right after the hold, so that a read as of the operation needs no other record.
    pub(crate) balance: Balance,
}

impl Operation {
    pub(crate) fn hold_in(&self, limit: u32) -> Option<&HeldLimit> {
        self.holds.iter().find(|hold| hold.limit == limit)
    }

    /// The sums of a limit as of the operation's view. `None` if the hold in that limit is of an earlier hold request, or if
    /// there is none.
    pub(super) fn balance_of(&self, limit: u32) -> Option<Balance> {
        self.hold_in(limit).filter(|hold| hold.position == self.view).map(|hold| hold.balance)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.holds.iter().any(|hold| hold.state == HoldState::Held)
    }

    /// Whether every limit in which the stored operation has an open hold exists, and every other one has existed. If not, the
    /// record is damaged.
    fn fits(&self, ledger: &Ledger) -> bool {
        self.holds.iter().all(|hold| match hold.state {
            HoldState::Held => ledger.has(hold.limit),
            HoldState::Committed { .. } | HoldState::RolledBack { .. } => ledger.has_had(hold.limit),
        })
    }

    /// The keys of the records of its deleted limits.
    fn deleted_limits(&self, ledger: &Ledger, namespace: NamespaceId) -> impl Iterator<Item = Key> {
        let deleted = self.holds.iter().filter(|hold| !ledger.has(hold.limit));
        deleted.map(move |hold| keys::deleted(namespace, hold.limit))
    }

    /// The operation as clients see it. The names of deleted limits are stored records.
    pub(super) fn info(
        &self,
        ledger: &Ledger,
        reader: &Reader<'_>,
        view: View<'_>,
        operation_id: &Name,
    ) -> Result<api::Operation, ReadError> {
        // All records are looked up before the first one is used, so that one round fetches all of them.
        self.deleted_limits(ledger, view.namespace).for_each(|key| reader.want(key));
        let holds = self.holds.iter().map(|hold| {
            let is_deleted = !ledger.has(hold.limit);
            let (limit_name, limit_id) = if is_deleted {
                let limit: Option<DeletedLimit> = reader.get(keys::deleted(view.namespace, hold.limit))?;
                let limit = limit.ok_or(ReadError::Unreadable)?;
                (limit.name, limit.limit_id)
            } else {
                let terms = &ledger.limit(hold.limit).terms;
                (terms.name.clone(), terms.limit_id.clone())
            };
            let reserved = || ledger.reserved.get(operation_id).copied();
            let (committed_value, final_position, expires_at, expires_in_ms, expired) = match hold.state {
                HoldState::Held => {
                    let expires_at = hold.expires_at.or_else(reserved);
                    (None, None, expires_at, expires_at.map(|time| time.since(view.now)), false)
                }
                HoldState::Committed { value, at } => (Some(value), Some(at), hold.expires_at, None, false),
                HoldState::RolledBack { at, expired } => (None, Some(at), hold.expires_at, None, expired),
            };
            Ok(OperationHold {
                limit_name,
                limit_id,
                deleted: is_deleted,
                state: hold.state.state(),
                held_value: hold.value,
                committed_value,
                held_at: hold.held_at,
                hold_position: hold.position,
                final_position,
                expires_at,
                expires_in_ms,
                expired,
            })
        });
        let holds: Vec<OperationHold> = holds.collect::<Result<_, _>>()?;
        let any = |state| holds.iter().any(|hold| hold.state == state);
        let state = [State::Held, State::Committed].into_iter().find(|state| any(*state));
        let state = state.unwrap_or(State::RolledBack);
        Ok(api::Operation { operation_id: operation_id.clone(), position: self.view, state, holds })
    }
}

pub(crate) fn find(
    ledger: &Ledger,
    reader: &Reader<'_>,
    namespace: NamespaceId,
    id: &Name,
) -> Result<Option<Operation>, ReadError> {
    let operation: Option<Operation> = reader.get(keys::operation(namespace, id))?;
    match &operation {
        Some(operation) if !operation.fits(ledger) => Err(ReadError::Unreadable),
        _ => Ok(operation),
    }
}

/// The number of holds of an operation. `None` if it does not exist.
pub(super) fn count_holds(
    reader: &Reader<'_>,
    namespace: NamespaceId,
    id: &Name,
) -> Result<Option<usize>, ReadError> {
    // A list begins with its length.
    let fields: Option<(Position, u32)> = reader.get_first(keys::operation(namespace, id))?;
    Ok(fields.map(|(_view, holds)| holds as usize))
}

pub(super) fn get(ledger: &Ledger, view: View<'_>, id: &Name) -> Result<Result<Reply, Refusal>, CannotRun> {
    view.read(|reader| match find(ledger, reader, view.namespace, id)? {
        Some(operation) => Ok(Ok(Reply::Operation(operation.info(ledger, reader, view, id)?))),
        None => {
            Ok(Err(Refusal::OperationNotFound { operation_id: id.clone(), limit_name: None, state: None }))
        }
    })
}

/// Lists operations. One command looks at a bounded number of operations, so the page may be short although more follow.
pub(super) fn list(
    ledger: &Ledger,
    view: View<'_>,
    filter: &OperationFilter,
    page: &Page<Name>,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    let in_limit = match filter.limit_name.as_ref().map(|name| limits::find(ledger, name)).transpose() {
        Ok(in_limit) => in_limit,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let held_before = filter.older_than.map(|Millis(span)| Time(view.now.0.saturating_sub(span)));
    let is_found = |operation: &Operation| {
        operation.holds.iter().any(|hold| {
            (!filter.only_held || hold.state == HoldState::Held)
                && in_limit.is_none_or(|limit| hold.limit == limit)
                && held_before.is_none_or(|before| hold.held_at < before)
        })
    };
    view.read(|reader| {
        let looked_at = LOOKED_AT.min(if filter.finds_by_state() { page.limit() } else { LOOKED_AT });
        let Listed { items: operations, next: more_after } =
            look_at(ledger, reader, view, filter, page, looked_at)?;
        let mut found: Vec<(Name, Operation)> = Vec::new();
        let mut deleted = 0;
        let mut cut = None;
        for (id, operation) in operations {
            if !is_found(&operation) {
                continue;
            }
            deleted += operation.deleted_limits(ledger, view.namespace).count();
            if found.len() == page.limit() || (deleted > DELETED_LIMITS && !found.is_empty()) {
                cut = found.last().map(|(id, _)| id.clone());
                break;
            }
            found.push((id, operation));
        }
        let keys = found.iter().flat_map(|(_, operation)| operation.deleted_limits(ledger, view.namespace));
        keys.for_each(|key| reader.want(key));
        if reader.has_missing() {
            return Err(ReadError::NotFetched);
        }
        let infos: Vec<api::Operation> = found
            .iter()
            .map(|(id, operation)| operation.info(ledger, reader, view, id))
            .collect::<Result<_, _>>()?;
        let max_page = max_answer.min(answer_size::PAGE_BYTES);
        let (items, is_cut) = answer_size::fitting(infos.into_iter(), max_page / HOLD_FACTOR);
        let next = match is_cut {
            true => items.last().map(|item| item.operation_id.clone()),
            false => cut.or(more_after),
        };
        Ok(Ok(Reply::Operations(Listed { items, next })))
    })
}

/// The next operations by id, up to `limit`.
fn look_at(
    ledger: &Ledger,
    reader: &Reader<'_>,
    view: View<'_>,
    filter: &OperationFilter,
    page: &Page<Name>,
    limit: usize,
) -> Result<Listed<(Name, Operation), Name>, ReadError> {
    let range = match filter.only_held {
        true => keys::open_after(view.namespace, page.after.as_ref()),
        false => keys::operations_after(view.namespace, page.after.as_ref()),
    };
    let scanned = reader.scan(range.start, range.end, limit)?;
    let ids: Vec<Name> = scanned
        .records
        .iter()
        .map(|(key, _)| keys::operation_id(key).ok_or(ReadError::Unreadable))
        .collect::<Result<_, _>>()?;
    let operations: Vec<Operation> = if filter.only_held {
        // The records are only marks. All operations are looked up before the first one is used, so that one round fetches
        // all of them.
        let found: Vec<_> = ids.iter().map(|id| find(ledger, reader, view.namespace, id)).collect();
        found
            .into_iter()
            .map(|operation| operation?.ok_or(ReadError::Unreadable))
            .collect::<Result<_, _>>()?
    } else {
        let decode = |bytes: &Bytes| match record::decode::<Operation>(bytes) {
            Ok(operation) if operation.fits(ledger) => Ok(operation),
            _ => Err(ReadError::Unreadable),
        };
        scanned.records.iter().map(|(_, bytes)| decode(bytes)).collect::<Result<_, _>>()?
    };
    let next = scanned.more_after.as_deref().and_then(keys::operation_id);
    Ok(Listed { items: ids.into_iter().zip(operations).collect(), next })
}
