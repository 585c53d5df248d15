//! The conventions of requests: namespaces and names in paths, query parameters, JSON bodies, idempotency keys.

mod path;
mod unparsed;

pub(crate) use path::{
    LeaseId, LimitName, LockId, Namespace, OperationId, OverrideName, RuleName, StreamName,
    default_namespace, empty_name,
};
pub(crate) use unparsed::{Batched, Changing, Reading, Searching, Unparsed};

use super::{
    App,
    problem::{Code, Failure},
};
use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
    http::{
        HeaderMap, Method, Version,
        header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT},
        request::Parts,
    },
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use limina_engine::{Idempotency, Name, Page, Position, limiter::CounterId};
use limina_wire::{AtMost, MAX_BATCH, Object, ledger};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The largest body, but for batches.
const MAX_BODY: usize = 1 << 20;
/// The largest body of a batch.
const MAX_BATCH_BODY: usize = 16 << 20;
/// So much of a body that is too large is read and dropped, so that the client gets to see the answer.
const MAX_DISCARDED: usize = 8 << 20;
/// Texts of clients are repeated in problems up to this many characters.
const MAX_ECHO: usize = 512;
/// The query parameters of a list.
const PAGE_PARAMETERS: &[&str] = &["limit", "after"];
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// What is read as a body.
pub(crate) trait RequestBody: Sized {
    /// How large it may be.
    const MAX_BYTES: usize;
    /// Whether an idempotency key has a meaning: whether it changes something, by POST or PUT.
    const TAKES_KEY: bool;
    /// Query parameters that somebody else looks at.
    const PARAMETERS: &'static [&'static str] = &[];
    /// Whether it must be declared as JSON, or not at all.
    const IS_JSON: bool = true;

    fn parse(bytes: &Bytes) -> Result<Self, Failure>;
}

/// A body that is one JSON object.
pub(crate) trait JsonBody: DeserializeOwned {
    const TAKES_KEY: bool = true;
}

impl JsonBody for ledger::NewLimit {}
impl JsonBody for ledger::Hold {}
impl JsonBody for ledger::Finalization {}

impl JsonBody for ledger::LimitPatch {
    const TAKES_KEY: bool = false;
}

impl JsonBody for ledger::ValuesQuery {
    const TAKES_KEY: bool = false;
}

impl<T: JsonBody> RequestBody for T {
    const MAX_BYTES: usize = MAX_BODY;
    const TAKES_KEY: bool = T::TAKES_KEY;

    fn parse(bytes: &Bytes) -> Result<T, Failure> {
        parse(bytes)
    }
}

/// A body of any content type, as it came.
pub(crate) struct Raw(pub(crate) Bytes);

impl RequestBody for Raw {
    const MAX_BYTES: usize = MAX_BODY;
    const TAKES_KEY: bool = true;
    const IS_JSON: bool = false;

    fn parse(bytes: &Bytes) -> Result<Raw, Failure> {
        Ok(Raw(bytes.clone()))
    }
}

/// The items of a batch, each of which stands or falls on its own.
pub(crate) struct Items<I>(pub(crate) Vec<Result<I, Failure>>);

/// A batch of which something does not parse, with its items left as they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBatch<'a> {
    #[serde(borrow)]
    operations: AtMost<MAX_BATCH, &'a RawValue>,
}

impl<I: DeserializeOwned> RequestBody for Items<I> {
    const MAX_BYTES: usize = MAX_BATCH_BODY;
    const TAKES_KEY: bool = true;

    fn parse(bytes: &Bytes) -> Result<Items<I>, Failure> {
        if let Ok(Object(batch)) = serde_json::from_slice::<Object<ledger::Batch<I>>>(bytes) {
            return Ok(Items(batch.operations.into_iter().map(Ok).collect()));
        }
        let RawBatch { operations: AtMost(operations) } = parse(bytes)?;
        Ok(Items(operations.into_iter().map(|item| parse(item.get().as_bytes())).collect()))
    }
}

/// A request with a body.
pub(crate) struct Call<T> {
    pub(crate) namespace: Name,
    pub(crate) idempotency: Option<Idempotency>,
    pub(crate) body: T,
}

impl<T: RequestBody> FromRequest<App> for Call<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Call<T>, Failure> {
        let (mut parts, body) = request.into_parts();
        // The body comes first: an error that leaves it unread would cost the client its connection.
        let bytes = read_body(&parts, body, T::MAX_BYTES, app.body_timeout()).await?;
        let Namespace(namespace) = Namespace::from_request_parts(&mut parts, app).await?;
        Query::parse(&parts, T::PARAMETERS)?;
        if T::IS_JSON {
            check_media_type(&parts.headers)?;
        }
        let key = if T::TAKES_KEY { idempotency_key(&parts.headers)? } else { None };
        let body = T::parse(&bytes)?;
        let idempotency = key.map(|key| {
            let fingerprint = fingerprint(&parts.method, &namespace, parts.uri.path(), &bytes);
            Idempotency { key, fingerprint }
        });
        Ok(Call { namespace, idempotency, body })
    }
}

