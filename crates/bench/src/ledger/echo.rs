//! What the HTTP stack alone costs: a server that parses the ledger's requests, and answers with as much as Limina
//! does, without doing anything.

use crate::Failed;
use axum::{
    Router,
    body::Bytes,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use limina_wire::ledger::{Finalization, FinalizationReply, Hold, HoldReply, LimitValue};
use tokio::net::TcpListener;

/// Of about the length that positions and sums have in a run.
const POSITION: u64 = 1_234_567;
const VALUE: i64 = 123;

pub(crate) async fn run() -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    let router = Router::new()
        .route("/v1/ledger/limits", post(async || StatusCode::CREATED))
        .route("/v1/ledger/hold", post(hold))
        .route("/v1/ledger/commit", post(commit));
    let listener = listener.tap_io(|stream| {
        // Without it small answers wait for the client's acknowledgement; a failure costs only time.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
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

fn json(body: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
