//! The calls of the events family.

use super::{
    App,
    extract::{Call, Changing, LastEventId, Namespace, NoQuery, Paging, Raw, StreamName, Unparsed},
    following::{
        self, LARGE, admit_follower, default_stream, encode, made_by_use, not_followed, right_to_follow,
    },
    from_wire,
    lists::list,
    problem::Failure,
    route::{Route, delete, get, post, put},
    status,
};
use crate::access::Scope;
use axum::{
    body::Body,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream::unfold};
use limina_access::{
    Level::{Manage, Read, Use},
    Resource,
};
#[cfg(feature = "openapi")]
use limina_api::{Page, Problem, events as wire};
use limina_engine::{
    self as engine, Idempotency, Name,
    events::{Command, Mode, StreamInfo},
};
use limina_node::{FollowError, Follower, Unavailable};
use limina_stomp::Payload;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How long a browser's `EventSource` request waits for the shard to open.
const MAX_OPEN_WAIT: Duration = Duration::from_secs(10);
/// The pause between two attempts to follow a stream whose shard is not open.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// A stream that ends at once and makes a browser reconnect after 1,000 ms.
const RECONNECT_LATER: &str = ": not available at the moment\nretry: 1000\n\n";
/// The interval of comments on an idle stream of server-sent events, which keep the connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// No stream can have this name: `/topic/time` is the topic of the server's time.
const RESERVED: &str = "time";

pub(in crate::http) fn routes() -> Vec<Route> {
    vec![
        ("", "list_streams", get(Read, list_streams)),
        ("/{stream}", "put_stream", put(Manage, put_stream)),
        ("/{stream}", "get_stream", get(Read, get_stream)),
        ("/{stream}", "delete_stream", delete(Manage, delete_stream)),
        ("/{stream}", "submit_event", post(Use, submit_event)),
        ("/{stream}/incubating", "incubating", get(Read, incubating)),
        ("/{stream}/stream", "follow_stream", get(Read, follow)),
    ]
}

/// The two calls whose body is the text of the event. They have no namespace in their path.
pub(in crate::http) fn plain_routes() -> [Route; 2] {
    [
        ("/only-once-event", "only_once_event", post(Use, only_once_event)),
        ("/strictly-once-event", "strictly_once_event", post(Use, strictly_once_event)),
    ]
}

/// Paths in which a name is empty, with the parameter that names it.
pub(in crate::http) const EMPTY_NAMES: &[(&str, &str)] =
    &[("/", "stream"), ("//incubating", "stream"), ("//stream", "stream")];

type Answer = Result<Response, Failure>;

async fn submit(app: App, namespace: Scope, idempotency: Option<Idempotency>, command: Command) -> Answer {
    app.submit(namespace, idempotency, engine::Command::Events(command), StatusCode::OK).await
}

