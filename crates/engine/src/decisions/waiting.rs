//! Decisions that wait for locks and slots, and the grants to everything that waits in a namespace.
//!
//! A decision waits in the queues of its locks and of its slots, in the order of arrival over all families, and holds nothing
//! meanwhile. While one of its locks is not free, it stands in no queue of slots, so that others can use them. As soon as all its
//! locks are free, it enters those queues at the place of its arrival, before anything else is asked. Its locks stay free for it
//! then, because it keeps its places in their queues. Its id is reserved in memory: a grant happens in another request's turn,
//! which cannot fetch records.

use super::{
    Families,
    command::{Command, Decide},
    decide::{self, Tried},
    reply::{Decision, Refusal, Reply, State},
    state::{self, Decisions},
};
use crate::{
    Name, Quota, Time, WaitId,
    ids::NamespaceId,
    ledger,
    leftovers::Leftovers,
    limiter, locks,
    resident::{self, Shrink},
    timers::{Timer, TimerKey, TimerSource},
    turn::{Attempt, CannotRun, Turn},
};
use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use hashbrown::HashMap;

/// The decisions that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By their places in the queues.
    waiters: BTreeMap<WaitId, Waiter>,
    places: HashMap<Name, WaitId>,
    /// The resident bytes of all waiters.
    bytes: u64,
}

/// A waiting request.
#[derive(Debug)]
struct Waiter {
    request: Decide,
    /// The request that is answered. It may have taken over the place of an earlier one.
    wait: WaitId,
    until: Time,
}

impl Waiter {
    fn timer_key(&self, namespace: NamespaceId, place: WaitId) -> TimerKey {
        TimerKey { due: self.until, namespace, source: TimerSource::Wait(place) }
    }

    fn resident_bytes(&self) -> u64 {
        waiter_bytes(&self.request)
    }
}

fn waiter_bytes(request: &Decide) -> u64 {
    resident::tree_slot::<(WaitId, Waiter)>()
        + resident::hash_slot::<(Name, WaitId)>()
        + state::growth(request)
        + request.waiter.as_ref().map_or(0, Name::heap)
        + locks::parts::places_bytes(&request.parts.locks)
}

/// What the first waiter takes besides. Its id is reserved in the ledger.
const FIRST_BYTES: u64 = resident::first_in_tree::<(WaitId, Waiter)>()
    + resident::first_in_hash::<(Name, WaitId)>()
    + resident::first_in_hash::<(Name, Time)>();

impl Waiting {
    pub(super) fn has(&self, id: &Name) -> bool {
        self.places.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        self.bytes + resident::unless_empty(self.waiters.len(), FIRST_BYTES)
    }

    /// The resident bytes, summed up anew.
    pub(super) fn recount_bytes(&self) -> u64 {
        let waiters = self.waiters.values().map(Waiter::resident_bytes).sum::<u64>();
        waiters + resident::unless_empty(self.waiters.len(), FIRST_BYTES)
    }

    /// The requests that wait in a deleted namespace, and the rest of the memory.
    pub(super) fn into_waits_and_leftovers(self) -> (Vec<WaitId>, Leftovers) {
        let waits = self.waiters.values().map(|waiter| waiter.wait).collect();
        (waits, Leftovers::of(self.waiters).and(self.places))
    }
}

/// Makes a request wait that only locks and slots refuse.
pub(super) fn join(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    request: &Decide,
    slots: limiter::waiting::Slots,
    is_locked: bool,
    wait: WaitId,
) -> Attempt<Result<Reply, Refusal>> {
    if decisions.waiting.len() >= limiter::waiting::MAX_WAITING {
        return Attempt::TooManyWaiting;
    }
    let takes = request.takes();
    let used = turn.other_waiting + decisions.waiting.len();
    let checked = turn.check_quota(Quota::LocksWaiting, used, 1).and_then(|()| {
        let new_queues = locks::parts::new_queue_bytes(families.locks, &request.parts.locks);
        let bytes = waiter_bytes(request) + slots.bytes(&takes) + new_queues;
        turn.quotas.check(Quota::ResidentBytes, turn.other_bytes, bytes)
    });
    if let Err(exceeded) = checked {
        return Attempt::Done(Err(exceeded.into()));
    }
    let waiter = Waiter { request: request.clone(), wait, until: turn.now.after(request.wait) };
    turn.timers.set(waiter.timer_key(turn.namespace, wait), Timer::DecisionWait { place: wait });
    locks::parts::join(families.locks, wait, &request.parts.locks);
    if !takes.is_empty() {
        limiter::waiting::join(families.limiter, wait, takes, slots, !is_locked);
    }
    ledger::parts::reserve(families.ledger, &request.operation_id, waiter.until);
    let waiting = &mut decisions.waiting;
    waiting.bytes += waiter.resident_bytes();
    waiting.places.insert(request.operation_id.clone(), wait);
    waiting.waiters.insert(wait, waiter);
    Attempt::Waits
}

