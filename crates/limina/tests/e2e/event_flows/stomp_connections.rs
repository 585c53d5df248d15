//! Opening and closing a STOMP connection: sub-protocols, versions, heart-beats, receipts, errors.

use std::time::{Duration, Instant};

use crate::events::LONG;
use crate::harness::{DEADLINE, Server};
use crate::raw;
use crate::stomp::{Stomp, V10, V11, V12};
use crate::websocket::TEXT;

#[test]
fn one_of_the_offered_sub_protocols_is_chosen() {
    let server = Server::fresh();
    for (offered, chosen) in [
        (&[V12, V11, V10][..], Some(V12)),
        (&[V10, V11, V12], Some(V12)),
        (&[V11, V10], Some(V11)),
        (&[V10, V11], Some(V11)),
        (&[V10], Some(V10)),
        (&["mqtt", V11], Some(V11)),
        (&[], None),
    ] {
        let mut stomp = Stomp::open(&server, offered);
        assert_eq!(stomp.socket().protocol.as_deref(), chosen, "{offered:?}");
        stomp.send("CONNECT", &[("accept-version", "1.0,1.1,1.2")], "");
        stomp.receive().is("CONNECTED");
    }
}

#[test]
fn the_highest_common_version_is_chosen() {
    let server = Server::fresh();
    for command in ["CONNECT", "STOMP"] {
        for (accepted, chosen) in [
            (Some("1.2"), "1.2"),
            (Some("1.1"), "1.1"),
            (Some("1.0"), "1.0"),
            (Some("1.0,1.1,1.2"), "1.2"),
            (Some("1.2,1.1,1.0"), "1.2"),
            (Some("1.0,1.1"), "1.1"),
            (Some("1.0,2.0"), "1.0"),
            (Some("1.1,9.9"), "1.1"),
            (None, "1.0"),
        ] {
            let mut stomp = Stomp::open(&server, &[]);
            let headers: Vec<(&str, &str)> =
                accepted.map(|versions| ("accept-version", versions)).into_iter().collect();
            stomp.send(command, &headers, "");
            let connected = stomp.receive().is("CONNECTED");
            // STOMP 1.0 has no header `version`, so an answer without it has version 1.0.
            let version = connected.header("version").unwrap_or("1.0");
            assert_eq!(version, chosen, "{accepted:?}: {connected:?}");
            if chosen != "1.0" {
                for header in ["heart-beat", "session", "server"] {
                    assert!(
                        connected.header(header).is_some_and(|value| !value.is_empty()),
                        "{header}: {connected:?}"
                    );
                }
            }
            stomp.subscribe("0", "/topic/only-once");
            assert!(stomp.push().is_key_frame());
        }
    }
}

#[test]
fn no_common_version_is_an_error_with_our_versions() {
    let server = Server::fresh();
    for accepted in ["2.0", "1.3,1.4", "0.9", "x", ""] {
        let mut stomp = Stomp::open(&server, &[]);
        stomp.send("CONNECT", &[("accept-version", accepted)], "");
        let error = stomp.receive().is("ERROR");
        let ours = error.header("version").unwrap_or_default();
        assert!(ours.contains("1.2") && ours.contains("1.0"), "{error:?}");
        stomp.expect_close();
    }
}

#[test]
fn usual_connect_headers_are_accepted() {
    let server = Server::fresh();
    for headers in [
        &[("accept-version", "1.2"), ("host", "example.org"), ("login", "me"), ("passcode", "secret")][..],
        &[("accept-version", "1.2"), ("host", "")],
        &[("accept-version", "1.2"), ("x-unknown", "fine")],
    ] {
        Stomp::connect_with(&server, &[V12], headers);
    }
}

/// The server sends a heart-beat in each agreed period, max(sx, cy).
#[test]
fn the_server_sends_heart_beats() {
    let server = Server::fresh();
    let (mut stomp, connected) =
        Stomp::connect_with(&server, &[V12], &[("accept-version", "1.2"), ("heart-beat", "0,300")]);
    let (sends, _) = heart_beat(connected.header("heart-beat"));
    assert_ne!(sends, 0, "heart-beats are negotiated: {connected:?}");
    let period = Duration::from_millis(sends.max(300));
    let begun = Instant::now();
    stomp.line_feeds = 0;
    while stomp.line_feeds < 3 {
        assert!(
            begun.elapsed() < DEADLINE + 3 * period,
            "{} beats in {:?}",
            stomp.line_feeds,
            begun.elapsed()
        );
        let frame = stomp.receive_within(period / 4);
        assert_eq!(frame, None);
        assert_eq!(stomp.closed_with, None);
    }
    // The server must not be silent for longer than a period, nor send heart-beats much more often.
    assert!(begun.elapsed() >= period, "three beats in {:?}", begun.elapsed());
}

