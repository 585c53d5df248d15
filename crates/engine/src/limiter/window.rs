//! How much of a limit is used: what is in use, or the hits within a window.
//!
//! A [`Meter`] is a limit with its kind of window; a [`GroupState`] is what it has counted for one group. This module knows
//! neither rules nor groups. Time never goes back.

use super::terms::{Limit, MAX_COUNT, Window};
use crate::{Millis, Position, Time, resident};
use alloc::{boxed::Box, vec::Vec};
use serde::{Deserialize, Serialize};

/// The number of entries of a sliding window that keep their exact times.
const EXACT_ENTRIES: usize = 64;
/// The number of slots of a sliding window with more entries than that.
const SLOTS: u128 = 64;
/// The number of refunds of a bucket of which the order is known exactly.
const MOST_REFUNDS: usize = 64;
/// A span of a [`BucketClock`] in which every bucket fills, whatever is missing: at most [`MAX_COUNT`] tokens, each of which
/// takes a window's length.
const MORE_THAN_ANY_DEBT: u128 = 1 << 100;

/// What was counted for one group. A group without hits has no state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum GroupState {
    /// What is in use. Clients cannot make this sum overflow.
    Count(u128),
    /// The hits in the fixed window with this number, counted from the epoch.
    Fixed { window: u64, used: u64 },
    /// Times and hits, oldest first. The hits of an entry happened after the time of the previous entry, and up to its own.
    Sliding(Vec<(Time, u64)>),
    /// The reading of the bucket's [`BucketClock`] at which the bucket is full again. It has an order while something that was
    /// taken may be refunded.
    Bucket { full_at: u128, order: Option<Box<RefundOrder>> },
}

/// In which order the units of a bucket were taken, as far as refunds need it. What was taken first is refilled first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefundOrder {
    /// The position at which the order was begun. It identifies the order.
    begun: Position,
    /// What was missing then, and everything that was taken since.
    taken: u128,
    /// What was refunded: the value of `taken` right behind it, and how much of it. In this order.
    refunds: Vec<(u128, u128)>,
}

impl RefundOrder {
    /// How much of what was taken behind this place was not refunded.
    fn behind(&self, place: u128) -> u128 {
        let later = self.refunds.iter().rev().take_while(|(end, _)| *end > place);
        self.taken.saturating_sub(place).saturating_sub(later.map(|(_, units)| units).sum())
    }

    /// Notes a refund. `missing` is what the bucket misses after it.
    fn refund(&mut self, end: u128, units: u128, missing: u128) {
        let index = self.refunds.partition_point(|(other, _)| *other < end);
        self.refunds.insert(index, (end, units));
        // A refund only matters to hits that were taken before it. They have been refilled if everything that is missing was taken
        // after it.
        let over = self.refunds.iter().take_while(|(end, _)| self.behind(*end) >= missing).count();
        self.refunds.drain(..over);
        // The two oldest refunds are joined at the place of the first. Hits that were taken between them then seem to be refilled
        // earlier than they are, so they may get less back than they could, never more.
        if self.refunds.len() > MOST_REFUNDS {
            let (_, units) = self.refunds.remove(1);
            self.refunds[0].1 += units;
        }
    }
}

/// When hits were taken from a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RefundPlace {
    /// From a fixed or sliding window, at this time.
    Window(Time),
    /// From a bucket: its [`RefundOrder`], the place in it right behind these hits, and their units.
    Bucket { order: Position, end: u128, units: u128 },
}

/// A limit with its kind of window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    pub(crate) limit: Limit,
    pub(crate) kind: MeterKind,
}

/// The kind of a window, with its length. `Count` is a limit without a window, for what is in use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MeterKind {
    Count,
    Fixed { per: Millis },
    Sliding { per: Millis },
    Bucket { per: Millis, burst: u64, clock: BucketClock },
}

/// The time by which a bucket refills. One token takes `per` units of it, and it advances by `rate` units, the limit, in a
/// millisecond. So a changed limit changes the speed of the clock, and the states of buckets need no conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BucketClock {
    reading: u128,
    at: Time,
    /// `None` if there is no limit: nothing is counted, and all buckets are full when there is a limit again.
    rate: Option<u64>,
}

impl BucketClock {
    /// The clock of a limit that is no bucket.
    pub(crate) const UNUSED: BucketClock = BucketClock { reading: 0, at: Time(0), rate: None };

