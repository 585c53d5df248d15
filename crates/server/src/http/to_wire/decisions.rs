//! The replies of decisions, and the problem document of a refused one.

use super::{
    super::{problem::Code, status},
    borrowed, in_request_order, span,
};
use limina_api::{
    Page, Problem,
    decisions::{
        CheckOfDecision, Decision, DecisionBatchReply, DecisionResult, EventOfDecision, EventStatus, HeldBy,
        LimitOfDecision, Part, Refused, RefusedEvent, RefusedHold, RefusedLimit, RefusedLock,
    },
};
use limina_engine::{
    Listed, Millis, Position,
    decisions::{self, HoldOfDecision, Refusal, Reply},
    events::{EventPart, EventState, RefusedEvent as EngineRefusedEvent},
    ledger::RefusedHold as EngineRefusedHold,
    limiter::{self, LimitOfCheck},
    locks,
};
use std::borrow::Cow;

pub(crate) fn decision(decision: &decisions::Decision) -> Decision<'_> {
    let limit = |limit| LimitOfDecision { check: check(limit), status: limit.status.status.clone() };
    Decision {
        status: None,
        operation_id: borrowed(&decision.operation_id),
        state: decision.state,
        repeated: decision.repeated,
        late: decision.late,
        owner: decision.owner.as_ref().map(borrowed),
        position: decision.position.map(|position| position.0),
        fencing_token: decision.fencing_token.map(|position| position.0),
        held_ms: span(decision.made_at, decision.now),
        expires_in_ms: decision.expires_at.map(|time| span(decision.now, time)),
        ttl_ms: decision.ttl.0,
        limits: decision.limits.iter().map(limit).collect(),
        values: decision.values.clone(),
        locks: decision.locks.clone(),
        event: decision.event.as_ref().map(event),
    }
}

pub(crate) fn page(listed: &Listed<decisions::Decision, Position>) -> Page<Decision<'_>> {
    let next = listed.next.map(|Position(position)| position.to_string());
    Page { items: listed.items.iter().map(decision).collect(), next }
}

/// The problem document of a refused decision. It contains only the limits that refuse.
pub(crate) fn refused(refused: &decisions::Refused, status: u16) -> Refused<'_> {
    let limits: Vec<_> = refused.limits.iter().filter(|limit| limit.refuses).map(refused_limit).collect();
    let holds: Vec<_> = refused.holds.iter().map(refused_hold).collect();
    let locks: Vec<_> = refused.locks.iter().map(refused_lock).collect();
    let event = refused.event.as_ref().map(refused_event);
    let parts = [
        (Part::Limits, "limits", !limits.is_empty()),
        (Part::Holds, "holds", !holds.is_empty()),
        (Part::Locks, "locks", !locks.is_empty()),
        (Part::Event, "the event", event.is_some()),
    ];
    let refusing = || parts.iter().filter(|(_, _, refuses)| *refuses);
    let words: Vec<&str> = refusing().map(|(_, word, _)| *word).collect();
    Refused {
        kind: Cow::Owned(format!("/docs#{}", Code::Refused.word())),
        title: Cow::Borrowed(Code::Refused.title()),
        status,
        detail: format!("The decision is refused by {}. Nothing was done.", words.join(", ")),
        code: Cow::Borrowed(Code::Refused.word()),
        request_id: None,
        refused_by: refusing().map(|(part, ..)| *part).collect(),
        limits,
        holds,
        locks,
        event,
        retry_after_ms: refused.retry_after.map(|span| span.0),
    }
}

/// The results of a batch. `problems` belong to the items that were not valid and so were not submitted.
pub(crate) fn batch(
    results: &[Result<Reply, Refusal>],
    problems: Vec<(usize, Problem)>,
) -> DecisionBatchReply<'_> {
    let results = results.iter().map(result);
    DecisionBatchReply { results: in_request_order(results, problems, DecisionResult::Problem) }
}

