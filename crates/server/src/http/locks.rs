//! The calls of the locks family.

use super::{
    App,
    extract::{Call, LockId, Namespace, NoQuery, Paging, ReleaseQuery, Searching, Unparsed},
    forced::require_decisions,
    lists::list,
    problem::{Code, Failure},
    route::{Route, delete, get, post},
    socket::ClientConnection,
    status,
};
use crate::access::Scope;
use axum::{extract::State, http::StatusCode, response::Response};
use limina_access::{
    Level::{Read, Use},
    Resource,
};
use limina_api::Heartbeat;
#[cfg(feature = "openapi")]
use limina_api::{Page, Problem, locks as wire};
use limina_engine::{
    self as engine, Idempotency, Outcome, Position,
    locks::{Acquire, Command, GrantInfo, LockRequest, Reply},
    selection::Query,
};
use limina_node::{Unavailable, draw_id};

pub(in crate::http) fn routes() -> Vec<Route> {
    vec![
        ("", "acquire_lock", post(Use, acquire)),
        ("", "list_locks", get(Read, list_locks)),
        ("/query", "query_locks", post(Read, query_locks)),
        ("/query", "get_lock", get(Read, get_lock)),
        ("/query", "release_lock", delete(Use, release)),
        ("/{lock_id}", "get_lock", get(Read, get_lock)),
        ("/{lock_id}", "release_lock", delete(Use, release)),
        ("/{lock_id}/heartbeat", "heartbeat_lock", post(Use, heartbeat)),
    ]
}

/// Paths in which a name is empty, with the parameter that names it.
pub(in crate::http) const EMPTY_NAMES: &[(&str, &str)] = &[("/", "lock_id"), ("//heartbeat", "lock_id")];

type Answer = Result<Response, Failure>;

async fn submit(app: App, namespace: Scope, idempotency: Option<Idempotency>, command: Command) -> Answer {
    app.submit(namespace, idempotency, engine::Command::Locks(command), StatusCode::OK).await
}

/// Acquire a lock, or several at once.
///
/// With a `wait`, the request waits until all locks are free. If the client hangs up, the request is abandoned.
#[utoipa::path(
    post, path = "/v1/locks", tag = "locks",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewLock,
    responses(
        (status = 200, description = "All requested locks are held.", body = wire::Granted),
        (status = 409, description = "`LockHeld`: a lock is not free, and the request has no `wait`. `LockWaitTimeout`: a lock was not free within `wait`.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn acquire(
    State(app): State<App>,
    client: ClientConnection,
    call: Call<Acquire>,
) -> Answer {
    let Call { namespace, idempotency, body: wanted } = call;
    let waits = wanted.wait().0 > 0;
    let id = draw_id()?;
    let command = Command::Acquire(LockRequest { id: id.clone(), session: draw_id()?, wanted });
    let _permit = if waits { namespace.identity.take(Resource::Waits)? } else { None };
    let outcome = tokio::select! {
        biased;
        outcome = app.ask(namespace.clone(), idempotency, engine::Command::Locks(command)) => outcome,
        denial = namespace.identity.until_denied([namespace.need(Use)]), if waits => return Err(denial),
        // Dropping the future of `ask` makes the service abandon the request.
        () = client.hung_up() => return Err(hung_up()),
    };
    let may_be_held = match &outcome {
        Ok(Outcome::Locks(Ok(Reply::Granted { .. }))) | Err(Unavailable::OutcomeUnknown) => true,
        Ok(_) | Err(_) => false,
    };
    // The runtime may learn of the grant before it learns that the client has hung up, so ask the kernel.
    if may_be_held && client.has_hung_up() {
        // In a task of its own: the connection ends as soon as the runtime learns of the hang-up, and this call with it.
        let abandon = tokio::spawn(submit(app, namespace, None, Command::Abandon(id)));
        let _nobody_to_tell = abandon.await;
        return Err(hung_up());
    }
    status::answer(outcome, StatusCode::OK)
}

/// The answer to a client that has closed only its sending side and still reads.
pub(in crate::http) fn hung_up() -> Failure {
    Failure::new(
        Code::ClientHungUp,
        "The client closed its side of the connection before the answer. It holds nothing.",
    )
    .closing()
}

/// Extend a lock: hold it for its whole ttl from now on.
#[utoipa::path(
    post, path = "/v1/locks/{lock_id}/heartbeat", tag = "locks",
    params(("lock_id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = Heartbeat,
    responses(
        (status = 200, description = "The lock, extended.", body = GrantInfo),
        (status = 404, description = "`LockNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`SessionMismatch`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn heartbeat(
    State(app): State<App>,
    LockId(id): LockId,
    call: Call<Heartbeat>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    submit(app, namespace, idempotency, Command::Heartbeat { id, session: body.session_id }).await
}

/// Release a lock.
///
/// The holder sends its `session_id`. An operator sends `force=true` instead.
#[utoipa::path(
    delete, path = "/v1/locks/{lock_id}", tag = "locks",
    params(("lock_id" = String, Path), ("session_id" = Option<String>, Query), ("force" = Option<bool>, Query)),
    responses(
        (status = 204, description = "The lock is released."),
        (status = 404, description = "`LockNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`SessionMismatch`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn release(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LockId(id): LockId,
    ReleaseQuery(session): ReleaseQuery,
) -> Answer {
    if session.is_none() {
        let get = engine::Command::Locks(Command::Get(id.clone()));
        require_decisions(&app, &namespace, get).await?;
    }
    submit(app, namespace, None, Command::Release { id, session }).await
}

/// Read a lock that is held.
#[utoipa::path(
    get, path = "/v1/locks/{lock_id}", tag = "locks",
    params(("lock_id" = String, Path)),
    responses(
        (status = 200, description = "The lock.", body = GrantInfo),
        (status = 404, description = "`LockNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn get_lock(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LockId(id): LockId,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::Get(id)).await
}

/// List the locks that are held, the longest held first.
#[utoipa::path(
    get, path = "/v1/locks", tag = "locks",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses(
        (status = 200, description = "One page of the list.", body = Page<GrantInfo>),
    ),
)]
pub(in crate::http) async fn list_locks(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    Paging(page): Paging<Position>,
) -> Answer {
    search(app, namespace, page, Query::default()).await
}

/// Find the locks that are held by their key-values.
///
/// If several locks are held together, it is enough that one of them matches.
#[utoipa::path(
    post, path = "/v1/locks/query", tag = "locks",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    request_body = Query,
    responses(
        (status = 200, description = "One page of the matching locks, the longest held first.", body = Page<GrantInfo>),
    ),
)]
pub(in crate::http) async fn query_locks(
    State(app): State<App>,
    Paging(page): Paging<Position>,
    call: Call<Unparsed<Searching>>,
) -> Answer {
    let query = call.body.json()?;
    search(app, call.namespace, page, query).await
}

async fn search(app: App, namespace: Scope, page: engine::Page<Position>, query: Query) -> Answer {
    let command = |page| engine::Command::Locks(Command::List { query: query.clone(), page });
    list::<GrantInfo>(app, namespace, page, command).await
}