    /// A clock that begins at 0 now.
    pub(crate) fn new(now: Time, limit: Limit) -> BucketClock {
        BucketClock { reading: 0, at: now, rate: rate_of(limit) }
    }

    /// Changes the rate from now on.
    pub(crate) fn change(&mut self, now: Time, limit: Limit) {
        let mut reading = self.read(now);
        if self.rate.is_none() && limit != Limit::Unlimited {
            reading = reading.saturating_add(MORE_THAN_ANY_DEBT);
        }
        *self = BucketClock { reading, at: now, rate: rate_of(limit) };
    }

    fn read(&self, now: Time) -> u128 {
        let passed = u128::from(self.rate.unwrap_or(0)) * u128::from(now.0.saturating_sub(self.at.0));
        self.reading.saturating_add(passed)
    }

    /// The time in which the clock advances by `span`. `None` if it stands still, or if that is more than [`MAX_COUNT`]
    /// milliseconds: nobody waits for that, and clients could not read the number exactly.
    fn takes(&self, span: u128) -> Option<Millis> {
        if span == 0 {
            return Some(Millis(0));
        }
        let rate = self.rate.filter(|rate| *rate > 0)?;
        let millis = u64::try_from(span.div_ceil(u128::from(rate))).ok()?;
        (millis <= MAX_COUNT).then_some(Millis(millis))
    }
}

fn rate_of(limit: Limit) -> Option<u64> {
    match limit {
        Limit::Unlimited => None,
        Limit::AtMost(limit) => Some(limit),
    }
}

impl Meter {
    pub(crate) fn new(limit: Limit, window: Option<Window>, burst: Option<u64>, clock: BucketClock) -> Meter {
        let kind = match window {
            None => MeterKind::Count,
            Some(Window::Fixed { per }) => MeterKind::Fixed { per },
            Some(Window::Sliding { per }) => MeterKind::Sliding { per },
            Some(Window::Bucket { per, .. }) => {
                MeterKind::Bucket { per, burst: burst.or(rate_of(limit)).unwrap_or(0), clock }
            }
        };
        Meter { limit, kind }
    }

    /// The meter of a limit that comes with a request.
    pub(crate) fn of_request(limit: Limit, per: Millis) -> Meter {
        Meter::new(limit, Some(Window::Fixed { per }), None, BucketClock::UNUSED)
    }

    /// The limit as it is reported: for a bucket its burst, or 0 if it never allows anything.
    pub(crate) fn reported_limit(&self) -> Limit {
        match (self.limit, self.kind) {
            (Limit::AtMost(1..), MeterKind::Bucket { burst, .. }) => Limit::AtMost(burst),
            (limit, _) => limit,
        }
    }

    /// The length of the window.
    pub(crate) fn per(&self) -> Option<Millis> {
        match self.kind {
            MeterKind::Count => None,
            MeterKind::Fixed { per } | MeterKind::Sliding { per } | MeterKind::Bucket { per, .. } => {
                Some(per)
            }
        }
    }

    /// For a bucket with a limit: how much is refilled within [`Meter::per`].
    pub(crate) fn refill(&self) -> Option<u64> {
        match self.kind {
            MeterKind::Bucket { .. } => rate_of(self.limit),
            MeterKind::Count | MeterKind::Fixed { .. } | MeterKind::Sliding { .. } => None,
        }
    }

    /// How much of the limit is used now.
    pub(crate) fn used(&self, state: Option<&GroupState>, now: Time) -> u64 {
        match (self.kind, state) {
            (MeterKind::Count, Some(GroupState::Count(used))) => u64::try_from(*used).unwrap_or(u64::MAX),
            (MeterKind::Fixed { per }, Some(GroupState::Fixed { window, used }))
                if *window == now.0 / per.0 =>
            {
                *used
            }
            (MeterKind::Sliding { per }, Some(GroupState::Sliding(entries))) => {
                live(entries, per, now).iter().fold(0, |sum, (_, hits)| sum.saturating_add(*hits))
            }
            (MeterKind::Bucket { per, clock, .. }, Some(state)) => {
                u64::try_from(debt(state, clock, now).div_ceil(u128::from(per.0))).unwrap_or(u64::MAX)
            }
            _ => 0,
        }
    }

