//! What a window has counted: a log of everything that was taken and given back, which is played from the beginning for every
//! question. The log also proves, without the rules of refunds, that the window never let pass more than its limit.

use limina_engine::limiter::{Limit, MAX_COUNT, NewRule, Window as Kind};
use std::collections::VecDeque;

/// Sliding windows are exact up to this many entries. The workload stays below it.
const MOST_EXACT: usize = 64;

/// The log of one window, in the order of time.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Window(Vec<Event>);

#[derive(Debug, Clone, PartialEq)]
struct Event {
    at: u64,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    /// So many hits were taken. A bucket misses at most `most` tokens then.
    Take { hits: u64, most: u64 },
    /// So many hits were given back, whenever they were taken.
    GiveBack(u64),
    /// So many hits of the take at this place of the log are refunded.
    Refund { of: usize, hits: u64 },
}

/// The limits of a rule, each with the time since which it has been the rule's limit. Buckets are refilled by it.
pub(super) type Rates = Vec<(u64, u64)>;

impl Window {
    /// Takes, and returns the place in the log.
    pub(super) fn take(&mut self, at: u64, hits: u64, most: u64) -> usize {
        self.0.push(Event { at, what: What::Take { hits, most } });
        self.0.len() - 1
    }

    /// Takes past the limit.
    pub(super) fn take_past_limit(&mut self, at: u64, hits: u64) {
        self.take(at, hits, MAX_COUNT);
    }

    pub(super) fn give_back(&mut self, at: u64, hits: u64) {
        self.0.push(Event { at, what: What::GiveBack(hits) });
    }

    pub(super) fn refund(&mut self, at: u64, of: usize, hits: u64) {
        self.0.push(Event { at, what: What::Refund { of, hits } });
    }

    pub(super) fn used(&self, rule: &NewRule, rates: &Rates, now: u64) -> u64 {
        match rule.window.expect("a window") {
            Kind::Fixed { per } => self.fixed(per.0, now),
            Kind::Sliding { per } => self.sliding(per.0, now).iter().map(|(_, hits)| hits).sum(),
            Kind::Bucket { per, .. } => self.missing(per.0, rates, now).div_ceil(per.0),
        }
    }

    /// When nothing of it counts any more.
    pub(super) fn reset(&self, rule: &NewRule, rates: &Rates, now: u64) -> Option<u64> {
        match rule.window.expect("a window") {
            Kind::Fixed { per } => Some(per.0 - now % per.0),
            Kind::Sliding { per } => {
                Some(self.sliding(per.0, now).last().map_or(0, |(time, _)| time + per.0 - now))
            }
            Kind::Bucket { per, .. } => refilled_after(self.missing(per.0, rates, now), last(rates)),
        }
    }

    /// When so many hits would pass if nothing else happened. `None` if never.
    pub(super) fn passes_after(&self, rule: &NewRule, rates: &Rates, now: u64, hits: u64) -> Option<u64> {
        let most = capacity(rule);
        if self.used(rule, rates, now) + hits <= most && rule.limit != Limit::AtMost(0) {
            return Some(0);
        }
        if hits > most || rule.limit == Limit::AtMost(0) {
            return None;
        }
        match rule.window.expect("a window") {
            Kind::Fixed { per } => Some(per.0 - now % per.0),
            Kind::Sliding { per } => {
                let leaves = self.sliding(per.0, now).into_iter().map(|(time, _)| time + per.0);
                leaves.map(|then| then - now).find(|span| self.used(rule, rates, now + span) + hits <= most)
            }
            Kind::Bucket { per, .. } => {
                let missing = self.missing(per.0, rates, now);
                refilled_after(missing - (most - hits) * per.0, last(rates))
            }
        }
    }

    fn fixed(&self, per: u64, now: u64) -> u64 {
        let (mut span, mut used) = (0, 0_u64);
        for event in &self.0 {
            if event.at / per != span {
                (span, used) = (event.at / per, 0);
            }
            match event.what {
                What::Take { hits, .. } => used += hits,
                What::GiveBack(hits) => used = used.saturating_sub(hits),
                // Only in the same span of time.
                What::Refund { of, hits } if self.0[of].at / per == span => used = used.saturating_sub(hits),
                What::Refund { .. } => {}
            }
        }
        if now / per == span { used } else { 0 }
    }

    /// The times at which hits were taken that still count, and how many.
    fn sliding(&self, per: u64, now: u64) -> Vec<(u64, u64)> {
        let mut entries: Vec<(u64, u64)> = Vec::new();
        for event in &self.0 {
            entries.retain(|(time, _)| event.at < time + per);
            match event.what {
                What::Take { hits, .. } => match entries.last_mut() {
                    Some((time, newest)) if *time == event.at => *newest += hits,
                    _ => entries.push((event.at, hits)),
                },
                What::GiveBack(hits) => {
                    let mut rest = hits;
                    for (_, hits) in entries.iter_mut().rev() {
                        let part = rest.min(*hits);
                        (rest, *hits) = (rest - part, *hits - part);
                    }
                }
                // Only what was taken at that time.
                What::Refund { of, hits } => {
                    let of = self.0[of].at;
                    if let Some((_, left)) = entries.iter_mut().find(|(time, _)| *time == of) {
                        *left = left.saturating_sub(hits);
                    }
                }
            }
            entries.retain(|(_, hits)| *hits > 0);
            assert!(entries.len() <= MOST_EXACT, "the workload takes too often for an exact window");
        }
        entries.retain(|(time, _)| now < time + per);
        entries
    }

