//! What a window shows, computed from everything that was ever taken from it.

use limina_engine::limiter::{Limit, MAX_COUNT, Window};
use std::collections::VecDeque;

/// Sliding windows are exact up to this many entries.
const MOST_EXACT: usize = 64;
/// Means "never" in computations of the earliest time.
pub(in crate::model) const NEVER: u64 = u64::MAX;

/// What is left of a limit.
pub(in crate::model) fn remaining(limit: Limit, used: u64) -> Option<u64> {
    match limit {
        Limit::Unlimited => None,
        Limit::AtMost(limit) => Some(limit - used.min(limit)),
    }
}

/// Everything that happened to one window.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::model) struct History(Vec<Event>);

#[derive(Debug, Clone, PartialEq)]
enum Event {
    /// This much was taken, or given back. If not durable, only relaxed answers showed it. A bucket misses no
    /// more tokens than `most`.
    Take { time: u64, hits: i64, most: u64, is_durable: bool },
    /// So many hits of the take at this place of the history are refunded.
    Refund { time: u64, of: usize, hits: u64 },
    /// From then on a bucket is refilled at this rate.
    Rate { time: u64, limit: Limit },
}

/// The kind and the length of a window. If either changes, the window starts empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Shape {
    Fixed(u64),
    Sliding(u64),
    Bucket(u64),
}

impl Shape {
    pub(super) fn per(self) -> u64 {
        match self {
            Shape::Fixed(per) | Shape::Sliding(per) | Shape::Bucket(per) => per,
        }
    }
}

/// The usage, and when none of it counts any more. Each is a range, because a sliding window with many entries may
/// count them slightly too long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::model) struct Reading {
    pub(in crate::model) used: Range,
    pub(in crate::model) reset: Range,
}

/// The smallest and the largest possible value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::model) struct Range(pub(in crate::model) u64, pub(in crate::model) u64);

impl Range {
    pub(super) fn exactly(value: u64) -> Range {
        Range(value, value)
    }

    /// Times that are too long are not said.
    fn said(self) -> Range {
        let said = |time| if time > MAX_COUNT { NEVER } else { time };
        Range(said(self.0), said(self.1))
    }

    pub(super) fn contains(self, value: u64) -> bool {
        self.0 <= value && value <= self.1
    }
}

impl Shape {
    pub(in crate::model) fn of(window: Window) -> Shape {
        match window {
            Window::Fixed { per } => Shape::Fixed(per.0),
            Window::Sliding { per } => Shape::Sliding(per.0),
            Window::Bucket { per, .. } => Shape::Bucket(per.0),
        }
    }
}

impl History {
    /// The empty history of a window with this limit.
    pub(in crate::model) fn new(now: u64, limit: Limit) -> History {
        History(vec![Event::Rate { time: now, limit }])
    }

    pub(in crate::model) fn take(&mut self, time: u64, hits: i64, most: u64, is_durable: bool) {
        if hits != 0 {
            self.0.push(Event::Take { time, hits, most, is_durable });
        }
    }

    /// Takes, and returns the place in the history.
    pub(in crate::model) fn take_at(&mut self, time: u64, hits: u64, most: u64) -> usize {
        let hits = i64::try_from(hits).expect("hits are small");
        self.0.push(Event::Take { time, hits, most, is_durable: true });
        self.0.len() - 1
    }

    pub(in crate::model) fn refund(&mut self, time: u64, of: usize, hits: u64) {
        self.0.push(Event::Refund { time, of, hits });
    }

    pub(in crate::model) fn set_rate(&mut self, time: u64, limit: Limit) {
        let last = self.0.iter().rev().find_map(|event| match event {
            Event::Rate { limit, .. } => Some(*limit),
            Event::Take { .. } | Event::Refund { .. } => None,
        });
        if last != Some(limit) {
            self.0.push(Event::Rate { time, limit });
        }
    }

    /// What may be stored of it: all of it, or without some of the last entries that only relaxed answers showed, the longest first.
    /// Nothing later than the stored time is stored.
    pub(super) fn rests(&self, persisted: u64) -> Vec<History> {
        let stored = self.0.iter().filter_map(|event| match *event {
            Event::Take { time, .. } | Event::Refund { time, .. } => {
                (time <= persisted).then(|| event.clone())
            }
            Event::Rate { time, limit } => Some(Event::Rate { time: time.min(persisted), limit }),
        });
        let mut rests = vec![History(stored.collect())];
        while let Some(last) = rests[rests.len() - 1].last_take() {
            let mut less = rests[rests.len() - 1].clone();
            match less.0.remove(last) {
                Event::Take { is_durable: false, .. } => rests.push(less),
                _ => break,
            }
        }
        rests
    }

    /// It is stored with everything that it has.
    pub(super) fn into_stored(mut self) -> History {
        for event in &mut self.0 {
            if let Event::Take { is_durable, .. } = event {
                *is_durable = true;
            }
        }
        self
    }

