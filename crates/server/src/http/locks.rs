//! The calls about locks.

use super::{
    App, Route,
    extract::{Call, Changing, LockId, Namespace, NoQuery, Paging, ReleaseQuery, Searching, Unparsed},
    from_wire,
    lists::list,
    problem::{Code, Failure},
    socket::Peer,
    status,
};
use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::Response,
    routing::{delete, get, post},
};
use limina_engine::{
    self as engine, Idempotency, Name, Outcome, Position,
    locks::{Command, GrantInfo, Reply},
    selection::Query,
};
use limina_node::{Unavailable, draw_id};
use limina_wire::{Page, Problem, locks as wire, selection::Query as Search};

pub(in crate::http) fn routes() -> Vec<Route> {
    vec![
        ("", "acquire_lock", post(acquire)),
        ("", "list_locks", get(list_locks)),
        ("/query", "query_locks", post(query_locks)),
        ("/query", "get_lock", get(get_lock)),
        ("/query", "release_lock", delete(release)),
        ("/{lock_id}", "get_lock", get(get_lock)),
        ("/{lock_id}", "release_lock", delete(release)),
        ("/{lock_id}/heartbeat", "heartbeat_lock", post(heartbeat)),
    ]
}

/// Paths in which a name is empty, with the parameter that it is.
pub(in crate::http) const EMPTY_NAMES: &[(&str, &str)] = &[("/", "lock_id"), ("//heartbeat", "lock_id")];

type Answer = Result<Response, Failure>;

async fn submit(app: App, namespace: Name, idempotency: Option<Idempotency>, command: Command) -> Answer {
    app.submit(namespace, idempotency, engine::Command::Locks(command), StatusCode::OK).await
}

/// Hold a lock, or several at once; wait for them if asked to.
#[utoipa::path(
    post, path = "/v1/locks", tag = "locks",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewLock<'_>,
    responses(
        (status = 200, description = "All of it is held.", body = wire::Granted<'_>),
        (status = 409, description = "`LockHeld`: without a `wait`; `LockWaitTimeout`: not even after it", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn acquire(
    State(app): State<App>,
    Extension(peer): Extension<Peer>,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let id = draw_id()?;
    let command = from_wire::locks::acquire(id.clone(), draw_id()?, body.json()?)?;
    let outcome = tokio::select! {
        biased;
        outcome = app.ask(namespace.clone(), idempotency, engine::Command::Locks(command)) => outcome,
        // The service takes back a request that nobody waits for any more.
        () = peer.hung_up() => return Err(hung_up()),
    };
    let may_be_held =
        matches!(outcome, Ok(Outcome::Locks(Ok(Reply::Granted { .. }))) | Err(Unavailable::OutcomeUnknown));
    // The runtime may hear of the grant before it hears that the client has hung up, so the kernel is asked.
    if may_be_held && peer.is_gone() {
        let _nobody_to_tell = submit(app, namespace, None, Command::Abandon(id)).await;
        return Err(hung_up());
    }
    status::answer(outcome, StatusCode::OK)
}

/// For a client that has closed only its sending side and still reads.
fn hung_up() -> Failure {
    Failure::new(Code::ClientHungUp, "the client closed its side of the connection; nothing is held")
        .closing()
}

/// Hold a lock for its ttl from now on.
#[utoipa::path(
    post, path = "/v1/locks/{lock_id}/heartbeat", tag = "locks",
    params(("lock_id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::Heartbeat<'_>,
    responses(
        (status = 200, description = "The lock afterwards.", body = wire::Lock<'_>),
        (status = 404, description = "`LockNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`SessionMismatch`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn heartbeat(
    State(app): State<App>,
    LockId(id): LockId,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let command = from_wire::locks::heartbeat(id, &body.json()?)?;
    submit(app, namespace, idempotency, command).await
}

/// Release a lock: with its session, or by an operator's force.
#[utoipa::path(
    delete, path = "/v1/locks/{lock_id}", tag = "locks",
    params(("lock_id" = String, Path), ("session_id" = Option<String>, Query), ("force" = Option<bool>, Query)),
    responses(
        (status = 204, description = "It is free."),
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
    submit(app, namespace, None, Command::Release { id, session }).await
}

/// Read a lock that is held.
#[utoipa::path(
    get, path = "/v1/locks/{lock_id}", tag = "locks",
    params(("lock_id" = String, Path)),
    responses(
        (status = 200, description = "The lock.", body = wire::Lock<'_>),
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

/// List what is held, the longest held first.
#[utoipa::path(
    get, path = "/v1/locks", tag = "locks",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses(
        (status = 200, description = "A page.", body = Page<wire::Lock<'_>>),
    ),
)]
pub(in crate::http) async fn list_locks(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    Paging(page): Paging<Position>,
) -> Answer {
    search(app, namespace, page, Query::default()).await
}

/// Find what is held by the key-values of its locks, any of which may be meant.
#[utoipa::path(
    post, path = "/v1/locks/query", tag = "locks",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    request_body = Search<'_>,
    responses(
        (status = 200, description = "A page, the longest held first.", body = Page<wire::Lock<'_>>),
    ),
)]
pub(in crate::http) async fn query_locks(
    State(app): State<App>,
    Paging(page): Paging<Position>,
    call: Call<Unparsed<Searching>>,
) -> Answer {
    let query = from_wire::query(call.body.json()?)?;
    search(app, call.namespace, page, query).await
}

async fn search(app: App, namespace: Name, page: engine::Page<Position>, query: Query) -> Answer {
    let command = |page| engine::Command::Locks(Command::List { query: query.clone(), page });
    list::<GrantInfo>(app, namespace, page, command).await
}
