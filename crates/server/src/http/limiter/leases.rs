//! The calls for leases.

use super::{
    super::{
        App,
        extract::{Call, Changing, LeaseId, LeasesQuery, Namespace, NoQuery, ReleaseQuery, Unparsed},
        forced::require_decisions,
        from_wire::limiter as from_wire,
        locks::hung_up,
        socket::ClientConnection,
        status,
    },
    submit::{Answer, list, submit},
};
use axum::{extract::State, http::StatusCode};
use limina_access::{Level, Resource};
#[cfg(feature = "openapi")]
use limina_api::{Heartbeat, Page, Problem, limiter as wire};
use limina_engine::{
    self as engine, Outcome,
    limiter::{Command, Lease, Reply},
};
use limina_node::{Unavailable, draw_id};

/// Take a lease: check, and hold the hits until the lease is released or expires.
///
/// With a `wait`, the request waits while only limits without a window refuse it. If the client hangs up, the request is
/// abandoned.
#[utoipa::path(
    post, path = "/v1/limiter/leases", tag = "limiter",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewLease,
    responses(
        (status = 201, description = "The lease is granted.", body = wire::LeaseReply, headers(("RateLimit-Policy" = String, description = "Up to 8 enforced limits, the tightest first: quota `q` and window `w` in seconds; for a bucket also its `burst`."), ("RateLimit" = String, description = "What remains of these limits: `r`, and `t` seconds until they are reset."))),
        (status = 422, description = "`NoRuleApplies`: no rule applies, and the request has `require_match`.", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "`LimitReached`: a limit refuses, with a `wait` at its end. Nothing was taken.", body = wire::LimitReached, content_type = "application/problem+json", headers(("RateLimit-Policy" = String, description = "Up to 8 enforced limits, the tightest first: quota `q` and window `w` in seconds; for a bucket also its `burst`."), ("Retry-After" = u64, description = "The number of seconds after which the same request would pass. Absent if that is not known."), ("RateLimit" = String, description = "What remains of these limits: `r`, and `t` seconds until they are reset."))),
    ),
)]
pub(in crate::http) async fn take_lease(
    State(app): State<App>,
    client: ClientConnection,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let id = draw_id()?;
    let lease = from_wire::new_lease(id.clone(), draw_id()?, body.json()?)?;
    if lease.wait().0 == 0 {
        return submit(app, namespace, idempotency, Command::TakeLease(lease)).await;
    }
    let _permit = namespace.identity.take(Resource::Waits)?;
    let command = engine::Command::Limiter(Command::TakeLease(lease));
    let outcome = tokio::select! {
        biased;
        outcome = app.ask(namespace.clone(), idempotency, command) => outcome,
        denial = namespace.identity.until_denied([namespace.need(Level::Use)]) => return Err(denial),
        // Dropping the future of `ask` makes the service abandon the request.
        () = client.hung_up() => return Err(hung_up()),
    };
    let may_be_held = matches!(
        outcome,
        Ok(Outcome::Limiter(Ok(Reply::LeaseTaken { .. }))) | Err(Unavailable::OutcomeUnknown)
    );
    // The runtime may learn of the grant before it learns that the client has hung up, so ask the kernel.
    if may_be_held && client.has_hung_up() {
        // In a task of its own: the connection ends as soon as the runtime learns of the hang-up, and this call with it.
        let abandon = tokio::spawn(submit(app, namespace, None, Command::AbandonLease(id)));
        let _nobody_to_tell = abandon.await;
        return Err(hung_up());
    }
    status::answer(outcome, StatusCode::OK)
}

/// List the leases, ordered by id.
#[utoipa::path(
    get, path = "/v1/limiter/leases", tag = "limiter",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query), ("owner" = Option<String>, Query, description = "Only the leases of this owner.")),
    responses(
        (status = 200, description = "One page of the list.", body = Page<wire::Lease>),
    ),
)]
pub(in crate::http) async fn list_leases(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LeasesQuery { owner, page }: LeasesQuery,
) -> Answer {
    let command = |page| Command::ListLeases { owner: owner.clone(), page };
    list::<Lease>(app, namespace, page, command).await
}

/// Read a lease.
#[utoipa::path(
    get, path = "/v1/limiter/leases/{lease_id}", tag = "limiter",
    params(("lease_id" = String, Path)),
    responses(
        (status = 200, description = "The lease.", body = wire::Lease),
        (status = 404, description = "`LeaseNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn get_lease(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LeaseId(id): LeaseId,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::GetLease(id)).await
}

/// Release a lease: give back its hits.
///
/// The holder sends its `session_id`. An operator sends `force=true` instead.
#[utoipa::path(
    delete, path = "/v1/limiter/leases/{lease_id}", tag = "limiter",
    params(("lease_id" = String, Path), ("session_id" = Option<String>, Query), ("force" = Option<bool>, Query)),
    responses(
        (status = 204, description = "The lease is released."),
        (status = 404, description = "`LeaseNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`SessionMismatch`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn release_lease(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LeaseId(id): LeaseId,
    ReleaseQuery(session): ReleaseQuery,
) -> Answer {
    if session.is_none() {
        let get = engine::Command::Limiter(Command::GetLease(id.clone()));
        require_decisions(&app, &namespace, get).await?;
    }
    submit(app, namespace, None, Command::ReleaseLease { id, session }).await
}

/// Extend a lease: hold it for its whole ttl from now on.
#[utoipa::path(
    post, path = "/v1/limiter/leases/{lease_id}/heartbeat", tag = "limiter",
    params(("lease_id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = Heartbeat,
    responses(
        (status = 200, description = "The lease, extended.", body = wire::Lease),
        (status = 404, description = "`LeaseNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`SessionMismatch`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn extend_lease(
    State(app): State<App>,
    LeaseId(id): LeaseId,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    submit(app, namespace, idempotency, from_wire::extend_lease(id, body.json()?)?).await
}
