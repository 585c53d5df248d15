//! The request headers that have a meaning: `Content-Type`, `Idempotency-Key`, `Last-Event-ID`.

use super::super::{
    App,
    problem::{Code, Failure},
};
use axum::{
    extract::FromRequestParts,
    http::{
        HeaderMap, Method,
        header::{CONTENT_ENCODING, CONTENT_TYPE},
        request::Parts,
    },
};
use limina_api::Problem;
use limina_engine::{Idempotency, Name};
use sha2::{Digest, Sha256};

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
const LAST_EVENT_ID: &str = "Last-Event-ID";

/// Accepts JSON media types, and an absent or empty `Content-Type`.
pub(super) fn check_media_type(headers: &HeaderMap) -> Result<(), Failure> {
    let unsupported = |detail: &str| Err(Failure::new(Code::UnsupportedMediaType, detail));
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    if !codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return unsupported("The body is compressed (Content-Encoding). Send it uncompressed.");
    }
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    if value.as_bytes() == b"application/json" {
        return Ok(());
    }
    let value = value.to_str().unwrap_or("?").to_ascii_lowercase();
    let essence = value.split(';').next().unwrap_or_default().trim();
    let is_json = essence.is_empty()
        || essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    if is_json { Ok(()) } else { unsupported("Content-Type must be application/json.") }
}

/// The key without the quotes around it, or `None` if the header is absent.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<Name>, Failure> {
    let invalid = |detail: String| Failure::invalid_header(IDEMPOTENCY_KEY, detail);
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(invalid("must be given only once".to_owned()));
    }
    let text = str::from_utf8(value.as_bytes()).map_err(|_| invalid("must be UTF-8".to_owned()))?;
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    Name::new(text).map(Some).map_err(|error| invalid(error.to_string()))
}

/// A hash by which a repeated request is recognized. The two forms of a path, with and without `/v1/ns/default`, give the
/// same hash.
pub(super) fn fingerprint(method: &Method, namespace: &Name, path: &str, body: &[u8]) -> [u8; 16] {
    let path = match path.strip_prefix("/v1/ns/").and_then(|rest| rest.split_once('/')) {
        Some((_, rest)) => rest,
        None => path.strip_prefix("/v1/").unwrap_or(path),
    };
    let mut hash = Sha256::new();
    for part in [method.as_str().as_bytes(), namespace.as_bytes(), path.as_bytes(), body] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    short_hash(hash)
}

/// Distinguishes a batch also by the items that were refused before it is executed. Under the same key it is another request if other
/// items are refused, for example after the rights of the token have changed.
pub(crate) fn without_items(idempotency: Idempotency, problems: &[(usize, Problem)]) -> Idempotency {
    if problems.is_empty() {
        return idempotency;
    }
    let mut hash = Sha256::new_with_prefix(idempotency.fingerprint);
    problems.iter().for_each(|(index, _)| hash.update((*index as u64).to_le_bytes()));
    Idempotency { fingerprint: short_hash(hash), ..idempotency }
}

fn short_hash(hash: Sha256) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&hash.finalize()[..16]);
    short
}

/// The clock after which a returning follower of server-sent events resumes; `None` for a new follower.
pub(crate) struct LastEventId(pub(crate) Option<u64>);

impl FromRequestParts<App> for LastEventId {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<LastEventId, Failure> {
        let Some(value) = parts.headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else {
            return Ok(LastEventId(None));
        };
        let clock = value.to_str().ok().and_then(|text| text.parse().ok());
        let clock: Option<u64> = clock;
        let invalid =
            || Failure::invalid_header(LAST_EVENT_ID, "must be the `id` of a message of this stream");
        clock.map(|clock| LastEventId(Some(clock))).ok_or_else(invalid)
    }
}