#[test]
fn no_heart_beats_are_sent_unless_requested() {
    let server = Server::fresh();
    for beats in ["0,0", "5000,0"] {
        let (mut stomp, _) =
            Stomp::connect_with(&server, &[V12], &[("accept-version", "1.2"), ("heart-beat", beats)]);
        stomp.line_feeds = 0;
        assert_eq!(stomp.receive_within(Duration::from_secs(1)), None);
        // An end of line may also follow a frame, but there is no heart-beat.
        assert!(stomp.line_feeds <= 1, "{} beats", stomp.line_feeds);
        stomp.sync("alive");
    }
}

/// A client that offered heart-beats and sends none is dropped. A client that sends them is not.
#[test]
fn only_a_silent_client_is_dropped() {
    let server = Server::fresh();
    // A long period, so that the client that sends heart-beats is in time on a slow machine too.
    let promise = [("accept-version", "1.2"), ("heart-beat", "2000,0")];
    let begun = Instant::now();
    let (mut silent, connected) = Stomp::connect_with(&server, &[V12], &promise);
    let (mut beating, _) = Stomp::connect_with(&server, &[V12], &promise);
    let (_, wants) = heart_beat(connected.header("heart-beat"));
    if wants == 0 {
        // The server asks for no heart-beats, so it must not drop a client without any.
        assert_eq!(silent.receive_within(Duration::from_secs(1)), None);
        silent.sync("alive");
        return;
    }
    let period = Duration::from_millis(wants.max(2000));
    let dropped = std::thread::spawn(move || {
        silent.expect_close();
        begun.elapsed()
    });
    while !dropped.is_finished() || begun.elapsed() < 4 * period {
        beating.socket().send(TEXT, b"\n");
        std::thread::sleep(period / 20);
    }
    let after = dropped.join().expect("the silent one");
    assert!(
        after >= period * 2 - Duration::from_millis(50),
        "dropped after {after:?}, a period is {period:?}"
    );
    beating.sync("alive");
}

#[track_caller]
fn heart_beat(header: Option<&str>) -> (u64, u64) {
    let (sends, wants) = header.and_then(|header| header.split_once(',')).expect("`heart-beat`");
    (sends.parse().expect("a number"), wants.parse().expect("a number"))
}

