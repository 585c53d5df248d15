//! The answers of decisions, and their refusals.

use super::{
    super::{
        json::json,
        problem::{Code, Failure},
        rate_limit, request_id,
        to_wire::decisions as to_wire,
    },
    common::{answer_too_large, quota_exceeded, unreadable},
    ledger::{self, about_limits, listed, no_such_limits},
};
use axum::{
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use limina_api::{decisions as wire, problem::MEDIA_TYPE};
use limina_engine::decisions::{Refusal, Refused, Reply, State};

pub(super) fn answer(result: Result<Reply, Refusal>) -> Result<Response, Failure> {
    let reply = match result {
        Ok(reply) => reply,
        Err(Refusal::Refused(refused)) => return Ok(self::refused(&refused)),
        Err(refusal) => return Err(self::refusal(&refusal)),
    };
    let done = StatusCode::OK;
    Ok(match &reply {
        Reply::Decided(decision) => {
            let mut response = json(done, &to_wire::decision(decision));
            let limits = decision.limits.iter().map(|limit| &limit.status);
            rate_limit::add_headers(response.headers_mut(), limits, None);
            response
        }
        Reply::Ended(decision) | Reply::Extended(decision) | Reply::Decision(decision) => {
            json(done, &to_wire::decision(decision))
        }
        Reply::Decisions(listed) => json(done, &to_wire::page(listed)),
        Reply::Abandoned => StatusCode::NO_CONTENT.into_response(),
        Reply::Batch(results) => json(done, &to_wire::batch(results, Vec::new())),
    })
}

/// 429 if a limit of the limiter refuses, because then the rate of the client is the problem.
pub(crate) fn refused_status(refused: &Refused) -> StatusCode {
    match refused.is_limited() {
        true => StatusCode::TOO_MANY_REQUESTS,
        false => Code::Refused.status(),
    }
}

fn refused(refused: &Refused) -> Response {
    let status = refused_status(refused);
    let problem = to_wire::refused(refused, status.as_u16());
    let mut response = json(status, &wire::Refused { request_id: request_id::current(), ..problem });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    rate_limit::add_headers(headers, refused.limits.iter().map(|limit| &limit.status), refused.retry_after);
    if let Some(after) = refused.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(rate_limit::seconds(after)));
    }
    response
}

pub(crate) fn refusal(refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::OperationReused { operation_id } => {
            let detail = format!("The id {operation_id:?} is that of another request. Nothing was done.");
            Failure::new(Code::OperationReused, detail).with("operation_id", operation_id.as_str())
        }
        Refusal::OperationWaits { operation_id } => {
            let detail = format!("Another request waits under the id {operation_id:?} in place of this one.");
            Failure::new(Code::OperationWaits, detail).with("operation_id", operation_id.as_str())
        }
        Refusal::OperationAlreadyInFinalState { operation_id, state, position } => {
            let detail = format!("The operation {operation_id:?} has ended. Nothing was done.");
            Failure::new(Code::OperationAlreadyInFinalState, detail)
                .with("operation_id", operation_id.as_str())
                .with("state", state.map(state_word))
                .with("position", position.map(|position| position.0))
        }
        Refusal::LimitNotFound { limit_names } => {
            about_limits(Code::LimitNotFound, no_such_limits(limit_names), limit_names)
        }
        Refusal::StreamNotFound { stream } => {
            Failure::new(Code::StreamNotFound, format!("The stream {stream:?} does not exist."))
                .with("stream", stream.as_str())
        }
        Refusal::NoRuleApplies { key_values: found } => {
            let given = serde_json::to_value(found).unwrap_or_default();
            let detail = "No rule applies to these key-values, and the check has `require_match`.";
            Failure::new(Code::NoRuleApplies, detail).with("key_values", given)
        }
        Refusal::OperationNotFound { operation_id, state } => {
            let id = operation_id.as_str();
            match state {
                None => {
                    let detail = format!("There is no decision {id:?}, or it is forgotten.");
                    Failure::new(Code::OperationNotFound, detail).with("operation_id", id)
                }
                Some(state) => {
                    let word = state_word(*state);
                    let detail = format!("The decision {id:?} cannot be changed so: it is {word}.");
                    Failure::new(Code::OperationNotFound, detail).with("operation_id", id).with("state", word)
                }
            }
        }
        Refusal::NotEstimated { check } => {
            let reason =
                format!("must not name {check:?}: the decision has no check with this name and `estimate`");
            Failure::invalid("checks", reason)
        }
        Refusal::NotHeld { limit_name } => Failure::invalid(
            "holds",
            format!("must not name {limit_name:?}: the decision does not hold in it"),
        ),
        Refusal::CommitExceedsHold { operation_id, limit_name, held, value } => {
            ledger::commit_exceeds_hold(operation_id, limit_name, *held, *value)
        }
        Refusal::ValueOverflow { limit_names } => about_limits(
            Code::ValueOverflow,
            format!("The value could exceed a 64-bit integer in {}.", listed(limit_names)),
            limit_names,
        ),
        Refusal::AnswerTooLarge { max_bytes } => answer_too_large(*max_bytes as u64),
        Refusal::Unreadable => unreadable(),
        Refusal::QuotaExceeded(exceeded) => quota_exceeded(*exceeded),
        // `answer` handles this refusal itself, with all parts.
        Refusal::Refused(_) => Failure::new(Code::Refused, "The decision is refused."),
    }
}

/// The word for a state in a problem document.
fn state_word(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Open => "open",
        State::Committed => "committed",
        State::RolledBack => "rolled_back",
        State::Expired => "expired",
    }
}