    /// What a bucket misses, in parts of a token of which there are `per`.
    fn missing(&self, per: u64, rates: &Rates, now: u64) -> u64 {
        // What is missing, by the place of the take, oldest first. What was taken first is refilled first.
        let mut missing: VecDeque<(usize, u64)> = VecDeque::new();
        let mut last = 0;
        for (place, event) in self.0.iter().enumerate() {
            refill(&mut missing, refilled(rates, last, event.at));
            last = event.at;
            match event.what {
                What::Take { hits, most } => {
                    let most = most.saturating_mul(per).saturating_sub(sum(&missing));
                    missing.push_back((place, (hits * per).min(most)));
                }
                // Which take these hits are of is not known, so the oldest are given back.
                What::GiveBack(hits) => refill(&mut missing, hits * per),
                What::Refund { of, hits } => {
                    if let Some((_, left)) = missing.iter_mut().find(|(place, _)| *place == of) {
                        *left -= (hits * per).min(*left);
                    }
                }
            }
        }
        refill(&mut missing, refilled(rates, last, now));
        sum(&missing)
    }

    /// Whatever the rules of refunds are: of what was taken within the limit, never more than the limit has happened. What was
    /// refunded has not happened. Says what is wrong.
    pub(super) fn check(&self, rule: &NewRule, rates: &Rates) -> Result<(), String> {
        let is_past = |event: &Event| match event.what {
            What::Take { most, .. } => most == MAX_COUNT,
            What::GiveBack(_) => true,
            What::Refund { .. } => false,
        };
        // The largest limit of all that the rule had.
        let limit = rates.iter().map(|(_, limit)| *limit).max().unwrap_or(0);
        if self.0.iter().any(is_past) || rates.len() > 1 {
            return Ok(());
        }
        let happened: Vec<(u64, u64)> = self
            .0
            .iter()
            .enumerate()
            .filter_map(|(place, event)| {
                let What::Take { hits, .. } = event.what else { return None };
                let refunded: u64 = self
                    .0
                    .iter()
                    .map(|other| match other.what {
                        What::Refund { of, hits } if of == place => hits,
                        _ => 0,
                    })
                    .sum();
                Some((event.at, hits.checked_sub(refunded)?))
            })
            .collect();
        let takes = self.0.iter().filter(|event| matches!(event.what, What::Take { .. })).count();
        if happened.len() < takes {
            return Err(format!("more was refunded than was taken: {self:?}"));
        }
        for (first, (begin, _)) in happened.iter().enumerate() {
            let mut sum = 0;
            for (at, hits) in &happened[first..] {
                sum += hits;
                let most = match rule.window.expect("a window") {
                    Kind::Fixed { per } => (at / per.0 == begin / per.0).then_some(limit),
                    Kind::Sliding { per } => (at - begin < per.0).then_some(limit),
                    Kind::Bucket { per, .. } => Some(capacity(rule) + limit * (at - begin) / per.0),
                };
                if most.is_some_and(|most| sum > most) {
                    return Err(format!("{sum} of {rule:?} have happened from {begin} to {at}: {self:?}"));
                }
            }
        }
        Ok(())
    }
}

fn sum(missing: &VecDeque<(usize, u64)>) -> u64 {
    missing.iter().map(|(_, left)| left).sum()
}

fn refill(missing: &mut VecDeque<(usize, u64)>, mut by: u64) {
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

/// What is refilled from one time to another.
fn refilled(rates: &Rates, from: u64, to: u64) -> u64 {
    let mut sum = 0;
    for (place, (since, limit)) in rates.iter().enumerate() {
        let until = rates.get(place + 1).map_or(u64::MAX, |(until, _)| *until);
        sum += limit * to.min(until).saturating_sub(from.max(*since));
    }
    sum
}

fn refilled_after(missing: u64, rate: u64) -> Option<u64> {
    match (missing, rate) {
        (0, _) => Some(0),
        (_, 0) => None,
        (missing, rate) => Some(missing.div_ceil(rate)),
    }
}

fn last(rates: &Rates) -> u64 {
    rates.last().map_or(0, |(_, limit)| *limit)
}

/// The most that the rule lets pass at once.
pub(super) fn capacity(rule: &NewRule) -> u64 {
    let Limit::AtMost(limit) = rule.limit else { return MAX_COUNT };
    match rule.window {
        Some(Kind::Bucket { burst, .. }) if limit > 0 => burst.unwrap_or(limit),
        _ => limit,
    }
}
