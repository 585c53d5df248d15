//! `hold`: hold values in several limits, all or none.

use super::{
    balance::Balance,
    entries,
    entries::EntryKind,
    expiry, keys,
    operations::{self, HeldLimit, MAX_LIMITS_PER_OPERATION, Operation},
    reply::{HoldState, Refusal, RefusedHold, Reply},
    state::{Ledger, Terms, expiry_bytes, limit_bytes},
    values,
};
use crate::{
    Name, QuotaExceeded,
    reads::{ReadError, Reader},
    turn::{CannotRun, Turn, View},
};
use alloc::vec::Vec;
use limina_api::ledger::{Change, Hold, HoldReply};

/// The decision, made before anything is changed.
enum Plan {
    Refuse(Refusal),
    /// Everything is held already. The reply is that of the first request.
    Repeat(HoldReply),
    /// Hold. `numbers` are the limits of all changes; a change without one creates its limit. `fresh` are the indexes of the
    /// changes to hold; the limits in `skipped` are held already.
    Hold {
        numbers: Vec<Option<u32>>,
        operation: Option<Operation>,
        fresh: Vec<usize>,
        skipped: Vec<Name>,
    },
}

pub(super) fn apply(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    hold: &Hold,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    match turn.view().read(|reader| decide(ledger, reader, turn.view(), hold))? {
        Plan::Refuse(refusal) => Ok(Err(refusal)),
        Plan::Repeat(reply) => Ok(Ok(Reply::Hold(reply))),
        Plan::Hold { numbers, operation, fresh, skipped } => {
            if let Err(exceeded) = check_quotas(ledger, turn, hold, &numbers) {
                return Ok(Err(exceeded.into()));
            }
            Ok(Ok(Reply::Hold(execute(ledger, turn, hold, numbers, operation, &fresh, skipped).0)))
        }
    }
}

/// The checks, in the order in which the contract states the errors.
fn decide(ledger: &Ledger, reader: &Reader<'_>, view: View<'_>, hold: &Hold) -> Result<Plan, ReadError> {
    let refuse = |refusal| Ok(Plan::Refuse(refusal));
    let numbers = numbers_of(ledger, hold);
    if !hold.create_missing && numbers.contains(&None) {
        let missing = hold.changes.iter().zip(&numbers).filter(|(_, number)| number.is_none());
        let limit_names = missing.map(|(change, _)| change.limit_name.clone()).collect();
        return refuse(Refusal::LimitNotFound { limit_names });
    }

    let operation = operations::find(ledger, reader, view.namespace, &hold.operation_id)?;
    let hold_in =
        |number: Option<u32>| operation.as_ref()?.hold_in(number?).map(|held| (held.state, held.value));
    let mut finished = Vec::new();
    let mut duplicates = Vec::new();
    let mut skipped = Vec::new();
    let mut fresh = Vec::with_capacity(hold.changes.len());
    for (index, (change, number)) in hold.changes.iter().zip(&numbers).enumerate() {
        let name = &change.limit_name;
        match hold_in(*number) {
            None => fresh.push(index),
            // A repeated request must not pass silently with another amount.
            Some((HoldState::Held, value)) if hold.skip_existing_holds && value == change.value => {
                skipped.push(name.clone());
            }
            Some((HoldState::Held, value)) => duplicates.push((name.clone(), value)),
            Some((state, _)) => finished.push((name.clone(), state)),
        }
    }
    let operation_id = || hold.operation_id.clone();
    if !finished.is_empty() {
        return refuse(Refusal::OperationAlreadyInFinalState {
            operation_id: operation_id(),
            limits: finished,
        });
    }
    if !duplicates.is_empty() {
        return refuse(Refusal::DuplicateOperation { operation_id: operation_id(), limits: duplicates });
    }
    if let Some(operation) = &operation
        && fresh.is_empty()
    {
        let numbers: Vec<u32> = numbers.into_iter().flatten().collect();
        let values = values::as_of_operation(ledger, reader, view.namespace, &numbers, operation)?;
        let position = operation.view;
        return Ok(Plan::Repeat(HoldReply { operation_id: operation_id(), position, values, skipped }));
    }
    let touched = operation.as_ref().map_or(0, |operation| operation.holds.len());
    if touched + fresh.len() > MAX_LIMITS_PER_OPERATION {
        return refuse(Refusal::OperationTooLarge { operation_id: operation_id() });
    }

    let (mut exceeded, mut overflowing) = (Vec::new(), Vec::new());
    let ask = |index: &usize| ask_limit(ledger, &hold.changes[*index], numbers[*index]);
    for refused in fresh.iter().filter_map(ask) {
        match refused {
            RefusedHold::LimitExceeded(limit) => exceeded.push(limit),
            RefusedHold::ValueOverflow { limit_name, .. } => overflowing.push(limit_name),
        }
    }
    if !exceeded.is_empty() {
        return refuse(Refusal::LimitExceeded { limits: exceeded });
    }
    if !overflowing.is_empty() {
        return refuse(Refusal::ValueOverflow { limit_names: overflowing });
    }
    Ok(Plan::Hold { numbers, operation, fresh, skipped })
}

