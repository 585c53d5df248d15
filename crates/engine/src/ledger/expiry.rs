//! When holds expire: each hold request has one timer for all its holds, and one stored record. `extend` changes both.

use super::{
    keys,
    operations::{self, Operation},
    reply::{HoldState, Refusal, Reply},
    state::{Ledger, expiry_bytes},
};
use crate::{
    Name, Position, Time,
    timers::{Timer, TimerSource},
    turn::{CannotRun, Turn},
};
use alloc::collections::BTreeSet;
use limina_api::ledger::Extend;

/// The decision, made before anything is changed.
enum Plan {
    Refuse(Refusal),
    Extend {
        /// The operation as it was.
        before: Operation,
        after: Operation,
        reply: limina_api::ledger::Operation,
    },
}

/// Makes every open hold of the operation expire at the same time, or never.
pub(super) fn extend(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    request: &Extend,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    let id = &request.operation_id;
    if let Err(refusal) = ledger.check_not_reserved(id) {
        return Ok(Err(refusal));
    }
    let expires_at = request.expires_after().map(|span| turn.now.after(span));
    let view = turn.view();
    let decision = view.read(|reader| {
        let found = operations::find(ledger, reader, view.namespace, id)?;
        let Some(before) = found.as_ref().filter(|operation| operation.is_open()).cloned() else {
            let state = found.and_then(|operation| operation.holds.first().map(|hold| hold.state));
            let operation_id = id.clone();
            return Ok(Plan::Refuse(Refusal::OperationNotFound { operation_id, limit_name: None, state }));
        };
        let mut after = before.clone();
        let open = after.holds.iter_mut().filter(|hold| hold.state == HoldState::Held);
        open.for_each(|hold| hold.expires_at = expires_at);
        let reply = after.info(ledger, reader, view, id)?;
        Ok(Plan::Extend { before, after, reply })
    })?;
    let (before, after, reply) = match decision {
        Plan::Refuse(refusal) => return Ok(Err(refusal)),
        Plan::Extend { before, after, reply } => (before, after, reply),
    };
    let (old, new) = (expiries(&before), expiries(&after));
    let more = new.len().saturating_sub(old.len()) as u64 * expiry_bytes(id);
    if let Err(exceeded) = turn.check_bytes(ledger.resident_bytes(), more) {
        return Ok(Err(exceeded.into()));
    }
    if before != after {
        turn.advance();
        for (due, held_at) in old.difference(&new) {
            cancel(ledger, turn, id, *due, *held_at);
        }
        for (due, held_at) in new.difference(&old) {
            turn.put(keys::expiry(turn.namespace, *due, *held_at), id);
            set_timer(ledger, turn, id, *due, *held_at);
        }
        turn.put(keys::operation(turn.namespace, id), &after);
    }
    Ok(Ok(Reply::Operation(reply)))
}

/// The expiries of the open holds: the time, and the position of the hold request.
fn expiries(operation: &Operation) -> BTreeSet<(Time, Position)> {
    let open = operation.holds.iter().filter(|hold| hold.state == HoldState::Held);
    open.filter_map(|hold| Some((hold.expires_at?, hold.position))).collect()
}

/// Sets the timer of the hold request at `held_at`.
pub(super) fn set_timer(ledger: &mut Ledger, turn: &mut Turn<'_>, id: &Name, due: Time, held_at: Position) {
    let key = turn.timer_key(due, TimerSource::Change(held_at));
    // A postponed timer of the same hold request may be due at the same time. This one replaces it.
    if turn.timers.get(key).is_none() {
        ledger.add_expiry(id);
    }
    turn.timers.set(key, Timer::HoldExpiry { operation_id: id.clone(), held_at, due });
}

/// Cancels the timer of the hold request at `held_at`, and removes its record.
pub(super) fn cancel(ledger: &mut Ledger, turn: &mut Turn<'_>, id: &Name, due: Time, held_at: Position) {
    let key = turn.timer_key(due, TimerSource::Change(held_at));
    // A timer that was postponed is no longer there. It finds nothing to do when it fires.
    if turn.timers.get(key).is_some() {
        turn.timers.cancel(key);
        ledger.end_expiry(id);
    }
    turn.remove(keys::expiry(turn.namespace, due, held_at));
}