    /// Whether `hits` is more than what is left. 0 hits never are.
    pub(crate) fn exceeds(&self, state: Option<&GroupState>, now: Time, hits: u64) -> bool {
        let Limit::AtMost(limit) = self.limit else { return false };
        if hits == 0 {
            return false;
        }
        match self.kind {
            MeterKind::Bucket { per, burst, clock } => {
                let debt = state.map_or(0, |state| debt(state, clock, now));
                limit == 0 || debt + tokens(hits, per) > tokens(burst, per)
            }
            _ => self.used(state, now).saturating_add(hits) > limit,
        }
    }

    /// The time after which `hits` would be allowed if nothing else happened. `None` if never, or if it is not known.
    pub(crate) fn allowed_after(&self, state: Option<&GroupState>, now: Time, hits: u64) -> Option<Millis> {
        if !self.exceeds(state, now, hits) {
            return Some(Millis(0));
        }
        let Limit::AtMost(limit) = self.limit else { return Some(Millis(0)) };
        match (self.kind, state) {
            (MeterKind::Count, _) => None,
            _ if limit == 0 => None,
            (MeterKind::Bucket { per, burst, clock }, state) => {
                let debt = state.map_or(0, |state| debt(state, clock, now));
                let room = tokens(burst, per).checked_sub(tokens(hits, per))?;
                clock.takes(debt.saturating_sub(room))
            }
            _ if hits > limit => None,
            (MeterKind::Fixed { per }, _) => Some(until_next(per, now)),
            (MeterKind::Sliding { per }, Some(GroupState::Sliding(entries))) => {
                let mut used = self.used(state, now);
                let leaves = live(entries, per, now).iter().find(|(_, hits_of)| {
                    used = used.saturating_sub(*hits_of);
                    used.saturating_add(hits) <= limit
                });
                leaves.map(|(time, _)| Millis(time.after(per).0 - now.0))
            }
            (MeterKind::Sliding { .. }, _) => None,
        }
    }

    /// The time after which nothing of what is used now counts any more. `None` without a window, if never, or if it is too
    /// long: see [`BucketClock::takes`].
    pub(crate) fn resets_after(&self, state: Option<&GroupState>, now: Time) -> Option<Millis> {
        match (self.kind, state) {
            (MeterKind::Count, _) => None,
            (MeterKind::Fixed { per }, _) => Some(until_next(per, now)),
            (MeterKind::Sliding { per }, Some(GroupState::Sliding(entries))) => {
                let last = live(entries, per, now).last();
                Some(last.map_or(Millis(0), |(time, _)| Millis(time.after(per).0 - now.0)))
            }
            (MeterKind::Bucket { clock, .. }, Some(state)) => clock.takes(debt(state, clock, now)),
            _ => Some(Millis(0)),
        }
    }

    /// Adds hits to a window, whether or not they exceed the limit. A bucket that is already empty can miss more tokens
    /// than it holds only for a shadow rule, which reports how much was used. Otherwise an override could let a group's own
    /// bucket fall behind by hours.
    pub(crate) fn take(&self, state: &mut GroupState, now: Time, hits: u64, is_shadow: bool) {
        let most = match self.kind {
            MeterKind::Bucket { burst, .. } if !is_shadow => burst,
            _ => MAX_COUNT,
        };
        self.take_up_to(state, now, hits, most);
    }

    /// Adds hits to a window although they exceed the limit. A bucket goes into debt.
    pub(crate) fn take_past_limit(&self, state: &mut GroupState, now: Time, hits: u64) {
        // More debt than this is worked off in no time that anybody waits for.
        self.take_up_to(state, now, hits, MAX_COUNT);
    }

    /// Adds hits to a window. A bucket misses no more than `most` tokens because of them.
    fn take_up_to(&self, state: &mut GroupState, now: Time, hits: u64, most: u64) {
        match (self.kind, state) {
            (MeterKind::Fixed { per }, GroupState::Fixed { window, used }) => {
                let current = now.0 / per.0;
                if *window != current {
                    (*window, *used) = (current, 0);
                }
                *used = used.saturating_add(hits);
            }
            (MeterKind::Sliding { per }, GroupState::Sliding(entries)) => slide(entries, per, now, hits),
            (MeterKind::Bucket { per, clock, .. }, GroupState::Bucket { full_at, order }) => {
                if self.limit == Limit::Unlimited {
                    return;
                }
                let reading = clock.read(now);
                if *full_at <= reading {
                    (*full_at, *order) = (reading, None);
                }
                let bound = reading.saturating_add(tokens(most, per));
                let taken = full_at.saturating_add(tokens(hits, per)).min(bound).saturating_sub(*full_at);
                *full_at += taken;
                if let Some(order) = order {
                    order.taken += taken;
                }
            }
            _ => unreachable!("a window's state is of its rule's kind"),
        }
    }