/// Why the limit with this number refuses the change. Without a number, the limit would be created.
pub(super) fn ask_limit(ledger: &Ledger, change: &Change, number: Option<u32>) -> Option<RefusedHold> {
    let limit = number.map(|number| ledger.limit(number));
    let balance = limit.map_or(Balance::default(), |limit| limit.balance);
    let ceiling = limit.map_or(change.ceiling, |limit| limit.terms.ceiling);
    let exceeded = ceiling.and_then(|ceiling| balance.exceeded(&change.limit_name, change.value, ceiling));
    match exceeded {
        Some(exceeded) => Some(RefusedHold::LimitExceeded(exceeded)),
        None if balance.hold(change.value).is_none() => {
            let (limit_name, commit_value) = (change.limit_name.clone(), balance.commit);
            let (hold_value, available) =
                (balance.hold_value(), balance.available(ceiling.unwrap_or(i64::MAX)));
            Some(RefusedHold::ValueOverflow { limit_name, ceiling, commit_value, hold_value, available })
        }
        None => None,
    }
}

/// The numbers of the limits that a hold names. Each is looked up once.
pub(super) fn numbers_of(ledger: &Ledger, hold: &Hold) -> Vec<Option<u32>> {
    hold.changes.iter().map(|change| ledger.find(&change.limit_name)).collect()
}

/// Fails if the namespace must not have the limits that the hold creates, or its timer.
fn check_quotas(
    ledger: &Ledger,
    turn: &Turn<'_>,
    hold: &Hold,
    numbers: &[Option<u32>],
) -> Result<(), QuotaExceeded> {
    let created = || hold.changes.iter().zip(numbers).filter(|(_, number)| number.is_none());
    ledger.check_limits(turn, created().count())?;
    let bytes = |change: &Change| limit_bytes(&change.limit_name, change.limit_id.as_ref(), &change.context);
    let limits = created().map(|(change, _)| bytes(change)).sum::<u64>();
    let expiry = hold.expires_after().map_or(0, |_| expiry_bytes(&hold.operation_id));
    turn.check_bytes(ledger.resident_bytes(), limits + expiry)
}

/// Holds, and returns the reply and all holds of the operation.
pub(super) fn execute(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    hold: &Hold,
    numbers: Vec<Option<u32>>,
    operation: Option<Operation>,
    fresh: &[usize],
    skipped: Vec<Name>,
) -> (HoldReply, Vec<HeldLimit>) {
    let numbered = hold.changes.iter().zip(numbers).map(|(change, number)| {
        number.unwrap_or_else(|| {
            let Change { limit_name: name, limit_id, context, ceiling, .. } = change.clone();
            let created_at = turn.advance();
            ledger.create(turn, Terms { name, limit_id, context, ceiling, created_at })
        })
    });
    let numbers: Vec<u32> = numbered.collect();

    let position = turn.advance();
    let expires_at = hold.expires_after().map(|span| turn.now.after(span));
    let is_new = operation.is_none();
    let was_open = operation.as_ref().is_some_and(Operation::is_open);
    let none = || Operation { view: position, holds: Vec::with_capacity(fresh.len()) };
    let mut operation = operation.unwrap_or_else(none);
    operation.view = position;
    for &index in fresh {
        let (number, value) = (numbers[index], hold.changes[index].value);
        let balance = ledger.begin_hold(number, value);
        operation.holds.push(HeldLimit {
            limit: number,
            value,
            position,
            held_at: turn.now,
            expires_at,
            state: HoldState::Held,
            balance,
        });
        entries::put(turn, &hold.operation_id, EntryKind::Hold, number, position, value, balance);
    }
    turn.put(keys::operation(turn.namespace, &hold.operation_id), &operation);
    match (is_new, was_open) {
        (true, _) => turn.put_first(keys::open(turn.namespace, &hold.operation_id), &()),
        (false, false) => turn.put(keys::open(turn.namespace, &hold.operation_id), &()),
        (false, true) => {}
    }
    if let Some(due) = expires_at {
        turn.put_first(keys::expiry(turn.namespace, due, position), &hold.operation_id);
        expiry::set_timer(ledger, turn, &hold.operation_id, due, position);
    }
    let values = numbers.iter().map(|number| ledger.value_now(*number)).collect();
    let reply = HoldReply { operation_id: hold.operation_id.clone(), position, values, skipped };
    (reply, operation.holds)
}
