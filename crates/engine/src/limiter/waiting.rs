//! Leases that wait for limits without a window.

use super::{
    check::{self, TakeKind},
    command::NewLease,
    lease::new_lease_bytes,
    lease_waiters::{LeaseWaiter, waiter_bytes},
    leases,
    reply::{Checked, Refusal, Reply},
    slot_queues::{LAST, MAX_WAITING, Slots},
    state::Limiter,
    touched_groups::TouchedGroups,
};
use crate::{
    Name, Quota, Time, WaitId,
    answer_size::{AnswerBudget, TooLarge},
    timers::Timer,
    turn::{Attempt, Turn},
};
use alloc::vec::Vec;

/// A lease that cannot be had now.
struct Refused {
    refusal: Refusal,
    /// The groups to wait in. `None` if nothing is full, or if the lease could not even be had if nothing were in use.
    slots: Option<Slots>,
    /// Whether limits with a window refuse as well.
    do_windows_refuse: bool,
}

/// Takes a lease, waits for it, or refuses it.
pub(super) fn take(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    new: &NewLease,
    wait: WaitId,
    budget: AnswerBudget,
) -> Result<Attempt<Result<Reply, Refusal>>, TooLarge> {
    if let Some(result) = leases::find_taken(limiter, turn.now, new) {
        return Ok(Attempt::Done(result));
    }
    // This is a retry by a node that does not know the result of the first attempt. It must not wait behind itself.
    if let Some(earlier) = limiter.lease_waiters.place_of(&new.id) {
        time_out(limiter, turn, earlier, usize::MAX);
        if let Some(result) = leases::find_taken(limiter, turn.now, new) {
            return Ok(Attempt::Done(result));
        }
    }
    let Refused { refusal, slots, do_windows_refuse } = match attempt(limiter, turn, new, LAST, budget)? {
        Ok(reply) => return Ok(Attempt::Done(Ok(reply))),
        Err(refused) => refused,
    };
    let Some(slots) = slots.filter(|_| new.wait.0 > 0 && !do_windows_refuse) else {
        return Ok(Attempt::Done(Err(refusal)));
    };
    if limiter.lease_waiters.len() >= MAX_WAITING {
        return Ok(Attempt::TooManyWaiting);
    }
    let entries = [leases::entry_of(new)];
    let used = turn.other_waiting + limiter.lease_waiters.len();
    let checked = turn.check_quota(Quota::LocksWaiting, used, 1).and_then(|()| {
        let more = slots.bytes(&entries) + waiter_bytes(new);
        turn.check_bytes(limiter.resident_bytes(), more)
    });
    if let Err(exceeded) = checked {
        return Ok(Attempt::Done(Err(exceeded.into())));
    }
    let waiter = LeaseWaiter { new: new.clone(), until: turn.now.after(new.wait) };
    turn.timers.set(waiter.timer_key(turn.namespace, wait), Timer::LeaseWait { wait });
    limiter.slots.join(wait, entries.to_vec(), slots, true);
    limiter.lease_waiters.insert(wait, waiter);
    Ok(Attempt::Waits)
}

/// Takes the lease as the request at this place, unless something refuses it.
fn attempt(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    new: &NewLease,
    place: WaitId,
    mut budget: AnswerBudget,
) -> Result<Result<Reply, Refused>, TooLarge> {
    let entries = [leases::entry_of(new)];
    let touched = TouchedGroups::collect(limiter, &entries, &mut budget)?;
    let slots = touched.slots(&entries);
    let kind = TakeKind::Lease { bytes: new_lease_bytes(new), place };
    let decided = check::decide_touched(limiter, turn, &entries, touched, new.require_match, kind);
    Ok(match decided.allowed_or_refused() {
        Ok(decision) => Ok(leases::make(limiter, turn, new, decision)),
        Err(refusal) => {
            let refuses = |is_full: bool| match &refusal {
                Refusal::LimitReached(decision) => decision
                    .limits
                    .iter()
                    .any(|limit| limit.exceeded && !limit.shadow && limit.per.is_none() == is_full),
                _ => false,
            };
            let (slots, do_windows_refuse) = (slots.filter(|_| refuses(true)), refuses(false));
            Err(Refused { refusal, slots, do_windows_refuse })
        }
    })
}

/// Asks for a waiting lease again. It goes on waiting while a limit without a window refuses it. Otherwise this is the moment of its grant,
/// at which limits with a window may refuse it.
pub(crate) fn ask_again(limiter: &mut Limiter, turn: &mut Turn<'_>, wait: WaitId, max_answer: usize) {
    let Some(waiter) = limiter.lease_waiters.get(wait) else { return };
    let new = waiter.new.clone();
    let result = match attempt(limiter, turn, &new, wait, AnswerBudget::new(max_answer)) {
        Ok(Err(Refused { slots: Some(_), .. })) => return,
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(Refused { refusal, slots: None, .. })) => Err(refusal),
        Err(TooLarge) => Err(without_limits()),
    };
    end(limiter, turn, wait, result);
}

/// Ends a wait because it has lasted for as long as it may, or because its client has gone.
pub(crate) fn time_out(limiter: &mut Limiter, turn: &mut Turn<'_>, wait: WaitId, max_answer: usize) {
    let Some(waiter) = limiter.lease_waiters.get(wait) else { return };
    let new = waiter.new.clone();
    let result = match attempt(limiter, turn, &new, wait, AnswerBudget::new(max_answer)) {
        Ok(result) => result.map_err(|refused| refused.refusal),
        Err(TooLarge) => Err(without_limits()),
    };
    end(limiter, turn, wait, result);
}

/// The refusal of a request that waited, if its answer would be too large since rules were created meanwhile.
fn without_limits() -> Refusal {
    Refusal::LimitReached(Checked::without_limits(false))
}

/// Handles the hang-up of a request: its wait ends, and so does a lease that was returned to no other request.
pub(super) fn abandon(limiter: &mut Limiter, turn: &mut Turn<'_>, id: &Name, max_answer: usize) -> Reply {
    if let Some(wait) = limiter.lease_waiters.place_of(id) {
        time_out(limiter, turn, wait, max_answer);
    }
    if limiter.leases.get(id).is_some_and(|lease| lease.ends_with_client) {
        leases::end(limiter, turn, id);
    }
    Reply::LeaseAbandoned
}

fn end(limiter: &mut Limiter, turn: &mut Turn<'_>, wait: WaitId, result: Result<Reply, Refusal>) {
    let Some(waiter) = limiter.lease_waiters.remove(wait) else { return };
    turn.timers.cancel(waiter.timer_key(turn.namespace, wait));
    limiter.slots.leave(wait);
    limiter.completed.push((wait, result));
}

impl Limiter {
    /// Whether a lease waits under this id.
    pub(crate) fn has_waiter(&self, wait: WaitId) -> bool {
        self.lease_waiters.get(wait).is_some()
    }

    /// The number of leases that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lease_waiters.len()
    }

    /// Removes all waiting leases, without replies.
    pub(crate) fn end_waits(&mut self) -> Vec<(WaitId, Time)> {
        let waiters = core::mem::take(&mut self.lease_waiters);
        let mut ended = Vec::with_capacity(waiters.len());
        for (wait, waiter) in waiters.into_waiters() {
            self.slots.leave(wait);
            ended.push((wait, waiter.until));
        }
        self.slots.clear_woken();
        ended
    }
}