/// A request under the id of one that waits. The same request takes its place. `None` if nothing waits under the id, or if the
/// request is a dry run: then it is asked like any other.
pub(super) fn take_over(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    request: &Decide,
    wait: WaitId,
    max_answer: usize,
) -> Result<Option<Attempt<Result<Reply, Refusal>>>, CannotRun> {
    let id = &request.operation_id;
    let Some(place) = decisions.waiting.places.get(id).copied() else { return Ok(None) };
    let waiting = &mut decisions.waiting;
    let waiter = waiting.waiters.get_mut(&place).expect("its id was found");
    if waiter.request.without_modes() != request.without_modes() {
        return Ok(Some(Attempt::Done(Err(Refusal::OperationReused { operation_id: id.clone() }))));
    }
    if request.dry_run {
        return Ok(Some(Attempt::Done(
            match decide::try_at(decisions, families, turn, request, place, max_answer)? {
                Tried::Done(result) => result,
                Tried::Blocked { refusal, .. } => Err(refusal),
            },
        )));
    }
    turn.timers.cancel(waiter.timer_key(turn.namespace, place));
    waiting.bytes -= waiter.resident_bytes();
    decisions.completed.push((waiter.wait, Err(Refusal::OperationWaits { operation_id: id.clone() })));
    *waiter = Waiter { request: request.clone(), wait, until: turn.now.after(request.wait) };
    waiting.bytes += waiter.resident_bytes();
    turn.timers.set(waiter.timer_key(turn.namespace, place), Timer::DecisionWait { place });
    if request.wait.0 > 0 {
        return Ok(Some(Attempt::Waits));
    }
    let result = last_look(decisions, families, turn, place, max_answer, true);
    leave(decisions, families, turn, place, result.is_ok());
    Ok(Some(Attempt::Done(result)))
}

/// Ends a wait because it has lasted for as long as it may.
pub(super) fn time_out(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    place: WaitId,
    max_answer: usize,
) {
    if decisions.waiting.waiters.contains_key(&place) {
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
    let waiting = &decisions.waiting;
    if let Some(place) = waiting.places.get(id).copied()
        && waiting.waiters[&place].request.waiter.as_ref() == Some(gone)
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
    let place = decisions.waiting.places.get(id).copied()?;
    let request = decisions.waiting.waiters[&place].request.clone();
    let result = last_look(decisions, families, turn, place, max_answer, false);
    complete(decisions, families, turn, place, result);
    // Nothing is stored of a wait, but its end is a change with a position. So the reply is kept under an idempotency key: a
    // repeat would no longer find the wait.
    turn.advance();
    let never_made = decide::without_position(&request, turn.now, Vec::new());
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
    let request = decisions.waiting.waiters[&place].request.clone();
    let asked = if may_make { request } else { request.with_dry_run(true) };
    match decide::try_at(decisions, families, turn, &asked, place, max_answer) {
        Ok(Tried::Done(Ok(_))) if !may_make => Err(Refusal::Refused(Box::default())),
        Ok(Tried::Done(result)) => result,
        Ok(Tried::Blocked { refusal, .. }) => Err(refusal),
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
    let waiter = decisions.waiting.waiters.remove(&place)?;
    decisions.waiting.bytes -= waiter.resident_bytes();
    decisions.waiting.places.remove(&waiter.request.operation_id);
    decisions.waiting.places.shrink();
    turn.timers.cancel(waiter.timer_key(turn.namespace, place));
    locks::parts::leave(families.locks, place, &waiter.request.parts.locks);
    enter_queues(decisions, families);
    limiter::waiting::leave(families.limiter, place);
    if !is_made {
        ledger::parts::free(families.ledger, &waiter.request.operation_id);
    }
    Some(waiter.wait)
}

/// The decisions whose locks have become free enter the queues of their slots. This must happen before anything else is asked.
pub(super) fn enter_queues(decisions: &Decisions, families: &mut Families<'_>) {
    for place in locks::parts::take_freed(families.locks) {
        if let Some(waiter) = decisions.waiting.waiters.get(&place)
            && locks::parts::are_free(families.locks, &waiter.request.parts.locks, place)
        {
            limiter::waiting::enter(families.limiter, place);
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
    let waiter = &decisions.waiting.waiters[&place];
    turn.other_bytes = turn.other_bytes.saturating_sub(waiter.resident_bytes());
    let request = waiter.request.clone();
    let result = match decide::try_at(decisions, families, turn, &request, place, max_answer) {
        Ok(Tried::Blocked { .. }) => return,
        Ok(Tried::Done(result)) => result,
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
    if decisions.waiting.waiters.contains_key(&wait) {
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
    let waiters = core::mem::take(&mut decisions.waiting).waiters;
    let mut ended = Vec::with_capacity(waiters.len());
    for (place, waiter) in waiters {
        locks::parts::leave(families.locks, place, &waiter.request.parts.locks);
        limiter::waiting::leave(families.limiter, place);
        ledger::parts::free(families.ledger, &waiter.request.operation_id);
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
    decisions.waiting.has(id).then(|| Refusal::OperationNotFound { operation_id: id.clone(), state })
}
