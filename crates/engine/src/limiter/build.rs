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
use crate::{
    Outcome, WaitId,
    keyed::Place,
    namespace::{Turn, Waiting},
};
use alloc::{collections::VecDeque, vec::Vec};

/// How many changes of a namespace may wait.
const MAX_WAITING: usize = 1_024;

/// Changes under way and waiting.
#[derive(Debug, Default)]
pub(crate) struct Building {
    current: Option<Build>,
    waiting: VecDeque<Waits>,
}

/// A change that waits for those before it.
#[derive(Debug)]
struct Waits {
    waiting: Waiting,
    change: Change,
}

#[derive(Debug)]
struct Build {
    waiting: Waiting,
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

    /// Whose answers would be waited for.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = WaitId> {
        let current = self.current.into_iter().map(|build| build.waiting);
        current.chain(self.waiting.into_iter().map(|waits| waits.waiting)).map(|waiting| waiting.id)
    }

    /// Whether the counter at this place is part of what is being counted already.
    pub(super) fn has_counted(&self, place: Place) -> bool {
        self.current.as_ref().is_some_and(|build| place < build.counted)
    }
}

/// Does the change, or begins it. `waiting` is who is answered later. `slice` is how many counters may be counted at
/// once.
pub(crate) fn begin(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    change: &Change,
    waiting: &Waiting,
    slice: usize,
) -> Begun {
    if limiter.building.waiting.len() >= MAX_WAITING {
        return Begun::Refused;
    }
    if limiter.building.is_busy() {
        limiter.building.waiting.push_back(Waits { waiting: waiting.clone(), change: change.clone() });
        return Begun::Waits;
    }
    let plan = match changes::prepare(limiter, turn, change) {
        Ok(plan) => plan,
        Err(refusal) => return Begun::Done(Err(refusal)),
    };
    if !plan.needs_counting(limiter) {
        return Begun::Done(Ok(changes::finish(limiter, turn, plan)));
    }
    limiter.building.current = Some(Build { waiting: waiting.clone(), plan, counted: 0 });
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
    turn.complete(build.waiting, Outcome::Limiter(result));
    while let Some(Waits { waiting, change }) = limiter.building.waiting.pop_front() {
        match begin(limiter, turn, &change, &waiting, slice) {
            Begun::Done(result) => turn.complete(waiting, Outcome::Limiter(result)),
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