    fn last_take(&self) -> Option<usize> {
        self.0.iter().rposition(|event| matches!(event, Event::Take { .. }))
    }

    /// When its last entry was taken that only a relaxed answer showed.
    pub(super) fn last_relaxed(&self) -> Option<u64> {
        match self.0[self.last_take()?] {
            Event::Take { time, is_durable: false, .. } => Some(time),
            _ => None,
        }
    }

    pub(super) fn read(&self, shape: Shape, now: u64) -> Reading {
        match shape {
            Shape::Fixed(per) => {
                let used = Range::exactly(self.fixed(per, now));
                Reading { used, reset: Range::exactly((now / per + 1) * per - now) }
            }
            Shape::Sliding(per) => {
                let entries = self.sliding(per, now);
                let exact = || entries.iter().filter(|entry| now < entry.time + per);
                let used = Range(
                    exact().map(|entry| entry.hits).sum(),
                    entries.iter().map(|entry| entry.hits).sum(),
                );
                let reset = Range(
                    exact().map(|entry| entry.time + per - now).max().unwrap_or(0),
                    entries.iter().map(|entry| entry.leaves - now).max().unwrap_or(0),
                );
                Reading { used, reset }
            }
            Shape::Bucket(per) => {
                let (debt, limit) = self.bucket(per, now);
                let reset = match limit {
                    _ if debt == 0 => 0,
                    Limit::AtMost(rate) if rate > 0 => ceil(debt, i128::from(rate)),
                    _ => NEVER,
                };
                let used = Range::exactly(ceil(debt, i128::from(per)));
                Reading { used, reset: Range::exactly(reset) }
            }
        }
    }

    /// The same as an answer says it: a time that is too long is not said.
    pub(in crate::model) fn show(&self, shape: Shape, now: u64) -> Reading {
        let Reading { used, reset } = self.read(shape, now);
        Reading { used, reset: reset.said() }
    }

    /// When `hits` will fit under `limit`, after what the same check takes from the window before: the earliest time,
    /// and the latest one if the window counts too long.
    pub(in crate::model) fn retry(
        &self,
        shape: Shape,
        now: u64,
        before: &[i64],
        hits: i64,
        limit: u64,
    ) -> Range {
        let passes = |at: u64, is_late: bool| {
            let mut then = self.clone();
            before.iter().for_each(|hits| then.take(at, *hits, u64::MAX, false));
            let used = then.read(shape, at).used;
            let used = if is_late { used.1 } else { used.0 };
            i128::from(used) + i128::from(hits) <= i128::from(limit)
        };
        let earliest = |reset: u64, is_late: bool| {
            if passes(now, is_late) {
                return 0;
            }
            // By then everything has expired. A check that does not pass then never passes.
            if reset == NEVER || !passes(now + reset, is_late) {
                return NEVER;
            }
            let (mut refused, mut passed) = (0, reset);
            while refused + 1 < passed {
                let middle = refused.midpoint(passed);
                if passes(now + middle, is_late) {
                    passed = middle;
                } else {
                    refused = middle;
                }
            }
            passed
        };
        let reset = self.read(shape, now).reset;
        Range(earliest(reset.0, false), earliest(reset.1, true)).said()
    }

    fn fixed(&self, per: u64, now: u64) -> u64 {
        let (mut span, mut used) = (0, 0_i128);
        for event in &self.0 {
            let time = event.time();
            if time / per != span {
                (span, used) = (time / per, 0);
            }
            let by = match event {
                Event::Take { hits, .. } => i128::from(*hits),
                // Only in the same span of time.
                Event::Refund { of, hits, .. } if self.0[*of].time() / per == span => -i128::from(*hits),
                Event::Refund { .. } | Event::Rate { .. } => 0,
            };
            used = (used + by).max(0);
        }
        if now / per == span { u64::try_from(used).unwrap() } else { 0 }
    }

