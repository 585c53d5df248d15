//! Maps outcomes to HTTP statuses and problem documents. No other module does. The matches have no catch-all arm, so a new
//! outcome of the engine does not compile until it has a line here.

mod common;
pub(crate) mod decisions;
pub(crate) mod envoy;
pub(crate) mod events;
pub(crate) mod ledger;
pub(crate) mod liminator;
pub(crate) mod limiter;
mod locks;

pub(crate) use common::{quota_exceeded, unavailable, unreadable};

use super::{
    json::json,
    problem::{Code, Failure},
    to_wire,
};
use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use common::answer_too_large;
use limina_api::Page;
use limina_engine::{Outcome, ledger::Reply};
use limina_node::Unavailable;

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
