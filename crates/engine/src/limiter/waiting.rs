//! Requests that wait for limits without a window. Each group has a queue, in the order of arrival over all families.
//!
//! A request waits in the groups of all enforced limits without a window that it takes from, and holds nothing meanwhile. What
//! would take from a group in which an earlier request waits is refused, or waits behind it. Leases and decisions wait in the
//! same queues; decisions are kept by their own module, which also grants everything that waits. While a lock keeps a decision
//! waiting, it stands in none of these queues.

use super::{
    Limiter,
    check::{self, TakeKind},
    command::{NewLease, Take},
    groups::{GroupKey, GroupOwner},
    leases,
    reply::{Decision, Refusal, Reply},
    resident_bytes,
    terms::Limit,
    touched_groups::{TouchedGroup, TouchedGroups},
};
use crate::{
    Name, Quota, Time, WaitId,
    answer_size::{AnswerBudget, TooLarge},
    ids::NamespaceId,
    key_values::KeyValues,
    leftovers::Leftovers,
    resident::{self, Shrink},
    timers::{TIMER_BYTES, Timer, TimerKey, TimerSource},
    turn::{Attempt, Turn},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use hashbrown::HashMap;

/// The largest number of waiting requests of a namespace.
pub(crate) const MAX_WAITING: usize = 131_072;

/// The place of a request that does not wait: behind all that do.
pub(crate) const LAST: WaitId = WaitId(u64::MAX);
/// The place of what passes all that waits.
pub(super) const FIRST: WaitId = WaitId(0);

/// The queues of all groups.
#[derive(Debug, Default)]
pub(crate) struct SlotQueues {
    queues: HashMap<GroupKey, BTreeSet<WaitId>>,
    places: BTreeMap<WaitId, Place>,
    /// Requests that have come to the head of a queue, or whose group has more room than before.
    woken: BTreeSet<WaitId>,
    /// The resident bytes of all places.
    bytes: u64,
}

/// A waiting request.
#[derive(Debug)]
struct Place {
    /// What it takes. The groups are found anew when rules change.
    entries: Vec<Take>,
    groups: Vec<GroupKey>,
    /// Whether it stands in the queues of these groups. A request whose locks are not free does not.
    is_queued: bool,
}

impl Place {
    fn resident_bytes(&self) -> u64 {
        bytes_of_place(&self.entries, &self.groups)
    }
}

/// The resident bytes of a place, with those that it takes in the queues of its groups.
fn bytes_of_place(entries: &[Take], groups: &[GroupKey]) -> u64 {
    let group = |key: &GroupKey| {
        resident::hash_slot::<(GroupKey, BTreeSet<WaitId>)>()
            + resident::small_tree::<WaitId>(1)
            + 2 * key.values.heap()
    };
    let heap = entries.iter().map(|entry| entry.key_values.heap()).sum::<u64>();
    resident::tree_slot::<(WaitId, Place)>()
        + resident::heap(size_of_val(entries))
        + resident::heap(size_of_val(groups))
        + heap
        + groups.iter().map(group).sum::<u64>()
}

/// What the first place takes besides, and its queue.
const FIRST_PLACE_BYTES: u64 =
    resident::first_in_tree::<(WaitId, Place)>() + resident::first_in_hash::<(GroupKey, BTreeSet<WaitId>)>();

impl SlotQueues {
    /// Whether an earlier request than `place` waits in the group.
    pub(super) fn has_earlier(&self, group: &TouchedGroup, place: WaitId) -> bool {
        self.queue(group).and_then(BTreeSet::first).is_some_and(|first| *first < place)
    }

    /// The number of requests other than `place` that wait in the group.
    pub(super) fn waiting(&self, group: &TouchedGroup, place: WaitId) -> usize {
        self.queue(group).map_or(0, |queue| queue.len() - usize::from(queue.contains(&place)))
    }

    /// The number of requests that wait in the group.
    pub(super) fn waiting_in(&self, key: &GroupKey) -> usize {
        self.queues.get(key).map_or(0, BTreeSet::len)
    }

    fn queue(&self, group: &TouchedGroup) -> Option<&BTreeSet<WaitId>> {
        if self.queues.is_empty() {
            return None;
        }
        self.queues.get(&GroupKey { owner: group.owner, values: group.values.clone() })
    }

    /// Adds a request, which enters its queues now or later.
    fn join(&mut self, place: WaitId, entries: Vec<Take>, mut groups: Vec<GroupKey>, is_queued: bool) {
        groups.shrink_to_fit();
        let new = Place { entries, groups, is_queued: false };
        self.bytes += new.resident_bytes();
        self.places.insert(place, new);
        if is_queued {
            self.enter(place);
        }
    }

    /// The request stands in its queues from now on, by its arrival.
    fn enter(&mut self, place: WaitId) {
        let Some(Place { groups, is_queued, .. }) = self.places.get_mut(&place) else { return };
        if core::mem::replace(is_queued, true) {
            return;
        }
        for key in groups.iter() {
            self.queues.entry(key.clone()).or_default().insert(place);
        }
    }

    /// Removes a request, and wakes those that are at the heads of its queues then.
    fn leave(&mut self, place: WaitId) {
        self.woken.remove(&place);
        let Some(left) = self.places.remove(&place) else { return };
        self.bytes -= left.resident_bytes();
        for key in left.groups.into_iter().filter(|_| left.is_queued) {
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            queue.remove(&place);
            if let Some(first) = queue.first().copied() {
                self.woken.insert(first);
            } else {
                self.queues.remove(&key);
            }
        }
        self.queues.shrink();
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        self.bytes + resident::unless_empty(self.places.len(), FIRST_PLACE_BYTES)
    }

    /// The resident bytes, summed up anew.
    pub(super) fn recount_bytes(&self) -> u64 {
        let places = self.places.values().map(Place::resident_bytes).sum::<u64>();
        places + resident::unless_empty(self.places.len(), FIRST_PLACE_BYTES)
    }

    pub(super) fn into_leftovers(self) -> Leftovers {
        Leftovers::of(self.queues).and(self.places)
    }
}

impl TouchedGroup {
    /// Whether requests wait for this limit: it is enforced, and about what is in use.
    pub(super) fn is_slot(&self) -> bool {
        self.is_limit && self.is_count() && !self.is_shadow && self.meter.limit != Limit::Unlimited
    }
}

/// The groups in which the entries wait. `None` if they would be refused even if nothing were in use. Each entry then counts for
/// those behind it, also in the group of a rule whose limit an override replaces.
pub(super) fn slots_of(entries: &[Take], touched: &TouchedGroups) -> Option<Vec<GroupKey>> {
    // For each group what the entries so far want from it, and whether it is among `slots`.
    let mut wanted: HashMap<(GroupOwner, &KeyValues), (u64, bool)> = HashMap::new();
    let mut slots = Vec::new();
    for group in &touched.groups {
        let Ok(hits @ 1..) = u64::try_from(entries[group.entry as usize].hits) else { continue };
        let (sum, is_waited_for) = wanted.entry((group.owner, &group.values)).or_default();
        *sum = sum.saturating_add(hits);
        if !group.is_limit || group.is_shadow {
            continue;
        }
        if group.meter.exceeds(None, Time(0), *sum) {
            return None;
        }
        if group.is_slot() && !core::mem::replace(is_waited_for, true) {
            slots.push(GroupKey { owner: group.owner, values: group.values.clone() });
        }
    }
    Some(slots)
}

/// A lease that waits.
#[derive(Debug)]
pub(crate) struct LeaseWaiter {
    new: NewLease,
    until: Time,
}

impl LeaseWaiter {
    fn timer_key(&self, namespace: NamespaceId, wait: WaitId) -> TimerKey {
        TimerKey { due: self.until, namespace, source: TimerSource::Wait(wait) }
    }
}

/// The resident bytes of a lease that waits, without its place in the queues.
fn waiter_bytes(new: &NewLease) -> u64 {
    resident::tree_slot::<(WaitId, LeaseWaiter)>()
        + resident::hash_slot::<(Name, WaitId)>()
        + TIMER_BYTES
        + 2 * new.id.heap()
        + new.session.heap()
        + new.owner.as_ref().map_or(0, Name::heap)
        + new.key_values.heap()
}

/// What the first lease that waits takes besides.
pub(super) const FIRST_WAITER_BYTES: u64 =
    resident::first_in_tree::<(WaitId, LeaseWaiter)>() + resident::first_in_hash::<(Name, WaitId)>();

/// A lease that cannot be had now.
struct Refused {
    refusal: Refusal,
    /// The groups to wait in. `None` if nothing is full, or if the lease could not even be had if nothing were in use.
    slots: Option<Vec<GroupKey>>,
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
    if let Some(earlier) = limiter.lease_waits.get(&new.id).copied() {
        time_out(limiter, turn, earlier, usize::MAX);
        if let Some(result) = leases::find_taken(limiter, turn.now, new) {
            return Ok(Attempt::Done(result));
        }
    }
    let Refused { refusal, slots, do_windows_refuse } = match attempt(limiter, turn, new, LAST, budget)? {
        Ok(reply) => return Ok(Attempt::Done(Ok(reply))),
        Err(refused) => refused,
    };
    let Some(groups) = slots.filter(|_| new.wait.0 > 0 && !do_windows_refuse) else {
        return Ok(Attempt::Done(Err(refusal)));
    };
    if limiter.lease_waiters.len() >= MAX_WAITING {
        return Ok(Attempt::TooManyWaiting);
    }
    let entries = [leases::entry_of(new)];
    let used = turn.other_waiting + limiter.lease_waiters.len();
    let checked = turn.check_quota(Quota::LocksWaiting, used, 1).and_then(|()| {
        let growth = bytes_of_place(&entries, &groups);
        turn.check_bytes(limiter.resident_bytes(), growth + waiter_bytes(new))
    });
    if let Err(exceeded) = checked {
        return Ok(Attempt::Done(Err(exceeded.into())));
    }
    let waiter = LeaseWaiter { new: new.clone(), until: turn.now.after(new.wait) };
    turn.timers.set(waiter.timer_key(turn.namespace, wait), Timer::LeaseWait { wait });
    limiter.slots.join(wait, entries.to_vec(), groups, true);
    limiter.lease_bytes += waiter_bytes(new);
    limiter.lease_waits.insert(new.id.clone(), wait);
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
    let slots = slots_of(&entries, &touched);
    let kind = TakeKind::Lease { bytes: resident_bytes::of_lease(new), place };
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
    let Some(waiter) = limiter.lease_waiters.get(&wait) else { return };
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
    let Some(waiter) = limiter.lease_waiters.get(&wait) else { return };
    let new = waiter.new.clone();
    let result = match attempt(limiter, turn, &new, wait, AnswerBudget::new(max_answer)) {
        Ok(result) => result.map_err(|refused| refused.refusal),
        Err(TooLarge) => Err(without_limits()),
    };
    end(limiter, turn, wait, result);
}

/// The refusal of a request that waited, if its answer would be too large since rules were created meanwhile.
fn without_limits() -> Refusal {
    Refusal::LimitReached(Decision { allowed: false, reported: false, limits: Vec::new(), retry_after: None })
}

/// Handles the hang-up of a request: its wait ends, and so does a lease that was returned to no other request.
pub(super) fn abandon(limiter: &mut Limiter, turn: &mut Turn<'_>, id: &Name, max_answer: usize) -> Reply {
    if let Some(wait) = limiter.lease_waits.get(id).copied() {
        time_out(limiter, turn, wait, max_answer);
    }
    if limiter.leases.get(id).is_some_and(|lease| lease.ends_with_client) {
        leases::end(limiter, turn, id);
    }
    Reply::LeaseAbandoned
}

fn end(limiter: &mut Limiter, turn: &mut Turn<'_>, wait: WaitId, result: Result<Reply, Refusal>) {
    let Some(waiter) = limiter.lease_waiters.remove(&wait) else { return };
    limiter.lease_waits.remove(&waiter.new.id);
    limiter.lease_waits.shrink();
    limiter.lease_bytes -= waiter_bytes(&waiter.new);
    turn.timers.cancel(waiter.timer_key(turn.namespace, wait));
    limiter.slots.leave(wait);
    limiter.completed.push((wait, result));
}

impl Limiter {
    /// Wakes the first requests that wait in the groups in which a counter with these key-values counts: there is more room.
    pub(super) fn wake_by_counter(&mut self, key_values: &KeyValues) {
        if self.slots.queues.is_empty() {
            return;
        }
        let entry = Take { key_values: key_values.clone(), hits: 0, limit: None };
        let mut budget = AnswerBudget::unlimited();
        let Ok(touched) = TouchedGroups::collect(self, core::slice::from_ref(&entry), &mut budget) else {
            return;
        };
        for TouchedGroup { owner, values, .. } in touched.groups {
            if let Some(first) = self.slots.queues.get(&GroupKey { owner, values }).and_then(BTreeSet::first)
            {
                self.slots.woken.insert(*first);
            }
        }
    }

    /// Finds the groups of all waiting requests anew, and wakes all of them: rules have changed. Each keeps its place.
    pub(super) fn requeue(&mut self) {
        if self.slots.places.is_empty() {
            return;
        }
        let slots = core::mem::take(&mut self.slots);
        let mut requeued = SlotQueues::default();
        for (place, Place { entries, is_queued, .. }) in slots.places {
            let collected = TouchedGroups::collect(self, &entries, &mut AnswerBudget::unlimited());
            // A request that can never be granted is refused when it is asked again.
            let groups = collected.ok().and_then(|touched| slots_of(&entries, &touched)).unwrap_or_default();
            requeued.join(place, entries, groups, is_queued);
            requeued.woken.insert(place);
        }
        self.slots = requeued;
    }

    /// The earliest of the requests that have come to the head of a queue, or whose group has more room.
    pub(crate) fn first_woken(&self) -> Option<WaitId> {
        self.slots.woken.first().copied()
    }

    pub(crate) fn handle_woken(&mut self, wait: WaitId) {
        self.slots.woken.remove(&wait);
    }

    /// Whether a lease waits under this id.
    pub(crate) fn has_waiter(&self, wait: WaitId) -> bool {
        self.lease_waiters.contains_key(&wait)
    }

    /// The number of leases that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lease_waiters.len()
    }

    /// Removes all waiting leases, without replies.
    pub(crate) fn end_waits(&mut self) -> Vec<(WaitId, Time)> {
        let waiters = core::mem::take(&mut self.lease_waiters);
        self.lease_waits = HashMap::new();
        let mut ended = Vec::with_capacity(waiters.len());
        for (wait, waiter) in waiters {
            self.lease_bytes -= waiter_bytes(&waiter.new);
            self.slots.leave(wait);
            ended.push((wait, waiter.until));
        }
        self.slots.woken.clear();
        ended
    }

    /// The resident bytes of the waiting leases, summed up anew.
    pub(super) fn recount_waiters(&self) -> u64 {
        self.lease_waiters.values().map(|waiter| waiter_bytes(&waiter.new)).sum()
    }
}

/// The groups in which a decision waits.
pub(crate) struct Slots(Vec<GroupKey>);

impl Slots {
    pub(super) fn of(entries: &[Take], touched: &TouchedGroups) -> Option<Slots> {
        slots_of(entries, touched).map(Slots)
    }

    /// The resident bytes of the place in the queues.
    pub(crate) fn bytes(&self, entries: &[Take]) -> u64 {
        bytes_of_place(entries, &self.0)
    }
}

/// A decision waits, and stands in the queues of its groups now or later.
pub(crate) fn join(limiter: &mut Limiter, place: WaitId, entries: Vec<Take>, slots: Slots, is_queued: bool) {
    limiter.slots.join(place, entries, slots.0, is_queued);
}

/// A waiting decision stands in the queues of its groups from now on.
pub(crate) fn enter(limiter: &mut Limiter, place: WaitId) {
    limiter.slots.enter(place);
}

/// A decision no longer waits.
pub(crate) fn leave(limiter: &mut Limiter, place: WaitId) {
    limiter.slots.leave(place);
}
