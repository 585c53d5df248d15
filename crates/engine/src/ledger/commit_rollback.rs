//! `commit` and `rollback` end holds. Expiry is a rollback that a timer makes.

use super::{
    command::Finish,
    entries,
    entries::EntryKind,
    expiry, keys, limits,
    operations::{self, Operation},
    reply::{HoldState, Refusal, Reply},
    state::Ledger,
    values,
};
use crate::{
    Effect, Name, Position, Time,
    reads::{ReadError, Reader},
    turn::{CannotRun, Turn, View},
};
use alloc::vec::Vec;
use limina_api::ledger::{Finalization, FinalizationReply};

/// The decision, made before anything is changed.
enum Plan {
    Refuse(Refusal),
    /// Everything was done by an earlier request. The reply is that of the first one.
    Repeat(FinalizationReply),
    /// End holds. `ends` are the indexes of the holds in the operation, each with the value to commit. The reply shows
    /// `limits`.
    Finish {
        operation: Operation,
        ends: Vec<(usize, i64)>,
        limits: Vec<u32>,
    },
}

pub(super) fn apply(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    finish: Finish,
    request: &Finalization,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    match turn.view().read(|reader| decide(ledger, reader, turn.view(), finish, request))? {
        Plan::Refuse(refusal) => Ok(Err(refusal)),
        Plan::Repeat(reply) => Ok(Ok(Reply::Finalization(reply))),
        Plan::Finish { operation, ends, limits } => {
            let id = &request.operation_id;
            let kind = match finish {
                Finish::Commit => EntryKind::Commit,
                Finish::Rollback => EntryKind::Rollback,
            };
            let position = execute(ledger, turn, id, operation, &ends, kind);
            let values = limits.iter().map(|number| ledger.value_now(*number)).collect();
            Ok(Ok(Reply::Finalization(FinalizationReply { operation_id: id.clone(), position, values })))
        }
    }
}

/// The checks, in the order in which the contract states the errors.
fn decide(
    ledger: &Ledger,
    reader: &Reader<'_>,
    view: View<'_>,
    finish: Finish,
    request: &Finalization,
) -> Result<Plan, ReadError> {
    let id = &request.operation_id;
    let numbers = match &request.changes {
        None => None,
        Some(changes) => match limits::find_all(ledger, changes.iter().map(|change| &change.limit_name)) {
            Ok(numbers) => Some(numbers),
            Err(refusal) => return Ok(Plan::Refuse(refusal)),
        },
    };
    let not_found = |limit_name: Option<&Name>, state: Option<HoldState>| {
        let (operation_id, limit_name) = (id.clone(), limit_name.cloned());
        Ok(Plan::Refuse(Refusal::OperationNotFound { operation_id, limit_name, state }))
    };
    let Some(operation) = operations::find(ledger, reader, view.namespace, id)? else {
        return not_found(None, None);
    };
    let (Some(changes), Some(numbers)) = (&request.changes, numbers) else {
        return decide_all(ledger, reader, view, finish, request, operation);
    };

    // The indexes of the named holds in the operation, each with the value to commit.
    let mut wanted = Vec::with_capacity(changes.len());
    for (change, number) in changes.iter().zip(&numbers) {
        let Some(index) = operation.holds.iter().position(|hold| hold.limit == *number) else {
            return not_found(Some(&change.limit_name), None);
        };
        let hold = &operation.holds[index];
        let value = match finish {
            Finish::Commit => change.value.unwrap_or(hold.value),
            Finish::Rollback => 0,
        };
        if hold.state != HoldState::Held && !is_same(hold.state, finish, value) {
            return not_found(Some(&change.limit_name), Some(hold.state));
        }
        wanted.push((index, value));
    }
    let mut ends = Vec::with_capacity(wanted.len());
    for (index, value) in &wanted {
        let hold = &operation.holds[*index];
        if hold.state != HoldState::Held {
            continue;
        }
        if finish == Finish::Commit && !is_within(*value, hold.value) {
            return Ok(Plan::Refuse(Refusal::CommitExceedsHold {
                operation_id: id.clone(),
                limit_name: ledger.limit(hold.limit).terms.name.clone(),
                held: hold.value,
                value: *value,
            }));
        }
        ends.push((*index, *value));
    }
    if !ends.is_empty() {
        return Ok(Plan::Finish { operation, ends, limits: numbers });
    }
    let last = wanted.iter().filter_map(|(index, _)| finished_at(operation.holds[*index].state)).max();
    repeat(ledger, reader, view, id, &numbers, last.ok_or(ReadError::Unreadable)?)
}

