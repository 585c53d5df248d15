//! `check`: take from every limit that applies, or from none.
//!
//! A check first collects the groups that it touches (`touched_groups`), then decides entry by entry, and undoes what it
//! took if a later entry is refused. Counters and leases take through the same [`decide`].

use super::{
    check_request::{Check, CheckMode, Take},
    counters::Counter,
    groups::{GroupOwner, WriteWhen},
    reply::{Answer, AppliedLimit, Checked, Refusal, Reply},
    slot_queues::{FIRST, LAST},
    state::Limiter,
    terms::Limit,
    touched_groups::{TouchedGroup, TouchedGroups, look_up, range_of},
    window::GroupState,
};
use crate::{
    Millis, QuotaExceeded, Time, WaitId,
    answer_size::{AnswerBudget, TooLarge},
    key_values::KeyValues,
    turn::Turn,
};
use alloc::vec::Vec;
use hashbrown::HashMap;
use limina_api::limiter::LimitStatus;

/// An estimate of the bytes of a stored window without its group. A sliding window with many entries takes more.
pub(super) const WINDOW_BYTES: usize = 256;

/// What an entry takes from, besides the windows that apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeKind {
    /// The counter changes only if a limit without a window applies. The decision is relaxed if `may_relax` and if none
    /// of the limits is durable.
    Check { mode: CheckMode, may_relax: bool },
    /// The counter's unleased part always changes.
    Counter,
    /// The counter's leased part always changes. The lease itself has so many resident bytes, and waits at this place.
    Lease { bytes: u64, place: WaitId },
    /// The counter's leased part changes only if a limit without a window applies: a decision holds it.
    Part,
}

impl TakeKind {
    /// Whether the entries are counted whatever the limits say.
    fn is_report(self) -> bool {
        matches!(self, TakeKind::Check { mode: CheckMode::Report, .. })
    }

    /// The place in the queues of requests that wait. What has happened already passes all that waits.
    fn place(self) -> WaitId {
        match self {
            TakeKind::Lease { place, .. } => place,
            TakeKind::Check { mode: CheckMode::Report, .. } => FIRST,
            TakeKind::Check { .. } | TakeKind::Counter | TakeKind::Part => LAST,
        }
    }
}

/// A decision, and whether it may be released before its batch is durable.
pub(super) struct CheckResult {
    /// The decision, allowed or not; or why no limit was asked.
    pub(super) decision: Result<Checked, Refusal>,
    pub(super) is_relaxed: bool,
}

impl CheckResult {
    /// The decision if nothing refuses.
    pub(super) fn allowed_or_refused(self) -> Result<Checked, Refusal> {
        match self.decision {
            Ok(decision) if !decision.is_refused() => Ok(decision),
            Ok(decision) => Err(Refusal::LimitReached(decision)),
            Err(refusal) => Err(refusal),
        }
    }
}

pub(super) fn check(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    check: &Check,
    may_relax: bool,
    budget: AnswerBudget,
) -> Result<Answer, TooLarge> {
    let kind = TakeKind::Check { mode: check.mode, may_relax };
    let decided = decide(limiter, turn, &check.entries, check.require_match, kind, budget)?;
    let is_relaxed = decided.is_relaxed;
    Ok(Answer { result: decided.allowed_or_refused().map(Reply::Allowed), is_relaxed })
}

/// Decides all entries together. Fails before anything is taken if the answer would be too large.
pub(super) fn decide(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    entries: &[Take],
    require_match: bool,
    kind: TakeKind,
    mut budget: AnswerBudget,
) -> Result<CheckResult, TooLarge> {
    let mut touched = TouchedGroups::collect(limiter, entries, &mut budget)?;
    look_up(limiter, core::slice::from_mut(&mut touched));
    Ok(decide_touched(limiter, turn, entries, touched, require_match, kind))
}

