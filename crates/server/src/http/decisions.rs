//! The calls of decisions.

use super::{
    App,
    extract::{Call, DecisionId, DecisionsQuery, Items, Namespace, NoQuery, without_items},
    from_wire::{CheckedBatch, batch as checked_batch},
    json::json,
    lists::list,
    problem::{Code, Failure},
    route::{Route, get, post},
    socket::ClientConnection,
    status,
    to_wire::decisions as to_wire,
};
use crate::access::Scope;
use axum::{extract::State, http::StatusCode, response::Response};
use limina_access::{
    Family,
    Level::{Read, Use},
    Need, Resource,
};
use limina_api::decisions as wire;
#[cfg(feature = "openapi")]
use limina_api::{Page, Problem, ledger};
use limina_engine::{
    self as engine, Idempotency, Outcome,
    decisions::{Batch, BatchItem, Command, Decide, DecideRequest, Decision, Parts, Reply, Settle},
};
use limina_node::draw_id;

pub(in crate::http) fn routes() -> Vec<Route> {
    vec![
        ("", "decide", post(Use, decide)),
        ("", "list_decisions", get(Read, list_decisions)),
        ("/batch", "decide_batch", post(Use, decide_batch)),
        ("/batch", "get_decision", get(Read, get_decision)),
        ("/commit/batch", "commit_decisions", post(Use, commit_decisions)),
        ("/rollback/batch", "rollback_decisions", post(Use, rollback_decisions)),
        ("/{operation_id}", "get_decision", get(Read, get_decision)),
        ("/{operation_id}/commit", "commit_decision", post(Use, commit_decision)),
        ("/{operation_id}/rollback", "rollback_decision", post(Use, rollback_decision)),
        ("/{operation_id}/heartbeat", "heartbeat_decision", post(Use, heartbeat_decision)),
    ]
}

/// Paths in which a name is empty, with the parameter that names it.
pub(in crate::http) const EMPTY_NAMES: &[(&str, &str)] = &[
    ("/", "operation_id"),
    ("//commit", "operation_id"),
    ("//rollback", "operation_id"),
    ("//heartbeat", "operation_id"),
];

type Answer = Result<Response, Failure>;

async fn submit(app: App, namespace: Scope, idempotency: Option<Idempotency>, command: Command) -> Answer {
    app.submit(namespace, idempotency, engine::Command::Decisions(command), StatusCode::OK).await
}

/// Decide: take, hold, lock and submit at one instant, or nothing.
///
/// Needs `use` in the family of each part too. With a `wait`, the request waits for locks and slots; if the client hangs up,
/// it stops waiting. A decision that was made is never taken back because its client has gone: its id finds it, its `ttl`
/// ends it.
#[utoipa::path(
    post, path = "/v1/decisions", tag = "decisions",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewDecision,
    responses(
        (status = 200, description = "The decision is open. `repeated`: the same request made it earlier.", body = wire::Decision<'_>, headers(("RateLimit-Policy" = String, description = "Up to 8 enforced limits, the tightest first: quota `q` and window `w` in seconds; for a bucket also its `burst`."), ("RateLimit" = String, description = "What remains of these limits: `r`, and `t` seconds until they are reset."))),
        (status = 404, description = "`LimitNotFound` or `StreamNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`Refused` by holds, locks or the event. `OperationAlreadyInFinalState`: the id was used. `OperationWaits`: a repeated request waits in place of this one.", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "`OperationReused`: the id is that of another request. `NoRuleApplies`: no rule applies to a check that requires one.", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "`Refused` by a limit of the limiter, and perhaps by other parts. Nothing has moved.", body = wire::Refused<'_>, content_type = "application/problem+json", headers(("RateLimit-Policy" = String, description = "Up to 8 enforced limits, the tightest first: quota `q` and window `w` in seconds; for a bucket also its `burst`."), ("Retry-After" = u64, description = "The number of seconds after which the same request would pass. Absent if that is not known."), ("RateLimit" = String, description = "What remains of these limits: `r`, and `t` seconds until they are reset."))),
    ),
)]
pub(in crate::http) async fn decide(
    State(app): State<App>,
    client: ClientConnection,
    call: Call<Decide>,
) -> Answer {
    let Call { namespace, idempotency, body: decide } = call;
    let needs = needs(&namespace, &decide);
    needs.iter().try_for_each(|need| namespace.identity.require(*need))?;
    if decide.wait().0 == 0 || decide.dry_run() {
        return submit(app, namespace, idempotency, Command::Decide(decide.into())).await;
    }
    let _permit = namespace.identity.take(Resource::Waits)?;
    let request = DecideRequest { waiter: Some(draw_id()?), ..decide.into() };
    let command = engine::Command::Decisions(Command::Decide(request));
    let outcome = tokio::select! {
        biased;
        outcome = app.ask(namespace.clone(), idempotency, command) => outcome,
        // Dropping the future of `ask` makes the service end the wait. A decision that was made meanwhile stays.
        denial = namespace.identity.until_denied(&needs) => return Err(denial),
        () = client.hung_up() => return Err(hung_up()),
    };
    status::answer(outcome, StatusCode::OK)
}

