//! Reads bodies: whole, in time, up to a maximum size, and as far as there is memory for them.

use super::super::{
    RequestContext,
    memory::{RequestMemory, no_memory},
    problem::{Code, Failure},
    stalls::IF_MEMORY_IS_SHORT,
};
use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{
        HeaderMap, Version,
        header::{CONTENT_LENGTH, EXPECT},
        request::Parts,
    },
};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::Frame;
use std::time::Duration;

/// How many bytes of an unwanted body are read and dropped, so that the client sees the answer. A client that still
/// sends when its connection is closed often loses the answer.
const MAX_DISCARDED: usize = 8 << 20;

/// How long the body of a request that is refused is waited for. Its sender may have no token.
const DISCARD_FOR: Duration = Duration::from_secs(5);

/// If no byte of an unwanted body arrives for this time while memory is short, the rest is not waited for.
const DISCARD_PAUSE: Duration = Duration::from_millis(250);

/// The first buffer of a body that arrives in several pieces. Later ones are twice as long.
const FIRST_BUFFER: usize = 16 << 10;

/// Why a body is not read to its end.
enum Unread {
    TooLarge,
    NoMemory,
    /// Nothing arrived for a while, and memory is short.
    Stalled,
    Broken,
}

/// Returns the whole body. It must have at most `max` bytes and arrive within `timeout`. While memory is short, some of it must
/// arrive every few seconds.
pub(crate) async fn read_body(
    parts: &Parts,
    body: Body,
    max: usize,
    timeout: Duration,
) -> Result<Bytes, Failure> {
    let closing =
        |failure: Failure| if parts.version < Version::HTTP_2 { failure.closing() } else { failure };
    let too_large = || {
        closing(Failure::new(Code::PayloadTooLarge, format!("The body has more than {max} bytes.")))
            .with("max_bytes", max)
    };
    // A client that sent `Expect: 100-continue` gets the answer before it sends the body.
    if declared_length(&parts.headers).is_some_and(|length| length > max as u64)
        && parts.headers.contains_key(EXPECT)
    {
        return Err(too_large());
    }
    let late = |within: Duration| {
        let detail = format!("The body did not arrive within {} seconds.", within.as_secs_f32());
        closing(Failure::new(Code::RequestTimeout, detail))
    };
    let memory = &RequestContext::of(&parts.extensions).memory;
    // Most bodies have arrived with their heads. They need no timer.
    let mut body = body;
    let arrived = body.frame().now_or_never();
    if let Some(Some(Ok(frame))) = &arrived
        && let Some(data) = frame.data_ref()
        && data.len() <= max
        && body.is_end_stream()
        && memory.reserve_parsed(data.len()).is_ok()
    {
        return Ok(data.clone());
    }
    let declared = declared_length(&parts.headers).and_then(|length| usize::try_from(length).ok());
    let collected = Box::pin(tokio::time::timeout(timeout, collect(arrived, body, max, declared, memory)));
    match collected.await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(Unread::TooLarge)) => Err(too_large()),
        Ok(Err(Unread::NoMemory)) => Err(closing(no_memory())),
        Ok(Err(Unread::Stalled)) => Err(late(IF_MEMORY_IS_SHORT)),
        Ok(Err(Unread::Broken)) => Err(closing(Failure::invalid(
            "body",
            "must arrive completely; the connection broke before its end",
        ))),
        Err(_) => Err(late(timeout)),
    }
}

/// What a body returns when it is asked for its next piece. None at its end.
type NextFrame = Option<Result<Frame<Bytes>, axum::Error>>;

/// `arrived` is the first piece, if the body has been asked for it and had it.
async fn collect(
    mut arrived: Option<NextFrame>,
    mut body: Body,
    max: usize,
    declared: Option<usize>,
    memory: &RequestMemory,
) -> Result<Bytes, Unread> {
    let mut first = Bytes::new();
    let mut all = Vec::new();
    let mut length = 0;
    while let Some(frame) = next_frame(&mut arrived, &mut body, memory).await? {
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > max {
            discard(body, memory).await;
            return Err(Unread::TooLarge);
        }
        // Most bodies arrive in one piece, which is returned without a copy.
        let is_first = first.is_empty() && all.is_empty();
        let capacity = match is_first {
            true => length,
            false if length <= all.capacity() => all.capacity(),
            // A body of a declared length needs no more than that, and is not allocated before it arrives.
            false => (2 * length).max(FIRST_BUFFER).min(declared.unwrap_or(max).max(length)),
        };
        if memory.reserve_body(capacity).is_err() {
            drop((first, all));
            discard(body, memory).await;
            return Err(Unread::NoMemory);
        }
        if is_first {
            first = data;
        } else {
            all.reserve_exact(capacity - all.len());
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    if memory.reserve_parsed(length).is_err() {
        return Err(Unread::NoMemory);
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// The next piece of the body: the one that has arrived, if there is one. None at its end.
async fn next_frame(
    arrived: &mut Option<NextFrame>,
    body: &mut Body,
    memory: &RequestMemory,
) -> Result<Option<Frame<Bytes>>, Unread> {
    let next = match arrived.take() {
        Some(next) => next,
        None => loop {
            match tokio::time::timeout(IF_MEMORY_IS_SHORT, body.frame()).await {
                Ok(next) => break next,
                Err(_) if memory.is_short() => return Err(Unread::Stalled),
                Err(_) => {}
            }
        },
    };
    next.transpose().map_err(|_| Unread::Broken)
}

async fn discard(mut body: Body, memory: &RequestMemory) {
    let mut length = 0;
    while length < MAX_DISCARDED {
        match tokio::time::timeout(DISCARD_PAUSE, body.frame()).await {
            Ok(Some(Ok(frame))) => length += frame.data_ref().map_or(0, Bytes::len),
            Ok(Some(Err(_)) | None) => return,
            Err(_) if memory.is_short() => return,
            Err(_) => {}
        }
    }
}

/// Reads and drops the body of a request that is refused, so that the client sees the answer.
pub(crate) async fn discard_body(body: Body, memory: &RequestMemory) {
    let _timed_out = tokio::time::timeout(DISCARD_FOR, discard(body, memory)).await;
}

/// Reads and drops the body of this request, which is refused.
pub(crate) async fn discard_request(request: Request) {
    let memory = RequestContext::of(request.extensions()).memory.clone();
    discard_body(request.into_body(), &memory).await;
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
