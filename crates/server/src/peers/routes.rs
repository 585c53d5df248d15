//! Being asked by another node.

use super::{
    ASK, CONNECTION_WINDOW, FOLLOW, MAX_STREAMS, SHARD, STREAM_WINDOW, WHO,
    wire::{SIGN_OF_LIFE, decode, encode, encode_message},
};
use crate::http::{
    App, Route,
    extract::{discard_body, read_body},
    not_found,
    problem::Failure,
};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use futures_util::{
    Stream, StreamExt,
    stream::{BoxStream, once, poll_fn, unfold},
};
use hyper_util::server::conn::auto::Http2Builder;
use limina_node::{Feed, FeedEnded, PeerError, ShardId};
use serde::de::DeserializeOwned;
use std::{convert::Infallible, future::ready, task::Poll, time::Duration};
use tokio::{sync::watch, time::interval};

/// The largest body: that of a batch of 16 MiB, in which small numbers take more bytes here than they did as text.
const MAX_BODY: usize = 24 << 20;
/// Those who follow a stream of which there is nothing to tell get a sign of life so often.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(3);
/// A node that asks and has died is noticed in this time, so that it waits for no more locks.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The calls of nodes that show the secret.
pub(crate) fn routes(app: &App) -> [Route; 3] {
    let only_peers = from_fn_with_state(app.clone(), only_peers);
    [
        (ASK, "ask", post(ask).route_layer(only_peers.clone())),
        (FOLLOW, "follow", post(follow).route_layer(only_peers.clone())),
        (WHO, "who", post(who).route_layer(only_peers)),
    ]
}

/// What a connection must bear if other nodes ask over it. Many requests that are given up at once are nothing unusual.
pub(crate) fn settings<E>(builder: &mut Http2Builder<'_, E>) {
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_STREAMS as usize)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
}

async fn only_peers(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(secret) = app.secret() else { return not_found(State(app), request).await.into_response() };
    if secret.is_shown_by(request.headers()) {
        return next.run(request).await;
    }
    discard_body(request.into_body(), app.body_timeout()).await;
    StatusCode::UNAUTHORIZED.into_response()
}

/// Does what is asked.
async fn ask(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let request = read(&app, &parts, body).await?;
    let answer = app.backend().answer_peer(shard(&parts)?, request).await;
    Ok(octets(encode(&answer)))
}

/// Says which node this is. The body is the address at which it was looked for.
async fn who(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let _address: String = read(&app, &parts, body).await?;
    Ok(octets(encode(&app.backend().cluster().me)))
}

/// Tells of a stream: first whether it does, and then all of it.
async fn follow(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let wanted = read(&app, &parts, body).await?;
    match app.backend().feed_peer(wanted).await {
        Ok(feed) => {
            let begun = encode_message(&Ok::<(), PeerError>(()));
            let told = told(feed, app.stopping().subscribe());
            let messages = once(ready(begun)).chain(told).boxed();
            Ok(octets(Body::from_stream(alive(messages).map(Ok::<_, Infallible>))))
        }
        Err(not_answered) => Ok(octets(encode_message(&Err::<(), _>(not_answered)))),
    }
}

/// A body that is what it should be.
async fn read<T: DeserializeOwned>(app: &App, parts: &Parts, body: Body) -> Result<T, Failure> {
    let bytes = read_body(parts, body, MAX_BODY, app.body_timeout()).await?;
    decode(&bytes).ok_or_else(|| Failure::invalid("body", "another node would not send this"))
}

fn shard(parts: &Parts) -> Result<ShardId, Failure> {
    let shard = parts.headers.get(SHARD).and_then(|value| value.to_str().ok()?.parse().ok());
    shard.map(ShardId).ok_or_else(|| Failure::invalid(SHARD, "must be the number of a shard"))
}

fn octets(body: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, "application/octet-stream")], body.into()).into_response()
}

/// All that a feed tells, the end of it included. When the process stops, it ends.
fn told(feed: Box<dyn Feed>, stopping: watch::Receiver<bool>) -> impl Stream<Item = Bytes> + Send {
    let next = |(mut feed, mut stopping): (Box<dyn Feed>, watch::Receiver<bool>)| async move {
        let told = tokio::select! {
            told = feed.next() => told,
            _ = stopping.wait_for(|is_stopping| *is_stopping) => Err(FeedEnded::Lost),
        };
        let message = encode_message(&told);
        Some((message, told.is_ok().then_some((feed, stopping))))
    };
    unfold(Some((feed, stopping)), move |state| async move { next(state?).await })
}

/// The messages, with signs of life where there are none for a while.
fn alive(mut messages: BoxStream<'static, Bytes>) -> impl Stream<Item = Bytes> + Send + 'static {
    let mut ticks = interval(ALIVE_EVERY);
    poll_fn(move |context| match messages.poll_next_unpin(context) {
        Poll::Pending => ticks.poll_tick(context).map(|_| Some(Bytes::from_static(SIGN_OF_LIFE))),
        told => told,
    })
}
