//! The calls that other nodes make.

use super::{
    ASK, CONNECTION_WINDOW, FOLLOW, MAX_STREAMS, REFUSALS, SHARD, STREAM_WINDOW, WHO,
    wire::{SIGN_OF_LIFE, decode, encode, encode_message},
};
use crate::{
    access::Needs::Certificate,
    http::{
        App,
        extract::read_body,
        problem::Failure,
        routes::{Route, post},
    },
};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{header::CONTENT_TYPE, request::Parts},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{
    Stream, StreamExt,
    stream::{BoxStream, once, poll_fn, unfold},
};
use hyper_util::server::conn::auto::Http2Builder;
use limina_engine::{self as engine, UncheckedRequest};
use limina_node::{Feed, FeedEnded, FeedRequest, PeerError, RefusalsRequest, ShardId};
use serde::de::DeserializeOwned;
use std::{convert::Infallible, future::ready, task::Poll, time::Duration};
use tokio::{sync::watch, time::interval};

/// The largest body: a batch of 16 MiB of JSON, in which small numbers take more bytes here than as text.
const MAX_BODY: usize = 24 << 20;
/// The interval of signs of life in a feed that has nothing to send.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(3);
/// How soon a dead peer is noticed: its requests for locks must not wait for long.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The calls of other nodes. Only the listener for nodes has them.
pub(crate) fn routes() -> [Route; 4] {
    [
        (ASK, "ask", post(Certificate, ask)),
        (FOLLOW, "follow", post(Certificate, follow)),
        (REFUSALS, "refusals", post(Certificate, refusals)),
        (WHO, "who", post(Certificate, who)),
    ]
}

/// The HTTP/2 settings for connections of other nodes. Many requests may be cancelled at the same time.
pub(crate) fn settings<E>(builder: &mut Http2Builder<'_, E>) {
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_STREAMS as usize)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
}

/// Runs a command for another node. Another node has checked the command already, but it may be of another version, or
/// broken: a command that is out of the engine's limits is refused here too.
async fn ask(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let unchecked: UncheckedRequest = read(&app, &parts, body).await?;
    let request = engine::Request::try_from(unchecked)?;
    let answer = app.backend().answer_peer(shard(&parts)?, request).await;
    Ok(octets(encode(&answer)))
}

/// Returns this node's name. The body is the address under which the other node looked for it.
async fn who(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let _address: String = read(&app, &parts, body).await?;
    Ok(octets(encode(&app.backend().cluster().me)))
}

/// Returns what this node has refused. If there is nothing new, the answer takes a while.
async fn refusals(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let wanted: RefusalsRequest = read(&app, &parts, body).await?;
    let mut stopping = app.stopping().subscribe();
    let page = tokio::select! {
        page = app.backend().refusals_for_peer(wanted) => page,
        _ = stopping.wait_for(|is_stopping| *is_stopping) => Err(PeerError::NotThere),
    };
    Ok(octets(encode(&page)))
}

/// Sends the changes of a stream. The first message says whether the stream can be followed here.
async fn follow(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let wanted: FeedRequest = read(&app, &parts, body).await?;
    if let Some(terms) = &wanted.make {
        terms.validate().map_err(|invalid| invalid.within("make"))?;
    }
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

/// Decodes a body. What it contains is not checked yet.
async fn read<T: DeserializeOwned>(app: &App, parts: &Parts, body: Body) -> Result<T, Failure> {
    let bytes = read_body(parts, body, MAX_BODY, app.body_timeout()).await?;
    decode(&bytes).ok_or_else(|| Failure::invalid("body", "does not decode as a request of another node"))
}

fn shard(parts: &Parts) -> Result<ShardId, Failure> {
    let shard = parts.headers.get(SHARD).and_then(|value| value.to_str().ok()?.parse().ok());
    shard.map(ShardId).ok_or_else(|| Failure::invalid(SHARD, "must be the number of a shard"))
}

fn octets(body: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, "application/octet-stream")], body.into()).into_response()
}

/// Everything that a feed sends, including its end. A feed ends when the process stops.
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

/// The messages, with a sign of life whenever there was none for a while.
fn alive(mut messages: BoxStream<'static, Bytes>) -> impl Stream<Item = Bytes> + Send + 'static {
    let mut ticks = interval(ALIVE_EVERY);
    poll_fn(move |context| match messages.poll_next_unpin(context) {
        Poll::Pending => ticks.poll_tick(context).map(|_| Some(Bytes::from_static(SIGN_OF_LIFE))),
        told => told,
    })
}
