//! Changes of rules that need many counters summed up, in slices, so that nobody is held up.
//!
//! A rule or override that is made counts what is in use already. It is put in inactive, counters are counted for it a
//! slice at a time, and changes of counters that were counted already are followed; when all are counted, the change
//! takes effect and is answered, in one step. One change is under way at a time; others wait behind it. Checks go on.

use super::{
    Limiter,
    changes::{self, Plan},
    command::Change,
    matching::RuleNumber,
    reply::{Refusal, Reply},
};
use crate::{WaitId, keyed::Place, turn::Turn};
use alloc::{collections::VecDeque, vec::Vec};

/// How many changes of a namespace may wait.
const MAX_WAITING: usize = 1_024;

/// Changes under way and waiting.
#[derive(Debug, Default)]
pub(crate) struct Building {
    current: Option<Build>,
    waiting: VecDeque<Waits>,
    /// Answers to changes that waited.
    completed: Vec<(WaitId, Result<Reply, Refusal>)>,
}

/// A change that waits for those before it.
#[derive(Debug)]
struct Waits {
    wait: WaitId,
    change: Change,
}

#[derive(Debug)]
struct Build {
    wait: WaitId,
    plan: Plan,
    /// Counters before this place are counted.
    counted: Place,
}

/// What became of a change that was asked for now.
pub(crate) enum Begun {
    Done(Result<Reply, Refusal>),
    /// It will be completed.
    Waits,
    /// Too many wait already.
    Refused,
}

impl Building {
    /// Whether something is under way, and [`work`] is to be called again and again.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// The requests that wait for the change under way and for those behind it.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = WaitId> {
        let current = self.current.into_iter().map(|build| build.wait);
        current.chain(self.waiting.into_iter().map(|waits| waits.wait))
    }

    pub(super) fn take_completed(&mut self) -> Vec<(WaitId, Result<Reply, Refusal>)> {
        core::mem::take(&mut self.completed)
    }

    /// Whether the counter at this place is part of what is being counted already.
    pub(super) fn has_counted(&self, place: Place) -> bool {
        self.current.as_ref().is_some_and(|build| place < build.counted)
    }
}

/// Does the change, or begins it. `wait` names the request if its answer comes later. `slice` is how many counters may be
/// counted at once.
pub(crate) fn begin(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    change: &Change,
    wait: WaitId,
    slice: usize,
) -> Begun {
    if limiter.building.waiting.len() >= MAX_WAITING {
        return Begun::Refused;
    }
    if limiter.building.is_busy() {
        limiter.building.waiting.push_back(Waits { wait, change: change.clone() });
        return Begun::Waits;
    }
    let plan = match changes::prepare(limiter, turn, change) {
        Ok(plan) => plan,
        Err(refusal) => return Begun::Done(Err(refusal)),
    };
    if !plan.needs_counting(limiter) {
        return Begun::Done(Ok(changes::finish(limiter, turn, plan)));
    }
    limiter.building.current = Some(Build { wait, plan, counted: 0 });
    match count_slice(limiter, slice) {
        true => {
            let build = limiter.building.current.take().expect("was just begun");
            Begun::Done(Ok(changes::finish(limiter, turn, build.plan)))
        }
        false => Begun::Waits,
    }
}

/// Counts a slice for the change under way, and finishes it if that was the last; then those that waited behind it
/// have their turn, up to one that must count as well.
pub(crate) fn work(limiter: &mut Limiter, turn: &mut Turn<'_>, slice: usize) {
    if !limiter.building.is_busy() || !count_slice(limiter, slice) {
        return;
    }
    let build = limiter.building.current.take().expect("something is under way");
    let result = Ok(changes::finish(limiter, turn, build.plan));
    limiter.building.completed.push((build.wait, result));
    while let Some(Waits { wait, change }) = limiter.building.waiting.pop_front() {
        match begin(limiter, turn, &change, wait, slice) {
            Begun::Done(result) => limiter.building.completed.push((wait, result)),
            Begun::Waits | Begun::Refused => break,
        }
    }
}

/// Counts some counters. Says whether all are counted.
fn count_slice(limiter: &mut Limiter, slice: usize) -> bool {
    let Some(build) = &mut limiter.building.current else { return true };
    let from = build.counted;
    let until = from.saturating_add(slice as Place).min(limiter.counters.end());
    build.counted = until;
    let numbers: Vec<RuleNumber> = build.plan.counted().collect();
    let counters: Vec<_> = limiter
        .counters
        .iter_from(from)
        .take_while(|(place, ..)| *place < until)
        .map(|(_, key_values, counter)| (key_values.clone(), counter.total()))
        .collect();
    for (key_values, total) in counters {
        for number in &numbers {
            limiter.count_for_build(*number, &key_values, total);
        }
    }
    until == limiter.counters.end()
}
