//! Server-sent events: the same messages as over STOMP, with the clock as `id`.

use serde_json::json;

use crate::events::{LONG, setting};
use crate::harness::Server;
use crate::ledger::{encode, with};
use crate::reply::Reply;
use crate::sse::Sse;
use crate::stomp::{Follower, Stomp};

#[test]
fn messages_are_the_same_as_over_stomp() {
    let server = Server::fresh();
    for (namespace, stream) in [("default", "s"), ("a/b 🌮", "c d/🍎")] {
        let events = server.events_of(namespace);
        events.strictly_once(stream, LONG);
        events.accept(stream, "before");
        let path = format!("/v1/ns/{}/events/{}/stream", encode(namespace), encode(stream));
        let mut sse = Sse::open(&server, &path, None);
        let mut stomp = Stomp::connect(&server);
        stomp.subscribe("0", &format!("/topic/{}/{}", encode(namespace), encode(stream)));
        events.accept(stream, "🌮");
        events.submit(stream, "🌮").conflict(true);
        events.accept(stream, "line\nfeed \"and\" quotes");
        let (mut follower, mut other) = (Follower::default(), Follower::default());
        let clock = events.clock(stream);
        while follower.clock < clock {
            follower.fold(sse.push());
        }
        stomp.follow_to(&mut other, clock);
        assert_eq!(follower.incubating, other.incubating);
        assert_eq!(follower.incubating, events.incubating(stream).events);
        let last = |follower: &Follower| follower.changes.last().cloned();
        assert_eq!(last(&follower), last(&other));
    }
}

#[test]
fn an_unknown_stream_is_not_found() {
    let server = Server::fresh();
    for path in ["/v1/events/unknown/stream", "/v1/ns/red/events/unknown/stream"] {
        server.get(path).refused(404, "StreamNotFound");
    }
}

#[test]
fn resumes_by_last_event_id() {
    let mut server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let first = events.accept("s", "0").clock;
    for n in 1..50 {
        events.accept("s", &n.to_string());
    }
    for round in 0..3 {
        for after in [first, first + 10, first + 48] {
            let mut sse = Sse::open(&server, "/v1/events/s/stream", Some(&after.to_string()));
            for clock in after + 1..=first + 49 {
                let change = sse.push().change();
                assert_eq!((change.clock, change.event), (clock, (clock - first).to_string()), "{round}");
            }
        }
        match round {
            0 => server.restart(),
            _ => server.crash_and_restart(),
        }
    }
    // There is no change after this clock, so the next change comes first.
    let mut sse = Sse::open(&server, "/v1/events/s/stream", Some(&(first + 49).to_string()));
    let next = server.events().accept("s", "next");
    assert_eq!(sse.push().change().clock, next.clock);
}

#[test]
fn an_old_or_future_clock_gets_a_key_frame() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let clock = events.accept("s", "x").clock;
    for after in [clock + 1, clock + 1000, u64::MAX] {
        let mut sse = Sse::open(&server, "/v1/events/s/stream", Some(&after.to_string()));
        let push = sse.push();
        assert!(push.is_key_frame(), "after {after}: {push:?}");
        assert_eq!(push.clock(), clock);
    }
}

/// The connection breaks when the server stops. The next connection resumes at the same clock, without a gap.
#[test]
fn followers_resume_across_restarts_without_a_gap() {
    let mut server = Server::fresh();
    server.events().only_once("s", "200ms");
    let mut follower = Follower::default();
    let mut sse = Sse::open(&server, "/v1/events/s/stream", None);
    follower.fold(sse.push());
    for round in 0..4 {
        for n in 0..10 {
            server.events().accept("s", &format!("{round}/{n}"));
        }
        match round {
            1 => server.stop(),
            _ => server.kill(),
        }
        while let Some(sent) = sse.next() {
            follower.fold(sent.push());
        }
        server.start_again();
        sse = Sse::open(&server, "/v1/events/s/stream", Some(&follower.clock.to_string()));
    }
    let last = server.events().await_none("s");
    while follower.clock < last.clock {
        follower.fold(sse.push());
    }
    assert_eq!((follower.jumps, follower.changes.len()), (0, 80), "each submitted and published");
}

#[test]
fn key_frames_are_periodic() {
    let server = Server::fresh();
    let events = server.events();
    events.put("s", &with(setting("only_once", LONG), json!({"key_frame_every": "100ms"}))).created();
    events.accept("s", "x");
    let mut sse = Sse::open(&server, "/v1/events/s/stream", None);
    let mut follower = Follower::default();
    for _ in 0..5 {
        follower.fold(sse.push());
    }
    assert_eq!(follower.key_frames, 5);
}

#[test]
fn an_invalid_last_event_id_causes_no_crash() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    for last in ["x", "-1", "1.5", "99999999999999999999999999"] {
        // The server may answer anything, but must continue to serve.
        let stream = std::net::TcpStream::connect(server.address()).expect("connect");
        use std::io::{Read, Write};
        stream.set_read_timeout(Some(crate::harness::DEADLINE)).expect("a timeout");
        let request =
            format!("GET /v1/events/s/stream HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {last}\r\n\r\n");
        (&stream).write_all(request.as_bytes()).expect("send");
        let mut head = [0; 12];
        (&stream).read_exact(&mut head).expect("an answer");
        let status = std::str::from_utf8(&head[9..]).expect("digits").to_owned();
        assert!(["200", "400"].contains(&status.as_str()), "{last}: {status}");
    }
    Reply::to(server.events().request("GET", "/s")).ok();
}

/// Several streams on one HTTP/2 connection.
#[test]
fn several_streams_work_over_http_2() {
    let server = Server::fresh();
    let events = server.events();
    let runtime = crate::h2::runtime();
    let client = reqwest::Client::builder().http2_prior_knowledge().build().expect("an HTTP client");
    let mut streams: Vec<(reqwest::Response, String)> = Vec::new();
    for stream in ["a", "b"] {
        events.only_once(stream, LONG);
        let url = events.url(&format!("/{stream}/stream"));
        let response = runtime.block_on(async { client.get(url).send().await }).expect("an answer");
        assert_eq!((response.status().as_u16(), response.version()), (200, reqwest::Version::HTTP_2));
        streams.push((response, String::new()));
    }
    let (a, b) = (events.accept("a", "🌮"), events.accept("b", "🍎"));
    for ((response, text), (event, clock)) in streams.iter_mut().zip([("🌮", a.clock), ("🍎", b.clock)]) {
        let mut octets = Vec::new();
        while !text.contains("SUBMITTED_EVENT") || !text.ends_with("\n\n") {
            let chunk = runtime
                .block_on(async { tokio::time::timeout(crate::harness::DEADLINE, response.chunk()).await })
                .expect("in time")
                .expect("a chunk");
            octets.extend(chunk.expect("the stream goes on"));
            *text = String::from_utf8_lossy(&octets).into_owned();
        }
        let named = text.contains(event)
            && text.lines().any(|line| line.trim_start_matches("id:").trim() == clock.to_string());
        assert!(named, "{text}");
    }
}
