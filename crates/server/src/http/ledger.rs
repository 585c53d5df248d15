//! The ledger's calls.

use super::{
    App,
    extract::{
        Call, Items, LimitName, LimitsQuery, Namespace, NoQuery, OperationId, OperationsQuery, Paging,
        RequestBody,
    },
    from_wire::{CheckedBatch, batch as checked_batch},
    json::{json, json_of_size},
    lists::{limits_by_use, list},
    problem::Failure,
    route::{Route, delete, get, patch, post},
    status,
    to_wire::ledger as to_wire,
};
use crate::access::Scope;
use axum::{extract::State, http::StatusCode, response::Response};
use limina_access::Level::{Manage, Read, Use};
use limina_api::ledger as wire;
#[cfg(feature = "openapi")]
use limina_api::{Page, Problem};
use limina_engine::{
    Command, Outcome, Position,
    ledger::{self, Finish, Operation, Reply, Transfer},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        ("/limits", "create_limit", post(Manage, create_limit)),
        ("/limits", "list_limits", get(Read, list_limits)),
        ("/limits/{name}", "get_limit", get(Read, get_limit)),
        ("/limits/{name}", "patch_limit", patch(Manage, patch_limit)),
        ("/limits/{name}", "delete_limit", delete(Manage, delete_limit)),
        ("/limits/{name}/entries", "list_entries", get(Read, list_entries)),
        ("/hold", "hold", post(Use, hold)),
        ("/hold/batch", "hold_batch", post(Use, hold_batch)),
        ("/commit", "commit", post(Use, commit)),
        ("/commit/batch", "commit_batch", post(Use, commit_batch)),
        ("/rollback", "rollback", post(Use, rollback)),
        ("/rollback/batch", "rollback_batch", post(Use, rollback_batch)),
        ("/extend", "extend", post(Use, extend)),
        ("/values", "values", post(Read, values)),
        ("/operations", "list_operations", get(Read, list_operations)),
        ("/operations/{operation_id}", "get_operation", get(Read, get_operation)),
    ]
}

/// Paths in which a name is empty, with the parameter that names it.
pub(super) const EMPTY_NAMES: &[(&str, &str)] =
    &[("/limits/", "name"), ("/limits//entries", "name"), ("/operations/", "operation_id")];

type Answer = Result<Response, Failure>;

/// Create a limit.
#[utoipa::path(
    post, path = "/v1/ledger/limits", tag = "ledger",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewLimit,
    responses(
        (status = 201, description = "The limit was created.", body = wire::Limit),
        (status = 409, description = "`DuplicateLimitName`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn create_limit(State(app): State<App>, call: Call<wire::NewLimit>) -> Answer {
    let Call { namespace, idempotency, body } = call;
    app.submit(
        namespace,
        idempotency,
        Command::Ledger(ledger::Command::CreateLimit(body)),
        StatusCode::CREATED,
    )
    .await
}

/// List the limits, ordered by name, or the limits that are nearest to their ceilings.
#[utoipa::path(
    get, path = "/v1/ledger/limits", tag = "ledger",
    params(
        ("order" = Option<String>, Query, description = "`used`: only the limits nearest to their ceilings, the nearest first: limits in which nothing more can be held, then by the fraction of the ceiling that is left, then limits without a ceiling. There is one page, without `after`. Absent: all limits by name."),
        ("limit" = Option<u16>, Query), ("after" = Option<String>, Query),
    ),
    responses((status = 200, description = "One page of the list.", body = Page<wire::Limit>)),
)]
pub(super) async fn list_limits(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LimitsQuery { by_use, page }: LimitsQuery,
) -> Answer {
    match by_use {
        true => limits_by_use(app, namespace, page.limit()).await,
        false => read(&app, namespace, ledger::Command::ListLimits(page)).await,
    }
}

