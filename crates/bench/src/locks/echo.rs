//! The echo server's part for locks.

use super::workload::TTL;
use crate::echo::{json, parse};
use axum::{
    Router,
    body::Bytes,
    http::StatusCode,
    response::Response,
    routing::{delete, post},
};
use limina_api::{
    Name, Position,
    locks::{Acquire, Granted},
};

/// Ids have the same length in a run.
const ID: &str = "4a7c316aaa0f65cb491440d159686c6f";
/// Tokens have about as many digits in a run.
const TOKEN: u64 = 123_456;

pub(crate) fn router() -> Router {
    Router::new()
        .route("/v1/locks", post(acquire))
        .route("/v1/locks/{lock_id}", delete(async || StatusCode::NO_CONTENT))
}

async fn acquire(body: Bytes) -> Result<Response, StatusCode> {
    let wanted: Acquire = parse(&body)?;
    let id = || Name::new(ID).expect("a valid name");
    json(&Granted {
        lock_id: id(),
        session_id: id(),
        fencing_token: Position(TOKEN),
        expires_in_ms: TTL.into(),
        locks: wanted.locks().to_vec(),
    })
}
