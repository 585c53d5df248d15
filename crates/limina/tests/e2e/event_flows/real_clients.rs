//! Widely used clients: @stomp/stompjs under node, stomp.py, and the follower that the documents show.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::clients::Client;
use crate::events::{LONG, setting};
use crate::harness::{Server, eventually};
use crate::ledger::with;
use crate::reply::Reply;
use crate::stomp::{Follower, Push};

fn url(server: &Server) -> String {
    format!("ws://{}/ws", server.address())
}

#[track_caller]
fn push(message: &Value) -> Push {
    Push::of(message["body"].as_str().expect("`body`"))
}

fn stompjs(server: &Server, options: Value) -> Client {
    Client::node("stompjs.mjs", &[&url(server), &options.to_string()])
}

fn command(client: &mut Client, command: Value) {
    client.tell(&command.to_string());
}

#[test]
fn stompjs_follows_in_every_version() {
    let server = Server::fresh();
    let events = server.events();
    for (n, version) in ["1.2", "1.1", "1.0"].into_iter().enumerate() {
        let stream = format!("s{n}");
        events.strictly_once(&stream, LONG);
        let mut client = stompjs(&server, json!({"versions": [version]}));
        assert_eq!(client.called("connected")["version"], version);
        command(
            &mut client,
            json!({"command": "subscribe", "id": "x", "destination": format!("/topic/{stream}")}),
        );
        let mut follower = Follower::default();
        follower.fold(push(&client.called("message")));
        events.accept(&stream, "🌮");
        events.submit(&stream, "🌮").conflict(true);
        events.accept(&stream, "with \"quotes\", \\n and\nlines");
        let end = events.incubating(&stream);
        while follower.clock < end.clock {
            follower.fold(push(&client.called("message")));
        }
        assert_eq!((follower.incubating, follower.changes.len()), (end.events, 3));
        command(&mut client, json!({"command": "deactivate"}));
        check_goodbye(&mut client);
    }
}

/// `deactivate` waits for the receipt of its DISCONNECT, without a timeout.
#[track_caller]
fn check_goodbye(client: &mut Client) {
    let mut said = vec![client.said(), client.said()];
    said.sort_by_key(|said| said["called"].to_string());
    assert_eq!(
        (&said[0]["called"], &said[1]["called"]),
        (&json!("closed"), &json!("deactivated")),
        "{said:?}"
    );
}

/// Frames that stompjs sends in binary messages, and split into small ones.
#[test]
fn stompjs_in_binary_and_in_pieces() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    for options in [
        json!({"forceBinaryWSFrames": true}),
        json!({"splitLargeFrames": true, "maxWebSocketChunkSize": 16}),
        json!({"forceBinaryWSFrames": true, "appendMissingNULLonIncoming": false}),
    ] {
        let mut client = stompjs(&server, options);
        client.called("connected");
        let headers = json!({"ack": "client-individual", "receipt": "r"});
        command(
            &mut client,
            json!({"command": "subscribe", "id": "x", "destination": "/topic/s", "headers": headers, "acknowledge": "ack"}),
        );
        let mut said = [client.said(), client.said()];
        said.sort_by_key(|said| said["called"].to_string());
        assert_eq!(
            (&said[0]["called"], &said[1]["called"]),
            (&json!("message"), &json!("receipt")),
            "{said:?}"
        );
        assert!(push(&said[0]).is_key_frame());
        command(
            &mut client,
            json!({"command": "send", "destination": "/app/time", "body": "x".repeat(5000)}),
        );
        command(&mut client, json!({"command": "deactivate"}));
        check_goodbye(&mut client);
    }
}

#[test]
fn stompjs_gets_errors_and_is_closed() {
    let server = Server::fresh();
    let mut client = stompjs(&server, json!({}));
    client.called("connected");
    command(&mut client, json!({"command": "subscribe", "id": "x", "destination": "/topic/unknown"}));
    let error = client.called("error").to_string();
    assert!(error.contains("StreamNotFound"), "{error}");
    // The library does not close the connection after an ERROR.
    assert_eq!(client.called("closed")["code"], 1002);
}

