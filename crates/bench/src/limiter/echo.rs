//! The limiter's part of the echo server.

use super::workload::{LIMIT, PER_SECONDS, RULE};
use crate::{
    echo::{json, parse},
    in_process::name,
};
use axum::{
    Router,
    body::Bytes,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use limina_api::{
    Millis,
    limiter::{Check, CheckBatch, CheckBatchReply, CheckReply, CheckResult, Limit, LimitStatus},
};

/// These values have about as many digits in a run.
const USED: u64 = 12_345;
const RESET_MS: u64 = 23_456;

pub(crate) fn router() -> Router {
    Router::new()
        .route("/v1/limiter/rules", post(async || StatusCode::CREATED))
        .route("/v1/limiter/check", post(check))
        .route("/v1/limiter/check/batch", post(batch))
}

async fn check(body: Bytes) -> Result<Response, StatusCode> {
    let check: Check = parse(&body)?;
    let policy = format!("\"{RULE}\";q={LIMIT};w={PER_SECONDS}");
    let limit = format!("\"{RULE}\";r={};t={}", LIMIT - USED, RESET_MS / 1000);
    Ok(([("ratelimit-policy", policy), ("ratelimit", limit)], json(&reply(check, None))?).into_response())
}

async fn batch(body: Bytes) -> Result<Response, StatusCode> {
    let batch: CheckBatch = parse(&body)?;
    let results = batch.checks.into_iter().map(|check| CheckResult::Allowed(reply(check, Some(200))));
    json(&CheckBatchReply { results: results.collect() })
}

fn reply(check: Check, status: Option<u16>) -> CheckReply {
    let limit = LimitStatus {
        rule: Some(name(RULE)),
        override_name: None,
        group: check.key_values,
        limit: Limit::AtMost(LIMIT),
        used: USED,
        remaining: Some(LIMIT - USED),
        reset_ms: Some(Millis(RESET_MS)),
        shadow: false,
        exceeded: false,
        waiting: 0,
    };
    CheckReply { status, allowed: true, limits: vec![limit], retry_after_ms: None }
}
