//! A server that shows the cost of HTTP and JSON alone: it parses the same requests as Limina and sends answers of the same
//! size, but does nothing else.

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
        // Without this option small answers wait for the client's acknowledgement. A failure costs only time.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}

/// Parses the body of a request.
pub(crate) fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, StatusCode> {
    serde_json::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)
}

/// An answer in JSON.
pub(crate) fn json(body: &impl serde::Serialize) -> Result<Response, StatusCode> {
    let bytes = serde_json::to_vec(body).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "application/json")], bytes).into_response())
}
