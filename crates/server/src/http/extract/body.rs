//! Reads bodies: whole, in time, and up to a maximum size.

use super::super::problem::{Code, Failure};
use axum::{
    body::Body,
    http::{
        HeaderMap, Version,
        header::{CONTENT_LENGTH, EXPECT},
        request::Parts,
    },
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use std::time::Duration;

/// How many bytes of an unwanted body are read and dropped, so that the client sees the answer. A client that still
/// sends when its connection is closed often loses the answer.
const MAX_DISCARDED: usize = 8 << 20;

/// Returns the whole body. It must have at most `max` bytes and arrive within `timeout`.
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
    match tokio::time::timeout(timeout, collect(body, max)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_large()),
        Ok(Err(_)) => Err(closing(Failure::invalid(
            "body",
            "must arrive completely; the connection broke before its end",
        ))),
        Err(_) => {
            let detail = format!("The body did not arrive within {} seconds.", timeout.as_secs_f32());
            Err(closing(Failure::new(Code::RequestTimeout, detail)))
        }
    }
}

/// Returns the whole body, or `None` if it has more than `max` bytes.
async fn collect(mut body: Body, max: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        length += data.len();
        if length > max {
            discard(body, MAX_DISCARDED).await;
            return Ok(None);
        }
        // Most bodies arrive in one piece, which is returned without a copy.
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(Some(if all.is_empty() { first } else { all.freeze() }))
}

async fn discard(mut body: Body, max: usize) {
    let mut length = 0;
    while length < max
        && let Some(Ok(frame)) = body.frame().await
    {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Reads and drops the body of a request that is refused, so that the client sees the answer.
pub(crate) async fn discard_body(body: Body, timeout: Duration) {
    let _timed_out = tokio::time::timeout(timeout, discard(body, MAX_DISCARDED)).await;
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
