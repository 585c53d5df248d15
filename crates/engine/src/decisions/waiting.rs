//! Decisions that wait for locks and slots, and the grants to everything that waits in a namespace.
//!
//! A decision waits in the queues of its locks and of its slots, in the order of arrival over all families, and holds nothing
//! meanwhile. While one of its locks is not free, it stands in no queue of slots, so that others can use them. As soon as all its
//! locks are free, it enters those queues at the place of its arrival, before anything else is asked. Its locks stay free for it
//! then, because it keeps its places in their queues. Its id is reserved in memory: a grant happens in another request's turn,
//! which cannot fetch records.

use super::{
    command::{Command, DecideRequest, takes},
    families::Families,
    make::{MakeOutcome, make, without_position},
    reply::{Decision, Refusal, Reply},
    state::Decisions,
    waiters::{Waiter, waiter_bytes},
};
use crate::{
    Name, Quota, WaitId,
    ids::NamespaceId,
    ledger, limiter, locks,
    timers::{Timer, TimerKey},
    turn::{Attempt, CannotRun, Turn},
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use limina_api::decisions::{Decide, State};

/// Makes a request wait that only locks and slots refuse.
pub(super) fn join(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    asked: &DecideRequest,
    slots: limiter::Slots,
    is_locked: bool,
    wait: WaitId,
) -> Attempt<Result<Reply, Refusal>> {
    let request = &asked.wanted;
    if decisions.waiters.len() >= limiter::MAX_WAITING {
        return Attempt::TooManyWaiting;
    }
    let takes = takes(request);
    let used = turn.other_waiting + decisions.waiters.len();
    let checked = turn.check_quota(Quota::LocksWaiting, used, 1).and_then(|()| {
        let new_queues = locks::parts::new_queue_bytes(families.locks, &request.parts().locks);
        let bytes = waiter_bytes(asked) + slots.bytes(&takes) + new_queues;
        turn.quotas.check(Quota::ResidentBytes, turn.other_bytes, bytes)
    });
    if let Err(exceeded) = checked {
        return Attempt::Done(Err(exceeded.into()));
    }
    let waiter = Waiter { asked: asked.clone(), wait, until: turn.now.after(request.wait()) };
    turn.timers.set(waiter.timer_key(turn.namespace, wait), Timer::DecisionWait { place: wait });
    locks::parts::join(families.locks, wait, &request.parts().locks);
    if !takes.is_empty() {
        limiter::parts::join(families.limiter, wait, takes, slots, !is_locked);
    }
    ledger::parts::reserve(families.ledger, request.operation_id(), waiter.until);
    decisions.waiters.insert(wait, waiter);
    Attempt::Waits
}

/// A request under the id of one that waits. The same request takes its place. `None` if nothing waits under the id, or if the
/// request is a dry run: then it is asked like any other.
pub(super) fn take_over(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    asked: &DecideRequest,
    wait: WaitId,
    max_answer: usize,
) -> Result<Option<Attempt<Result<Reply, Refusal>>>, CannotRun> {
    let request = &asked.wanted;
    let id = request.operation_id();
    let Some(place) = decisions.waiters.place_of(id) else { return Ok(None) };
    let waiter = decisions.waiters.get(place).expect("its id was found");
    if !request.repeats(waiter.request()) {
        return Ok(Some(Attempt::Done(Err(Refusal::OperationReused { operation_id: id.clone() }))));
    }
    if request.dry_run() {
        return Ok(Some(Attempt::Done(match make(decisions, families, turn, request, place, max_answer)? {
            MakeOutcome::Decided(result) => result,
            MakeOutcome::Blocked { refusal, .. } => Err(refusal),
        })));
    }
    turn.timers.cancel(waiter.timer_key(turn.namespace, place));
    decisions.completed.push((waiter.wait, Err(Refusal::OperationWaits { operation_id: id.clone() })));
    let waiter = Waiter { asked: asked.clone(), wait, until: turn.now.after(request.wait()) };
    turn.timers.set(waiter.timer_key(turn.namespace, place), Timer::DecisionWait { place });
    decisions.waiters.insert(place, waiter);
    if request.wait().0 > 0 {
        return Ok(Some(Attempt::Waits));
    }
    let result = last_look(decisions, families, turn, place, max_answer, true);
    leave(decisions, families, turn, place, result.is_ok());
    Ok(Some(Attempt::Done(result)))
}

/// Ends a wait because it has lasted for as long as it may.
pub(crate) fn end_wait(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    place: WaitId,
    max_answer: usize,
) {
    if decisions.waiters.get(place).is_some() {
        let result = last_look(decisions, families, turn, place, max_answer, true);
        complete(decisions, families, turn, place, result);
    }
}

/// Ends the wait of a request whose client has gone. Another request that has taken its place goes on waiting.
pub(super) fn abandon(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    id: &Name,
    gone: &Name,
    max_answer: usize,
) {
    if let Some(place) = decisions.waiters.place_of(id)
        && decisions.waiters[place].asked.waiter.as_ref() == Some(gone)
    {
        let result = last_look(decisions, families, turn, place, max_answer, false);
        complete(decisions, families, turn, place, result);
    }
}

/// Ends the wait under an id, because the operation is rolled back. `None` if nothing waits under it.
pub(super) fn roll_back(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    id: &Name,
    max_answer: usize,
) -> Option<Reply> {
    let place = decisions.waiters.place_of(id)?;
    let request = decisions.waiters[place].request().clone();
    let result = last_look(decisions, families, turn, place, max_answer, false);
    complete(decisions, families, turn, place, result);
    // Nothing is stored of a wait, but its end is a change with a position. So the reply is kept under an idempotency key: a
    // repeat would no longer find the wait.
    turn.advance();
    let never_made = without_position(&request, turn.now, Vec::new());
    Some(Reply::Ended(Box::new(Decision { state: State::RolledBack, expires_at: None, ..never_made })))
}

/// Asks for the last time. If `may_make`, what is free by now is granted.
fn last_look(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    place: WaitId,
    max_answer: usize,
    may_make: bool,
) -> Result<Reply, Refusal> {
    let request = decisions.waiters[place].request().clone();
    let asked = match may_make {
        true => request,
        false => Arc::new(Decide::clone(&request).with_dry_run(true)),
    };
    match make(decisions, families, turn, &asked, place, max_answer) {
        Ok(MakeOutcome::Decided(Ok(_))) if !may_make => Err(Refusal::Refused(Box::default())),
        Ok(MakeOutcome::Decided(result)) => result,
        Ok(MakeOutcome::Blocked { refusal, .. }) => Err(refusal),
        // Only rules that were created meanwhile can make the answer too large.
        Err(_) => Err(Refusal::Refused(Box::default())),
    }
}

fn complete(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    place: WaitId,
    result: Result<Reply, Refusal>,
) {
    if let Some(wait) = leave(decisions, families, turn, place, result.is_ok()) {
        decisions.completed.push((wait, result));
    }
}

/// Leaves all queues, and wakes the requests that are at their heads then. A decision that was made keeps the id.
fn leave(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    place: WaitId,
    is_made: bool,
) -> Option<WaitId> {
    let waiter = decisions.waiters.remove(place)?;
    turn.timers.cancel(waiter.timer_key(turn.namespace, place));
    locks::parts::leave(families.locks, place, &waiter.request().parts().locks);
    enter_queues(decisions, families);
    limiter::parts::leave(families.limiter, place);
    if !is_made {
        ledger::parts::free(families.ledger, waiter.request().operation_id());
    }
    Some(waiter.wait)
}

/// The decisions whose locks have become free enter the queues of their slots. This must happen before anything else is asked.
pub(super) fn enter_queues(decisions: &Decisions, families: &mut Families<'_>) {
    for place in locks::parts::take_freed(families.locks) {
        if let Some(waiter) = decisions.waiters.get(place)
            && locks::parts::are_free(families.locks, &waiter.request().parts().locks, place)
        {
            limiter::parts::enter(families.limiter, place);
        }
    }
}

/// Asks for a waiting decision again. It goes on waiting while locks or slots refuse it. Otherwise this is the moment of its grant, at which
/// everything else may refuse it.
fn ask_again(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    place: WaitId,
    max_answer: usize,
) {
    let waiter = &decisions.waiters[place];
    turn.other_bytes = turn.other_bytes.saturating_sub(waiter.resident_bytes());
    let request = waiter.request().clone();
    let result = match make(decisions, families, turn, &request, place, max_answer) {
        Ok(MakeOutcome::Blocked { .. }) => return,
        Ok(MakeOutcome::Decided(result)) => result,
        Err(_) => Err(Refusal::Refused(Box::default())),
    };
    complete(decisions, families, turn, place, result);
}

/// Asks the earliest request again that has come to the head of a queue, or for which there is more room, over locks, leases and
/// decisions. A request that something else refuses makes way for those behind it. Returns false if there is none. `own_bytes` is
/// what the namespace has without its families.
pub(crate) fn grant_next(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    own_bytes: u64,
    max_answer: usize,
) -> bool {
    enter_queues(decisions, families);
    let woken = [families.locks.first_woken(), families.limiter.first_woken()];
    let Some(wait) = woken.into_iter().flatten().min() else { return false };
    families.locks.handle_woken(wait);
    families.limiter.handle_woken(wait);
    turn.other_bytes = own_bytes + families.resident_bytes() + decisions.resident_bytes();
    if decisions.waiters.get(wait).is_some() {
        ask_again(decisions, families, turn, wait, max_answer);
    } else if families.limiter.has_waiter(wait) {
        turn.begin_family(families.limiter.resident_bytes());
        limiter::waiting::ask_again(families.limiter, turn, wait, max_answer);
    } else {
        turn.begin_family(families.locks.resident_bytes());
        families.locks.ask_again(turn, wait);
        enter_queues(decisions, families);
    }
    true
}

/// Removes all waiting requests, without replies. Returns each with the key of its timer.
pub(crate) fn end_waits(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    namespace: NamespaceId,
) -> Vec<(WaitId, TimerKey)> {
    let waiters = core::mem::take(&mut decisions.waiters);
    let mut ended = Vec::with_capacity(waiters.len());
    for (place, waiter) in waiters.into_waiters() {
        locks::parts::leave(families.locks, place, &waiter.request().parts().locks);
        limiter::parts::leave(families.limiter, place);
        ledger::parts::free(families.ledger, waiter.request().operation_id());
        ended.push((waiter.wait, waiter.timer_key(namespace, place)));
    }
    ended
}

/// The refusal of a command about an operation that waits.
pub(super) fn refuse(decisions: &Decisions, command: &Command) -> Option<Refusal> {
    let id = match command {
        Command::Settle(settle) => &settle.operation_id,
        Command::Heartbeat(id) | Command::Get(id) => id,
        _ => return None,
    };
    let state = Some(State::Waiting);
    decisions.waiters.has(id).then(|| Refusal::OperationNotFound { operation_id: id.clone(), state })
}