/// If the server does not answer a close, a browser reports a broken connection (1006).
#[test]
fn stompjs_leaves_cleanly() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut client = stompjs(&server, json!({}));
    client.called("connected");
    command(&mut client, json!({"command": "subscribe", "id": "x", "destination": "/topic/s"}));
    client.called("message");
    command(&mut client, json!({"command": "deactivate"}));
    let closed = [client.said(), client.said()].into_iter().find(|said| said["called"] == "closed");
    let closed = closed.expect("closed");
    assert_ne!(closed["code"], 1006, "{closed}");
}

#[test]
fn stompjs_exchanges_heart_beats() {
    let server = Server::fresh();
    server.events().put("s", &with(setting("only_once", LONG), json!({"key_frame_every": "1h"}))).created();
    let mut client = stompjs(&server, json!({"heartbeatIncoming": 2000, "heartbeatOutgoing": 2000}));
    client.called("connected");
    command(&mut client, json!({"command": "subscribe", "id": "x", "destination": "/topic/s"}));
    client.called("message");
    // Several heart-beat periods of silence: without heart-beats, each side would have hung up by now.
    std::thread::sleep(std::time::Duration::from_secs(9));
    server.events().accept("s", "x");
    let message = client.called("message");
    assert!(!push(&message).is_key_frame(), "the same connection still: {message}");
}

#[test]
fn stompjs_gets_the_time() {
    let server = Server::fresh();
    let mut client = stompjs(&server, json!({}));
    client.called("connected");
    command(&mut client, json!({"command": "subscribe", "id": "t", "destination": "/topic/time"}));
    command(&mut client, json!({"command": "send", "destination": "/app/time"}));
    for _ in 0..20 {
        let message = client.called("message");
        assert!(message["body"].as_str().is_some_and(|body| body.parse::<u64>().is_ok()), "{message}");
    }
}

fn stomp_py(server: &Server, beats: [u32; 2]) -> Client {
    let address = server.address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    Client::python("stomp_py.py", &[&host, &port, &json!(beats).to_string()])
}

#[test]
fn stomp_py_follows_and_acknowledges() {
    let server = Server::fresh();
    let events = server.events();
    events.strictly_once("s", LONG);
    for (round, acknowledge) in ["ack", "nack"].into_iter().enumerate() {
        let mut client = stomp_py(&server, [0, 0]);
        assert_eq!(client.called("connected")["headers"]["version"], "1.2");
        command(
            &mut client,
            json!({"command": "subscribe", "id": "7", "destination": "/topic/s", "ack": "client-individual",
                "headers": {}, "acknowledge": acknowledge}),
        );
        let mut follower = Follower::default();
        follower.fold(push(&client.called("message")));
        let taco = format!("🌮 {round}");
        events.accept("s", &taco);
        events.submit("s", &taco).conflict(true);
        events.accept("s", &format!("🍎 {round}"));
        let end = events.incubating("s");
        while follower.clock < end.clock {
            follower.fold(push(&client.called("message")));
        }
        assert_eq!((follower.incubating, follower.changes.len()), (end.events, 3));
        command(&mut client, json!({"command": "disconnect"}));
        // The library reports these two in either order.
        let mut said = [client.said(), client.said()];
        said.sort_by_key(|said| said["called"].to_string());
        assert_eq!(
            (&said[0]["called"], &said[1]["called"]),
            (&json!("closed"), &json!("receipt")),
            "{said:?}"
        );
        assert_eq!(said[1]["headers"]["receipt-id"], "bye");
    }
}

#[test]
fn stomp_py_resumes() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let first = events.accept("s", "0").clock;
    for n in 1..10 {
        events.accept("s", &n.to_string());
    }
    let mut client = stomp_py(&server, [0, 0]);
    client.called("connected");
    let headers = json!({"resume-after": first.to_string()});
    command(
        &mut client,
        json!({"command": "subscribe", "id": "7", "destination": "/topic/s", "headers": headers}),
    );
    for clock in first + 1..first + 10 {
        assert_eq!(push(&client.called("message")).change().clock, clock);
    }
}

