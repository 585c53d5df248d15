//! Which status and which problem an outcome has. The one place that says so, without a catch-all: an outcome that
//! is added to the engine does not compile before it has its line here.

pub(crate) mod events;
pub(crate) mod ledger;
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
use limina_engine::Outcome;
use limina_node::Unavailable;
use limina_wire::Page;

/// The answer to a request; `success` is the status of one that was done, where the outcome does not say it itself.
pub(crate) fn answer(result: Result<Outcome, Unavailable>, success: StatusCode) -> Result<Response, Failure> {
    match result.map_err(unavailable)? {
        Outcome::Ledger(Ok(reply)) => Ok(json(success, &to_wire::ledger::body(reply))),
        Outcome::Ledger(Err(refusal)) => Err(ledger::refusal(refusal)),
        Outcome::Limiter(result) => limiter::answer(result),
        Outcome::Locks(result) => locks::answer(result),
        Outcome::Events(result) => events::answer(result),
        Outcome::NamespaceDeleted => Ok(StatusCode::NO_CONTENT.into_response()),
        Outcome::NamespaceNotFound => {
            Err(Failure::new(Code::NamespaceNotFound, "there is no such namespace"))
        }
        Outcome::Namespaces(items) => {
            let items = items.into_iter().map(to_wire::namespace).collect();
            Ok(json(success, &Page { items, next: None }))
        }
        Outcome::IdempotencyKeyReused => Err(Failure::new(
            Code::IdempotencyKeyReused,
            "the Idempotency-Key was used with another method, path or body before",
        )),
        Outcome::IdempotencyKeyInUse => Err(Failure::new(
            Code::IdempotencyKeyInUse,
            "a request with this Idempotency-Key waits for its answer",
        )),
        Outcome::TooManyWaiting => Err(Failure::new(
            Code::Overloaded,
            "too many requests of this kind wait in this namespace; nothing was done",
        )),
        Outcome::Unreadable => Err(unreadable()),
        Outcome::AnswerTooLarge { max_bytes } => {
            let detail = format!("the answer could have more than {max_bytes} bytes; nothing was done");
            Err(Failure::new(Code::AnswerTooLarge, detail).with("max_bytes", max_bytes))
        }
    }
}

/// There is no outcome.
pub(crate) fn unavailable(reason: Unavailable) -> Failure {
    let code = match reason {
        Unavailable::Overloaded => Code::Overloaded,
        Unavailable::ShuttingDown => Code::ShuttingDown,
        Unavailable::StorageFull => Code::StorageFull,
        Unavailable::ShardUnavailable => Code::ShardUnavailable,
        Unavailable::OutcomeUnknown => Code::OutcomeUnknown,
    };
    Failure::new(code, reason.to_string())
}

fn unreadable() -> Failure {
    Failure::new(Code::ShardUnavailable, "a stored record could not be read; nothing was done")
}