/// Decides the entries one after another: a later entry sees what an earlier one has taken. If one is refused, what all of
/// them took is undone, unless it is a report. The first entry that exceeds a quota ends the check, unless a limit has refused it before.
pub(super) fn decide_touched(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    entries: &[Take],
    touched: TouchedGroups,
    require_match: bool,
    kind: TakeKind,
) -> CheckResult {
    let now = turn.now;
    let unmatched = if require_match { touched.first_unmatched(entries) } else { None };
    let TouchedGroups { mut groups, .. } = touched;
    let is_relaxed = match kind {
        TakeKind::Check { may_relax, .. } => may_relax && groups.iter().all(|group| !group.is_durable),
        TakeKind::Counter | TakeKind::Lease { .. } | TakeKind::Part => false,
    };
    if let Some(Take { key_values, .. }) = unmatched {
        let key_values = key_values.clone();
        return CheckResult { decision: Err(Refusal::NoRuleApplies { key_values }), is_relaxed };
    }
    let is_dry_run = matches!(kind, TakeKind::Check { mode: CheckMode::DryRun, .. });
    let is_report = kind.is_report();
    let when = if is_relaxed { WriteWhen::Soon } else { WriteWhen::Now };

    let mut is_refused = false;
    let (mut is_window_changed, mut is_counter_changed) = (false, false);
    // A single entry takes only if nothing refuses it, so it never has to be undone.
    let mut undo = (entries.len() > 1).then(Vec::new);
    for (index, entry) in entries.iter().enumerate() {
        let range = range_of(&groups, index);
        let own = &mut groups[range];
        let is_entry_refused = is_refused_by(limiter, now, entry, own, kind.place());
        is_refused |= is_entry_refused;
        // In a dry run of several entries, later entries must see what earlier ones would take. It is undone below.
        let is_taken = is_report || !is_entry_refused;
        if is_taken && entry.hits != 0 && (!is_dry_run || undo.is_some()) {
            if (is_report || !is_refused)
                && !is_dry_run
                && let Err(exceeded) = check_quotas(limiter, turn, entry, own, kind)
            {
                undo_all(limiter, turn, undo.unwrap_or_default());
                return CheckResult { decision: Err(exceeded.into()), is_relaxed: false };
            }
            is_window_changed |= own.iter().any(|group| !group.is_count());
            is_counter_changed |= take(limiter, turn, entry, own, kind, when, undo.as_mut());
        }
    }
    if (is_refused && !is_report) || is_dry_run {
        undo_all(limiter, turn, undo.unwrap_or_default());
    } else {
        if is_counter_changed || (is_window_changed && !is_relaxed) {
            turn.advance();
        }
        if is_window_changed {
            limiter.schedule_window_timers(turn);
        }
    }
    // A report has been counted, so there is nothing to retry.
    let retry_after =
        if is_refused && !is_report { retry_after(limiter, now, entries, &groups) } else { None };
    let limits = statuses(limiter, now, groups, entries.len() > 1, kind.place());
    let decision = Checked { allowed: !is_refused, reported: is_report, limits, retry_after };
    CheckResult { decision: Ok(decision), is_relaxed }
}

/// Fails if a quota forbids the groups, the counter or the lease that the entry would create.
pub(super) fn check_quotas(
    limiter: &Limiter,
    turn: &Turn<'_>,
    entry: &Take,
    groups: &[TouchedGroup],
    kind: TakeKind,
) -> Result<(), QuotaExceeded> {
    if turn.quotas.is_empty() || entry.hits < 0 {
        return Ok(());
    }
    let mut growth = limiter.growth_by_take(turn.now, entry, groups, is_counted(kind, groups));
    if let TakeKind::Lease { bytes, .. } = kind {
        growth.leases += 1;
        growth.bytes += bytes;
    }
    limiter.check_growth(turn, &growth)
}

/// Whether an entry takes from its counter.
pub(super) fn is_counted(kind: TakeKind, groups: &[TouchedGroup]) -> bool {
    matches!(kind, TakeKind::Counter | TakeKind::Lease { .. }) || groups.iter().any(|group| group.is_count())
}