    /// The memory by which the state grows at most if hits are added to it. Entries that have left the window make room.
    pub(crate) fn growth(&self, state: &GroupState, now: Time) -> u64 {
        match (self.kind, state) {
            (MeterKind::Sliding { per }, GroupState::Sliding(entries)) => {
                let live = live(entries, per, now);
                let is_new = live.last().is_none_or(|(time, _)| *time < now);
                let after = live.len() + usize::from(is_new);
                // A full vector doubles.
                let room =
                    if after <= entries.capacity() { 0 } else { after.max(2 * entries.capacity()).max(4) };
                resident::heap(room * size_of::<(Time, u64)>()).saturating_sub(state.heap())
            }
            _ => 0,
        }
    }

    /// Subtracts hits from a window, down to 0.
    pub(crate) fn give_back(&self, state: &mut GroupState, now: Time, hits: u64) {
        match (self.kind, state) {
            (MeterKind::Fixed { per }, GroupState::Fixed { window, used }) if *window == now.0 / per.0 => {
                *used = used.saturating_sub(hits);
            }
            (MeterKind::Sliding { .. }, GroupState::Sliding(entries)) => {
                let mut rest = hits;
                while rest > 0
                    && let Some((_, newest)) = entries.last_mut()
                {
                    let part = rest.min(*newest);
                    *newest -= part;
                    rest -= part;
                    if *newest == 0 {
                        entries.pop();
                    }
                }
            }
            // Which hits are given back is not known. The oldest count as refilled, so that no refund returns them once more.
            (MeterKind::Bucket { per, clock, .. }, GroupState::Bucket { full_at, .. }) => {
                *full_at -= tokens(hits, per).min(full_at.saturating_sub(clock.read(now)));
            }
            _ => {}
        }
    }

    /// What must be known of hits that were taken in this turn, to refund them later. `before` and `after` are the states around
    /// them; `state` is the present one, after everything that was taken in this turn. `position` is that of no earlier turn in
    /// which hits were taken that can be refunded.
    pub(crate) fn taken(
        &self,
        before: Option<&GroupState>,
        after: &GroupState,
        state: &mut GroupState,
        now: Time,
        position: Position,
    ) -> RefundPlace {
        match (self.kind, after, state) {
            (
                MeterKind::Bucket { clock, .. },
                GroupState::Bucket { full_at: after, .. },
                GroupState::Bucket { full_at, order },
            ) => {
                let reading = clock.read(now);
                let before = match before {
                    Some(GroupState::Bucket { full_at, .. }) => reading.max(*full_at),
                    _ => reading,
                };
                let units = after.saturating_sub(before);
                if units == 0 {
                    return RefundPlace::Window(now);
                }
                let order = order.get_or_insert_with(|| {
                    let taken = full_at.saturating_sub(reading);
                    Box::new(RefundOrder { begun: position, taken, refunds: Vec::new() })
                });
                let behind = full_at.saturating_sub(*after);
                RefundPlace::Bucket { order: order.begun, end: order.taken.saturating_sub(behind), units }
            }
            _ => RefundPlace::Window(now),
        }
    }

    /// Refunds all but `actual` of the hits that were `taken`, as far as they still count. `at` says when they were taken. They count in
    /// the same span of a fixed window, and in the entry or slot of that time of a sliding window. A bucket refunds neither what has been
    /// refilled since, nor what it never counted because it was empty. It refills earlier hits first, so the refund of an earlier hit lets
    /// later ones be refilled earlier.
    pub(crate) fn refund(&self, state: &mut GroupState, now: Time, at: RefundPlace, taken: u64, actual: u64) {
        let hits = taken.saturating_sub(actual);
        match (self.kind, state, at) {
            (MeterKind::Fixed { per }, GroupState::Fixed { window, used }, RefundPlace::Window(time))
                if *window == time.0 / per.0 =>
            {
                *used = used.saturating_sub(hits);
            }
            // Later, the entry at the end of the slot may be that of somebody else.
            (MeterKind::Sliding { per }, GroupState::Sliding(entries), RefundPlace::Window(time))
                if time.after(per) > now =>
            {
                let index = entries.partition_point(|(end, _)| *end < time);
                if let Some((end, count)) = entries.get_mut(index)
                    && (*end == time || *end == slot_end(time, per))
                {
                    *count = count.saturating_sub(hits);
                    if *count == 0 {
                        entries.remove(index);
                    }
                }
            }
            (
                MeterKind::Bucket { per, clock, .. },
                GroupState::Bucket { full_at, order: Some(order) },
                RefundPlace::Bucket { order: begun, end, units },
            ) if order.begun == begun => {
                let missing = full_at.saturating_sub(clock.read(now));
                let left = missing.saturating_sub(order.behind(end));
                let back = units.saturating_sub(tokens(actual, per)).min(left);
                *full_at -= back;
                order.refund(end, back, missing - back);
            }
            _ => {}
        }
    }

