//! `decide`: makes the decision, waits for its locks and slots, or refuses it.

use super::{
    command::DecideRequest,
    ended,
    families::Families,
    make::{MakeOutcome, make},
    reply::{Decision, Refusal, Reply},
    state::Decisions,
    waiting,
};
use crate::{
    Millis, Name, WaitId,
    answer_size::{self, AnswerBudget},
    ledger::{HoldState, Ledger, operations},
    limiter::LAST,
    reads::ReadError,
    turn::{Attempt, CannotRun, Turn},
};
use alloc::boxed::Box;
use limina_api::decisions::State;

/// Decides a request. If it waits, `wait` identifies it when it completes.
pub(super) fn decide(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    asked: &DecideRequest,
    wait: WaitId,
    max_answer: usize,
) -> Result<Attempt<Result<Reply, Refusal>>, CannotRun> {
    let request = &asked.wanted;
    let id = request.operation_id();
    if let Some(open) = decisions.find(id) {
        if !request.repeats(&open.request) {
            return Ok(Attempt::Done(Err(Refusal::OperationReused { operation_id: id.clone() })));
        }
        let mut budget = AnswerBudget::new(max_answer);
        budget.spend(answer_size::estimate(&**request))?;
        let mut decision = Decision { repeated: true, ..open.info(families, turn.now, &mut budget)? };
        if request.dry_run() {
            (decision.position, decision.fencing_token) = (None, None);
        }
        return Ok(Attempt::Done(Ok(Reply::Decided(Box::new(decision)))));
    }
    if let Some(attempt) = waiting::take_over(decisions, families, turn, asked, wait, max_answer)? {
        return Ok(attempt);
    }
    if let Some(refusal) = find_used_id(families.ledger, turn, id)? {
        return Ok(Attempt::Done(Err(refusal)));
    }
    let other_bytes = turn.other_bytes;
    Ok(match make(decisions, families, turn, request, LAST, max_answer)? {
        MakeOutcome::Decided(result) => Attempt::Done(result),
        MakeOutcome::Blocked { slots, is_locked, may_wait: true, .. }
            if request.wait() > Millis(0) && !request.dry_run() =>
        {
            turn.other_bytes = other_bytes;
            waiting::join(decisions, families, turn, asked, slots, is_locked, wait)
        }
        MakeOutcome::Blocked { refusal, .. } => Attempt::Done(Err(refusal)),
    })
}

/// The refusal of an id that was used before.
fn find_used_id(ledger: &Ledger, turn: &Turn<'_>, id: &Name) -> Result<Option<Refusal>, CannotRun> {
    let view = turn.view();
    view.read(|reader| {
        // Both are looked up before the first result is used, so that one round fetches all records.
        let ended = ended::find(reader, view, id);
        let operation = operations::find(ledger, reader, view.namespace, id);
        let (ended, operation) = (ended?, operation?);
        let in_final_state = |state, position| {
            let (operation_id, position) = (id.clone(), Some(position));
            Ok(Some(Refusal::OperationAlreadyInFinalState { operation_id, state, position }))
        };
        match (ended, operation) {
            // The ledger may have used the id since then: the decision has ended all the same.
            (Some(ended), _) => {
                in_final_state(Some(ended.answer.state), ended.answer.position.ok_or(ReadError::Unreadable)?)
            }
            (None, Some(operation)) if operation.is_open() => {
                Ok(Some(Refusal::OperationReused { operation_id: id.clone() }))
            }
            (None, Some(operation)) => in_final_state(Some(final_state(&operation)), operation.view),
            (None, None) => Ok(None),
        }
    })
}

/// How an operation of the ledger that is not open has ended.
fn final_state(operation: &operations::Operation) -> State {
    let states = || operation.holds.iter().map(|hold| hold.state);
    if states().any(|state| matches!(state, HoldState::Committed { .. })) {
        State::Committed
    } else if states().all(|state| matches!(state, HoldState::RolledBack { expired: true, .. })) {
        State::Expired
    } else {
        State::RolledBack
    }
}