/// The answer to a client that has closed only its sending side and still reads.
fn hung_up() -> Failure {
    Failure::new(
        Code::ClientHungUp,
        "The client closed its side of the connection before the answer. The request no longer waits.",
    )
    .closing()
}

/// The rights that a decision with these parts needs.
fn needs<'a>(scope: &'a Scope, decide: &Decide) -> Vec<Need<'a>> {
    let Parts { checks, holds, locks, event, .. } = decide.parts();
    let families = [
        (Family::Decisions, true),
        (Family::Limiter, !checks.is_empty()),
        (Family::Ledger, !holds.is_empty()),
        (Family::Locks, !locks.is_empty()),
        (Family::Events, event.is_some()),
    ];
    let used = families.into_iter().filter(|(_, is_used)| *is_used);
    used.map(|(family, _)| Need::Family(scope.namespace.as_str(), family, Use)).collect()
}

/// Commit a decision: it has happened, at these amounts.
///
/// A repeated commit with the same amounts returns the result of the first one.
#[utoipa::path(
    post, path = "/v1/decisions/{operation_id}/commit", tag = "decisions",
    params(("operation_id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::CommitDecision,
    responses(
        (status = 200, description = "The decision is committed, by this request or by an earlier one.", body = wire::Decision<'_>),
        (status = 404, description = "`OperationNotFound`: it is not open; `state` says how it ended, if that is known. `LimitNotFound`: it is recorded late, and a limit was deleted.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`CommitExceedsHold` or `ValueOverflow`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn commit_decision(
    State(app): State<App>,
    DecisionId(id): DecisionId,
    call: Call<wire::CommitDecision>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let settle = body.of(id)?;
    require_record(&namespace, &settle)?;
    submit(app, namespace, idempotency, Command::Settle(settle)).await
}

/// Fails with 403 if the token must not record what passes the limits.
fn require_record(scope: &Scope, settle: &Settle) -> Result<(), Failure> {
    if settle.record { scope.identity.require_record() } else { Ok(()) }
}

/// Roll a decision back: it has not happened.
///
/// A repeated rollback returns the result of the first one. An expired decision stays expired, and is returned too.
#[utoipa::path(
    post, path = "/v1/decisions/{operation_id}/rollback", tag = "decisions",
    params(("operation_id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NoFields,
    responses(
        (status = 200, description = "The decision is rolled back, or has expired.", body = wire::Decision<'_>),
        (status = 404, description = "`OperationNotFound`: it is not known, or is committed.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn rollback_decision(
    State(app): State<App>,
    DecisionId(id): DecisionId,
    call: Call<wire::NoFields>,
) -> Answer {
    submit(app, call.namespace, call.idempotency, Command::Rollback(id)).await
}

/// Extend a decision: all of it lives for its ttl from now on.
#[utoipa::path(
    post, path = "/v1/decisions/{operation_id}/heartbeat", tag = "decisions",
    params(("operation_id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NoFields,
    responses(
        (status = 200, description = "The decision, extended.", body = wire::Decision<'_>),
        (status = 404, description = "`OperationNotFound`: it is not open; `state` says how it ended, if that is known.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn heartbeat_decision(
    State(app): State<App>,
    DecisionId(id): DecisionId,
    call: Call<wire::NoFields>,
) -> Answer {
    submit(app, call.namespace, call.idempotency, Command::Heartbeat(id)).await
}

/// Read a decision: what became of each part.
#[utoipa::path(
    get, path = "/v1/decisions/{operation_id}", tag = "decisions",
    params(("operation_id" = String, Path)),
    responses(
        (status = 200, description = "The decision, as it is or as it ended.", body = wire::Decision<'_>),
        (status = 404, description = "`OperationNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn get_decision(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    DecisionId(id): DecisionId,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::Get(id)).await
}

/// List the open decisions, the oldest first.
#[utoipa::path(
    get, path = "/v1/decisions", tag = "decisions",
    params(
        ("state" = Option<String>, Query, description = "`open`, which is also the default: ended decisions are not listed."),
        ("owner" = Option<String>, Query, description = "Only the decisions of this owner."),
        ("older_than" = Option<String>, Query, description = "A duration such as `1h`: only decisions that were made longer ago."),
        ("limit" = Option<u16>, Query), ("after" = Option<String>, Query),
    ),
    responses((status = 200, description = "One page of the list.", body = Page<wire::Decision<'_>>)),
)]
pub(in crate::http) async fn list_decisions(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    DecisionsQuery { owner, older_than, page }: DecisionsQuery,
) -> Answer {
    let command = |page| engine::Command::Decisions(Command::List { owner: owner.clone(), older_than, page });
    list::<Decision>(app, namespace, page, command).await
}

/// Make several decisions in order. Each succeeds or fails alone, and none waits.
#[utoipa::path(
    post, path = "/v1/decisions/batch", tag = "decisions",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::DecisionBatch,
    responses((status = 200, description = "One result per decision, in the order of the request.", body = wire::DecisionBatchReply<'_>)),
)]
pub(in crate::http) async fn decide_batch(
    State(app): State<App>,
    call: Call<Items<wire::DecideNow>>,
) -> Answer {
    let Call { namespace, idempotency, body: Items(items) } = call;
    let convert = |wire::DecideNow(decide)| {
        needs(&namespace, &decide).into_iter().try_for_each(|need| namespace.identity.require(need))?;
        Ok(BatchItem::Decide(decide.into()))
    };
    let checked = checked_batch("operations", items, convert)?;
    batch(app, namespace, idempotency, checked).await
}

/// Commit several decisions in order. Each succeeds or fails alone.
#[utoipa::path(
    post, path = "/v1/decisions/commit/batch", tag = "decisions",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = ledger::Batch<wire::Settle>,
    responses((status = 200, description = "One result per commit, in the order of the request.", body = wire::DecisionBatchReply<'_>)),
)]
pub(in crate::http) async fn commit_decisions(State(app): State<App>, call: Call<Items<Settle>>) -> Answer {
    let Call { namespace, idempotency, body: Items(items) } = call;
    let convert = |settle| {
        require_record(&namespace, &settle)?;
        Ok(BatchItem::Settle(settle))
    };
    let checked = checked_batch("operations", items, convert)?;
    batch(app, namespace, idempotency, checked).await
}

/// Roll several decisions back in order. Each succeeds or fails alone.
#[utoipa::path(
    post, path = "/v1/decisions/rollback/batch", tag = "decisions",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = ledger::Batch<wire::RollbackItem>,
    responses((status = 200, description = "One result per rollback, in the order of the request.", body = wire::DecisionBatchReply<'_>)),
)]
pub(in crate::http) async fn rollback_decisions(
    State(app): State<App>,
    call: Call<Items<wire::RollbackItem>>,
) -> Answer {
    let Call { namespace, idempotency, body: Items(items) } = call;
    let convert = |item: wire::RollbackItem| Ok(BatchItem::Rollback(item.operation_id));
    let checked = checked_batch("operations", items, convert)?;
    batch(app, namespace, idempotency, checked).await
}

/// Executes the valid items. Each invalid item gets a problem document in its place.
async fn batch(
    app: App,
    namespace: Scope,
    idempotency: Option<Idempotency>,
    checked: CheckedBatch<BatchItem>,
) -> Answer {
    let CheckedBatch { items, problems } = checked;
    if items.is_empty() {
        return Ok(json(StatusCode::OK, &to_wire::batch(&[], problems)));
    }
    let idempotency = idempotency.map(|idempotency| without_items(idempotency, &problems));
    let command = engine::Command::Decisions(Command::Batch(Batch::new(items)?));
    match app.ask(namespace, idempotency, command).await {
        Ok(Outcome::Decisions(Ok(Reply::Batch(results)))) => {
            Ok(json(StatusCode::OK, &to_wire::batch(&results, problems)))
        }
        other => status::answer(other, StatusCode::OK),
    }
}
