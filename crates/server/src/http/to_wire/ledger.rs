//! The ledger's replies.

use super::{super::status, in_request_order, text};
use limina_engine::{
    Time,
    ledger::{self, EntryKind, HoldState, Refusal, Reply},
};
use limina_wire::{
    Page, Problem,
    ledger::{
        BatchReply, BatchResult, Done, Entry, EntryType, FinalizationReply, HoldReply, Limit, LimitValue,
        Operation, OperationHold, State, ValuesReply,
    },
};
use serde::Serialize;

/// The body of a successful reply of the ledger.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Body {
    Limit(Limit),
    Limits(Page<Limit>),
    Hold(HoldReply),
    Finalization(FinalizationReply),
    Batch(BatchReply<Body>),
    Values(ValuesReply),
    Operation(Operation),
    Operations(Page<Operation>),
    Entries(Page<Entry>),
    /// The answer has no body.
    Nothing,
}

pub(crate) fn body(reply: Reply) -> Body {
    match reply {
        Reply::Limit(info) => Body::Limit(limit(info)),
        Reply::Limits { items, more } => {
            let next = items.last().filter(|_| more).map(|info| text(&info.value.limit_name));
            Body::Limits(Page { items: items.into_iter().map(limit).collect(), next })
        }
        Reply::Hold(reply) => Body::Hold(HoldReply {
            operation_id: text(&reply.operation_id),
            position: reply.position.0,
            values: reply.values.iter().map(value).collect(),
            skipped: reply.skipped.iter().map(text).collect(),
        }),
        Reply::Finalization(reply) => Body::Finalization(FinalizationReply {
            operation_id: text(&reply.operation_id),
            position: reply.position.0,
            values: reply.values.iter().map(value).collect(),
        }),
        Reply::Batch(results) => {
            Body::Batch(BatchReply { results: results.into_iter().map(batch_result).collect() })
        }
        Reply::Values(reply) => Body::Values(ValuesReply {
            position: reply.position.0,
            values: reply.values.iter().map(value).collect(),
        }),
        Reply::Operation(info) => Body::Operation(operation(info)),
        Reply::Operations(listed) => Body::Operations(Page {
            items: listed.items.into_iter().map(operation).collect(),
            next: listed.next.as_ref().map(text),
        }),
        // The list ends here: limits that are farther from their ceilings are not shown.
        Reply::LimitsByUse(listed) => {
            Body::Limits(Page { items: listed.items.into_iter().map(limit).collect(), next: None })
        }
        Reply::LimitDeleted => Body::Nothing,
        Reply::Entries { items, next } => Body::Entries(Page {
            items: items.into_iter().map(entry).collect(),
            next: next.map(|position| position.0.to_string()),
        }),
    }
}

/// The results of a batch. `problems` belong to the items that were not valid and so were not submitted.
pub(crate) fn merged_batch(
    results: Vec<Result<Reply, Refusal>>,
    problems: Vec<(usize, Problem)>,
) -> BatchReply<Body> {
    BatchReply {
        results: in_request_order(results.into_iter().map(batch_result), problems, BatchResult::Refused),
    }
}

fn batch_result(result: Result<Reply, Refusal>) -> BatchResult<Body> {
    match result {
        Ok(reply) => BatchResult::Done(Done { status: 200, body: body(reply) }),
        Err(refusal) => BatchResult::Refused(status::ledger::refusal(refusal).into_problem()),
    }
}

pub(crate) fn limit(info: ledger::LimitInfo) -> Limit {
    Limit {
        name: text(&info.value.limit_name),
        limit_id: info.value.limit_id.as_ref().map(text),
        ceiling: info.ceiling,
        commit_value: info.value.commit_value,
        hold_value: info.value.hold_value,
        total_value: info.value.total_value(),
        available: info.available,
        created_position: info.created_at.0,
        context: info
            .context
            .into_iter()
            .map(|(key, value)| (key.into_string(), value.into_string()))
            .collect(),
    }
}

pub(super) fn value(value: &ledger::Value) -> LimitValue {
    LimitValue {
        limit_name: text(&value.limit_name),
        limit_id: value.limit_id.as_ref().map(text),
        commit_value: value.commit_value,
        hold_value: value.hold_value,
        total_value: value.total_value(),
    }
}

fn operation(info: ledger::OperationInfo) -> Operation {
    let holds: Vec<OperationHold> = info.holds.iter().map(|hold| operation_hold(hold, info.now)).collect();
    let any = |state| holds.iter().any(|hold| hold.state == state);
    let state = if any(State::Held) {
        State::Held
    } else if any(State::Committed) {
        State::Committed
    } else {
        State::RolledBack
    };
    Operation { operation_id: text(&info.operation_id), position: info.position.0, state, holds }
}

fn operation_hold(hold: &ledger::HeldLimitInfo, now: Time) -> OperationHold {
    let (state, committed_value, final_position, expired) = match hold.state {
        HoldState::Held => (State::Held, None, None, false),
        HoldState::Committed { value, at } => (State::Committed, Some(value), Some(at.0), false),
        HoldState::RolledBack { at, expired } => (State::RolledBack, None, Some(at.0), expired),
    };
    OperationHold {
        limit_name: text(&hold.limit_name),
        limit_id: hold.limit_id.as_ref().map(text),
        deleted: hold.is_deleted,
        state,
        held_value: hold.value,
        committed_value,
        held_at: hold.held_at.0,
        hold_position: hold.position.0,
        final_position,
        expires_at: hold.expires_at.map(|time| time.0),
        expires_in_ms: hold
            .expires_at
            .filter(|_| state == State::Held)
            .map(|time| time.0.saturating_sub(now.0)),
        expired,
    }
}

fn entry(info: ledger::EntryInfo) -> Entry {
    let kind = match info.kind {
        EntryKind::Hold => EntryType::Hold,
        EntryKind::Commit => EntryType::Commit,
        EntryKind::Rollback => EntryType::Rollback,
        EntryKind::Expiry => EntryType::Expiry,
        EntryKind::Overage => EntryType::Overage,
    };
    Entry {
        position: info.position.0,
        time: info.time.0,
        operation_id: text(&info.operation_id),
        kind,
        value: info.value,
        commit_value: info.commit_value,
        hold_value: info.hold_value,
        total_value: info.commit_value + info.hold_value,
    }
}
