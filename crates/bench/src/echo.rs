//! What the HTTP stack alone costs: a server that parses the same requests, and answers with as much as Limina does,
//! without doing anything.

use crate::{Failed, ledger, limiter, locks};
use axum::{
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    serve::ListenerExt,
};
use tokio::net::TcpListener;

pub(crate) async fn run() -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    let router = ledger::echo::router().merge(limiter::echo::router()).merge(locks::echo::router());
    let listener = listener.tap_io(|stream| {
        // Without it small answers wait for the client's acknowledgement; a failure costs only time.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}

pub(crate) fn json(body: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
