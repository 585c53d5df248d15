//! Changes of rules wait in a queue. A change that needs a backfill sums up all counters, a slice at a time, so that checks
//! are not delayed.
//!
//! A new rule or override without a window counts what is in use already. It is inserted inactive, and the existing counters
//! are added to its groups. When a counter changes that was added already, its change is added too. After the last counter,
//! the change takes effect and is answered, in one step. One change is backfilled at a time; later ones wait.

use super::{
    command::Change,
    finish::finish,
    groups::GroupOwner,
    prepare::prepare,
    reply::{Refusal, Reply},
    rule::RuleNumber,
    rule_changes::{Backfill, QueuedChange},
    state::Limiter,
};
use crate::{
    Quota, QuotaExceeded, WaitId, resident,
    slab::SlabIndex,
    turn::{Attempt, Turn},
};
use alloc::vec::Vec;

/// Makes a change, or begins its backfill, or queues it. `wait` identifies the request if it waits. `slice` is the number of
/// counters that may be counted at once.
pub(crate) fn begin(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    change: &Change,
    wait: WaitId,
    slice: usize,
) -> Attempt<Result<Reply, Refusal>> {
    if limiter.rule_changes.is_full() {
        return Attempt::TooManyWaiting;
    }
    if limiter.rule_changes.is_busy() {
        let bytes = resident::of_encoded(change);
        let is_deletion = matches!(
            change,
            Change::DeleteRule(_) | Change::DeleteOverride { .. } | Change::DeleteRuleSet { .. }
        );
        if !is_deletion && let Err(exceeded) = turn.check_bytes(limiter.resident_bytes(), bytes) {
            return Attempt::Done(Err(exceeded.into()));
        }
        limiter.rule_changes.push(wait, change, bytes);
        return Attempt::Waits;
    }
    attempt(limiter, turn, change, wait, slice)
}

/// Makes a change, or begins its backfill. No other change is under way.
fn attempt(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    change: &Change,
    wait: WaitId,
    slice: usize,
) -> Attempt<Result<Reply, Refusal>> {
    let plan = match prepare(limiter, turn, change) {
        Ok(plan) => plan,
        Err(refusal) => return Attempt::Done(Err(refusal)),
    };
    if !plan.needs_backfill(&limiter.rules) {
        return Attempt::Done(Ok(finish(limiter, turn, plan)));
    }
    limiter.rule_changes.current = Some(Backfill { wait, plan, counted: 0 });
    match count_slice(limiter, turn, slice) {
        Ok(false) => Attempt::Waits,
        ended => {
            let backfill = limiter.rule_changes.current.take().expect("was just begun");
            Attempt::Done(end(limiter, turn, backfill, ended.err()))
        }
    }
}

/// Counts the next slice, and completes the change after the last one. If no change is under way, begins the next one that waits: one
/// at a time, because each has a position and a record of the audit of its own, and may be much work.
pub(crate) fn continue_backfill(limiter: &mut Limiter, turn: &mut Turn<'_>, slice: usize) {
    turn.begin_family(limiter.resident_bytes());
    if limiter.rule_changes.current.is_some() {
        let counted = count_slice(limiter, turn, slice);
        if counted != Ok(false)
            && let Some(backfill) = limiter.rule_changes.current.take()
        {
            // The position that names the rule was taken when the backfill began. The change itself has a position of its own, which
            // its record of the audit needs.
            turn.advance();
            let wait = backfill.wait;
            let result = end(limiter, turn, backfill, counted.err());
            limiter.rule_changes.completed.push((wait, result));
        }
    } else if let Some(QueuedChange { wait, change, .. }) = limiter.rule_changes.pop()
        && let Attempt::Done(result) = attempt(limiter, turn, &change, wait, slice)
    {
        limiter.rule_changes.completed.push((wait, result));
    }
}

/// Carries the change out, or drops it if its groups exceed a quota. The positions of a dropped change are not used again:
/// its groups are named by them, and are still there for a while.
fn end(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    backfill: Backfill,
    exceeded: Option<QuotaExceeded>,
) -> Result<Reply, Refusal> {
    let Some(exceeded) = exceeded else { return Ok(finish(limiter, turn, backfill.plan)) };
    for rule in backfill.plan.rules {
        limiter.rules.remove(rule.number);
    }
    if let Some((number, name)) = backfill.plan.new_override {
        let item = limiter.rules.change_overrides(number, |overrides| overrides.remove(&name));
        let item = item.expect("it was inserted to be counted");
        let generation = limiter.rules.at(number).stored.generation;
        let owner = GroupOwner::Override { generation, id: item.stored.id };
        if let Some(index) = limiter.groups.find(owner, item.stored.terms.key_values.as_bytes()) {
            limiter.groups.remove(index, turn.namespace, turn.changes);
        }
    }
    limiter.groups.mark_stale_groups();
    limiter.schedule_window_timers(turn);
    Err(exceeded.into())
}

/// Counts a slice of counters. Returns whether that was the last one, or the quota that the new groups exceed.
fn count_slice(limiter: &mut Limiter, turn: &Turn<'_>, slice: usize) -> Result<bool, QuotaExceeded> {
    let Some(backfill) = &mut limiter.rule_changes.current else { return Ok(true) };
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
            let (groups, bytes) = (limiter.groups.len(), limiter.resident_bytes());
            limiter.count_for_backfill(*number, &key_values, total);
            turn.check_quota(Quota::Groups, groups, limiter.groups.len() - groups)?;
            turn.check_bytes(bytes, limiter.resident_bytes() - bytes)?;
        }
    }
    Ok(until == limiter.counters.end())
}
