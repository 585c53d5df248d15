//! `GET /v1/refusals/stream`: what is being refused, as server-sent events.

use super::{
    App,
    extract::{Namespace, NoQuery},
    problem::Failure,
    status, to_wire,
};
use crate::access::{Identity, Scope};
use axum::{
    body::Body,
    extract::State,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{StreamExt, stream::unfold};
use limina_access::{Family, Level::Read, Need, Resource};
#[cfg(feature = "openapi")]
use limina_api::refusals as wire;
use limina_engine::Name;
use limina_node::{
    RefusalListener,
    refusals::{ListeningEnded, RefusalNews, RefusedRequest},
};
use std::time::Duration;

/// The interval of comments on an idle stream, which keep the connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Follow what is being refused, by server-sent events.
///
/// First come the latest refusals, up to 1,000 of each node, then new ones as they happen. Requests that only read, and dry runs,
/// are not listed. Below a namespace only its refusals are sent. This is best effort: a client that reads too slowly misses
/// refusals, and then receives an event of the type `missed`.
#[utoipa::path(
    get, path = "/v1/refusals/stream", tag = "server",
    responses((status = 200, description = "One event for each refusal.", body = wire::RefusedRequest<'_>, content_type = "text/event-stream")),
)]
pub(super) async fn listen(
    State(app): State<App>,
    Namespace(scope): Namespace,
    _: NoQuery,
) -> Result<Response, Failure> {
    stream(&app, scope, None)
}

/// Follow what is being refused in a namespace, by server-sent events.
#[utoipa::path(
    get, path = "/v1/ns/{namespace}/refusals/stream", tag = "server",
    params(("namespace" = String, Path)),
    responses((status = 200, description = "One event for each refusal.", body = wire::RefusedRequest<'_>, content_type = "text/event-stream")),
)]
pub(super) async fn listen_in_namespace(
    State(app): State<App>,
    Namespace(scope): Namespace,
    _: NoQuery,
) -> Result<Response, Failure> {
    let namespace = scope.namespace.clone();
    stream(&app, scope, Some(namespace))
}

fn stream(app: &App, scope: Scope, namespace: Option<Name>) -> Result<Response, Failure> {
    let identity = scope.identity;
    let permits = (identity.take(Resource::Streams)?, identity.take(Resource::RefusalStreams)?);
    let listening = app.backend().listen_to_refusals(namespace.clone());
    let listener = listening.map_err(|full| status::unavailable(full.into()))?;
    let listening = (listener, identity.clone(), permits);
    let pieces = unfold(listening, |(mut listener, identity, permits)| async {
        let piece = next_piece(&mut listener, &identity).await.ok()?;
        Some((Ok::<_, std::convert::Infallible>(piece), (listener, identity, permits)))
    });
    let stopping = app.until_stopping();
    let ended = async move {
        let need = match &namespace {
            Some(namespace) => Need::AnyFamily(namespace.as_str(), Read),
            None => Need::Anywhere(Read),
        };
        tokio::select! {
            _ = identity.until_denied([need]) => {}
            () = stopping => {}
        }
    };
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(pieces.take_until(Box::pin(ended)))).into_response())
}

/// The next refusals that the client may see, as server-sent events, or a comment if there are none for a while.
async fn next_piece(listener: &mut RefusalListener, identity: &Identity) -> Result<Bytes, ListeningEnded> {
    let next = async {
        let mut piece = BytesMut::new();
        while piece.is_empty() {
            let RefusalNews { items, missed } = listener.next().await?;
            if missed > 0 {
                // Without the number: it counts refusals of other namespaces too.
                piece.extend_from_slice(b"event: missed\ndata: {}\n\n");
            }
            for refused in items.iter().filter(|refused| may_see(identity, refused)) {
                piece.extend_from_slice(b"data: ");
                let mut writer = (&mut piece).writer();
                serde_json::to_writer(&mut writer, &to_wire::refused(refused)).expect("written to memory");
                piece.extend_from_slice(b"\n\n");
            }
        }
        Ok(piece.freeze())
    };
    tokio::time::timeout(KEEP_ALIVE, next).await.unwrap_or(Ok(Bytes::from_static(b":\n\n")))
}

/// Whether the token may read what the refused request was about.
fn may_see(identity: &Identity, refused: &RefusedRequest) -> bool {
    let namespace = refused.namespace.as_str();
    identity.allows(match Family::from_word(&refused.family) {
        Some(family) => Need::Family(namespace, family, Read),
        None => Need::Namespace(namespace, Read),
    })
}