/// The whole body, which must arrive in time and have at most `max` bytes.
pub(crate) async fn read_body(
    parts: &Parts,
    body: Body,
    max: usize,
    timeout: Duration,
) -> Result<Bytes, Failure> {
    let closing =
        |failure: Failure| if parts.version < Version::HTTP_2 { failure.closing() } else { failure };
    let too_large = || {
        closing(Failure::new(Code::PayloadTooLarge, format!("the body has more than {max} bytes")))
            .with("max_bytes", max)
    };
    // A client that asks first is told at once, and sends nothing.
    if declared_length(&parts.headers).is_some_and(|length| length > max as u64)
        && parts.headers.contains_key(EXPECT)
    {
        return Err(too_large());
    }
    match tokio::time::timeout(timeout, collect(body, max)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_large()),
        Ok(Err(_)) => Err(closing(Failure::invalid("body", "the body could not be read to its end"))),
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", timeout.as_secs_f32());
            Err(closing(Failure::new(Code::RequestTimeout, detail)))
        }
    }
}

/// The whole body, or nothing if it has more than `max` bytes; a part of what is too much is read and dropped.
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
        // Most bodies come in one piece, which need not be copied.
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

async fn discard(mut body: Body, most: usize) {
    let mut length = 0;
    while length < most
        && let Some(Ok(frame)) = body.frame().await
    {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Reads a body that nobody wants, so that the client gets to see why.
pub(crate) async fn discard_body(body: Body, timeout: Duration) {
    // Whether it arrives in time makes no difference to the answer.
    let _ = tokio::time::timeout(timeout, discard(body, MAX_DISCARDED)).await;
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Failure> {
    let unsupported = |detail: &str| Err(Failure::new(Code::UnsupportedMediaType, detail));
    if let Some(coding) = headers.get(CONTENT_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return unsupported("the body must not be compressed (Content-Encoding)");
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
    if is_json { Ok(()) } else { unsupported("Content-Type must be application/json") }
}

/// Parses without asking where it is, and only after an error once more to find out.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Failure> {
    if bytes.is_empty() {
        return serde_json::from_str("{}")
            .map_err(|_| Failure::invalid("body", "the body must not be empty: some fields are required"));
    }
    match serde_json::from_slice::<Object<T>>(bytes) {
        Ok(Object(value)) => Ok(value),
        Err(error) => {
            let mut deserializer = serde_json::Deserializer::from_slice(bytes);
            Err(match serde_path_to_error::deserialize::<_, Object<T>>(&mut deserializer) {
                Ok(_) => Failure::invalid("body", error.to_string()),
                Err(found) => Failure::invalid(
                    shortened(&field_of(found.inner(), found.path())),
                    shortened(&found.inner().to_string()),
                ),
            })
        }
    }
}

/// Which field an error is about. Unknown fields stand in the path already; missing and repeated ones are errors of
/// the object around them, and are named in the message alone.
fn field_of(error: &serde_json::Error, path: &serde_path_to_error::Path) -> String {
    let message = error.to_string();
    let is_number = message.starts_with("number out of range");
    if (error.is_syntax() || error.is_eof()) && !is_number {
        return "body".to_owned();
    }
    let object = if path.iter().len() == 0 { String::new() } else { path.to_string() };
    let named = message
        .strip_prefix("missing field `")
        .or_else(|| message.strip_prefix("duplicate field `"))
        .and_then(|rest| rest.rsplit_once('`'))
        .map(|(name, _)| name);
    match (object.as_str(), named) {
        ("", None) => "body".to_owned(),
        ("", Some(name)) => name.to_owned(),
        (_, None) => object,
        (_, Some(name)) => format!("{object}.{name}"),
    }
}

/// A client's text, as far as it is repeated.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_ECHO) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<Name>, Failure> {
    let invalid = |detail: String| Failure::invalid(IDEMPOTENCY_KEY, detail);
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(invalid("must be given once".to_owned()));
    }
    let text = str::from_utf8(value.as_bytes()).map_err(|_| invalid("must be UTF-8".to_owned()))?;
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    Name::new(text).map(Some).map_err(|error| invalid(error.to_string()))
}

/// A hash of all that makes a request what it is. Both forms of a path in the default namespace are the same.
fn fingerprint(method: &Method, namespace: &Name, path: &str, body: &[u8]) -> [u8; 16] {
    let path = match path.strip_prefix("/v1/ns/").and_then(|rest| rest.split_once('/')) {
        Some((_, rest)) => rest,
        None => path.strip_prefix("/v1/").unwrap_or(path),
    };
    let mut hash = Sha256::new();
    for part in [method.as_str().as_bytes(), namespace.as_bytes(), path.as_bytes(), body] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut fingerprint = [0; 16];
    fingerprint.copy_from_slice(&hash.finalize()[..16]);
    fingerprint
}

/// A request without query parameters.
pub(crate) struct NoQuery;

impl FromRequestParts<App> for NoQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<NoQuery, Failure> {
        Query::parse(parts, &[]).map(|_| NoQuery)
    }
}

