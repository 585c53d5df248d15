//! What a window shows, computed from everything that was ever taken from it.

use limina_engine::limiter::{Limit, MAX_COUNT, Window};

/// Sliding windows are exact up to this many entries.
const MOST_EXACT: usize = 64;
/// Means "never" in computations of the earliest time.
pub(super) const NEVER: u64 = u64::MAX;

/// Everything that happened to one window.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct History(Vec<Event>);

#[derive(Debug, Clone, PartialEq)]
enum Event {
    /// This much was taken, or given back. If not durable, only relaxed answers showed it. A bucket misses no
    /// more tokens than `most`.
    Take { time: u64, hits: i64, most: u64, is_durable: bool },
    /// From then on a bucket is refilled at this rate.
    Rate { time: u64, limit: Limit },
}

/// The kind and the length of a window. If either changes, the window starts empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
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
pub(super) struct Reading {
    pub(super) used: Range,
    pub(super) reset: Range,
}

/// The smallest and the largest possible value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Range(pub(super) u64, pub(super) u64);

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
    pub(super) fn of(window: Window) -> Shape {
        match window {
            Window::Fixed { per } => Shape::Fixed(per.0),
            Window::Sliding { per } => Shape::Sliding(per.0),
            Window::Bucket { per, .. } => Shape::Bucket(per.0),
        }
    }
}

impl History {
    /// The empty history of a window with this limit.
    pub(super) fn new(now: u64, limit: Limit) -> History {
        History(vec![Event::Rate { time: now, limit }])
    }

    pub(super) fn take(&mut self, time: u64, hits: i64, most: u64, is_durable: bool) {
        if hits != 0 {
            self.0.push(Event::Take { time, hits, most, is_durable });
        }
    }

    pub(super) fn set_rate(&mut self, time: u64, limit: Limit) {
        let last = self.0.iter().rev().find_map(|event| match event {
            Event::Rate { limit, .. } => Some(*limit),
            Event::Take { .. } => None,
        });
        if last != Some(limit) {
            self.0.push(Event::Rate { time, limit });
        }
    }

    /// What may be stored of it: all of it, or without some of the last entries that only relaxed answers showed, the longest first.
    /// Nothing later than the stored time is stored.
    pub(super) fn rests(&self, persisted: u64) -> Vec<History> {
        let stored = self.0.iter().filter_map(|event| match *event {
            Event::Take { time, .. } => (time <= persisted).then(|| event.clone()),
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
    pub(super) fn show(&self, shape: Shape, now: u64) -> Reading {
        let Reading { used, reset } = self.read(shape, now);
        Reading { used, reset: reset.said() }
    }

    /// When `hits` will fit under `limit`, after what the same check takes from the window before: the earliest time,
    /// and the latest one if the window counts too long.
    pub(super) fn retry(&self, shape: Shape, now: u64, before: &[i64], hits: i64, limit: u64) -> Range {
        let passes = |at: u64, is_late: bool| {
            let mut then = self.clone();
            before.iter().for_each(|hits| then.take(at, *hits, u64::MAX, false));
            let used = then.read(shape, at).used;
            let used = if is_late { used.1 } else { used.0 };
            i128::from(used) + i128::from(hits) <= i128::from(limit)
        };
        let earliest = |reset: u64, is_late: bool| {
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
        let (mut index, mut used) = (0, 0_i128);
        for (time, hits) in self.takes() {
            if time / per != index {
                (index, used) = (time / per, 0);
            }
            used = (used + i128::from(hits)).max(0);
        }
        if now / per == index { u64::try_from(used).unwrap() } else { 0 }
    }

    /// The entries that may still count, oldest first.
    fn sliding(&self, per: u64, now: u64) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut is_coarse = false;
        for (time, hits) in self.takes() {
            entries.retain(|entry| time < entry.leaves);
            is_coarse &= !entries.is_empty();
            if hits > 0 {
                entries.push(Entry { time, hits: hits.unsigned_abs(), leaves: time + per });
            }
            let mut back = if hits < 0 { hits.unsigned_abs() } else { 0 };
            while back > 0
                && let Some(newest) = entries.last_mut()
            {
                let part = back.min(newest.hits);
                (back, newest.hits) = (back - part, newest.hits - part);
                if newest.hits == 0 {
                    entries.pop();
                }
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
        let (mut debt, mut at, mut limit) = (0_i128, 0, Limit::Unlimited);
        let drained = |debt: i128, from: u64, to: u64, limit: Limit| match limit {
            Limit::Unlimited => 0,
            Limit::AtMost(rate) => (debt - i128::from(rate) * i128::from(to - from)).max(0),
        };
        for event in &self.0 {
            match *event {
                Event::Take { time, hits, most, .. } => {
                    let before = drained(debt, at, time, limit);
                    debt = before + i128::from(hits) * i128::from(per);
                    debt = debt.min(before.max(i128::from(most) * i128::from(per)));
                    debt = if limit == Limit::Unlimited { 0 } else { debt.max(0) };
                    at = time;
                }
                Event::Rate { time, limit: new } => {
                    debt = drained(debt, at, time, limit);
                    if new == Limit::Unlimited || limit == Limit::Unlimited {
                        debt = 0;
                    }
                    (at, limit) = (time, new);
                }
            }
        }
        (drained(debt, at, now, limit), limit)
    }

    fn takes(&self) -> impl Iterator<Item = (u64, i64)> {
        self.0.iter().filter_map(|event| match event {
            Event::Take { time, hits, .. } => Some((*time, *hits)),
            Event::Rate { .. } => None,
        })
    }
}

struct Entry {
    time: u64,
    hits: u64,
    leaves: u64,
}

fn ceil(value: i128, by: i128) -> u64 {
    u64::try_from((value + by - 1) / by).unwrap_or(NEVER)
}
