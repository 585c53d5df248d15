//! Parses requests for locks, and answers with as much as Limina does.

use super::workload::TTL;
use crate::echo::json;
use axum::{
    Router,
    body::Bytes,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{delete, post},
};
use limina_wire::locks::{Granted, HeldLock, Mode, NewLock};

/// Of the length that ids have.
const ID: &str = "4a7c316aaa0f65cb491440d159686c6f";
/// Of about the length that tokens have in a run.
const TOKEN: u64 = 123_456;

pub(crate) fn router() -> Router {
    Router::new()
        .route("/v1/locks", post(acquire))
        .route("/v1/locks/{lock_id}", delete(async || StatusCode::NO_CONTENT))
}

async fn acquire(body: Bytes) -> Response {
    let Ok(NewLock { key_values: Some(key_values), .. }) = serde_json::from_slice::<NewLock<'_>>(&body)
    else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    json(&Granted {
        lock_id: ID.into(),
        session_id: ID.into(),
        fencing_token: TOKEN,
        expires_in_ms: TTL.as_millis() as u64,
        locks: vec![HeldLock { key_values, mode: Mode::Exclusive }],
    })
}
