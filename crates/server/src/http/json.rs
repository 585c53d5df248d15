//! Answers with a JSON body.

use super::request_id;
use axum::{
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use tokio::{sync::Semaphore, task::spawn_blocking};

/// An answer with a JSON body.
pub(super) fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    json_of_size(status, body, 512)
}

/// An answer with a JSON body of about this many bytes. A long body that outgrows its memory again and again is copied each time.
pub(super) fn json_of_size<T: Serialize>(status: StatusCode, body: &T, expected: usize) -> Response {
    let mut bytes = Vec::with_capacity(expected);
    serde_json::to_writer(&mut bytes, body)
        .expect("wire types have string keys, and memory accepts all bytes");
    (status, [(CONTENT_TYPE, "application/json")], bytes).into_response()
}

/// An answer with more limits than this is encoded aside.
pub(super) const MANY_LIMITS: usize = 512;

/// Encodes a long answer on a thread that may block. Encoding megabytes takes many milliseconds, and the requests of other clients
/// would wait for it. One answer is encoded at a time, so most of the processors' time is left to other requests.
pub(super) async fn encode_aside<R: Send + 'static>(encode: impl FnOnce() -> R + Send + 'static) -> R {
    static ONE_AT_A_TIME: Semaphore = Semaphore::const_new(1);
    let _turn = ONE_AT_A_TIME.acquire().await.expect("the semaphore is never closed");
    let request = request_id::current();
    let encode = move || match request {
        Some(id) => request_id::answering(&id, encode),
        None => encode(),
    };
    match spawn_blocking(encode).await {
        Ok(answer) => answer,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