    /// The entries that may still count, oldest first.
    fn sliding(&self, per: u64, now: u64) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut is_coarse = false;
        for event in &self.0 {
            entries.retain(|entry| event.time() < entry.leaves);
            is_coarse &= !entries.is_empty();
            match event {
                Event::Take { time, hits, .. } if *hits > 0 => {
                    entries.push(Entry { time: *time, hits: hits.unsigned_abs(), leaves: time + per });
                }
                Event::Take { hits, .. } => give_back(&mut entries, hits.unsigned_abs(), |_| true),
                // Only what was taken at that time.
                Event::Refund { of, hits, .. } => {
                    give_back(&mut entries, *hits, |entry| entry.time == self.0[*of].time());
                }
                Event::Rate { .. } => {}
            }
            // After too many entries at once, a group may stay coarse until it is empty.
            is_coarse |= entries.len() > MOST_EXACT;
            if is_coarse {
                entries.iter_mut().for_each(|entry| entry.leaves = entry.time + per + per.div_ceil(64));
            }
        }
        entries.retain(|entry| now < entry.leaves);
        entries
    }

    /// The debt, in units of 1/`per` of a token, and the limit.
    fn bucket(&self, per: u64, now: u64) -> (i128, Limit) {
        // What is missing, by the place of the take. What was taken first is refilled first.
        let mut missing: VecDeque<(usize, i128)> = VecDeque::new();
        let (mut at, mut limit) = (0, Limit::Unlimited);
        let refilled = |from: u64, to: u64, limit: Limit| match limit {
            Limit::Unlimited => i128::MAX,
            Limit::AtMost(rate) => i128::from(rate) * i128::from(to.saturating_sub(from)),
        };
        for (place, event) in self.0.iter().enumerate() {
            refill(&mut missing, refilled(at, event.time(), limit));
            at = event.time();
            match *event {
                Event::Take { .. } if limit == Limit::Unlimited => {}
                Event::Take { hits, most, .. } if hits > 0 => {
                    let room = i128::from(most) * i128::from(per) - sum(&missing);
                    missing.push_back((place, (i128::from(hits) * i128::from(per)).min(room.max(0))));
                }
                // Which take these hits are of is not known, so the oldest are given back.
                Event::Take { hits, .. } => refill(&mut missing, -i128::from(hits) * i128::from(per)),
                Event::Refund { of, hits, .. } => {
                    if let Some((_, left)) = missing.iter_mut().find(|(place, _)| *place == of) {
                        *left -= (i128::from(hits) * i128::from(per)).min(*left);
                    }
                }
                Event::Rate { limit: new, .. } => {
                    if new == Limit::Unlimited || limit == Limit::Unlimited {
                        missing.clear();
                    }
                    limit = new;
                }
            }
        }
        refill(&mut missing, refilled(at, now, limit));
        (sum(&missing), limit)
    }

    /// Whatever the rules of refunds are: of what was taken within the limit, never more than the limit has happened. What was
    /// refunded has not happened. `capacity` is the most that may happen at once. Says what is wrong.
    pub(in crate::model) fn check(&self, shape: Shape, capacity: u64) -> Result<(), String> {
        let is_past = |event: &Event| match *event {
            Event::Take { hits, most, .. } => most == MAX_COUNT || hits < 0,
            Event::Refund { .. } | Event::Rate { .. } => false,
        };
        let rates = self.0.iter().filter_map(|event| match event {
            Event::Rate { limit: Limit::AtMost(limit), .. } => Some(*limit),
            _ => None,
        });
        let rates: Vec<u64> = rates.collect();
        let ([rate], false) = (rates.as_slice(), self.0.iter().any(is_past)) else { return Ok(()) };
        let mut happened: Vec<(u64, i128)> = Vec::new();
        for (place, event) in self.0.iter().enumerate() {
            let Event::Take { time, hits, .. } = *event else { continue };
            let refunded = self.0.iter().map(|other| match other {
                Event::Refund { of, hits, .. } if *of == place => i128::from(*hits),
                _ => 0,
            });
            happened.push((time, i128::from(hits) - refunded.sum::<i128>()));
        }
        if happened.iter().any(|(_, hits)| *hits < 0) {
            return Err(format!("more was refunded than was taken: {self:?}"));
        }
        for (first, (begin, _)) in happened.iter().enumerate() {
            let mut sum = 0;
            for (at, hits) in &happened[first..] {
                sum += hits;
                let most = match shape {
                    Shape::Fixed(per) => (at / per == begin / per).then_some(capacity),
                    Shape::Sliding(per) => (at - begin < per).then_some(capacity),
                    Shape::Bucket(per) => Some(capacity + rate * (at - begin) / per),
                };
                if most.is_some_and(|most| sum > i128::from(most)) {
                    return Err(format!("{sum} of {capacity} have happened from {begin} to {at}: {self:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Event {
    fn time(&self) -> u64 {
        match *self {
            Event::Take { time, .. } | Event::Refund { time, .. } | Event::Rate { time, .. } => time,
        }
    }
}

struct Entry {
    time: u64,
    hits: u64,
    leaves: u64,
}

/// Removes hits from some entries, the newest first.
fn give_back(entries: &mut Vec<Entry>, mut hits: u64, is_of: impl Fn(&Entry) -> bool) {
    for entry in entries.iter_mut().rev().filter(|entry| is_of(entry)) {
        let part = hits.min(entry.hits);
        (hits, entry.hits) = (hits - part, entry.hits - part);
    }
    entries.retain(|entry| entry.hits > 0);
}

fn sum(missing: &VecDeque<(usize, i128)>) -> i128 {
    missing.iter().map(|(_, left)| left).sum()
}

fn refill(missing: &mut VecDeque<(usize, i128)>, mut by: i128) {
    while by > 0
        && let Some((_, left)) = missing.front_mut()
    {
        let part = by.min(*left);
        (by, *left) = (by - part, *left - part);
        if *left == 0 {
            missing.pop_front();
        }
    }
}

fn ceil(value: i128, by: i128) -> u64 {
    u64::try_from((value + by - 1) / by).unwrap_or(NEVER)
}