#[test]
fn an_invalid_heart_beat_header_causes_no_crash() {
    let server = Server::fresh();
    for beats in ["x", "1", "1,", ",1", "-1,0", "1,2,x"] {
        let mut stomp = Stomp::open(&server, &[V12]);
        stomp.send("CONNECT", &[("accept-version", "1.2"), ("heart-beat", beats)], "");
        // The header is refused or ignored. It must not crash the server, and the connection must not stay half open.
        match stomp.receive().command.as_str() {
            "ERROR" => stomp.expect_close(),
            "CONNECTED" => stomp.sync("alive"),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn any_frame_can_have_a_receipt() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut stomp = Stomp::connect(&server);
    stomp.send(
        "SUBSCRIBE",
        &[("id", "0"), ("destination", "/topic/s"), ("ack", "client"), ("receipt", "a")],
        "",
    );
    let mut frames = [stomp.receive(), stomp.receive()];
    frames.sort_by(|a, b| a.command.cmp(&b.command));
    let [message, receipt] = frames;
    receipt.is("RECEIPT").has("receipt-id", "a");
    let ack = message.is("MESSAGE").header("ack").expect("`ack` in a mode that asks for it").to_owned();
    for (command, headers) in [
        ("ACK", &[("id", ack.as_str()), ("receipt", "b:c\\d")][..]),
        ("NACK", &[("id", ack.as_str()), ("receipt", "e f")]),
        ("SEND", &[("destination", "/app/time"), ("receipt", "🌮")]),
        ("UNSUBSCRIBE", &[("id", "0"), ("receipt", "u")]),
        ("DISCONNECT", &[("receipt", "bye")]),
    ] {
        stomp.send(command, headers, "");
        let id = headers.last().expect("a receipt").1;
        stomp.receive().is("RECEIPT").has("receipt-id", id);
    }
    stomp.expect_close();
}

#[test]
fn a_disconnect_without_a_receipt_closes_the_connection() {
    let server = Server::fresh();
    let mut stomp = Stomp::connect(&server);
    stomp.send("DISCONNECT", &[], "");
    stomp.expect_close();
}

/// An ERROR has the receipt's id if the frame asked for one, and then the connection is closed.
#[test]
fn errors_close_the_connection() {
    let server = Server::fresh();
    for (command, headers) in [
        ("SUBSCRIBE", &[("id", "0"), ("receipt", "r")][..]),
        ("SUBSCRIBE", &[("destination", "/topic/only-once"), ("receipt", "r")]),
        ("SUBSCRIBE", &[("id", "0"), ("destination", "/topic/unknown"), ("receipt", "r")]),
        (
            "SUBSCRIBE",
            &[("id", "0"), ("destination", "/topic/only-once"), ("ack", "perhaps"), ("receipt", "r")],
        ),
        ("SEND", &[("receipt", "r")]),
        ("UNSUBSCRIBE", &[("receipt", "r")]),
        ("ACK", &[("receipt", "r")]),
    ] {
        let mut stomp = Stomp::connect(&server);
        stomp.send(command, headers, "");
        let error = stomp.receive().is("ERROR");
        assert!(error.header("message").is_some_and(|message| !message.is_empty()), "{error:?}");
        assert_eq!(error.header("receipt-id"), Some("r"), "{command}: {error:?}");
        stomp.expect_close();
        if let Some(code) = stomp.closed_with {
            assert_eq!(code, 1002, "{command}");
        }
    }
}

/// A command that only servers send.
#[test]
fn an_unknown_command_is_an_error() {
    let server = Server::fresh();
    for command in ["NONSENSE", "subscribe", "Send", "MESSAGE", "CONNECTED"] {
        let mut stomp = Stomp::connect(&server);
        stomp.send(command, &[("id", "0"), ("destination", "/topic/only-once")], "");
        let error = stomp.receive().is("ERROR");
        assert!(error.header("message").is_some_and(|message| !message.is_empty()), "{error:?}");
        stomp.expect_close();
    }
}

/// If the faulty frame asked for a receipt, the ERROR names that receipt. (Input that does not begin with a command is
/// not a frame, and the server reads no further.)
#[test]
fn an_error_has_the_receipt_of_a_command_of_servers() {
    let server = Server::fresh();
    let mut stomp = Stomp::connect(&server);
    stomp.send("MESSAGE", &[("destination", "/topic/only-once"), ("receipt", "r")], "");
    let error = stomp.receive().is("ERROR");
    assert_eq!(error.header("receipt-id"), Some("r"), "{error:?}");
    stomp.expect_close();
}

#[test]
fn connect_must_come_first() {
    let server = Server::fresh();
    for command in ["SUBSCRIBE", "SEND", "DISCONNECT", "BOGUS"] {
        let mut stomp = Stomp::open(&server, &[V12]);
        stomp.send(command, &[("id", "0"), ("destination", "/topic/only-once")], "");
        stomp.receive().is("ERROR");
        stomp.expect_close();
    }
    assert_eq!(server.events().names(10), [""; 0]);
}

/// When the server drops one connection, other connections notice nothing.
#[test]
fn an_error_affects_one_connection() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut good = Stomp::connect(&server);
    let follower = good.follow("0", "/topic/s");
    for _ in 0..20 {
        let mut bad = Stomp::connect(&server);
        bad.send("NONSENSE", &[], "");
        bad.receive().is("ERROR");
        bad.expect_close();
    }
    server.events().accept("s", "x");
    assert_eq!(good.push().clock(), follower.clock + 1);
}

#[test]
fn requests_without_an_upgrade_are_refused() {
    let server = Server::fresh();
    for headers in ["", "Upgrade: websocket\r\n", "Upgrade: h2c\r\nConnection: Upgrade\r\n"] {
        let reply = raw::ask(server.address(), raw::request("GET", "/ws", headers, b""));
        assert!((400..500).contains(&reply.status), "{} {}", reply.status, reply.text);
    }
}

/// Upgrade requests with the headers that browsers send, in their various spellings.
#[test]
fn upgrades_of_all_browsers_are_accepted() {
    let server = Server::fresh();
    for headers in [
        "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
        "connection: upgrade\r\nupgrade: WebSocket\r\norigin: http://localhost\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n",
    ] {
        let mut connection = raw::Connection::open(server.address());
        connection.send(format!(
            "GET /ws HTTP/1.1\r\nHost: localhost\r\n{headers}Sec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        let reply = connection.receive().is(101);
        assert_eq!(reply.header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "{headers}");
    }
}

/// Heart-beat periods that do not fit any clock are treated as "never", or refused. They must not crash the server.
#[test]
fn enormous_heart_beats_cause_no_crash() {
    let server = Server::fresh();
    for beats in
        ["4294967295,4294967295", "18446744073709551615,18446744073709551615", "99999999999999999999999,1"]
    {
        let mut stomp = Stomp::open(&server, &[V12]);
        stomp.send("CONNECT", &[("accept-version", "1.2"), ("heart-beat", beats)], "");
        match stomp.receive().command.as_str() {
            "ERROR" => stomp.expect_close(),
            "CONNECTED" => stomp.sync("alive"),
            other => panic!("{other}"),
        }
    }
}