fn result(result: &Result<Reply, Refusal>) -> DecisionResult<'_> {
    match result {
        Ok(Reply::Decided(done) | Reply::Ended(done) | Reply::Extended(done) | Reply::Decision(done)) => {
            DecisionResult::Done(Decision { status: Some(200), ..decision(done) })
        }
        // No item of a batch asks for these, so this is the answer of a node of another version.
        Ok(Reply::Decisions(_) | Reply::Batch(_) | Reply::Abandoned) => DecisionResult::Problem(
            status::unavailable(limina_node::Unavailable::OutcomeUnknown).into_problem(),
        ),
        Err(Refusal::Refused(found)) => {
            DecisionResult::Refused(refused(found, status::decisions::refused_status(found).as_u16()))
        }
        Err(refusal) => DecisionResult::Problem(status::decisions::refusal(refusal).into_problem()),
    }
}

fn check(limit: &LimitOfCheck) -> CheckOfDecision<'_> {
    match &limit.check {
        Some(name) => CheckOfDecision::Name(borrowed(name)),
        None => CheckOfDecision::Place(limit.status.entry),
    }
}

fn event(part: &EventPart) -> EventOfDecision<'_> {
    EventOfDecision {
        stream: borrowed(&part.stream),
        event: Cow::Borrowed(&part.event.event),
        status: match part.state {
            EventState::Submitted => EventStatus::Submitted,
            EventState::Published => EventStatus::Published,
            EventState::Invalidated => EventStatus::Invalidated,
        },
        time: part.event.time.0,
        publishes_at: part.event.publishes_at.0,
    }
}

fn refused_limit(limit: &LimitOfCheck) -> RefusedLimit<'_> {
    RefusedLimit {
        code: Cow::Borrowed(Code::LimitReached.word()),
        check: check(limit),
        status: limit.status.status.clone(),
        held_by: explained(&limit.held_by),
    }
}

fn refused_hold(hold: &HoldOfDecision) -> RefusedHold<'_> {
    match &hold.refused {
        EngineRefusedHold::LimitExceeded(limit) => RefusedHold {
            code: Cow::Borrowed(Code::LimitExceeded.word()),
            limit_name: borrowed(&limit.limit_name),
            ceiling: Some(limit.ceiling),
            commit_value: limit.commit_value,
            hold_value: limit.hold_value,
            available: limit.available,
            held_by: explained(&hold.held_by),
        },
        EngineRefusedHold::ValueOverflow { limit_name, ceiling, commit_value, hold_value, available } => {
            RefusedHold {
                code: Cow::Borrowed(Code::ValueOverflow.word()),
                limit_name: borrowed(limit_name),
                ceiling: *ceiling,
                commit_value: *commit_value,
                hold_value: *hold_value,
                available: *available,
                held_by: None,
            }
        }
    }
}

/// `None` if nobody was found, or the request wants no explanation.
fn explained(held_by: &[limiter::HeldBy]) -> Option<Vec<HeldBy<'_>>> {
    let holders = held_by.iter().map(|holder| HeldBy {
        operation_id: holder.operation_id.as_ref().map(borrowed),
        lease_id: holder.lease_id.as_ref().map(borrowed),
        owner: holder.owner.as_ref().map(borrowed),
        held_ms: holder.held.0,
        expires_in_ms: holder.expires_in.0,
    });
    (!held_by.is_empty()).then(|| holders.collect())
}

fn refused_lock(lock: &locks::RefusedLock) -> RefusedLock<'_> {
    let millis = |span: Option<Millis>| span.map(|span| span.0);
    RefusedLock {
        code: Cow::Borrowed(Code::LockHeld.word()),
        key_values: lock.key_values.clone(),
        mode: lock.mode,
        owner: lock.owner.as_ref().map(borrowed),
        held_ms: millis(lock.held),
        expires_in_ms: millis(lock.expires_in),
        waiting: lock.waiting,
    }
}

fn refused_event(event: &EngineRefusedEvent) -> RefusedEvent {
    match event {
        EngineRefusedEvent::EventConflict { conflicting_time, open_at } => RefusedEvent {
            code: Cow::Borrowed(Code::EventConflict.word()),
            conflicting_time: Some(conflicting_time.0),
            open_at: open_at.map(|time| time.0),
            max_events: None,
        },
        EngineRefusedEvent::StreamFull { max_events } => RefusedEvent {
            code: Cow::Borrowed(Code::StreamFull.word()),
            conflicting_time: None,
            open_at: None,
            max_events: Some(*max_events),
        },
    }
}
