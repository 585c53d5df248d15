//! `heartbeat`, and reads of decisions.

use super::{
    ended,
    families::Families,
    open::Open,
    reply::{Decision, Refusal, Reply},
    state::Decisions,
};
use crate::{
    Millis, Name, Page, Position, Time,
    answer_size::{self, AnswerBudget},
    lists::pick,
    turn::{CannotRun, Turn},
};
use alloc::boxed::Box;

/// The number of decisions that one command looks at. Each may have many limits.
const LOOKED_AT: usize = 128;

pub(super) fn heartbeat(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    id: &Name,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    let Some(position) = decisions.by_id.get(id).copied() else {
        let view = turn.view();
        let ended = view.read(|reader| ended::find(reader, view, id))?;
        let state = ended.map(|ended| ended.answer.state);
        return Ok(Err(Refusal::OperationNotFound { operation_id: id.clone(), state }));
    };
    let open = decisions.open.get_mut(&position).expect("its id was found");
    turn.timers.cancel(open.timer_key(turn.namespace));
    open.expires_at = turn.now.after(open.request.ttl());
    turn.advance();
    open.keep(turn);
    open.extend_parts(families);
    Ok(Ok(Reply::Extended(Box::new(info(open, families, turn.now, max_answer)))))
}

pub(super) fn get(
    decisions: &Decisions,
    families: &Families<'_>,
    turn: &Turn<'_>,
    id: &Name,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    if let Some(open) = decisions.find(id) {
        let mut budget = AnswerBudget::new(max_answer);
        budget.spend(answer_size::estimate(&*open.request))?;
        return Ok(Ok(Reply::Decision(Box::new(open.info(families, turn.now, &mut budget)?))));
    }
    let view = turn.view();
    let ended = view.read(|reader| ended::find(reader, view, id))?;
    Ok(match ended {
        Some(ended) => Ok(Reply::Decision(Box::new(ended.answer))),
        None => Err(Refusal::OperationNotFound { operation_id: id.clone(), state: None }),
    })
}

pub(super) fn list(
    decisions: &Decisions,
    families: &Families<'_>,
    now: Time,
    owner: Option<&Name>,
    older_than: Option<Millis>,
    page: &Page<Position>,
) -> Reply {
    use core::ops::Bound::{Excluded, Unbounded};
    let made_before = older_than.map(|Millis(span)| Time(now.0.saturating_sub(span)));
    let is_found = |open: &Open| {
        owner.is_none_or(|owner| open.request.owner() == Some(owner))
            && made_before.is_none_or(|before| open.made_at < before)
    };
    let after = page.after.map_or(Unbounded, Excluded);
    Reply::Decisions(pick(
        decisions.open.range((after, Unbounded)),
        page.limit(),
        LOOKED_AT,
        |(_, open)| is_found(open).then(|| info(open, families, now, answer_size::PAGE_BYTES)),
        |(position, _)| **position,
    ))
}

/// A kept decision as it is now. `None` if it has ended.
pub(super) fn repeat(
    decisions: &Decisions,
    families: &Families<'_>,
    now: Time,
    kept: &Decision,
    max_answer: usize,
) -> Option<Decision> {
    let open = decisions.find(&kept.operation_id).filter(|open| Some(open.position) == kept.fencing_token)?;
    Some(info(open, families, now, max_answer))
}

/// Brings kept results of a batch up to date: a decision that is open is shown as it is now, with the limits of the first answer,
/// and one that has ended is a refusal.
pub(crate) fn repeat_results(
    decisions: &Decisions,
    families: &Families<'_>,
    now: Time,
    results: &mut [Result<Reply, Refusal>],
) {
    for result in results {
        let Ok(Reply::Decided(kept)) = result else { continue };
        let Some(position) = kept.fencing_token else { continue };
        match decisions.find(&kept.operation_id).filter(|open| open.position == position) {
            Some(open) => {
                let limits = core::mem::take(&mut kept.limits);
                **kept = Decision { repeated: true, limits, ..open.without_limits(families, now) };
            }
            None => {
                let operation_id = kept.operation_id.clone();
                *result =
                    Err(Refusal::OperationAlreadyInFinalState { operation_id, state: None, position: None });
            }
        }
    }
}

/// The decision as it is now. If the answer would be too large, the limits are left out.
fn info(open: &Open, families: &Families<'_>, now: Time, max_bytes: usize) -> Decision {
    let mut budget = AnswerBudget::new(max_bytes);
    open.info(families, now, &mut budget).unwrap_or_else(|_| open.without_limits(families, now))
}
