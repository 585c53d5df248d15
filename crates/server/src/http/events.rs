//! The calls about events.

use super::{
    App, Route, Shared,
    extract::{
        Call, Changing, LastEventId, Namespace, NoQuery, Paging, Raw, StreamName, Unparsed, default_namespace,
    },
    from_wire,
    lists::list,
    problem::Failure,
    status, to_wire,
};
use axum::{
    body::Body,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::{MethodRouter, delete, get, post, put},
};
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use limina_engine::{
    self as engine, Idempotency, Name,
    events::{Command, Mode, StreamInfo, StreamTerms},
};
use limina_node::{FollowError, Follower, StreamUpdate, Unavailable};
use limina_stomp::Payload;
use limina_wire::{Page, Problem, events as wire};
use std::time::{Duration, Instant};

/// How long an `EventSource` is held while the shard opens.
const HELD: Duration = Duration::from_secs(10);
/// How often to try meanwhile.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// Ends at once: a browser connects again after this many milliseconds.
const COME_BACK: &str = ": not available at the moment\nretry: 1000\n\n";
/// A stream of server-sent events on which nothing happens says so now and then.
const SILENCE: Duration = Duration::from_secs(15);
/// The name of the topic on which the time is told.
pub(crate) const RESERVED: &str = "time";

pub(in crate::http) fn routes() -> Vec<Route> {
    vec![
        ("", "list_streams", get(list_streams)),
        ("/{stream}", "put_stream", put(put_stream)),
        ("/{stream}", "get_stream", get(get_stream)),
        ("/{stream}", "delete_stream", delete(delete_stream)),
        ("/{stream}", "submit_event", post(submit_event)),
        ("/{stream}/incubating", "incubating", get(incubating)),
        ("/{stream}/stream", "follow_stream", get(follow)),
    ]
}

/// The two calls whose body is the event itself.
pub(in crate::http) fn plain_routes() -> [(&'static str, &'static str, MethodRouter<App>); 2] {
    [
        ("/only-once-event", "only_once_event", post(only_once_event)),
        ("/strictly-once-event", "strictly_once_event", post(strictly_once_event)),
    ]
}

/// Paths in which a name is empty, with the parameter that it is.
pub(in crate::http) const EMPTY_NAMES: &[(&str, &str)] =
    &[("/", "stream"), ("//incubating", "stream"), ("//stream", "stream")];

type Answer = Result<Response, Failure>;

async fn submit(app: App, namespace: Name, idempotency: Option<Idempotency>, command: Command) -> Answer {
    app.submit(namespace, idempotency, engine::Command::Events(command), StatusCode::OK).await
}

