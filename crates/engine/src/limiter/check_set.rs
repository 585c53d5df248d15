//! `check set`: several checks at one instant, each with its own way to take part. Envoy's descriptors are one.
//!
//! The entries are asked in order, and each sees what the earlier ones take. Then it is known whether the set is allowed. What
//! was taken and does not count after all is undone.

use super::{
    check::{TakeKind, Undo, check_quotas, is_refused_by, retry_after, statuses, take, undo_all},
    check_request::{CheckMode, CheckSet, EntryMode, Take, Way},
    groups::WriteWhen,
    reply::{Answer, Checked, Reply},
    slot_queues::{FIRST, LAST},
    state::Limiter,
    terms::Limit,
    touched_groups::{TouchedGroup, TouchedGroups, range_of},
};
use crate::{
    Time,
    answer_size::{AnswerBudget, TooLarge},
    turn::Turn,
};
use alloc::{collections::BTreeMap, vec::Vec};

pub(super) fn check_set(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    set: &CheckSet,
    may_relax: bool,
    mut budget: AnswerBudget,
) -> Result<Answer, TooLarge> {
    let TouchedGroups { mut groups, .. } = TouchedGroups::collect(limiter, &set.entries, &mut budget)?;
    let is_relaxed = may_relax && groups.iter().all(|group| !group.is_durable);
    let mut progress = SetProgress {
        may_relax,
        when: if is_relaxed { WriteWhen::Soon } else { WriteWhen::Now },
        is_window_changed: false,
        is_counter_changed: false,
        // A single entry takes only if nothing refuses it, or if it counts in any case.
        undo: (set.entries.len() > 1).then(Vec::new),
    };
    let mut is_refused = Vec::with_capacity(set.entries.len());
    for (index, entry) in set.entries.iter().enumerate() {
        let range = range_of(&groups, index);
        let own = &mut groups[range];
        let mode = set.mode(index);
        is_refused.push(asks(limiter, turn.now, entry, mode, own));
        // An entry without hits creates nothing, so no quota refuses it.
        if entry.hits != 0 && (!is_refused[index] || mode == EntryMode::Report) {
            if let Err(exceeded) = check_quotas(limiter, turn, entry, own, progress.kind(mode)) {
                undo_all(limiter, turn, progress.undo.unwrap_or_default());
                return Ok(Answer { result: Err(exceeded.into()), is_relaxed: false });
            }
            progress.take(limiter, turn, entry, own, mode);
        }
    }
    let verdict = Verdict::of(set, &is_refused);
    let is_undone = |index: usize| !is_refused[index] && !verdict.counts(set, index);
    if (0..set.entries.len()).any(is_undone) {
        undo_all(limiter, turn, progress.undo.take().unwrap_or_default());
        (progress.is_window_changed, progress.is_counter_changed) = (false, false);
        for (index, entry) in set.entries.iter().enumerate().filter(|(index, _)| verdict.counts(set, *index))
        {
            let range = range_of(&groups, index);
            let own = &mut groups[range];
            for group in own.iter_mut() {
                group.index = limiter.groups.find(group.owner, group.values.as_bytes());
            }
            progress.take(limiter, turn, entry, own, set.mode(index));
        }
    }
    if progress.is_counter_changed || (progress.is_window_changed && !is_relaxed) {
        turn.advance();
    }
    if progress.is_window_changed {
        limiter.schedule_window_timers(turn);
    }
    // With alternatives, it depends on all of them when the set would pass. A look may wait for another span, and a report has
    // changed what it depends on.
    let is_plain = set.ways.iter().all(|way| *way == Way { mode: EntryMode::Take, alternative: None });
    let is_time_known = !verdict.allowed && is_plain;
    let retry_after =
        if is_time_known { retry_after(limiter, turn.now, &set.entries, &groups) } else { None };
    let limits = statuses(limiter, turn.now, groups, true, LAST);
    let decision = Checked { allowed: verdict.allowed, reported: false, limits, retry_after };
    Ok(Answer { result: Ok(Reply::Set(decision)), is_relaxed })
}

/// Whether the entry refuses. Marks the limits that it exceeds.
fn asks(limiter: &Limiter, now: Time, entry: &Take, mode: EntryMode, groups: &mut [TouchedGroup]) -> bool {
    // What has happened already does not queue behind those who wait.
    let place = if mode == EntryMode::Report { FIRST } else { LAST };
    // A look asks for nothing, so no limit refuses it here.
    let is_refused = is_refused_by(limiter, now, entry, groups, place);
    if mode != EntryMode::Look {
        return is_refused;
    }
    for group in groups.iter_mut().filter(|group| group.is_limit) {
        let used = group.meter.used(limiter.groups.state_at(group.index), now);
        group.exceeded = matches!(group.meter.reported_limit(), Limit::AtMost(limit) if used > limit);
    }
    groups.iter().any(|group| group.exceeded && !group.is_shadow)
}

/// How entries take, and what has changed so far.
struct SetProgress {
    may_relax: bool,
    when: WriteWhen,
    is_window_changed: bool,
    is_counter_changed: bool,
    undo: Option<Vec<Undo>>,
}

impl SetProgress {
    fn kind(&self, mode: EntryMode) -> TakeKind {
        let mode = if mode == EntryMode::Report { CheckMode::Report } else { CheckMode::Take };
        TakeKind::Check { mode, may_relax: self.may_relax }
    }

    fn take(
        &mut self,
        limiter: &mut Limiter,
        turn: &mut Turn<'_>,
        entry: &Take,
        groups: &mut [TouchedGroup],
        mode: EntryMode,
    ) {
        if entry.hits == 0 {
            return;
        }
        self.is_window_changed |= groups.iter().any(|group| !group.is_count());
        self.is_counter_changed |=
            take(limiter, turn, entry, groups, self.kind(mode), self.when, self.undo.as_mut());
    }
}

/// What becomes of the set.
struct Verdict {
    allowed: bool,
    /// Each alternative, and whether it is exhausted.
    alternatives: BTreeMap<u16, bool>,
}

impl Verdict {
    fn of(set: &CheckSet, is_refused: &[bool]) -> Verdict {
        let mut allowed = true;
        let mut alternatives = BTreeMap::new();
        for (way, is_refused) in set.ways.iter().zip(is_refused) {
            match way.alternative {
                Some(alternative) => *alternatives.entry(alternative).or_insert(false) |= is_refused,
                None => allowed &= !is_refused,
            }
        }
        let are_all_exhausted =
            !alternatives.is_empty() && alternatives.values().all(|is_exhausted| *is_exhausted);
        Verdict { allowed: allowed && !are_all_exhausted, alternatives }
    }

    /// Whether the entry's hits count.
    fn counts(&self, set: &CheckSet, entry: usize) -> bool {
        let Way { mode, alternative } = set.ways[entry];
        match mode {
            EntryMode::Report => true,
            EntryMode::Take | EntryMode::Look => {
                self.allowed && alternative.is_none_or(|alternative| !self.alternatives[&alternative])
            }
        }
    }
}
