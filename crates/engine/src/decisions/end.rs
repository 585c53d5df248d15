//! How decisions end: by commit, by rollback, or because their ttl has passed. Each ends whole, at one instant.

use super::{
    command::takes,
    ended::{self, Amounts, Ended},
    families::Families,
    open::{Open, named},
    reply::{Decision, Refusal, Reply},
    state::Decisions,
    waiting,
};
use crate::{
    Effect, Name, Position, Time,
    answer_size::{self, AnswerBudget},
    events::{self, EventPart},
    ledger::{
        self,
        operations::{self, Operation},
        parts::End,
    },
    limiter, locks,
    reads::ReadError,
    turn::{CannotRun, Turn},
};
use alloc::{boxed::Box, vec::Vec};
use limina_api::decisions::{Settle, State};

/// How a decision ends.
enum Ending {
    Commit(Amounts),
    Rollback { is_forced: bool },
    Expiry,
}

impl Ending {
    fn state(&self) -> State {
        match self {
            Ending::Commit(_) => State::Committed,
            Ending::Rollback { .. } => State::RolledBack,
            Ending::Expiry => State::Expired,
        }
    }

    fn amounts(&self) -> Option<&Amounts> {
        match self {
            Ending::Commit(amounts) => Some(amounts),
            Ending::Rollback { .. } | Ending::Expiry => None,
        }
    }

    fn of_holds(&self) -> End<'_> {
        match self {
            Ending::Commit(amounts) => End::Commit(&amounts.holds),
            Ending::Rollback { .. } => End::Rollback,
            Ending::Expiry => End::Expiry,
        }
    }
}

