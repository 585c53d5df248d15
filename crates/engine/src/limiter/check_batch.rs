//! A batch of checks, in slices. Each check is decided on its own, in the order of the batch.
//!
//! The answer is measured before the first check takes anything, so that a batch whose answer would be too large is refused
//! as a whole. Measuring and deciding go in slices: a turn ends when its work is used up, and the next turn continues behind
//! what is decided. No rule changes in between: changes of clients wait for the batch, and so do backfills.

use super::{
    check::{CheckResult, TakeKind, decide_touched},
    check_request::Check,
    reply::{Checked, Refusal, Reply},
    state::Limiter,
    touched_groups::{TouchedGroups, look_up},
};
use crate::{
    answer_size::{AnswerBudget, TooLarge},
    turn::{Slice, Sliced, Turn},
};
use alloc::{collections::VecDeque, vec::Vec};

/// The work of a check besides finding the rules that apply.
const CHECK_WEIGHT: usize = 2;
/// So many groups, of so many checks, are looked up together. A processor waits for about a dozen memory reads at a time, and
/// what was read must stay in its cache until it is used.
const BLOCK_GROUPS: usize = 64;
const BLOCK_CHECKS: usize = 64;

/// How far a batch has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The checks whose answers are measured.
    measured: usize,
    /// What the answer may still grow by. `None` before the first check is measured.
    answer: Option<AnswerBudget>,
    decisions: Vec<Result<Checked, Refusal>>,
    /// Whether a decision must be durable before the batch is answered.
    is_durable: bool,
}

impl Progress {
    /// The number of checks that are decided.
    pub(crate) fn done(&self) -> usize {
        self.decisions.len()
    }

    /// The decisions from the check `from` on.
    pub(crate) fn results_from(&self, from: usize) -> Reply {
        Reply::Batch(self.decisions[from..].to_vec())
    }

    pub(crate) fn take_results(&mut self) -> Reply {
        Reply::Batch(core::mem::take(&mut self.decisions))
    }

    pub(crate) fn is_relaxed(&self) -> bool {
        !self.is_durable
    }

    /// Continues a batch that an earlier request began: these are its next decisions. Its answer was measured then. Returns
    /// false if the reply is not that of a batch.
    pub(crate) fn restore(&mut self, reply: Reply) -> bool {
        let Reply::Batch(mut decisions) = reply else { return false };
        self.decisions.append(&mut decisions);
        self.measured = usize::MAX;
        true
    }
}

/// Does as much of the batch as one turn may do.
pub(crate) fn run(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    checks: &[Check],
    may_relax: bool,
    progress: &mut Progress,
    slice: &mut Slice,
    max_answer: usize,
) -> Result<Sliced, TooLarge> {
    if progress.measured == 0 && TouchedGroups::answer_fits(limiter, checks, max_answer) {
        progress.measured = checks.len();
    }
    // What is collected to measure a check need not be collected again to decide it, if that happens in the same turn.
    let mut collected = VecDeque::new();
    let first = progress.measured;
    while let Some(check) = checks.get(progress.measured) {
        if slice.is_used_up() {
            return Ok(Sliced::Unfinished);
        }
        let answer = progress.answer.get_or_insert_with(|| AnswerBudget::new(max_answer));
        let touched = TouchedGroups::collect(limiter, &check.entries, answer)?;
        slice.spend(CHECK_WEIGHT + touched.work);
        progress.measured += 1;
        if first == 0 {
            collected.push_back(touched);
        }
    }
    while progress.decisions.len() < checks.len() {
        if slice.is_used_up() {
            return Ok(Sliced::Unfinished);
        }
        // Several checks are looked up together. At least one of them is decided, or the batch would never end.
        let checks = &checks[progress.decisions.len()..];
        let mut block: Vec<TouchedGroups> = Vec::new();
        let mut groups = 0;
        for check in checks {
            let touched = match collected.pop_front() {
                Some(touched) => touched,
                None => {
                    let touched =
                        TouchedGroups::collect(limiter, &check.entries, &mut AnswerBudget::unlimited())?;
                    slice.spend(touched.work);
                    touched
                }
            };
            groups += touched.groups.len();
            block.push(touched);
            if groups >= BLOCK_GROUPS || block.len() >= BLOCK_CHECKS || slice.is_used_up() {
                break;
            }
        }
        look_up(limiter, &mut block);
        for (place, (check, touched)) in checks.iter().zip(block).enumerate() {
            if place > 0 && slice.is_used_up() {
                return Ok(Sliced::Unfinished);
            }
            let bytes = turn.changes.bytes();
            let work = CHECK_WEIGHT + 2 * touched.groups.len();
            let kind = TakeKind::Check { mode: check.mode, may_relax };
            let CheckResult { decision, is_relaxed } =
                decide_touched(limiter, turn, &check.entries, touched, check.require_match, kind);
            slice.spend(work + Slice::work_of_bytes(turn.changes.bytes() - bytes));
            progress.is_durable |= !is_relaxed;
            progress.decisions.push(decision);
        }
    }
    Ok(Sliced::Done)
}
