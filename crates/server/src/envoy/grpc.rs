//! The forms of gRPC: one message in a body, and a status in the trailers.
//!
//! A handler answers a gRPC call as it answers any other: with a status of HTTP, and with a [`Message`] or a problem document. So
//! guards and metrics need not know gRPC. [`answer_as_grpc`] turns that into gRPC's form at the very end.

use crate::http::{
    App,
    extract::read_body,
    problem::{Code, Failure},
    status,
};
use axum::{
    body::{Body, Bytes, to_bytes},
    http::{
        HeaderMap, HeaderValue, Response as HttpResponse, StatusCode,
        header::{CONTENT_TYPE, HeaderName},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use bytes::{BufMut, BytesMut};
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The longest message of a request, as JSON too.
pub(super) const MAX_MESSAGE: usize = 1 << 20;
/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// The longest problem document that becomes the text of a status.
const MAX_PROBLEM: usize = 64 << 10;

static GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// What gRPC escapes in the text of a status.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The message of an answer, among the extensions of the response.
#[derive(Clone)]
struct Answer(Bytes);

/// Says that the body has its gRPC form already.
#[derive(Clone)]
pub(super) struct IsFramed;

/// The gRPC status of an answer whose HTTP status means another one to gRPC.
#[derive(Clone)]
pub(super) struct Status(u16);

impl Status {
    /// What was asked for does not exist. The HTTP status 404 means that the method does not.
    pub(super) const NOT_FOUND: Status = Status(5);
}

/// The one message of the body.
pub(super) async fn read(parts: &Parts, body: Body, app: &App) -> Result<Bytes, Failure> {
    let is_grpc =
        parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()));
    let body = read_body(parts, body, PREFIX + MAX_MESSAGE, app.body_timeout()).await?;
    if !is_grpc {
        return Err(Failure::new(
            Code::UnsupportedMediaType,
            "The header Content-Type must be application/grpc.",
        ));
    }
    let [is_compressed, a, b, c, d, ..] = *body else {
        return Err(Failure::invalid("body", "must be one message with its length before it"));
    };
    if is_compressed != 0 {
        return Err(Failure::new(Code::UnsupportedMediaType, "The message must not be compressed."));
    }
    if u32::from_be_bytes([a, b, c, d]) as usize != body.len() - PREFIX {
        return Err(Failure::invalid("body", "must be one message with its length before it"));
    }
    Ok(body.slice(PREFIX..))
}

/// An answer with this message. The status is for metrics.
pub(super) fn message(status: StatusCode, message: &impl prost::Message) -> Response {
    let mut response = status.into_response();
    response.extensions_mut().insert(Answer(frame(message)));
    response
}

/// A message with its length before it.
pub(super) fn frame(message: &impl prost::Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).expect("a response is far smaller than 4 GiB"));
    message.encode(&mut bytes).expect("the buffer has room for it");
    bytes.freeze()
}

/// A body in its gRPC form, with the status OK at its end.
pub(super) fn response(body: Body) -> Response {
    let mut response = HttpResponse::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC.clone());
    response
}

pub(super) fn ok() -> HeaderMap {
    HeaderMap::from_iter([(GRPC_STATUS.clone(), HeaderValue::from_static("0"))])
}

/// Gives an answer the form of gRPC. Everything that is not a message is an error.
pub(crate) fn answer_as_grpc(mut answer: Response) -> Response {
    if answer.extensions_mut().remove::<IsFramed>().is_some() {
        return answer;
    }
    if let Some(Answer(frame)) = answer.extensions_mut().remove::<Answer>() {
        let trailers = std::future::ready(Some(Ok(ok())));
        return response(Body::new(Full::new(frame).with_trailers(trailers)));
    }
    let status = match answer.extensions_mut().remove() {
        Some(Status(status)) => status,
        None => status::envoy::grpc_code(answer.status()),
    };
    // A problem document is complete, so nothing is waited for.
    let problem = to_bytes(answer.into_body(), MAX_PROBLEM).now_or_never();
    let problem = problem.and_then(Result::ok).unwrap_or_default();
    let problem: serde_json::Value = serde_json::from_slice(&problem).unwrap_or_default();
    let text = |field: &str| problem.get(field).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
    let text = format!("{}: {}", text("code"), text("detail"));
    let mut response = response(Body::empty());
    let headers = response.headers_mut();
    headers.insert(GRPC_STATUS.clone(), HeaderValue::from(status));
    let text = utf8_percent_encode(&text, ESCAPED).to_string();
    if let Ok(text) = HeaderValue::try_from(text) {
        headers.insert(GRPC_MESSAGE.clone(), text);
    }
    response
}