pub(super) fn commit(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    settle: &Settle,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    let Some(open) = decisions.find(&settle.operation_id) else {
        return commit_ended(decisions, families, turn, settle, max_answer);
    };
    let amounts = match Amounts::of(&open.request, settle) {
        Ok(amounts) => amounts,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let ends = || open.holds.iter().zip(&amounts.holds).map(|(hold, value)| (hold.limit, hold.value, *value));
    if let Some((number, held, value)) =
        ends().find(|(_, held, value)| !ledger::parts::is_within(*value, *held))
        && !settle.record
    {
        return Ok(Err(Refusal::CommitExceedsHold {
            operation_id: settle.operation_id.clone(),
            limit_name: families.ledger.limit(number).terms.name.clone(),
            held,
            value,
        }));
    }
    let limit_names = ledger::parts::overflowing(families.ledger, ends());
    if !limit_names.is_empty() {
        return Ok(Err(Refusal::ValueOverflow { limit_names }));
    }
    let position = open.position;
    let answer = end(decisions, families, turn, position, Ending::Commit(amounts), turn.now, max_answer);
    Ok(Ok(Reply::Ended(Box::new(answer))))
}

/// Commits a decision that is not open: the same again, or one that is recorded late.
fn commit_ended(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    settle: &Settle,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    let id = &settle.operation_id;
    let view = turn.view();
    let (ended, operation) = view.read(|reader| {
        let ended = ended::find(reader, view, id)?;
        let operation = match &ended {
            Some(ended) if settle.record && !ended.request.parts().holds.is_empty() => {
                let operation = operations::find(families.ledger, reader, view.namespace, id)?;
                Some(operation.ok_or(ReadError::Unreadable)?)
            }
            _ => None,
        };
        Ok((ended, operation))
    })?;
    let not_found = |state| Ok(Err(Refusal::OperationNotFound { operation_id: id.clone(), state }));
    let Some(ended) = ended else { return not_found(None) };
    AnswerBudget::new(max_answer).spend(answer_size::estimate(&ended.answer))?;
    let amounts = match Amounts::of(&ended.request, settle) {
        Ok(amounts) => amounts,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if ended.amounts.as_ref() == Some(&amounts) {
        return Ok(Ok(Reply::Ended(Box::new(ended.answer))));
    }
    if !settle.record || !ended.can_be_recorded() {
        return not_found(Some(ended.answer.state));
    }
    let answer = record_late(decisions, families, turn, ended, operation, amounts, max_answer);
    Ok(answer.map(|answer| Reply::Ended(Box::new(answer))))
}

/// Commits a decision that has ended without its client. `operation` is that of its holds, if it has any.
fn record_late(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    mut ended: Ended,
    operation: Option<Operation>,
    amounts: Amounts,
    max_answer: usize,
) -> Result<Decision, Refusal> {
    let held: Vec<u32> =
        operation.iter().flat_map(|operation| operation.holds.iter().map(|h| h.limit)).collect();
    let names = ended.request.parts().holds.iter().map(|change| &change.limit_name);
    let deleted: Vec<Name> = held
        .iter()
        .zip(names)
        .filter(|(number, _)| !families.ledger.has(**number))
        .map(|(_, name)| name.clone())
        .collect();
    if !deleted.is_empty() {
        return Err(Refusal::LimitNotFound { limit_names: deleted });
    }
    let ends = held.iter().zip(&amounts.holds).map(|(number, value)| (*number, 0, *value));
    let limit_names = ledger::parts::overflowing(families.ledger, ends);
    if !limit_names.is_empty() {
        return Err(Refusal::ValueOverflow { limit_names });
    }
    // The ledger may have used the id for holds of its own since then, which come after those of the decision.
    let of_decision = ended.request.parts().holds.len();
    let holds = operation
        .iter()
        .flat_map(|operation| operation.holds.iter().take(of_decision).cloned())
        .collect::<Vec<_>>();
    let position = match operation {
        Some(operation) => {
            let id = ended.request.operation_id();
            ledger::parts::book_late(families.ledger, turn, id, operation, &amounts.holds)
        }
        None => turn.advance(),
    };
    // What was taken has been refunded as far as it still counted. All of it counts now.
    for (taken, actual) in ended.taken.iter().zip(&amounts.checks) {
        limiter::parts::settle(families.limiter, turn, &taken.windows, 0, *actual);
    }
    let takes = takes(&ended.request);
    let mut budget = AnswerBudget::new(max_answer);
    let limits = limiter::parts::look(families.limiter, turn.now, &takes, &mut budget).unwrap_or_default();
    ended.answer = Decision {
        state: State::Committed,
        late: true,
        position: Some(position),
        limits: named(&ended.request, limits),
        values: ledger::parts::values(families.ledger, &holds),
        now: turn.now,
        ..ended.answer
    };
    (ended.amounts, ended.was_forced) = (Some(amounts), false);
    let answer = ended.answer.clone();
    ended::remember_late(decisions, turn, ended);
    Ok(answer)
}

pub(super) fn roll_back(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    id: &Name,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    if let Some(position) = decisions.by_id.get(id).copied() {
        let ending = Ending::Rollback { is_forced: false };
        let answer = end(decisions, families, turn, position, ending, turn.now, max_answer);
        return Ok(Ok(Reply::Ended(Box::new(answer))));
    }
    if let Some(reply) = waiting::roll_back(decisions, families, turn, id, max_answer) {
        return Ok(Ok(reply));
    }
    let view = turn.view();
    let ended = view.read(|reader| ended::find(reader, view, id))?;
    Ok(match ended.map(|ended| ended.answer) {
        Some(answer) if answer.state != State::Committed => {
            AnswerBudget::new(max_answer).spend(answer_size::estimate(&answer))?;
            Ok(Reply::Ended(Box::new(answer)))
        }
        other => {
            let state = other.map(|answer| answer.state);
            Err(Refusal::OperationNotFound { operation_id: id.clone(), state })
        }
    })
}

/// Rolls an open decision back, because an operator has released one of its parts.
pub(crate) fn force(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    id: &Name,
    max_answer: usize,
) {
    if let Some(position) = decisions.by_id.get(id).copied() {
        let ending = Ending::Rollback { is_forced: true };
        end(decisions, families, turn, position, ending, turn.now, max_answer);
    }
}

/// Ends an open decision because its ttl has passed. `due` is when that was.
pub(crate) fn expire(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    position: Position,
    due: Time,
    max_answer: usize,
) {
    let Some(id) = decisions.open.get(&position).map(|open| open.id().clone()) else { return };
    let answer = end(decisions, families, turn, position, Ending::Expiry, due, max_answer);
    let (namespace, position) = (turn.head.name.clone(), answer.position.unwrap_or(position));
    turn.effect(Effect::OperationExpired { namespace, operation_id: id, position });
}

/// Ends all parts, at one position, as of `at`.
fn end(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    position: Position,
    ending: Ending,
    at: Time,
    max_answer: usize,
) -> Decision {
    let now = core::mem::replace(&mut turn.now, at);
    let open = decisions.remove(turn, position).expect("the decision is open");
    let Open { request, made_at, holds, .. } = &open;
    let ended_at = match holds.is_empty() {
        true => turn.advance(),
        false => {
            let (holds, end) = (holds.clone(), ending.of_holds());
            ledger::parts::end(families.ledger, turn, open.id(), position, holds, end)
        }
    };
    ledger::parts::free(families.ledger, open.id());
    // Waiting decisions whose locks are free now come before those that only wait for slots, if they arrived earlier.
    locks::parts::end(families.locks, position);
    waiting::enter_queues(decisions, families);
    end_checks(families, turn, &open, &ending);
    let event = end_event(families, turn, &open, &ending, ended_at);
    // An ending is never refused. If its answer would be too large, the limits are left out.
    let mut budget = AnswerBudget::new(max_answer);
    let limits = limiter::parts::look(families.limiter, at, &takes(request), &mut budget).unwrap_or_default();
    let answer = Decision {
        operation_id: open.id().clone(),
        state: ending.state(),
        repeated: false,
        late: false,
        owner: request.owner().cloned(),
        position: Some(ended_at),
        fencing_token: Some(position),
        ttl: request.ttl(),
        made_at: *made_at,
        expires_at: None,
        limits: named(request, limits),
        values: ledger::parts::values(families.ledger, holds),
        locks: request.parts().locks.clone(),
        event,
        now: at,
    };
    let was_forced = matches!(ending, Ending::Rollback { is_forced: true });
    let amounts = match ending {
        Ending::Commit(amounts) => Some(amounts),
        Ending::Rollback { .. } | Ending::Expiry => None,
    };
    let Open { request, taken, .. } = open;
    let ended = Ended { answer: answer.clone(), ended_at: at, request, taken, amounts, was_forced };
    ended::remember(decisions, turn, &ended);
    turn.now = now;
    answer
}

/// Settles what the checks took from windows, and gives back what their leases hold.
fn end_checks(families: &mut Families<'_>, turn: &mut Turn<'_>, open: &Open, ending: &Ending) {
    for (place, taken) in open.taken.iter().enumerate() {
        let hits = open.request.parts().checks[place].hits;
        let actual = ending.amounts().map_or(0, |amounts| amounts.checks[place]);
        limiter::parts::settle(families.limiter, turn, &taken.windows, hits, actual);
    }
    for lease in &open.leases {
        limiter::parts::end(families.limiter, turn, lease);
    }
}

fn end_event(
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    open: &Open,
    ending: &Ending,
    ended_at: Position,
) -> Option<EventPart> {
    let (stream, info) = open.event.as_ref()?;
    let state = match ending {
        Ending::Commit(_) => events::parts::commit(families.events, turn, *stream, open.position, ended_at),
        Ending::Rollback { .. } | Ending::Expiry => {
            events::parts::roll_back(families.events, turn, *stream, open.position)
        }
    };
    Some(open.event_part(info, state?))
}
