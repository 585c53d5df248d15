//! `GET /v1/refusals/stream`: what is being refused, as server-sent events.

use super::{
    App, Route,
    extract::{NoQuery, OptionalNamespace},
    problem::Failure,
    status, to_wire,
};
use axum::{
    body::Body,
    extract::State,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::unfold;
use limina_node::{
    RefusalListener,
    refusals::{ListeningEnded, RefusalNews},
};
use limina_wire::refusals as wire;
use std::time::Duration;

/// The interval of comments on an idle stream, which keep the connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn routes() -> Vec<Route> {
    vec![("/stream", "listen_to_refusals", get(listen))]
}

/// Follow what is being refused, by server-sent events.
///
/// First come the latest refusals, up to 1,000 of each node, then new ones as they happen. Requests that only read, and dry runs,
/// are not listed. Below a namespace only its refusals are sent. This is best effort: a client that reads too slowly misses
/// refusals, and then receives an event of the type `missed` with their number.
#[utoipa::path(
    get, path = "/v1/refusals/stream", tag = "server",
    responses((status = 200, description = "One event for each refusal.", body = wire::RefusedRequest<'_>, content_type = "text/event-stream")),
)]
pub(super) async fn listen(
    State(app): State<App>,
    OptionalNamespace(namespace): OptionalNamespace,
    _: NoQuery,
) -> Result<Response, Failure> {
    let listening = app.backend().listen_to_refusals(namespace);
    let listener = listening.map_err(|full| status::unavailable(full.into()))?;
    let body = Body::from_stream(unfold(listener, |mut listener| async {
        let piece = next_piece(&mut listener).await.ok()?;
        Some((Ok::<_, std::convert::Infallible>(piece), listener))
    }));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

/// The next refusals as server-sent events, or a comment if there are none for a while.
async fn next_piece(listener: &mut RefusalListener) -> Result<Bytes, ListeningEnded> {
    let Ok(news) = tokio::time::timeout(KEEP_ALIVE, listener.next()).await else {
        return Ok(Bytes::from_static(b":\n\n"));
    };
    let RefusalNews { items, missed } = news?;
    let mut piece = BytesMut::new();
    if missed > 0 {
        piece.extend_from_slice(format!("event: missed\ndata: {{\"missed\":{missed}}}\n\n").as_bytes());
    }
    for refused in &items {
        piece.extend_from_slice(b"data: ");
        let mut writer = (&mut piece).writer();
        serde_json::to_writer(&mut writer, &to_wire::refused(refused)).expect("written to memory");
        piece.extend_from_slice(b"\n\n");
    }
    Ok(piece.freeze())
}
