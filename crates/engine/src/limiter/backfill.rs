//! Changes of rules that need many counters summed up, in slices, so that nobody is held up.
//!
//! A rule or override that is made counts what is in use already. It is put in inactive, counters are counted for it a
//! slice at a time, and changes of counters that were counted already are followed; when all are counted, the change
//! takes effect and is answered, in one step. One change is under way at a time; others wait behind it. Checks go on.

use super::{
    Limiter,
    command::Change,
    finish::finish,
    plan::Plan,
    prepare::prepare,
    reply::{Refusal, Reply},
    rule_index::RuleNumber,
};
use crate::{
    WaitId,
    slab::SlabIndex,
    turn::{Attempt, Turn},
};
use alloc::{collections::VecDeque, vec::Vec};

/// How many changes of a namespace may wait.
const MAX_WAITING: usize = 1_024;

/// Changes under way and waiting.
#[derive(Debug, Default)]
pub(crate) struct RuleChangeQueue {
    current: Option<Backfill>,
    waiting: VecDeque<QueuedChange>,
    /// Answers to changes that waited.
    completed: Vec<(WaitId, Result<Reply, Refusal>)>,
}

/// A change that waits for those before it.
#[derive(Debug)]
struct QueuedChange {
    wait: WaitId,
    change: Change,
}

#[derive(Debug)]
struct Backfill {
    wait: WaitId,
    plan: Plan,
    /// Counters before this place are counted.
    counted: SlabIndex,
}

impl RuleChangeQueue {
    /// Whether something is under way, and [`continue_backfill`] is to be called again and again.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// The requests that wait for the change under way and for those behind it.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = WaitId> {
        let current = self.current.into_iter().map(|backfill| backfill.wait);
        current.chain(self.waiting.into_iter().map(|waits| waits.wait))
    }

    pub(super) fn take_completed(&mut self) -> Vec<(WaitId, Result<Reply, Refusal>)> {
        core::mem::take(&mut self.completed)
    }

    /// Whether the counter at this place is part of what is being counted already.
    pub(super) fn has_counted(&self, index: SlabIndex) -> bool {
        self.current.as_ref().is_some_and(|backfill| index < backfill.counted)
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
) -> Attempt<Result<Reply, Refusal>> {
    if limiter.rule_changes.waiting.len() >= MAX_WAITING {
        return Attempt::TooManyWaiting;
    }
    if limiter.rule_changes.is_busy() {
        limiter.rule_changes.waiting.push_back(QueuedChange { wait, change: change.clone() });
        return Attempt::Waits;
    }
    let plan = match prepare(limiter, turn, change) {
        Ok(plan) => plan,
        Err(refusal) => return Attempt::Done(Err(refusal)),
    };
    if !plan.needs_backfill(limiter) {
        return Attempt::Done(Ok(finish(limiter, turn, plan)));
    }
    limiter.rule_changes.current = Some(Backfill { wait, plan, counted: 0 });
    match count_slice(limiter, slice) {
        true => {
            let backfill = limiter.rule_changes.current.take().expect("was just begun");
            Attempt::Done(Ok(finish(limiter, turn, backfill.plan)))
        }
        false => Attempt::Waits,
    }
}

/// Counts a slice for the change under way, and finishes it if that was the last; then those that waited behind it
/// have their turn, up to one that must count as well.
pub(crate) fn continue_backfill(limiter: &mut Limiter, turn: &mut Turn<'_>, slice: usize) {
    if !limiter.rule_changes.is_busy() || !count_slice(limiter, slice) {
        return;
    }
    let backfill = limiter.rule_changes.current.take().expect("something is under way");
    let result = Ok(finish(limiter, turn, backfill.plan));
    limiter.rule_changes.completed.push((backfill.wait, result));
    while let Some(QueuedChange { wait, change }) = limiter.rule_changes.waiting.pop_front() {
        match begin(limiter, turn, &change, wait, slice) {
            Attempt::Done(result) => limiter.rule_changes.completed.push((wait, result)),
            Attempt::Waits | Attempt::TooManyWaiting => break,
        }
    }
}

/// Counts some counters. Says whether all are counted.
fn count_slice(limiter: &mut Limiter, slice: usize) -> bool {
    let Some(backfill) = &mut limiter.rule_changes.current else { return true };
    let from = backfill.counted;
    let until = from.saturating_add(slice as SlabIndex).min(limiter.counters.end());
    backfill.counted = until;
    let numbers: Vec<RuleNumber> = backfill.plan.backfilled().collect();
    let counters: Vec<_> = limiter
        .counters
        .iter_from(from)
        .take_while(|(index, ..)| *index < until)
        .map(|(_, key_values, counter)| (key_values.clone(), counter.total()))
        .collect();
    for (key_values, total) in counters {
        for number in &numbers {
            limiter.count_for_backfill(*number, &key_values, total);
        }
    }
    until == limiter.counters.end()
}
