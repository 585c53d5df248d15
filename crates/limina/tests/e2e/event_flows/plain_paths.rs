//! `/only-once-event` and `/strictly-once-event`: the body is the event, and the streams are made on first use.

use crate::events::{Submitted, number, setting};
use crate::harness::Server;
use crate::reply::Reply;
use crate::stomp::Stomp;

const PATHS: [(&str, &str, &str); 2] = [
    ("/only-once-event", "only-once", "only_once"),
    ("/strictly-once-event", "strictly-once", "strictly_once"),
];

#[test]
fn the_stream_is_created_on_first_use() {
    let mut server = Server::fresh();
    for (path, stream, mode) in PATHS {
        server.events().read(stream).refused(404, "StreamNotFound");
        let first: Submitted = server.post_plain(path, "🌮").submitted();
        assert_eq!((first.event.as_str(), first.publishes_at), ("🌮", first.time + 10_000));
        let read = server.events().read(stream).ok().body;
        assert_eq!(read["mode"], mode, "{read}");
        assert_eq!(number(&read, "duration_ms"), 10_000, "{read}");
        assert_eq!(number(&read, "max_events"), 10_000, "{read}");
        let reply = server.post_plain(path, "🌮");
        assert_eq!(reply.conflict(mode == "strictly_once"), first.time);
        server.crash_and_restart();
        server.post_plain(path, "another").submitted();
    }
    let mut names = server.events().names(10);
    names.sort();
    assert_eq!(names, ["only-once", "strictly-once"]);
}

#[test]
fn plain_streams_have_the_modes_of_their_names() {
    let server = Server::fresh();
    let modes =
        [("only-once", "only_once", "strictly_once"), ("strictly-once", "strictly_once", "only_once")];
    for (stream, mode, other) in modes {
        let events = server.events();
        events.put(stream, &setting(other, "1h")).refused(409, "StreamModeConflict");
        events.read(stream).refused(404, "StreamNotFound");
        events.put(stream, &setting(mode, "1h")).created();
        events.put(stream, &setting(other, "1h")).refused(409, "StreamModeConflict");
        // In other namespaces these names have no special meaning.
        server.events_of("elsewhere").put(stream, &setting(other, "1h")).created();
    }
}

#[test]
fn any_content_type_is_accepted() {
    let server = Server::fresh();
    for (path, stream, _) in PATHS {
        let types = ["text/plain", "application/json", "application/octet-stream", "image/png", "nonsense"];
        for (n, kind) in types.into_iter().enumerate() {
            let body = format!("{{\"event\": {n}}}");
            let request = server.http().post(server.url(path)).header("content-type", kind);
            let told = Reply::to(request.body(body.clone())).submitted();
            assert_eq!(told.event, body, "the body is the event itself, whatever it says");
        }
        let bare = server.post_plain(path, "no type").submitted();
        assert_eq!(bare.event, "no type");
        assert_eq!(server.events().incubating(stream).events.len(), types.len() + 1);
    }
}

/// The streams of the plain paths can be used through the other paths too, with the same events.
#[test]
fn plain_streams_are_in_the_namespace_default() {
    let server = Server::fresh();
    for (path, stream, mode) in PATHS {
        let first = server.post_plain(path, "x").submitted();
        let events = server.events();
        assert_eq!(events.submit(stream, "x").conflict(mode == "strictly_once"), first.time);
        let second = events.accept(stream, "y");
        assert_eq!(server.post_plain(path, "y").conflict(mode == "strictly_once"), second.time);
        server.events_of("other").read(stream).refused(404, "StreamNotFound");
    }
}

#[test]
fn invalid_events_are_refused() {
    let server = Server::fresh();
    for (path, ..) in PATHS {
        for body in [&b""[..], &[b'x'; 1025], b"\xff\xfe"] {
            server.post_plain(path, body).refused(400, "InvalidRequest");
        }
        server.post_plain(path, vec![b'x'; 1024]).submitted();
        server.post_plain(path, vec![b'x'; 2 << 20]).refused(413, "PayloadTooLarge");
    }
}

/// If the stream exists already with another setting, that setting stays.
#[test]
fn existing_settings_are_kept() {
    let server = Server::fresh();
    let events = server.events();
    let body =
        serde_json::json!({"mode": "only_once", "duration": "1h", "max_events": 1, "key_frame_every": "1m"});
    events.put("only-once", &body).created();
    let first = server.post_plain("/only-once-event", "x").submitted();
    assert_eq!(first.publishes_at, first.time + 3_600_000);
    server.post_plain("/only-once-event", "y").refused(507, "StreamFull");
}

#[test]
fn subscribing_creates_plain_streams() {
    let server = Server::fresh();
    for (path, stream, mode) in PATHS {
        let mut stomp = Stomp::connect(&server);
        let follower = stomp.follow("0", &format!("/topic/{stream}"));
        assert_eq!(follower.incubating.len(), 0);
        server.events().read(stream).ok().has("mode", mode).has("duration_ms", 10_000);
        let told = server.post_plain(path, "🌮").submitted();
        let change = stomp.push_change();
        assert_eq!((change.clock, change.event.as_str(), change.time), (follower.clock + 1, "🌮", told.time));
    }
}

/// Many clients use the plain path for the first time at the same moment.
#[test]
fn concurrent_first_uses_create_one_stream() {
    let server = Server::fresh();
    let request = server.http().post(server.url("/only-once-event")).body("x");
    let told: Vec<Reply> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..16)
            .map(|_| {
                let request = request.try_clone().expect("a body that can be sent again");
                scope.spawn(move || Reply::to(request))
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    let accepted: Vec<Submitted> =
        told.iter().filter(|reply| reply.status == 201).map(Reply::submitted).collect();
    assert_eq!(accepted.len(), 1, "{told:?}");
    for reply in told.iter().filter(|reply| reply.status != 201) {
        assert_eq!(reply.conflict(false), accepted[0].time);
    }
}