    /// The state of a group before its first hit.
    pub(crate) fn initial(&self) -> GroupState {
        match self.kind {
            MeterKind::Count => GroupState::Count(0),
            MeterKind::Fixed { .. } => GroupState::Fixed { window: 0, used: 0 },
            MeterKind::Sliding { .. } => GroupState::Sliding(Vec::new()),
            MeterKind::Bucket { .. } => GroupState::Bucket { full_at: 0, order: None },
        }
    }

    /// Whether the state is equivalent to none from now on.
    pub(crate) fn is_idle(&self, state: &GroupState, now: Time) -> bool {
        self.used(Some(state), now) == 0
    }
}

impl GroupState {
    /// The memory that the state takes besides this value.
    pub(crate) fn heap(&self) -> u64 {
        match self {
            GroupState::Sliding(entries) => resident::heap(entries.capacity() * size_of::<(Time, u64)>()),
            GroupState::Bucket { order: Some(order), .. } => {
                resident::heap(size_of_val(&**order))
                    + resident::heap(order.refunds.capacity() * size_of::<(u128, u128)>())
            }
            GroupState::Count(_) | GroupState::Fixed { .. } | GroupState::Bucket { order: None, .. } => 0,
        }
    }

    /// Converts the state of a bucket to another clock, with the same tokens left.
    pub(crate) fn convert(&mut self, from: BucketClock, to: BucketClock, now: Time) {
        let debt = debt(self, from, now);
        if let GroupState::Bucket { full_at, order } = self {
            *full_at = to.read(now) + debt;
            if debt == 0 {
                *order = None;
            }
        }
    }
}

fn tokens(hits: u64, per: Millis) -> u128 {
    u128::from(hits) * u128::from(per.0)
}

/// The units of the clock until the bucket is full.
fn debt(state: &GroupState, clock: BucketClock, now: Time) -> u128 {
    match state {
        GroupState::Bucket { .. } if clock.rate.is_none() => 0,
        GroupState::Bucket { full_at, .. } => full_at.saturating_sub(clock.read(now)),
        _ => 0,
    }
}

fn until_next(per: Millis, now: Time) -> Millis {
    Millis(per.0 - now.0 % per.0)
}

/// The entries that are still within the window.
fn live(entries: &[(Time, u64)], per: Millis, now: Time) -> &[(Time, u64)] {
    let gone = entries.partition_point(|(time, _)| time.after(per) <= now);
    &entries[gone..]
}

fn slide(entries: &mut Vec<(Time, u64)>, per: Millis, now: Time, hits: u64) {
    let gone = entries.len() - live(entries, per, now).len();
    entries.drain(..gone);
    if entries.len() >= EXACT_ENTRIES && entries.last().is_some_and(|(time, _)| *time < now) {
        join_slots(entries, per);
    }
    let is_exact = entries.len() < EXACT_ENTRIES;
    match entries.last_mut() {
        Some((time, newest)) if *time >= now => *newest = newest.saturating_add(hits),
        _ if is_exact => entries.push((now, hits)),
        _ => entries.push((slot_end(now, per), hits)),
    }
}

/// Merges the entries of each slot into one entry, which counts until all of the slot has left the window.
fn join_slots(entries: &mut Vec<(Time, u64)>, per: Millis) {
    for (time, _) in entries.iter_mut() {
        *time = slot_end(*time, per);
    }
    entries.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        is_same
    });
}

/// The last millisecond of the slot that contains `time`. Slots are aligned to the epoch. Their ends are rounded, because a
/// slot need not be a whole number of milliseconds.
fn slot_end(time: Time, per: Millis) -> Time {
    let per = u128::from(per.0);
    let slot = u128::from(time.0) * SLOTS / per;
    let end = ((slot + 1) * per).div_ceil(SLOTS) - 1;
    Time(u64::try_from(end).unwrap_or(u64::MAX).max(time.0))
}
