//! The calls about events.

use super::*;
use limina_engine::{
    Listed, Millis,
    events::{
        Changes, Command as EventCommand, EventInfo, KeyFrame, Mode, Refusal, Reply as EventReply,
        StreamInfo, StreamTerms, Submitted,
    },
};

/// What the engine could answer, where a case does not care.
pub(crate) fn plausible(command: &EventCommand) -> EventReply {
    match command {
        EventCommand::Put { .. } => EventReply::StreamCreated(stream("s")),
        EventCommand::Delete(_) => EventReply::StreamDeleted,
        EventCommand::Submit(_) => EventReply::Submitted(Submitted { event: event("🌮"), clock: 7 }),
        EventCommand::KeyFrame { .. } | EventCommand::Get(_) => EventReply::Stream(stream("s")),
        EventCommand::List(_) => EventReply::Streams(Listed { items: vec![stream("s")], next: None }),
        EventCommand::Incubating(_) | EventCommand::Snapshot(_) => {
            EventReply::Incubating(KeyFrame { clock: 7, events: vec![event("🌮")] })
        }
        EventCommand::Changes(_) => EventReply::Changes(Changes::NotKept),
    }
}

fn terms(mode: Mode, duration: u64, max_events: u32, key_frame_every: u64) -> StreamTerms {
    let terms = StreamTerms::new(mode, Millis(duration)).unwrap().with_max_events(max_events).unwrap();
    terms.with_key_frame_every(Millis(key_frame_every)).unwrap()
}

fn stream(text: &str) -> StreamInfo {
    let terms = terms(Mode::StrictlyOnce, 3_000, 5, 500);
    StreamInfo { name: name(text), terms, clock: 7, incubating: 1 }
}

fn event(text: &str) -> EventInfo {
    EventInfo { event: text.into(), time: Time(1_000), publishes_at: Time(4_000) }
}

#[tokio::test]
async fn streams_are_put_with_defaults() {
    let server = start().await;
    let check = async |body: Json, terms: StreamTerms| {
        let reply = server.send("PUT", "/v1/ns/n/events/s", &body.to_string()).await;
        assert_eq!(reply.status(), 201, "{body}");
        let request = server.last_asked();
        let expect = Command::Events(EventCommand::Put { name: name("s"), terms });
        assert_eq!((request.namespace.as_str(), request.command), ("n", expect));
    };
    check(json!({"mode": "only_once", "duration": "10ms"}), terms(Mode::OnlyOnce, 10, 10_000, 10_000)).await;
    let read = json!({"name": "s", "mode": "only_once", "duration_ms": 10, "max_events": 5, "key_frame_every_ms": 100,
        "clock": 7, "incubating": 1});
    check(read, terms(Mode::OnlyOnce, 10, 5, 100)).await;
    let all = json!({"mode": "strictly_once", "duration": "30d", "max_events": 1_000_000, "key_frame_every": "100ms"});
    check(all, terms(Mode::StrictlyOnce, 30 * Millis::DAY.0, 1_000_000, 100)).await;
}

#[tokio::test]
async fn what_does_not_validate_names_the_field() {
    let server = start().await;
    let check = async |method: &str, path: &str, body: &str, field: &str| {
        let problem = problem_of(server.send(method, path, body).await, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], field, "{body:.100} gave {problem}");
        server.nothing_asked();
    };
    let put = async |body: Json, field: &str| check("PUT", "/v1/events/s", &body.to_string(), field).await;
    put(json!({"duration": "1s"}), "mode").await;
    put(json!({"mode": "once", "duration": "1s"}), "mode").await;
    put(json!({"mode": "only_once"}), "duration").await;
    put(json!({"mode": "only_once", "duration": "9ms"}), "duration").await;
    put(json!({"mode": "only_once", "duration": "31d"}), "duration").await;
    put(json!({"mode": "only_once", "duration": "1s", "max_events": 0}), "max_events").await;
    put(json!({"mode": "only_once", "duration": "1s", "max_events": 1_000_001}), "max_events").await;
    put(json!({"mode": "only_once", "duration": "1s", "key_frame_every": "99ms"}), "key_frame_every").await;
    put(json!({"mode": "only_once", "duration": "1s", "key_frame_every": 100}), "key_frame_every").await;
    put(json!({"mode": "only_once", "duration_ms": 9}), "duration_ms").await;
    put(json!({"mode": "only_once", "duration": "1s", "duration_ms": 1000}), "duration_ms").await;
    put(json!({"mode": "only_once", "duration": "1s", "name": "other"}), "name").await;
    let fine = r#"{"mode": "only_once", "duration": "1s"}"#;
    check("PUT", "/v1/events/time", fine, "stream").await;
    check("POST", "/v1/events/s", r#"{"event": ""}"#, "event").await;
    check("POST", "/v1/events/s", &json!({"event": "e".repeat(1025)}).to_string(), "event").await;
    check("POST", "/v1/events/s", "{}", "event").await;
    check("POST", "/only-once-event", "", "body").await;
    check("POST", "/strictly-once-event", &"e".repeat(1025), "body").await;
}

