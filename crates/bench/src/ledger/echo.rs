//! Parses the ledger's requests, and answers with as much as Limina does.

use crate::echo::json;
use axum::{
    Router,
    body::Bytes,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use limina_wire::ledger::{Finalization, FinalizationReply, Hold, HoldReply, LimitValue};

/// Of about the length that positions and sums have in a run.
const POSITION: u64 = 1_234_567;
const VALUE: i64 = 123;

pub(crate) fn router() -> Router {
    Router::new()
        .route("/v1/ledger/limits", post(async || StatusCode::CREATED))
        .route("/v1/ledger/hold", post(hold))
        .route("/v1/ledger/commit", post(commit))
}

async fn hold(body: Bytes) -> Response {
    let Ok(hold) = serde_json::from_slice::<Hold>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let values = hold.changes.into_iter().map(|change| value(change.limit_name)).collect();
    json(&HoldReply { operation_id: hold.operation_id, position: POSITION, values, skipped: Vec::new() })
}

async fn commit(body: Bytes) -> Response {
    let Ok(commit) = serde_json::from_slice::<Finalization>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let values = vec![value("limit-1234".into())];
    json(&FinalizationReply { operation_id: commit.operation_id, position: POSITION, values })
}

fn value(limit_name: String) -> LimitValue {
    LimitValue { limit_name, limit_id: None, commit_value: VALUE, hold_value: 1, total_value: VALUE + 1 }
}
