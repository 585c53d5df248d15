//! The holds of a decision: asked before anything is changed, then held and ended together with its other parts.
//!
//! Only the decision changes them: while it is open, its id is reserved.

use super::{
    commit_rollback, entries,
    entries::EntryKind,
    hold, keys,
    operations::{HeldLimit, Operation},
    reply::{HoldState, RefusedHold},
    state::{Ledger, limit_bytes},
};
use crate::{Name, Position, Time, resident::Shrink, turn::Turn};
use alloc::vec::Vec;
use limina_api::ledger::{Change, Hold, LimitValue};

pub(crate) use super::commit_rollback::is_within;

/// The changes that a limit refuses. A limit that does not exist would be created.
pub(crate) fn ask<'c>(
    ledger: &Ledger,
    changes: impl Iterator<Item = &'c Change> + 'c,
) -> impl Iterator<Item = RefusedHold> {
    changes.filter_map(move |change| hold::ask_limit(ledger, change, ledger.find(&change.limit_name)))
}

/// The number of limits that the changes would create, and their resident bytes.
pub(crate) fn growth(ledger: &Ledger, changes: &[Change]) -> (usize, u64) {
    let missing = changes.iter().filter(|change| ledger.find(&change.limit_name).is_none());
    missing.fold((0, 0), |(limits, bytes), change| {
        let more = limit_bytes(&change.limit_name, change.limit_id.as_ref(), &change.context);
        (limits + 1, bytes + more)
    })
}

/// Holds what was asked before, at the next position but those of the limits that are created. Returns the holds, in the order
/// of the changes.
pub(crate) fn hold(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    operation_id: &Name,
    changes: &[Change],
) -> (Position, Vec<HeldLimit>) {
    let request =
        Hold::new(operation_id.clone(), changes.to_vec()).expect("the parts of a decision are valid");
    let request = request.with_create_missing(true);
    let fresh: Vec<usize> = (0..changes.len()).collect();
    let numbers = hold::numbers_of(ledger, &request);
    let (reply, holds) = hold::execute(ledger, turn, &request, numbers, None, &fresh, Vec::new());
    (reply.position, holds)
}

/// Reserves the id of an operation, or says when it expires now.
pub(crate) fn reserve(ledger: &mut Ledger, operation_id: &Name, expires_at: Time) {
    ledger.reserved.insert(operation_id.clone(), expires_at);
}

/// Ends the reservation of an id.
pub(crate) fn free(ledger: &mut Ledger, operation_id: &Name) {
    ledger.reserved.remove(operation_id);
    ledger.reserved.shrink();
}

/// How the holds of an operation end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End<'a> {
    /// With these values, one for each hold.
    Commit(&'a [i64]),
    Rollback,
    Expiry,
}

/// Ends all holds at the next position, and returns it.
pub(crate) fn end(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    operation_id: &Name,
    held_at: Position,
    holds: Vec<HeldLimit>,
    end: End<'_>,
) -> Position {
    let (kind, values) = match end {
        End::Commit(values) => (EntryKind::Commit, values),
        End::Rollback => (EntryKind::Rollback, &[][..]),
        End::Expiry => (EntryKind::Expiry, &[][..]),
    };
    let ends: Vec<(usize, i64)> =
        (0..holds.len()).map(|index| (index, values.get(index).copied().unwrap_or(0))).collect();
    let operation = Operation { view: held_at, holds };
    commit_rollback::execute(ledger, turn, operation_id, operation, &ends, kind)
}

/// The limits in which these values could overflow a sum, if they are committed in place of what is held.
pub(crate) fn overflowing(ledger: &Ledger, ends: impl Iterator<Item = (u32, i64, i64)>) -> Vec<Name> {
    let limits = ends.filter(|(number, held, value)| !ledger.limit(*number).balance.can_book(*held, *value));
    limits.map(|(number, ..)| ledger.limit(number).terms.name.clone()).collect()
}

/// Commits the values of an operation whose holds have been rolled back. Every limit exists, and no sum overflows.
pub(crate) fn book_late(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    operation_id: &Name,
    mut operation: Operation,
    values: &[i64],
) -> Position {
    let position = turn.advance();
    for (hold, value) in operation.holds.iter_mut().zip(values) {
        hold.state = HoldState::Committed { value: *value, at: position };
        let balance = ledger.book(hold.limit, *value);
        entries::put(turn, operation_id, EntryKind::Overage, hold.limit, position, *value, balance);
    }
    turn.put(keys::operation(turn.namespace, operation_id), &operation);
    position
}

/// The values of the limits as they would be with these holds.
pub(crate) fn values_with(ledger: &Ledger, changes: &[Change]) -> Vec<LimitValue> {
    let value = |change: &Change| {
        let value = match ledger.find(&change.limit_name) {
            Some(number) => ledger.value_now(number),
            None => LimitValue {
                limit_name: change.limit_name.clone(),
                limit_id: change.limit_id.clone(),
                commit_value: 0,
                hold_value: 0,
                total_value: 0,
            },
        };
        LimitValue {
            hold_value: value.hold_value + change.value,
            total_value: value.total_value + change.value,
            ..value
        }
    };
    changes.iter().map(value).collect()
}

/// The values of the limits now. A deleted limit has none.
pub(crate) fn values(ledger: &Ledger, holds: &[HeldLimit]) -> Vec<LimitValue> {
    let limits = holds.iter().map(|hold| hold.limit).filter(|number| ledger.has(*number));
    limits.map(|number| ledger.value_now(number)).collect()
}