#[tokio::test]
async fn a_body_can_be_the_event_itself() {
    let server = start().await;
    let check = async |path: &str, stream: &str, mode: Mode| {
        let request = server.request("POST", path).header("content-type", "text/plain").body(r#"{"a": 1}"#);
        assert_eq!(request.send().await.unwrap().status(), 201);
        let Command::Events(EventCommand::Submit(submit)) = server.last_asked().command else {
            panic!("an event is submitted")
        };
        assert_eq!((submit.stream().as_str(), &**submit.event()), (stream, r#"{"a": 1}"#));
        assert_eq!(submit.make(), Some(&terms(mode, 10_000, 10_000, 10_000)));
    };
    check("/only-once-event", "only-once", Mode::OnlyOnce).await;
    check("/strictly-once-event", "strictly-once", Mode::StrictlyOnce).await;
}

#[tokio::test]
async fn replies_and_refusals_look_as_they_should() {
    let server = start().await;
    let shown = json!({
        "name": "s", "mode": "strictly_once", "duration_ms": 3000, "max_events": 5, "key_frame_every_ms": 500,
        "clock": 7, "incubating": 1,
    });
    let get = async |method: &str, path: &str, body: &str| -> Json {
        server.send(method, path, body).await.json().await.unwrap()
    };
    assert_eq!(get("GET", "/v1/events/s", "").await, shown);
    assert_eq!(get("GET", "/v1/events", "").await, json!({"items": [shown], "next": null}));
    let submitted =
        json!({"status": "submitted", "event": "🌮", "time": 1000, "clock": 7, "publishes_at": 4000});
    assert_eq!(get("POST", "/v1/events/s", r#"{"event": "🌮"}"#).await, submitted);
    let incubating = json!({"clock": 7, "events": [{"event": "🌮", "time": 1000, "publishes_at": 4000}]});
    assert_eq!(get("GET", "/v1/events/s/incubating", "").await, incubating);
    assert_eq!(server.send("DELETE", "/v1/events/s", "").await.status(), 204);
    problem_of(server.send("GET", "/v1/events/s/stream", "").await, 503, "ShuttingDown").await;

    let check = async |refusal: Refusal, status: u16, code: &str, members: Json| {
        server.answers(Ok(Outcome::Events(Err(refusal))));
        let problem =
            problem_of(server.send("POST", "/v1/events/s", r#"{"event": "e"}"#).await, status, code).await;
        for (member, value) in members.as_object().unwrap() {
            assert_eq!(problem[member], *value, "{problem}");
        }
    };
    check(Refusal::StreamNotFound { stream: name("s") }, 404, "StreamNotFound", json!({"stream": "s"})).await;
    check(Refusal::StreamModeConflict { stream: name("s") }, 409, "StreamModeConflict", json!({})).await;
    let conflict = Refusal::EventConflict { conflicting_time: Time(5), invalidated: true };
    check(conflict, 409, "EventConflict", json!({"conflicting_time": 5, "invalidated": true})).await;
    check(Refusal::StreamFull { max_events: 5 }, 507, "StreamFull", json!({"max_events": 5})).await;
}

/// A browser's `EventSource` gives up for ever when it is answered 503. It connects again when a stream ends.
#[tokio::test]
async fn an_event_source_is_never_told_to_give_up_because_of_the_server() {
    let server = start().await;
    let path = "/v1/events/s/stream";
    let reply = server.request("GET", path).header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()["content-type"], "text/event-stream");
    let body = reply.text().await.unwrap();
    assert!(body.lines().any(|line| line == "retry: 1000"), "{body}");
    assert!(!body.lines().any(|line| line.starts_with("data:")), "{body}");

    // Other clients get the status.
    problem_of(server.send("GET", path, "").await, 503, "ShuttingDown").await;
}

#[tokio::test]
async fn an_event_source_that_connects_while_the_server_starts_is_answered_when_it_has() {
    let server = start().await;
    let starting = FollowError::Unavailable(Unavailable::ShardUnavailable);
    let reasons = [starting.clone(), starting, FollowError::StreamNotFound];
    server.fake.not_followed.lock().unwrap().extend(reasons);
    let request = server.request("GET", "/v1/events/s/stream").header("accept", "text/event-stream");
    problem_of(request.send().await.unwrap(), 404, "StreamNotFound").await;
}