/// Looks up the groups of an entry and marks the limits that it exceeds, and those in which an earlier request than `place`
/// waits. Returns whether one of them refuses; a shadow limit never does.
pub(super) fn is_refused_by(
    limiter: &Limiter,
    now: Time,
    entry: &Take,
    groups: &mut [TouchedGroup],
    place: WaitId,
) -> bool {
    let hits = u64::try_from(entry.hits).unwrap_or(0);
    let mut is_refused = false;
    for group in groups {
        group.index = limiter.groups.find_at(group.index, group.owner, group.values.as_bytes());
        if group.is_limit {
            group.exceeded = group.meter.exceeds(limiter.groups.state_at(group.index), now, hits)
                || (hits > 0
                    && group.is_slot()
                    && limiter.slots.has_earlier(group.owner, &group.values, place));
            is_refused |= group.refuses();
        }
    }
    is_refused
}

/// How to undo one change of a check.
pub(super) enum Undo {
    /// Restores the window's state; without one, removes the window.
    Window {
        owner: GroupOwner,
        values: KeyValues,
        before: Option<GroupState>,
        /// See [`TouchedGroup::is_limit`].
        is_limit: bool,
    },
    Counter(KeyValues, Counter),
}

/// Takes, or gives back if `hits` is negative, for one entry. Returns whether a counter changed.
pub(super) fn take(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    entry: &Take,
    groups: &mut [TouchedGroup],
    kind: TakeKind,
    when: WriteWhen,
    mut undo: Option<&mut Vec<Undo>>,
) -> bool {
    take_windows(limiter, turn, entry, groups, kind, when, undo.as_deref_mut());
    if !is_counted(kind, groups) {
        return false;
    }
    let hits = entry.hits.unsigned_abs();
    let key_values = &entry.key_values;
    let before = limiter.counters.get(key_values);
    if let Some(undo) = undo {
        undo.push(Undo::Counter(key_values.clone(), before));
    }
    let (unleased, leased) = match kind {
        _ if entry.hits < 0 => (before.unleased.saturating_sub(hits), before.leased),
        TakeKind::Lease { .. } | TakeKind::Part => (before.unleased, before.leased + u128::from(hits)),
        TakeKind::Check { .. } | TakeKind::Counter => {
            (before.unleased.saturating_add(hits).min(Counter::MAX_UNLEASED), before.leased)
        }
    };
    limiter.set_counter(turn, key_values, unleased, leased);
    if entry.hits < 0 {
        limiter.wake_by_counter(key_values);
    }
    (unleased, leased) != (before.unleased, before.leased)
}

/// The part of [`take`] that is about windows.
pub(super) fn take_windows(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    entry: &Take,
    groups: &mut [TouchedGroup],
    kind: TakeKind,
    when: WriteWhen,
    mut undo: Option<&mut Vec<Undo>>,
) {
    let hits = entry.hits.unsigned_abs();
    for group in groups.iter_mut().filter(|group| !group.is_count()) {
        if let Some(undo) = undo.as_deref_mut() {
            let before = limiter.groups.state_at(group.index).cloned();
            let (owner, values, is_limit) = (group.owner, group.values.clone(), group.is_limit);
            undo.push(Undo::Window { owner, values, before, is_limit });
        }
        let index = match group.index {
            Some(index) => index,
            // The window is empty, so there is nothing to give back.
            None if entry.hits < 0 => continue,
            None => limiter.groups.insert(group.owner, &group.values, group.meter.initial()),
        };
        group.index = Some(index);
        if when == WriteWhen::Now {
            turn.changes.will_write(WINDOW_BYTES + group.values.as_bytes().len());
        }
        limiter.groups.change(index, when, |state| match entry.hits < 0 {
            true => group.meter.give_back(state, turn.now, hits),
            false if kind.is_report() && group.is_limit => {
                group.meter.take_past_limit(state, turn.now, hits);
            }
            false => group.meter.take(state, turn.now, hits, group.is_shadow),
        });
    }
}