/// Which part of a list is asked for.
pub(crate) struct Paging<C>(pub(crate) Page<C>);

impl<C: Cursor> FromRequestParts<App> for Paging<C> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Paging<C>, Failure> {
        Query::parse(parts, PAGE_PARAMETERS)?.page().map(Paging)
    }
}

/// Which part of which operations is asked for.
pub(crate) struct OperationsQuery {
    pub(crate) only_held: bool,
    pub(crate) page: Page<Name>,
}

impl FromRequestParts<App> for OperationsQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<OperationsQuery, Failure> {
        let query = Query::parse(parts, &["limit", "after", "state"])?;
        let only_held = match query.get("state") {
            None => false,
            Some("held") => true,
            Some(_) => return Err(Failure::invalid("state", "must be \"held\", or absent for all")),
        };
        Ok(OperationsQuery { only_held, page: query.page()? })
    }
}

/// With whose session a lock is released; with none by an operator's force.
pub(crate) struct ReleaseQuery(pub(crate) Option<Name>);

impl FromRequestParts<App> for ReleaseQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<ReleaseQuery, Failure> {
        let query = Query::parse(parts, &["session_id", "force"])?;
        let is_forced = match query.get("force") {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(Failure::invalid("force", "must be true or false")),
        };
        let session = match query.get("session_id") {
            None => None,
            Some(text) => {
                Some(Name::new(text).map_err(|error| Failure::invalid("session_id", error.to_string()))?)
            }
        };
        match (session, is_forced) {
            (_, true) => Ok(ReleaseQuery(None)),
            (Some(session), false) => Ok(ReleaseQuery(Some(session))),
            (None, false) => Err(Failure::invalid("session_id", "must be given, unless force=true")),
        }
    }
}

/// After which message somebody comes back who follows a stream.
pub(crate) struct LastEventId(pub(crate) Option<u64>);

impl FromRequestParts<App> for LastEventId {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<LastEventId, Failure> {
        const NAME: &str = "Last-Event-ID";
        let Some(value) = parts.headers.get(NAME).filter(|value| !value.is_empty()) else {
            return Ok(LastEventId(None));
        };
        let clock = value.to_str().ok().and_then(|text| text.parse().ok());
        let clock: u64 = clock.ok_or_else(|| Failure::invalid(NAME, "must be the id of a message"))?;
        Ok(LastEventId(Some(clock)))
    }
}

/// What a page continues after.
pub(crate) trait Cursor: Sized {
    fn from_text(text: &str) -> Option<Self>;
}

impl Cursor for Name {
    fn from_text(text: &str) -> Option<Name> {
        Name::new(text).ok()
    }
}

impl Cursor for Position {
    fn from_text(text: &str) -> Option<Position> {
        text.parse().ok().map(Position)
    }
}

impl Cursor for CounterId {
    fn from_text(text: &str) -> Option<CounterId> {
        text.parse().ok().map(CounterId)
    }
}

/// The query parameters, decoded, each known and given once.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(parts: &Parts, known: &[&str]) -> Result<Query, Failure> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name =
                decoded(name).ok_or_else(|| Failure::invalid("query", "must be UTF-8 when decoded"))?;
            if !known.contains(&name.as_str()) {
                return Err(Failure::invalid(shortened(&name), "there is no such query parameter"));
            }
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                return Err(Failure::invalid(name, "must be given once"));
            }
            let Some(value) = decoded(value) else {
                return Err(Failure::invalid(name, "must be UTF-8 when decoded"));
            };
            pairs.push((name, value));
        }
        Ok(Query(pairs))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn page<C: Cursor>(&self) -> Result<Page<C>, Failure> {
        const MOST: usize = 1000;
        let limit = match self.get("limit") {
            None => 100,
            Some(text) => text.parse().ok().filter(|limit| (1..=MOST).contains(limit)).ok_or_else(|| {
                Failure::invalid("limit", format!("must be a whole number from 1 to {MOST}"))
            })?,
        };
        let after = match self.get("after") {
            None => None,
            Some(text) => Some(
                C::from_text(text)
                    .ok_or_else(|| Failure::invalid("after", "must be the next of the page before"))?,
            ),
        };
        Ok(Page::new(after, limit)?)
    }
}

fn decoded(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    Some(percent_decode_str(&text).decode_utf8().ok()?.into_owned())
}
