//! Checks and counters.

use super::{
    super::{
        App,
        extract::{Batched, Call, Changing, Paging, Searching, Unparsed},
        from_wire::{CheckedBatch, batch as checked_batch, limiter as from_wire},
        json::{MANY_LIMITS, encode_aside, json, json_of_size},
        status,
        to_wire::limiter as to_wire,
    },
    submit::{Answer, list, submit},
};
use axum::{extract::State, http::StatusCode};
#[cfg(feature = "openapi")]
use limina_api::{Page, Problem, limiter as wire};
use limina_engine::{
    self as engine, Outcome,
    limiter::{CheckBatch, Checked, Command, Counter, CounterId, Refusal, Reply},
    selection::Query,
};

/// Check: take `hits` from every limit that applies, or from none.
#[utoipa::path(
    post, path = "/v1/limiter/check", tag = "limiter",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::Check,
    responses(
        (status = 200, description = "The check is allowed, or it is a `report`. If no rule applies, it is allowed too.", body = wire::CheckReply, headers(("RateLimit-Policy" = String, description = "Up to 8 enforced limits, the tightest first: quota `q` and window `w` in seconds; for a bucket also its `burst`."), ("RateLimit" = String, description = "What remains of these limits: `r`, and `t` seconds until they are reset."))),
        (status = 422, description = "`NoRuleApplies`: no rule applies, and the check has `require_match`.", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "`LimitReached`: a limit refuses. Nothing was taken.", body = wire::LimitReached, content_type = "application/problem+json", headers(("RateLimit-Policy" = String, description = "Up to 8 enforced limits, the tightest first: quota `q` and window `w` in seconds; for a bucket also its `burst`."), ("Retry-After" = u64, description = "The number of seconds after which the same request would pass. Absent if that is not known."), ("RateLimit" = String, description = "What remains of these limits: `r`, and `t` seconds until they are reset."))),
    ),
)]
pub(in crate::http) async fn check(State(app): State<App>, call: Call<Unparsed<Changing>>) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let check = from_wire::check(body.json()?)?;
    submit(app, namespace, idempotency, Command::Check(check)).await
}

/// Execute several checks in order. Each is allowed or refused alone.
#[utoipa::path(
    post, path = "/v1/limiter/check/batch", tag = "limiter",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::CheckBatch,
    responses(
        (status = 200, description = "One result per check, in the order of the request.", body = wire::CheckBatchReply),
    ),
)]
pub(in crate::http) async fn check_batch(State(app): State<App>, call: Call<Unparsed<Batched>>) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let CheckedBatch { items, problems } = checked_batch("checks", body.checks()?, from_wire::check)?;
    if items.is_empty() {
        return Ok(json(StatusCode::OK, &to_wire::check_batch(Vec::new(), problems)));
    }
    let command = engine::Command::Limiter(Command::CheckBatch(CheckBatch::new(items)?));
    match app.ask(namespace, idempotency, command).await {
        Ok(Outcome::Limiter(Ok(Reply::Batch(decisions)))) => {
            let expected = decisions.iter().map(expected_bytes).sum();
            let is_long = decisions.iter().map(limits_of).sum::<usize>() > MANY_LIMITS;
            let encode =
                move || json_of_size(StatusCode::OK, &to_wire::check_batch(decisions, problems), expected);
            Ok(if is_long { encode_aside(encode).await } else { encode() })
        }
        other => status::answer(other, StatusCode::OK),
    }
}

/// About how long the result of a check in a batch is.
fn expected_bytes(result: &Result<Checked, Refusal>) -> usize {
    const ITEM: usize = 64;
    const LIMIT: usize = 192;
    ITEM + LIMIT * limits_of(result)
}

fn limits_of(result: &Result<Checked, Refusal>) -> usize {
    result.as_ref().map_or(0, |decision| decision.limits.len())
}

/// Take from a counter, or give back to it.
///
/// Positive `counters` are checked like `hits`, and are always added to the counter. Negative `counters` give back.
#[utoipa::path(
    post, path = "/v1/limiter/counters", tag = "limiter",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::CounterChange,
    responses(
        (status = 200, description = "The counter after the change.", body = wire::CounterReply),
        (status = 409, description = "`LimitReached`: a limit refuses. Nothing was taken.", body = wire::LimitReached, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn move_counter(State(app): State<App>, call: Call<Unparsed<Changing>>) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let command = engine::Command::Limiter(from_wire::move_counter(body.json()?)?);
    match app.ask(namespace, idempotency, command).await {
        Ok(Outcome::Limiter(Err(Refusal::LimitReached(decision)))) => {
            Ok(status::limiter::counter_refused(decision))
        }
        other => status::answer(other, StatusCode::OK),
    }
}

/// Take from a counter, or give back to it: the same as POST.
#[utoipa::path(
    put, path = "/v1/limiter/counters", tag = "limiter",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::CounterChange,
    responses(
        (status = 200, description = "The counter after the change.", body = wire::CounterReply),
        (status = 409, description = "`LimitReached`: a limit refuses. Nothing was taken.", body = wire::LimitReached, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn put_counter(state: State<App>, call: Call<Unparsed<Changing>>) -> Answer {
    move_counter(state, call).await
}

/// Set a counter, except for what leases hold.
///
/// No rule is checked. 0 or less removes the counter.
#[utoipa::path(
    put, path = "/v1/limiter/counters/set", tag = "limiter",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::CounterChange,
    responses(
        (status = 200, description = "The counter after the change.", body = wire::Counter),
    ),
)]
pub(in crate::http) async fn set_counter(State(app): State<App>, call: Call<Unparsed<Changing>>) -> Answer {
    let Call { namespace, idempotency, body } = call;
    submit(app, namespace, idempotency, from_wire::set_counter(body.json()?)?).await
}

/// Find counters by their key-values.
#[utoipa::path(
    post, path = "/v1/limiter/counters/query", tag = "limiter",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    request_body = Query,
    responses(
        (status = 200, description = "One page of the matching counters, in a stable order.", body = Page<wire::Counter>),
    ),
)]
pub(in crate::http) async fn query_counters(
    State(app): State<App>,
    Paging(page): Paging<CounterId>,
    call: Call<Unparsed<Searching>>,
) -> Answer {
    let query: Query = call.body.json()?;
    let command = |page| Command::ListCounters { query: query.clone(), page };
    list::<Counter>(app, call.namespace, page, command).await
}