/// Marks the windows of these steps to be written. Counters are marked when they change.
pub(super) fn write_all(limiter: &mut Limiter, turn: &mut Turn<'_>, steps: &[Undo]) {
    for step in steps {
        let Undo::Window { owner, values, .. } = step else { continue };
        if let Some(index) = limiter.groups.find(*owner, values.as_bytes()) {
            turn.changes.will_write(WINDOW_BYTES + values.as_bytes().len());
            limiter.groups.change(index, WriteWhen::Now, |_| {});
        }
    }
}

pub(super) fn undo_all(limiter: &mut Limiter, turn: &mut Turn<'_>, steps: Vec<Undo>) {
    for step in steps.into_iter().rev() {
        match step {
            Undo::Window { owner, values, before, .. } => {
                limiter.groups.restore(owner, &values, before, turn.namespace, turn.changes);
            }
            Undo::Counter(key_values, before) => {
                limiter.set_counter(turn, &key_values, before.unleased, before.leased);
            }
        }
    }
}

/// The time after which every limit would allow the same entries if nothing else happened. `None` if one of the limits
/// never would, or if the time is not known, as when an earlier entry gives back to the same group.
pub(super) fn retry_after(
    limiter: &Limiter,
    now: Time,
    entries: &[Take],
    groups: &[TouchedGroup],
) -> Option<Millis> {
    let mut longest = Millis(0);
    // What earlier entries take from each group: a retry sends them too. `None` if one of them gives back.
    let mut earlier: HashMap<(GroupOwner, &KeyValues), Option<u64>> = HashMap::new();
    for own in groups.chunk_by(|one, next| one.entry == next.entry) {
        let entry = &entries[own[0].entry as usize];
        for group in own.iter().filter(|group| group.is_limit && !group.is_shadow) {
            // An entry that takes nothing, or takes from an unlimited limit, is always allowed.
            let Ok(hits @ 1..) = u64::try_from(entry.hits) else { continue };
            if group.meter.limit == Limit::Unlimited {
                continue;
            }
            // Nobody knows when those who wait will have had their turn.
            if group.exceeded && group.is_count() {
                return None;
            }
            let before = match earlier.get(&(group.owner, &group.values)) {
                Some(before) => (*before)?,
                None => 0,
            };
            let index = limiter.groups.find(group.owner, group.values.as_bytes());
            longest =
                longest.max(group.meter.allowed_after(limiter.groups.state_at(index), now, before + hits)?);
        }
        if entries.len() > 1 {
            for group in own {
                let sum = earlier.entry((group.owner, &group.values)).or_insert(Some(0));
                *sum = sum.zip(u64::try_from(entry.hits).ok()).map(|(before, hits)| before + hits);
            }
        }
    }
    Some(longest)
}

/// The status of every limit after the check. `is_stale` says that changes may have been undone, so that groups must be
/// looked up again.
pub(super) fn statuses(
    limiter: &Limiter,
    now: Time,
    groups: Vec<TouchedGroup>,
    is_stale: bool,
    place: WaitId,
) -> Vec<AppliedLimit> {
    let limits = groups.into_iter().filter(|group| group.is_limit);
    limits
        .map(|group| {
            let index = match is_stale || group.is_count() {
                true => limiter.groups.find(group.owner, group.values.as_bytes()),
                false => group.index,
            };
            let state = limiter.groups.state_at(index);
            let waiting = limiter.slots.waiting(group.owner, &group.values, place);
            let (limit, used) = (group.meter.reported_limit(), group.meter.used(state, now));
            AppliedLimit {
                entry: group.entry,
                per: group.meter.per(),
                refill: group.meter.refill(),
                status: LimitStatus {
                    rule: group.rule,
                    override_name: group.override_name,
                    limit,
                    used,
                    remaining: limit.remaining(used),
                    reset_ms: group.meter.resets_after(state, now),
                    shadow: group.is_shadow,
                    exceeded: group.exceeded,
                    waiting,
                    group: group.values,
                },
            }
        })
        .collect()
}