/// The library drops a server that is silent for one and a half periods.
#[test]
fn stomp_py_exchanges_heart_beats() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut client = stomp_py(&server, [3000, 3000]);
    client.called("connected");
    command(&mut client, json!({"command": "subscribe", "id": "7", "destination": "/topic/s"}));
    client.called("message");
    std::thread::sleep(std::time::Duration::from_secs(12));
    server.events().accept("s", "x");
    assert!(!push(&client.called("message")).is_key_frame());
}

#[test]
fn stomp_py_gets_errors_and_is_closed() {
    let server = Server::fresh();
    let mut client = stomp_py(&server, [0, 0]);
    client.called("connected");
    command(&mut client, json!({"command": "subscribe", "id": "7", "destination": "/topic/unknown"}));
    let error = client.called("error").to_string();
    assert!(error.contains("StreamNotFound"), "{error}");
    client.called("closed");
}

/// The follower of the documents under load, while the server is killed several times: at every clock its set of
/// incubating events is that of the server.
#[test]
fn the_documented_follower_is_consistent_across_kills() {
    let mut server = Server::fresh();
    let body = json!({"key_frame_every": "500ms"});
    server.events().put("s", &with(setting("strictly_once", "700ms"), body)).created();
    let mut client = Client::node("follower_run.mjs", &[&url(&server), "/topic/s"]);
    let first = client.said();
    assert_eq!(first["kind"], "KEY_FRAME", "{first}");
    // The incubating events that the server returned, by clock, to be compared with those of the follower.
    let mut asked: BTreeMap<u64, BTreeMap<String, u64>> = BTreeMap::new();
    for round in 0..3 {
        let (events, over, done) = (server.events(), AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (events, over, done) = (&events, &over, &done);
                    scope.spawn(move || {
                        let mut random = crate::load::Random::new(writer + 1);
                        while !over.load(Ordering::Relaxed) {
                            let event = format!("{writer}/{}", random.below(50));
                            match Reply::try_to(events.submission("s", &event)) {
                                Ok(reply) => {
                                    assert!([201, 409, 503].contains(&reply.status), "{}", reply.text)
                                }
                                Err(_) => return,
                            }
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let reached = eventually(|| {
                let incubating = events.incubating("s");
                asked.insert(incubating.clock, incubating.events);
                (done.load(Ordering::Relaxed) >= 300).then_some(())
            });
            if round < 2 {
                server.kill();
            }
            over.store(true, Ordering::Relaxed);
            assert!(reached.is_some(), "the load is stuck");
            for writer in writers {
                writer.join().expect("a writer");
            }
        });
        if round < 2 {
            server.start_again();
            client.tell(&url(&server));
        }
    }
    let end = server.events().await_none("s");
    asked.insert(end.clock, end.events);
    let mut folded: BTreeMap<u64, BTreeMap<String, u64>> = BTreeMap::new();
    let mut said = first;
    loop {
        assert_eq!(said["missed"], 0, "a gap: {said}");
        let clock = said["clock"].as_u64().expect("`clock`");
        let incubating = serde_json::from_value(said["incubating"].clone()).expect("a set of events");
        if let Some(before) = folded.insert(clock, incubating) {
            assert_eq!(before, folded[&clock], "two states at the clock {clock}");
        }
        if clock >= end.clock {
            break;
        }
        said = client.said();
    }
    // The follower saw every clock, also those during the kills.
    for (clock, incubating) in &asked {
        assert_eq!(folded.get(clock), Some(incubating), "at the clock {clock}");
    }
    assert!(asked.len() > 3, "asked at {} clocks only", asked.len());
    client.end();
    // Until the client has said `bye`, it may report more key frames.
    while let Some(line) = client.line().filter(|line| line != "bye") {
        assert!(line.contains("KEY_FRAME"), "{line}");
    }
}
