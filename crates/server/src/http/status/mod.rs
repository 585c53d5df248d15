//! Maps outcomes to HTTP statuses and problem documents. No other module does. The matches have no catch-all arm, so a new
//! outcome of the engine does not compile until it has a line here.

pub(crate) mod decisions;
pub(crate) mod envoy;
pub(crate) mod events;
pub(crate) mod ledger;
pub(crate) mod liminator;
pub(crate) mod limiter;
mod locks;

use super::{
    json,
    problem::{Code, Failure},
    to_wire,
};
use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use limina_engine::{Name, Outcome, Quota, QuotaExceeded, ledger::Reply};
use limina_node::Unavailable;
use limina_wire::Page;

/// The answer to a request. `success` is the status of a successful reply of the ledger, and of a list of namespaces; the other
/// families choose the status by the reply.
pub(crate) fn answer(result: Result<Outcome, Unavailable>, success: StatusCode) -> Result<Response, Failure> {
    match result.map_err(unavailable)? {
        Outcome::Ledger(Ok(Reply::LimitDeleted)) => Ok(StatusCode::NO_CONTENT.into_response()),
        Outcome::Ledger(Ok(reply)) => Ok(json(success, &to_wire::ledger::body(reply))),
        Outcome::Ledger(Err(refusal)) => Err(ledger::refusal(refusal)),
        Outcome::Limiter(result) => limiter::answer(result),
        Outcome::Locks(result) => locks::answer(result),
        Outcome::Events(result) => events::answer(result),
        Outcome::Decisions(result) => decisions::answer(result),
        Outcome::NamespaceDeleted => Ok(StatusCode::NO_CONTENT.into_response()),
        Outcome::NamespaceNotFound => {
            Err(Failure::new(Code::NamespaceNotFound, "The namespace does not exist."))
        }
        Outcome::Namespaces(items) => {
            let items = items.into_iter().map(to_wire::namespace).collect();
            Ok(json(success, &Page { items, next: None }))
        }
        // Only the calls of the audit ask for it, and they show it themselves.
        Outcome::Audit(_) => Err(unreadable()),
        Outcome::IdempotencyKeyReused => Err(Failure::new(
            Code::IdempotencyKeyReused,
            "The Idempotency-Key was used before with another method, path or body.",
        )),
        Outcome::IdempotencyKeyInUse => Err(Failure::new(
            Code::IdempotencyKeyInUse,
            "The first request with this Idempotency-Key is not answered yet.",
        )),
        Outcome::TooManyWaiting => Err(Failure::new(
            Code::Overloaded,
            "Too many requests of this kind wait in this namespace. Nothing was done.",
        )),
        Outcome::Unreadable => Err(unreadable()),
        Outcome::AnswerTooLarge { max_bytes } => Err(answer_too_large(max_bytes)),
    }
}

pub(crate) fn answer_too_large(max_bytes: u64) -> Failure {
    let detail = format!("The answer could have more than {max_bytes} bytes. Nothing was done.");
    Failure::new(Code::AnswerTooLarge, detail).with("max_bytes", max_bytes)
}

/// The answer to a request that has no outcome.
pub(crate) fn unavailable(reason: Unavailable) -> Failure {
    let (code, detail) = match reason {
        Unavailable::Overloaded { retry_after_ms } => {
            let detail = "The request would have to wait too long. Nothing was done.";
            return Failure::new(Code::Overloaded, detail).retry_after(retry_after_ms);
        }
        Unavailable::ShuttingDown => (Code::ShuttingDown, "The server is shutting down. Nothing was done."),
        Unavailable::StorageFull => {
            (Code::StorageFull, "The storage is full. Nothing was done. Reads still work.")
        }
        Unavailable::ShardUnavailable => {
            (Code::ShardUnavailable, "The namespace is temporarily unavailable. Nothing was done.")
        }
        Unavailable::OutcomeUnknown => (
            Code::OutcomeUnknown,
            "The request may have been executed. \
             Send it again with the same Idempotency-Key or operation id to find out.",
        ),
    };
    Failure::new(code, detail)
}

/// A part of an open decision cannot be changed alone.
pub(crate) fn part_of_operation(operation_id: &Name) -> Failure {
    let detail = format!("It is a part of the decision {operation_id:?}, which is open. Nothing was done.");
    Failure::new(Code::PartOfOperation, detail).with("operation_id", operation_id.as_str())
}

/// A namespace has its fill.
pub(crate) fn quota_exceeded(exceeded: QuotaExceeded) -> Failure {
    let QuotaExceeded { quota, limit, used } = exceeded;
    let detail =
        format!("The namespace may have {limit} {}, and has {used}. Nothing was done.", quota_noun(quota));
    Failure::new(Code::QuotaExceeded, detail)
        .with("quota", quota.name())
        .with("limit", limit)
        .with("used", used)
}

fn quota_noun(quota: Quota) -> &'static str {
    match quota {
        Quota::KeptReplies => "replies kept under idempotency keys",
        Quota::Rules => "rules",
        Quota::Overrides => "overrides",
        Quota::Groups => "groups of rules",
        Quota::Counters => "counters",
        Quota::Leases => "leases",
        Quota::LedgerLimits => "ledger limits",
        Quota::Streams => "streams",
        Quota::LocksHeld => "held locks",
        Quota::LocksWaiting => "requests that wait for locks",
        Quota::ResidentBytes => "bytes of memory",
    }
}

pub(crate) fn unreadable() -> Failure {
    Failure::new(Code::ShardUnavailable, "A stored record could not be read. Nothing was done.")
}