/// Read a limit.
#[utoipa::path(
    get, path = "/v1/ledger/limits/{name}", tag = "ledger",
    params(("name" = String, Path)),
    responses(
        (status = 200, description = "The limit.", body = wire::Limit),
        (status = 404, description = "`LimitNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_limit(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LimitName(name): LimitName,
    _: NoQuery,
) -> Answer {
    read(&app, namespace, ledger::Command::GetLimit(name)).await
}

/// Change the ceiling or the context of a limit. `null` removes it.
#[utoipa::path(
    patch, path = "/v1/ledger/limits/{name}", tag = "ledger",
    params(("name" = String, Path)),
    request_body = wire::LimitPatch,
    responses(
        (status = 200, description = "The limit after the change.", body = wire::Limit),
        (status = 404, description = "`LimitNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn patch_limit(
    State(app): State<App>,
    LimitName(name): LimitName,
    call: Call<wire::LimitPatch>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    app.submit(
        namespace,
        idempotency,
        Command::Ledger(ledger::Command::PatchLimit { name, patch: body }),
        StatusCode::OK,
    )
    .await
}

/// Delete a limit with its history.
///
/// A limit that is created again under the name is another limit. Operations that held in the deleted one still show it.
#[utoipa::path(
    delete, path = "/v1/ledger/limits/{name}", tag = "ledger",
    params(("name" = String, Path)),
    responses(
        (status = 204, description = "The limit is deleted."),
        (status = 404, description = "`LimitNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`LimitInUse`: a hold is open in the limit.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn delete_limit(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LimitName(name): LimitName,
    _: NoQuery,
) -> Answer {
    let command = Command::Ledger(ledger::Command::DeleteLimit(name));
    app.submit(namespace, None, command, StatusCode::NO_CONTENT).await
}

/// List the history of a limit, ordered by position.
#[utoipa::path(
    get, path = "/v1/ledger/limits/{name}/entries", tag = "ledger",
    params(("name" = String, Path), ("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses(
        (status = 200, description = "One page of the list.", body = Page<wire::Entry>),
        (status = 404, description = "`LimitNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list_entries(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    LimitName(limit_name): LimitName,
    Paging(page): Paging<Position>,
) -> Answer {
    read(&app, namespace, ledger::Command::ListEntries { limit_name, page }).await
}

/// Hold values in one or more limits, in all of them or in none.
#[utoipa::path(
    post, path = "/v1/ledger/hold", tag = "ledger",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::Hold,
    responses(
        (status = 200, description = "All values are held. The reply contains the values of the limits at the position of the hold.", body = wire::HoldReply),
        (status = 404, description = "`LimitNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`OperationAlreadyInFinalState`, `DuplicateOperation`, `LimitExceeded` or `ValueOverflow`; the first of them that applies, in this order", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn hold(State(app): State<App>, call: Call<wire::Hold>) -> Answer {
    transfer(app, call, Transfer::Hold).await
}

/// Commit holds of an operation, or parts of them.
///
/// A repeated commit returns the result of the first one.
#[utoipa::path(
    post, path = "/v1/ledger/commit", tag = "ledger",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::Finalization,
    responses(
        (status = 200, description = "The holds are committed, by this request or by an earlier one.", body = wire::FinalizationReply),
        (status = 404, description = "`LimitNotFound` or `OperationNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`CommitExceedsHold`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn commit(State(app): State<App>, call: Call<wire::Finalization>) -> Answer {
    transfer(app, call, |body| Transfer::Finish(Finish::Commit, body)).await
}

/// Roll back holds of an operation.
///
/// A repeated rollback returns the result of the first one.
#[utoipa::path(
    post, path = "/v1/ledger/rollback", tag = "ledger",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::Finalization,
    responses(
        (status = 200, description = "The holds are rolled back, by this request or by an earlier one.", body = wire::FinalizationReply),
        (status = 404, description = "`LimitNotFound` or `OperationNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn rollback(State(app): State<App>, call: Call<wire::Finalization>) -> Answer {
    transfer(app, call, |body| Transfer::Finish(Finish::Rollback, body)).await
}

/// Set when the open holds of an operation expire: this long after now, or never.
#[utoipa::path(
    post, path = "/v1/ledger/extend", tag = "ledger",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::Extend,
    responses(
        (status = 200, description = "The operation. All its open holds expire at the same time.", body = wire::Operation),
        (status = 404, description = "`OperationNotFound`: the operation does not exist, or has no open hold.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn extend(State(app): State<App>, call: Call<wire::Extend>) -> Answer {
    let Call { namespace, idempotency, body } = call;
    app.submit(namespace, idempotency, Command::Ledger(ledger::Command::Extend(body)), StatusCode::OK).await
}

/// Execute several holds in order. Each succeeds or fails alone.
#[utoipa::path(
    post, path = "/v1/ledger/hold/batch", tag = "ledger",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::Batch<wire::Hold>,
    responses((status = 200, description = "One result per hold, in the order of the request.", body = wire::BatchReply<wire::HoldReply>)),
)]
pub(super) async fn hold_batch(State(app): State<App>, call: Call<Items<wire::Hold>>) -> Answer {
    batch(app, call, Transfer::Hold).await
}

/// Execute several commits in order. Each succeeds or fails alone.
#[utoipa::path(
    post, path = "/v1/ledger/commit/batch", tag = "ledger",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::Batch<wire::Finalization>,
    responses((status = 200, description = "One result per commit, in the order of the request.", body = wire::BatchReply<wire::FinalizationReply>)),
)]
pub(super) async fn commit_batch(State(app): State<App>, call: Call<Items<wire::Finalization>>) -> Answer {
    batch(app, call, |item| Transfer::Finish(Finish::Commit, item)).await
}

/// Execute several rollbacks in order. Each succeeds or fails alone.
#[utoipa::path(
    post, path = "/v1/ledger/rollback/batch", tag = "ledger",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::Batch<wire::Finalization>,
    responses((status = 200, description = "One result per rollback, in the order of the request.", body = wire::BatchReply<wire::FinalizationReply>)),
)]
pub(super) async fn rollback_batch(State(app): State<App>, call: Call<Items<wire::Finalization>>) -> Answer {
    batch(app, call, |item| Transfer::Finish(Finish::Rollback, item)).await
}

/// Read the values of limits: the latest, or those at an operation or a position.
#[utoipa::path(
    post, path = "/v1/ledger/values", tag = "ledger",
    request_body = wire::Values,
    responses(
        (status = 200, description = "The values of all requested limits at one position.", body = wire::ValuesReply),
        (status = 404, description = "`LimitNotFound` or `OperationNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn values(State(app): State<App>, call: Call<wire::Values>) -> Answer {
    let Call { namespace, idempotency, body } = call;
    app.submit(namespace, idempotency, Command::Ledger(ledger::Command::Values(body)), StatusCode::OK).await
}

/// List the operations, ordered by id.
#[utoipa::path(
    get, path = "/v1/ledger/operations", tag = "ledger",
    params(
        ("state" = Option<String>, Query, description = "`held`: only operations with an open hold. Absent: all operations."),
        ("older_than" = Option<String>, Query, description = "A duration such as `1h`: only operations with a hold that was made longer ago."),
        ("limit_name" = Option<String>, Query, description = "Only operations with a hold in this limit. If there are several conditions, one hold must meet all of them."),
        ("limit" = Option<u16>, Query), ("after" = Option<String>, Query),
    ),
    responses(
        (status = 200, description = "One page of the list. It may have fewer items than `limit` although more follow.", body = Page<wire::Operation>),
        (status = 404, description = "`LimitNotFound`: the limit of `limit_name` does not exist.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list_operations(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    OperationsQuery { filter, page }: OperationsQuery,
) -> Answer {
    let command = |page| Command::Ledger(ledger::Command::ListOperations { filter: filter.clone(), page });
    list::<Operation>(app, namespace, page, command).await
}

/// Read an operation with its holds in all limits.
#[utoipa::path(
    get, path = "/v1/ledger/operations/{operation_id}", tag = "ledger",
    params(("operation_id" = String, Path)),
    responses(
        (status = 200, description = "The operation.", body = wire::Operation),
        (status = 404, description = "`OperationNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_operation(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    OperationId(id): OperationId,
    _: NoQuery,
) -> Answer {
    read(&app, namespace, ledger::Command::GetOperation(id)).await
}

async fn transfer<T: RequestBody>(app: App, call: Call<T>, transfer: impl Fn(T) -> Transfer) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let command = Command::Ledger(ledger::Command::Transfer(transfer(body)));
    app.submit(namespace, idempotency, command, StatusCode::OK).await
}

/// About how long the result of an operation in a batch is.
const EXPECTED_RESULT: usize = 128;

/// Executes the valid items. Each invalid item gets a problem document in its place.
async fn batch<I>(app: App, call: Call<Items<I>>, transfer: impl Fn(I) -> Transfer) -> Answer {
    let Call { namespace, idempotency, body: Items(items) } = call;
    let CheckedBatch { items: transfers, problems } =
        checked_batch("operations", items, |item| Ok(transfer(item)))?;
    if transfers.is_empty() {
        return Ok(json(StatusCode::OK, &to_wire::merged_batch(Vec::new(), problems)));
    }
    let command = Command::Ledger(ledger::Command::Batch(ledger::Batch::new(transfers)?));
    match app.ask(namespace, idempotency, command).await {
        Ok(Outcome::Ledger(Ok(Reply::Batch(results)))) => {
            let expected = results.len() * EXPECTED_RESULT;
            Ok(json_of_size(StatusCode::OK, &to_wire::merged_batch(results, problems), expected))
        }
        other => status::answer(other, StatusCode::OK),
    }
}

/// Executes a read.
async fn read(app: &App, scope: Scope, command: ledger::Command) -> Answer {
    app.submit(scope, None, Command::Ledger(command), StatusCode::OK).await
}