/// Make a stream, or change all of it but its mode.
#[utoipa::path(
    put, path = "/v1/events/{stream}", tag = "events",
    params(("stream" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::PutStream,
    responses(
        (status = 200, description = "The stream was there.", body = wire::Stream<'_>),
        (status = 201, description = "The stream is made.", body = wire::Stream<'_>),
        (status = 409, description = "`StreamModeConflict`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn put_stream(
    State(app): State<App>,
    StreamName(stream): StreamName,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    if stream.as_str() == RESERVED {
        return Err(Failure::invalid("stream", "this name is reserved for the server's time"));
    }
    submit(app, namespace, idempotency, from_wire::events::put(stream, body.json()?)?).await
}

/// List the streams, by name.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses(
        (status = 200, description = "A page.", body = Page<wire::Stream<'_>>),
    ),
)]
pub(in crate::http) async fn list_streams(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    Paging(page): Paging<Name>,
) -> Answer {
    list::<StreamInfo>(app, namespace, page, |page| engine::Command::Events(Command::List(page))).await
}

/// Read a stream.
#[utoipa::path(
    get, path = "/v1/events/{stream}", tag = "events",
    params(("stream" = String, Path)),
    responses(
        (status = 200, description = "The stream.", body = wire::Stream<'_>),
        (status = 404, description = "`StreamNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn get_stream(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    StreamName(stream): StreamName,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::Get(stream)).await
}

/// Delete a stream, with all that it remembers; who follows it is told.
#[utoipa::path(
    delete, path = "/v1/events/{stream}", tag = "events",
    params(("stream" = String, Path)),
    responses(
        (status = 204, description = "It is gone."),
        (status = 404, description = "`StreamNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn delete_stream(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    StreamName(stream): StreamName,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::Delete(stream)).await
}

/// Submit an event: accepted if the same has not happened within the duration.
#[utoipa::path(
    post, path = "/v1/events/{stream}", tag = "events",
    params(("stream" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewEvent<'_>,
    responses(
        (status = 201, description = "It is accepted, and incubates.", body = wire::Submitted<'_>),
        (status = 404, description = "`StreamNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`EventConflict`", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "`StreamFull`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn submit_event(
    State(app): State<App>,
    StreamName(stream): StreamName,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let command = from_wire::events::submit(stream, &body.json()?)?;
    submit(app, namespace, idempotency, command).await
}

/// What incubates: accepted, and not published yet.
#[utoipa::path(
    get, path = "/v1/events/{stream}/incubating", tag = "events",
    params(("stream" = String, Path)),
    responses(
        (status = 200, description = "All of it.", body = wire::Incubating<'_>),
        (status = 404, description = "`StreamNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn incubating(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    StreamName(stream): StreamName,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::Incubating(stream)).await
}

/// Submit an event to the stream `only-once`, which is made by its first use. The body is the event itself.
#[utoipa::path(
    post, path = "/only-once-event", tag = "events",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body(content = String, content_type = "text/plain"),
    responses(
        (status = 201, description = "It is accepted, and incubates.", body = wire::Submitted<'_>),
        (status = 409, description = "`EventConflict`", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "`StreamFull`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn only_once_event(State(app): State<App>, call: Call<Raw>) -> Answer {
    plain_event(app, call, Mode::OnlyOnce).await
}

/// Submit an event to the stream `strictly-once`, which is made by its first use. The body is the event itself.
#[utoipa::path(
    post, path = "/strictly-once-event", tag = "events",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body(content = String, content_type = "text/plain"),
    responses(
        (status = 201, description = "It is accepted, and incubates.", body = wire::Submitted<'_>),
        (status = 409, description = "`EventConflict`", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "`StreamFull`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn strictly_once_event(State(app): State<App>, call: Call<Raw>) -> Answer {
    plain_event(app, call, Mode::StrictlyOnce).await
}

async fn plain_event(app: App, call: Call<Raw>, mode: Mode) -> Answer {
    let Call { namespace, idempotency, body: Raw(body) } = call;
    let stream = Name::new(plain_stream(mode)).expect("a valid name");
    submit(app, namespace, idempotency, from_wire::events::submit_body(stream, &body, mode)?).await
}

fn plain_stream(mode: Mode) -> &'static str {
    match mode {
        Mode::OnlyOnce => "only-once",
        Mode::StrictlyOnce => "strictly-once",
    }
}

/// What a stream is to be if it does not exist: only two are made by their first use.
pub(crate) fn made_by_use(namespace: &Name, stream: &Name) -> Option<StreamTerms> {
    let is_of_mode = |mode: &Mode| plain_stream(*mode) == stream.as_str();
    let mode = [Mode::OnlyOnce, Mode::StrictlyOnce].into_iter().find(is_of_mode)?;
    (*namespace == default_namespace()).then(|| from_wire::events::made_by_use(mode))
}

/// Follow a stream: server-sent events, each with its clock as id. Resumes by `Last-Event-ID`.
#[utoipa::path(
    get, path = "/v1/events/{stream}/stream", tag = "events",
    params(("stream" = String, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses(
        (status = 200, description = "A key frame, or the changes after `Last-Event-ID`; then every change.", body = wire::Message<'_>, content_type = "text/event-stream"),
        (status = 404, description = "`StreamNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn follow(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    StreamName(stream): StreamName,
    LastEventId(after): LastEventId,
    headers: HeaderMap,
    _: NoQuery,
) -> Answer {
    let is_event_source = accepts_events(&headers);
    let begin = Instant::now();
    let follower = loop {
        match app.follow(namespace.clone(), stream.clone(), after).await {
            Ok(follower) => break follower,
            // A browser gives up for ever at any status but 200, so it is held until the server has started or, where
            // that takes long, sent away with a stream that ends.
            Err(FollowError::Unavailable(reason)) if is_event_source => {
                if reason == Unavailable::ShuttingDown || begin.elapsed() > HELD {
                    return Ok(event_stream(COME_BACK));
                }
                tokio::time::sleep(TRY_EVERY).await;
            }
            Err(reason) => return Err(not_followed(&stream, reason)),
        }
    };
    let body = Body::from_stream(unfold(follower, |mut follower| async {
        let sent = sent_events(&mut follower).await?;
        Some((Ok::<_, std::convert::Infallible>(sent), follower))
    }));
    Ok(event_stream(body))
}

fn event_stream(body: impl Into<Body>) -> Response {
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, body.into()).into_response()
}

/// Whether the client asks for this media type by its name, as every `EventSource` does.
fn accepts_events(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let types = values.flat_map(|value| value.split(',')).map(|item| item.split(';').next().unwrap_or(item));
    types.into_iter().any(|name| name.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// The next messages; nothing if there will be none.
async fn sent_events(follower: &mut Follower) -> Option<Bytes> {
    let Ok(next) = tokio::time::timeout(SILENCE, follower.next()).await else {
        return Some(Bytes::from_static(b":\n\n"));
    };
    let mut out = BytesMut::new();
    for message in next.ok()? {
        out.extend_from_slice(format!("id: {}\ndata: ", message.clock()).as_bytes());
        out.extend_from_slice(Payload::body_of(message.encoded(encode)));
        out.extend_from_slice(b"\n\n");
    }
    Some(out.freeze())
}

/// A message as STOMP sends it, of which server-sent events take the body.
pub(crate) fn encode(told: &StreamUpdate) -> Bytes {
    let body = serde_json::to_vec(&to_wire::events::message(told)).expect("written to memory");
    Payload::new("application/json;charset=utf-8", &body).bytes().clone()
}

pub(crate) fn not_followed(stream: &Name, reason: FollowError) -> Failure {
    match reason {
        FollowError::StreamNotFound => status::events::stream_not_found(stream),
        FollowError::Unavailable(reason) => status::unavailable(reason),
    }
}

impl App {
    /// Follows a stream, which is made if it is one of the two that are made by their first use.
    pub(crate) async fn follow(
        &self,
        namespace: Name,
        stream: Name,
        resume_after: Option<u64>,
    ) -> Result<Follower, FollowError> {
        let Shared { backend, .. } = &*self.0;
        let make = made_by_use(&namespace, &stream);
        backend.follow(namespace, stream, resume_after, make).await
    }
}