/// Create a stream, or change everything except its mode.
#[utoipa::path(
    put, path = "/v1/events/{stream}", tag = "events",
    params(("stream" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::PutStream,
    responses(
        (status = 200, description = "The stream existed, and is changed.", body = wire::Stream<'_>),
        (status = 201, description = "The stream is created.", body = wire::Stream<'_>),
        (status = 409, description = "`StreamModeConflict`: the stream has the other mode. In the namespace `default`, the streams `only-once` and `strictly-once` have the mode of their name.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn put_stream(
    State(app): State<App>,
    StreamName(stream): StreamName,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    if stream.as_str() == RESERVED {
        return Err(Failure::invalid_path(
            "stream",
            "must not be `time`, which is the topic of the server's time",
        ));
    }
    let terms = from_wire::events::terms(&stream, body.json()?)?;
    if let Some(made) = made_by_use(&namespace, &stream)
        && made.mode() != terms.mode()
    {
        return Err(status::events::default_stream_mode(&stream));
    }
    submit(app, namespace, idempotency, Command::Put { name: stream, terms }).await
}

/// List the streams, ordered by name.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses(
        (status = 200, description = "One page of the list.", body = Page<wire::Stream<'_>>),
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

/// Delete a stream with all its events. Its followers are disconnected.
#[utoipa::path(
    delete, path = "/v1/events/{stream}", tag = "events",
    params(("stream" = String, Path)),
    responses(
        (status = 204, description = "The stream is deleted."),
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

/// Submit an event. It is accepted if the same event has not happened within the duration.
#[utoipa::path(
    post, path = "/v1/events/{stream}", tag = "events",
    params(("stream" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewEvent<'_>,
    responses(
        (status = 201, description = "The event is accepted and incubates.", body = wire::Submitted<'_>),
        (status = 404, description = "`StreamNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`EventConflict`: the same event happened within the duration. In a `strictly_once` stream it is now invalidated.", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "`StreamFull`: the stream remembers `max_events` events.", body = Problem, content_type = "application/problem+json"),
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

/// List all incubating events: accepted, and neither published nor invalidated yet.
#[utoipa::path(
    get, path = "/v1/events/{stream}/incubating", tag = "events",
    params(("stream" = String, Path)),
    responses(
        (status = 200, description = "All incubating events, in the order in which they were accepted.", body = wire::Incubating<'_>),
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

/// Submit an event to the stream `only-once` of the default namespace.
///
/// The body is the text of the event. The first use creates the stream.
#[utoipa::path(
    post, path = "/only-once-event", tag = "events",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body(content = String, content_type = "text/plain"),
    responses(
        (status = 201, description = "The event is accepted and incubates.", body = wire::Submitted<'_>),
        (status = 409, description = "`EventConflict`: the same event happened within the duration. In a `strictly_once` stream it is now invalidated.", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "`StreamFull`: the stream remembers `max_events` events.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn only_once_event(State(app): State<App>, call: Call<Raw>) -> Answer {
    plain_event(app, call, Mode::OnlyOnce).await
}

/// Submit an event to the stream `strictly-once` of the default namespace.
///
/// The body is the text of the event. The first use creates the stream.
#[utoipa::path(
    post, path = "/strictly-once-event", tag = "events",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body(content = String, content_type = "text/plain"),
    responses(
        (status = 201, description = "The event is accepted and incubates.", body = wire::Submitted<'_>),
        (status = 409, description = "`EventConflict`: the same event happened within the duration. In a `strictly_once` stream it is now invalidated.", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "`StreamFull`: the stream remembers `max_events` events.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn strictly_once_event(State(app): State<App>, call: Call<Raw>) -> Answer {
    plain_event(app, call, Mode::StrictlyOnce).await
}

async fn plain_event(app: App, call: Call<Raw>, mode: Mode) -> Answer {
    let Call { namespace, idempotency, body: Raw(body) } = call;
    let stream = Name::new(default_stream(mode)).expect("a valid name");
    submit(app, namespace, idempotency, from_wire::events::submit_body(stream, &body, mode)?).await
}

/// Follow a stream by server-sent events.
///
/// The `id` of each message is its clock. A client that sends `Last-Event-ID` resumes after that clock.
#[utoipa::path(
    get, path = "/v1/events/{stream}/stream", tag = "events",
    params(("stream" = String, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses(
        (status = 200, description = "First a key frame, or the changes after `Last-Event-ID` if they are still kept; then every change.", body = wire::Message<'_>, content_type = "text/event-stream"),
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
    let permit = namespace.identity.take(Resource::Streams)?;
    admit_follower(&app, &namespace, &stream).await?;
    let is_event_source = accepts_events(&headers);
    let begin = Instant::now();
    let follower = loop {
        match following::follow(&app, &namespace, stream.clone(), after).await {
            Ok(follower) => break follower,
            // A browser's `EventSource` never reconnects after a status other than 200. So the request waits until the
            // shard is open or, if that takes too long, gets a stream that ends, after which the browser reconnects.
            Err(FollowError::Unavailable(reason)) if is_event_source => {
                if reason == Unavailable::ShuttingDown || begin.elapsed() > MAX_OPEN_WAIT {
                    return Ok(event_stream(RECONNECT_LATER));
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(reason) => return Err(not_followed(&stream, reason)),
        }
    };
    let pieces = unfold((follower, VecDeque::new(), permit), |(mut follower, mut pieces, permit)| async {
        if pieces.is_empty() {
            pieces = sent_events(&mut follower).await?;
        }
        let piece = pieces.pop_front()?;
        Some((Ok::<_, std::convert::Infallible>(piece), (follower, pieces, permit)))
    });
    let stopping = app.until_stopping();
    let ended = async move {
        tokio::select! {
            _ = namespace.identity.until_denied([right_to_follow(&namespace)]) => {}
            () = stopping => {}
        }
    };
    Ok(event_stream(Body::from_stream(pieces.take_until(Box::pin(ended)))))
}

fn event_stream(body: impl Into<Body>) -> Response {
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, body.into()).into_response()
}

/// Whether `Accept` names `text/event-stream`, as every `EventSource` does.
fn accepts_events(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let types = values.flat_map(|value| value.split(',')).map(|item| item.split(';').next().unwrap_or(item));
    types.into_iter().any(|name| name.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// The next messages as server-sent events, or a comment if there are none for a while. `None` ends the stream. Small messages
/// are copied into one piece. A large one is shared with all other followers.
async fn sent_events(follower: &mut Follower) -> Option<VecDeque<Bytes>> {
    let Ok(next) = tokio::time::timeout(KEEP_ALIVE, follower.next()).await else {
        return Some(VecDeque::from([Bytes::from_static(b":\n\n")]));
    };
    let (mut pieces, mut out) = (VecDeque::new(), BytesMut::new());
    for message in next.ok()? {
        let encoded = message.encoded(encode);
        let body = Payload::body_of(encoded);
        out.extend_from_slice(format!("id: {}\ndata: ", message.clock()).as_bytes());
        if body.len() > LARGE {
            pieces.push_back(out.split().freeze());
            pieces.push_back(message.keep_with(encoded.slice_ref(body)));
        } else {
            out.extend_from_slice(body);
        }
        out.extend_from_slice(b"\n\n");
    }
    pieces.push_back(out.freeze());
    Some(pieces)
}
