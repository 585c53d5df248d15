//! Forced releases of locks and leases. A release of a part of a decision rolls the whole decision back.

use super::{App, problem::Failure, status};
use crate::access::Scope;
use axum::http::StatusCode;
use limina_access::{Family, Level::Manage};
use limina_engine::{Command, Outcome, limiter, locks};

/// Fails with 403 if the lock or the lease that `get` reads is a part of a decision, and the client may not manage decisions.
///
/// Whether it is a part of a decision never changes, so it does not matter that the release is a request of its own.
pub(super) async fn require_decisions(app: &App, scope: &Scope, get: Command) -> Result<(), Failure> {
    let Err(forbidden) = scope.require_in(Family::Decisions, Manage) else { return Ok(()) };
    let is_part = match app.ask(scope.clone(), None, get).await {
        Ok(Outcome::Locks(Ok(locks::Reply::Grant(grant)))) => grant.operation_id.is_some(),
        Ok(Outcome::Limiter(Ok(limiter::Reply::Lease(lease)))) => lease.operation_id.is_some(),
        // It was not read, so it must not be released either.
        other => return status::answer(other, StatusCode::OK).map(|_| ()),
    };
    if is_part { Err(forbidden) } else { Ok(()) }
}
