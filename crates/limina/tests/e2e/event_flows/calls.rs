//! Every request of the API's table of events: its path in both forms, its fields, its answers.

use serde_json::json;

use crate::events::{LONG, name, number, setting};
use crate::harness::Server;
use crate::reply::Reply;

#[test]
fn a_stream_is_created_read_used_and_deleted() {
    let server = Server::fresh();
    for events in [server.events(), server.events_of("default"), server.events_of("a/b 🌮")] {
        let stream = "lunch/🌮 %2F";
        events.read(stream).refused(404, "StreamNotFound");
        let body = json!({"mode": "only_once", "duration": "1h", "max_events": 500, "key_frame_every": "2s"});
        events.put(stream, &body).created();
        events.put(stream, &body).ok();
        events.put(stream, &setting("strictly_once", "1h")).refused(409, "StreamModeConflict");
        let read = events.read(stream).ok().body;
        assert_eq!(name(&read), stream, "{read}");
        assert_eq!(read["mode"], "only_once", "{read}");
        assert_eq!(number(&read, "duration_ms"), 3_600_000, "{read}");
        assert_eq!(number(&read, "max_events"), 500, "{read}");
        assert_eq!(number(&read, "key_frame_every_ms"), 2_000, "{read}");
        assert_eq!(number(&read, "incubating"), 0, "{read}");
        let clock = number(&read, "clock");

        let taco = events.accept(stream, "🌮");
        assert_eq!((taco.event.as_str(), taco.clock), ("🌮", clock + 1));
        assert_eq!(taco.publishes_at, taco.time + 3_600_000);
        assert_eq!(events.submit(stream, "🌮").conflict(false), taco.time);
        let apple = events.accept(stream, "🍎");
        assert!(apple.time >= taco.time);
        let read = events.read(stream).ok().body;
        assert_eq!((number(&read, "clock"), number(&read, "incubating")), (clock + 2, 2), "{read}");

        let incubating = events.incubating(stream);
        assert_eq!(incubating.clock, clock + 2);
        for event in [&taco, &apple] {
            assert_eq!(incubating.events.get(&event.event), Some(&event.time), "{incubating:?}");
            assert_eq!(incubating.publishes_at.get(&event.event), Some(&event.publishes_at));
        }
        assert_eq!(incubating.events.len(), 2);

        assert_eq!(events.names(10), [stream]);
        let deleted = events.delete(stream).is(204);
        assert_eq!(deleted.text, "");
        assert_eq!(events.names(10), [""; 0]);
    }
}

#[test]
fn an_unknown_stream_is_not_found_and_not_created() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("gone", LONG);
    events.delete("gone").is(204);
    for stream in ["gone", "unknown", "🌮", "a/b", &"x".repeat(256)] {
        let path = format!("/{}", crate::ledger::encode(stream));
        events.read(stream).refused(404, "StreamNotFound");
        events.delete(stream).refused(404, "StreamNotFound");
        events.submit(stream, "x").refused(404, "StreamNotFound");
        for more in ["/incubating", "/stream"] {
            Reply::to(events.request("GET", &format!("{path}{more}"))).refused(404, "StreamNotFound");
        }
    }
    assert_eq!(events.names(10), [""; 0]);
}

#[test]
fn paths_without_a_namespace_use_default() {
    let server = Server::fresh();
    let (plain, default) = (server.events(), server.events_of("default"));
    plain.only_once("s", LONG);
    default.put("s", &setting("only_once", LONG)).ok();
    let first = plain.accept("s", "x");
    assert_eq!(default.submit("s", "x").conflict(false), first.time);
    assert_eq!(default.incubating("s"), plain.incubating("s"));
    default.delete("s").is(204);
    plain.read("s").refused(404, "StreamNotFound");
}

/// A stream may have any printable name.
#[test]
fn names_are_percent_encoded() {
    let server = Server::fresh();
    let events = server.events();
    let longest = "ж".repeat(128);
    let names = [
        "a",
        "A",
        "...",
        "a/b",
        "/",
        "//",
        "incubating",
        "stream",
        "a/stream",
        " ",
        "+",
        "100%",
        "%2F",
        "?",
        "#",
        "&=",
        ":",
        "\\",
        "\"",
        "ünïcode",
        "🌮",
        "e\u{301}",
        "é",
        &longest,
    ];
    for name in names {
        events.only_once(name, LONG);
        events.accept(name, name);
    }
    for name in names {
        assert_eq!(events.incubating(name).events.keys().collect::<Vec<_>>(), [name], "{name:?}");
    }
    let mut expected = names.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(events.names(1000), expected);
}

#[test]
fn invalid_names_are_refused() {
    let server = Server::fresh();
    let events = server.events();
    for name in [&"x".repeat(257), &"ж".repeat(129), "a\u{7}", "\u{0}", "line\nfeed"] {
        events.put(name, &setting("only_once", LONG)).refused(400, "InvalidRequest");
        events.submit(name, "x").refused(400, "InvalidRequest");
    }
    // A reserved name: subscribers of `/topic/time` receive the time.
    let reserved = events.put("time", &setting("only_once", LONG));
    assert!((400..500).contains(&reserved.status), "{} {}", reserved.status, reserved.text);
    assert_eq!(events.names(10), [""; 0]);
}

#[test]
fn an_event_is_any_text_up_to_1024_bytes() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let longest = "x".repeat(1024);
    let widest = "🌮".repeat(256);
    let all = [
        "a",
        "A",
        " ",
        "  ",
        "a ",
        "\"",
        "\\",
        "\\n",
        "\n",
        "\r\n",
        "\u{1}",
        "\t",
        "{\"event\": 1}",
        "null",
        "0",
        "é",
        "e\u{301}",
        "🌮",
        "MESSAGE\n\nx",
        &longest,
        &widest,
    ];
    for event in all {
        let submitted = events.accept("s", event);
        assert_eq!(submitted.event, event);
        assert_eq!(events.submit("s", event).conflict(false), submitted.time, "{event:?}");
    }
    let incubating = events.incubating("s");
    assert_eq!(incubating.events.len(), all.len());
    assert!(all.iter().all(|&event| incubating.events.contains_key(event)), "{incubating:?}");
}
