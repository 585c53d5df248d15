//! Leases.

use super::{
    super::{
        App,
        extract::{Call, Changing, LeaseId, Namespace, NoQuery, Paging, Unparsed},
        from_wire::limiter as from_wire,
    },
    Answer, list, submit,
};
use axum::extract::State;
use limina_engine::{
    Name,
    limiter::{Command, LeaseInfo},
};
use limina_node::draw_id;
use limina_wire::{Page, Problem, limiter as wire};

/// Check, and hold what was taken until it is released or its time has run out.
#[utoipa::path(
    post, path = "/v1/limiter/leases", tag = "limiter",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewLease<'_>,
    responses(
        (status = 201, description = "It is taken.", body = wire::LeaseReply<'_>, headers(("RateLimit-Policy" = String, description = "The tightest enforced limits, at most 8."), ("RateLimit" = String, description = "What is left of them."))),
        (status = 429, description = "`LimitReached`: nothing was taken", body = wire::LimitReached<'_>, content_type = "application/problem+json", headers(("RateLimit-Policy" = String, description = "The tightest enforced limits, at most 8."), ("Retry-After" = u64, description = "Seconds after which the same would pass, where that is known."), ("RateLimit" = String, description = "What is left of them."))),
    ),
)]
pub(in crate::http) async fn take_lease(State(app): State<App>, call: Call<Unparsed<Changing>>) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let lease = from_wire::new_lease(draw_id()?, body.json()?)?;
    submit(app, namespace, idempotency, Command::TakeLease(lease)).await
}

/// List the leases, by id: who holds what, since when, until when.
#[utoipa::path(
    get, path = "/v1/limiter/leases", tag = "limiter",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses(
        (status = 200, description = "A page.", body = Page<wire::Lease<'_>>),
    ),
)]
pub(in crate::http) async fn list_leases(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    Paging(page): Paging<Name>,
) -> Answer {
    list::<LeaseInfo>(app, namespace, page, Command::ListLeases).await
}

/// Read a lease.
#[utoipa::path(
    get, path = "/v1/limiter/leases/{lease_id}", tag = "limiter",
    params(("lease_id" = String, Path)),
    responses(
        (status = 200, description = "The lease.", body = wire::Lease<'_>),
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

/// Release a lease: give back what it holds.
#[utoipa::path(
    delete, path = "/v1/limiter/leases/{lease_id}", tag = "limiter",
    params(("lease_id" = String, Path)),
    responses(
        (status = 204, description = "It is gone."),
        (status = 404, description = "`LeaseNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn release_lease(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LeaseId(id): LeaseId,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::ReleaseLease(id)).await
}

/// Hold a lease for its ttl from now on.
#[utoipa::path(
    post, path = "/v1/limiter/leases/{lease_id}/heartbeat", tag = "limiter",
    params(("lease_id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = Option<wire::Heartbeat>,
    responses(
        (status = 200, description = "The lease afterwards.", body = wire::Lease<'_>),
        (status = 404, description = "`LeaseNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn extend_lease(
    State(app): State<App>,
    LeaseId(id): LeaseId,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let wire::Heartbeat {} = body.json()?;
    submit(app, namespace, idempotency, Command::ExtendLease(id)).await
}
