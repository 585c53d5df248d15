//! The answers of the locks family.

use super::{
    super::{
        json::json,
        problem::{Code, Failure},
    },
    common::{part_of_operation, quota_exceeded},
};
use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use limina_api::{Page, locks::Granted};
use limina_engine::locks::{Blocked, Refusal, Reply};
use serde_json::Value;

pub(super) fn answer(result: Result<Reply, Refusal>) -> Result<Response, Failure> {
    let done = StatusCode::OK;
    Ok(match result.map_err(refusal)? {
        Reply::Granted { grant, session } => json(done, &Granted::new(grant, session)),
        Reply::Extended(grant) | Reply::Grant(grant) => json(done, &grant),
        Reply::Grants(listed) => json(done, &Page::from(listed)),
        Reply::Released | Reply::Abandoned => StatusCode::NO_CONTENT.into_response(),
    })
}

fn refusal(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::LockHeld(blocked) => blocked_by(Code::LockHeld, held_or_awaited(&blocked), &blocked),
        Refusal::LockWaitTimeout(blocked) => {
            blocked_by(Code::LockWaitTimeout, "The lock was not free in time.", &blocked)
        }
        Refusal::LockNotFound { lock_id } => {
            Failure::new(Code::LockNotFound, format!("The lock {lock_id:?} is not held, or no longer."))
                .with("lock_id", lock_id.as_str())
        }
        Refusal::SessionMismatch { lock_id } => {
            Failure::new(Code::SessionMismatch, format!("The lock {lock_id:?} is held by another session."))
                .with("lock_id", lock_id.as_str())
        }
        Refusal::PartOfOperation { lock_id, operation_id } => {
            part_of_operation(&operation_id).with("lock_id", lock_id.as_str())
        }
        Refusal::QuotaExceeded(exceeded) => quota_exceeded(exceeded),
    }
}

fn held_or_awaited(blocked: &Blocked) -> &'static str {
    match blocked.holder {
        Some(_) => "The lock is held.",
        None => "An earlier request waits for the lock.",
    }
}

/// Adds the first lock that could not be granted, its holder, and the number of requests that wait for it.
fn blocked_by(code: Code, detail: &str, blocked: &Blocked) -> Failure {
    let lock = serde_json::to_value(&blocked.key_values).unwrap_or(Value::Null);
    let failure = Failure::new(code, detail).with("key_values", lock).with("waiting", blocked.waiting);
    match &blocked.holder {
        None => failure,
        Some(holder) => failure
            .with("lock_id", holder.lock_id.as_str())
            .with("owner", holder.owner.as_ref().map(|owner| owner.as_str()))
            .with("expires_in_ms", holder.expires_in.0),
    }
}