/// Decides a request without a list of changes: it ends every open hold. If none is open, it repeats the last request that
/// ended holds in the same way.
fn decide_all(
    ledger: &Ledger,
    reader: &Reader<'_>,
    view: View<'_>,
    finish: Finish,
    request: &Finalization,
    operation: Operation,
) -> Result<Plan, ReadError> {
    let (ends, limits): (Vec<_>, Vec<_>) = operation
        .holds
        .iter()
        .enumerate()
        .filter(|(_, hold)| hold.state == HoldState::Held)
        .map(|(index, hold)| ((index, if finish == Finish::Commit { hold.value } else { 0 }), hold.limit))
        .unzip();
    if !ends.is_empty() {
        return Ok(Plan::Finish { operation, ends, limits });
    }
    let this_way = || operation.holds.iter().filter(|hold| finish_of(hold.state) == Some(finish));
    match this_way().filter_map(|hold| finished_at(hold.state)).max() {
        Some(last) => {
            // A deleted limit has no values any more.
            let limits: Vec<u32> = this_way()
                .filter(|hold| finished_at(hold.state) == Some(last))
                .map(|hold| hold.limit)
                .filter(|limit| ledger.has(*limit))
                .collect();
            repeat(ledger, reader, view, &request.operation_id, &limits, last)
        }
        None => Ok(Plan::Refuse(Refusal::OperationNotFound {
            operation_id: request.operation_id.clone(),
            limit_name: None,
            state: operation.holds.first().map(|hold| hold.state),
        })),
    }
}

fn repeat(
    ledger: &Ledger,
    reader: &Reader<'_>,
    view: View<'_>,
    id: &Name,
    limits: &[u32],
    position: Position,
) -> Result<Plan, ReadError> {
    let values = values::as_of(ledger, reader, view.namespace, limits, position)?;
    Ok(Plan::Repeat(FinalizationReply { operation_id: id.clone(), position, values }))
}

pub(super) fn execute(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    id: &Name,
    mut operation: Operation,
    ends: &[(usize, i64)],
    kind: EntryKind,
) -> Position {
    let position = turn.advance();
    let mut expiries: Vec<(Time, Position)> = Vec::new();
    for &(index, committed) in ends {
        let hold = &mut operation.holds[index];
        // Only a decision commits more than is held.
        let kind = match kind {
            EntryKind::Commit if !is_within(committed, hold.value) => EntryKind::Overage,
            kind => kind,
        };
        hold.state = match kind {
            EntryKind::Commit | EntryKind::Overage => HoldState::Committed { value: committed, at: position },
            _ => HoldState::RolledBack { at: position, expired: kind == EntryKind::Expiry },
        };
        if let Some(due) = hold.expires_at
            && !expiries.contains(&(due, hold.position))
        {
            expiries.push((due, hold.position));
        }
        let (number, held) = (hold.limit, hold.value);
        let balance = ledger.end_hold(number, held, committed);
        let value = match kind {
            EntryKind::Commit | EntryKind::Overage => committed,
            _ => held,
        };
        entries::put(turn, id, kind, number, position, value, balance);
    }
    turn.put(keys::operation(turn.namespace, id), &operation);
    if !operation.is_open() {
        turn.remove(keys::open(turn.namespace, id));
    }
    // Each hold request has one expiry for all its holds. It is cancelled when none of them is open.
    let open = |held_at| operation.holds.iter().any(|h| h.position == held_at && h.state == HoldState::Held);
    for (due, held_at) in expiries.into_iter().filter(|(_, held_at)| !open(*held_at)) {
        expiry::cancel(ledger, turn, id, due, held_at);
    }
    position
}

/// Rolls back the holds of the hold request at `held_at` that are still open, because the time `due` has come. Holds that have
/// been extended meanwhile have another due time.
pub(crate) fn expire(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    id: &Name,
    due: Time,
    held_at: Position,
) -> Result<(), CannotRun> {
    let operation = turn.view().read(|reader| operations::find(ledger, reader, turn.namespace, id))?;
    let open = |operation: &Operation| -> Vec<(usize, i64)> {
        let holds = operation.holds.iter().enumerate();
        holds
            .filter(|(_, h)| h.position == held_at && h.expires_at == Some(due) && h.state == HoldState::Held)
            .map(|(index, _)| (index, 0))
            .collect()
    };
    match operation.map(|operation| (open(&operation), operation)) {
        Some((ends, operation)) if !ends.is_empty() => {
            let position = execute(ledger, turn, id, operation, &ends, EntryKind::Expiry);
            let namespace = turn.head.name.clone();
            turn.effect(Effect::HoldExpired { namespace, operation_id: id.clone(), position });
        }
        _ => turn.remove(keys::expiry(turn.namespace, due, held_at)),
    }
    Ok(())
}

fn is_same(state: HoldState, finish: Finish, value: i64) -> bool {
    match state {
        HoldState::Held => false,
        HoldState::Committed { value: committed, .. } => finish == Finish::Commit && committed == value,
        HoldState::RolledBack { .. } => finish == Finish::Rollback,
    }
}

fn finish_of(state: HoldState) -> Option<Finish> {
    match state {
        HoldState::Held => None,
        HoldState::Committed { .. } => Some(Finish::Commit),
        HoldState::RolledBack { .. } => Some(Finish::Rollback),
    }
}

fn finished_at(state: HoldState) -> Option<Position> {
    match state {
        HoldState::Held => None,
        HoldState::Committed { at, .. } | HoldState::RolledBack { at, .. } => Some(at),
    }
}

/// Whether a hold of `held` can be committed with `value`: 0, or the same sign and no larger.
pub(crate) fn is_within(value: i64, held: i64) -> bool {
    if held >= 0 { (0..=held).contains(&value) } else { (held..=0).contains(&value) }
}
