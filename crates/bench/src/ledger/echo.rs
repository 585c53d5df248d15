//! The ledger's part of the echo server.

use crate::echo::{json, parse};
use axum::{Router, body::Bytes, http::StatusCode, response::Response, routing::post};
use limina_api::{
    Name, Position,
    ledger::{Finalization, FinalizationReply, Hold, HoldReply, LimitValue},
};

/// Positions and sums have about as many digits in a run.
const POSITION: Position = Position(1_234_567);
const VALUE: i64 = 123;

pub(crate) fn router() -> Router {
    Router::new()
        .route("/v1/ledger/limits", post(async || StatusCode::CREATED))
        .route("/v1/ledger/hold", post(hold))
        .route("/v1/ledger/commit", post(commit))
}

async fn hold(body: Bytes) -> Result<Response, StatusCode> {
    let hold: Hold = parse(&body)?;
    let values = hold.changes.into_iter().map(|change| value(change.limit_name)).collect();
    json(&HoldReply { operation_id: hold.operation_id, position: POSITION, values, skipped: Vec::new() })
}

async fn commit(body: Bytes) -> Result<Response, StatusCode> {
    let commit: Finalization = parse(&body)?;
    let values = vec![value(Name::new("limit-1234").expect("a name"))];
    json(&FinalizationReply { operation_id: commit.operation_id, position: POSITION, values })
}

fn value(limit_name: Name) -> LimitValue {
    LimitValue { limit_name, limit_id: None, commit_value: VALUE, hold_value: 1, total_value: VALUE + 1 }
}
