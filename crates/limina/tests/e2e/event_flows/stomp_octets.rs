//! Frames in every form in which they may arrive: joined, split, binary, too large, or broken.

use std::time::Duration;

use crate::events::LONG;
use crate::harness::{DEADLINE, Server};
use crate::stomp::{Stomp, V12, encode};
use crate::websocket::{BINARY, CONTINUATION, Received, TEXT, WebSocket};

fn opening() -> String {
    encode("CONNECT", &[("accept-version", "1.2"), ("heart-beat", "0,0")], "")
}

fn subscription() -> String {
    encode("SUBSCRIBE", &[("id", "0"), ("destination", "/topic/s"), ("receipt", "r")], "")
}

/// The answers to `opening` and `subscription`.
#[track_caller]
fn check_answers(stomp: &mut Stomp) {
    stomp.receive().is("CONNECTED").has("version", "1.2");
    let mut frames = [stomp.receive(), stomp.receive()];
    frames.sort_by(|a, b| a.command.cmp(&b.command));
    let [message, receipt] = frames;
    assert!(message.push().is_key_frame());
    receipt.is("RECEIPT").has("receipt-id", "r");
}

#[test]
fn frames_joined_in_one_message() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    for kind in [TEXT, BINARY] {
        for between in ["", "\n", "\n\n\n", "\r\n"] {
            let mut stomp = Stomp::open(&server, &[V12]);
            let joined = opening() + between + &subscription() + between;
            stomp.socket().send(kind, joined.as_bytes());
            check_answers(&mut stomp);
        }
    }
}

#[test]
fn frames_split_at_every_octet() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut stomp = Stomp::open(&server, &[V12]);
    for octet in (opening() + &subscription()).as_bytes() {
        stomp.socket().send(BINARY, &[*octet]);
    }
    check_answers(&mut stomp);
}

#[test]
fn frames_split_anywhere_and_mixed() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let all = opening() + &subscription();
    for cut in (1..all.len()).step_by(3) {
        let mut stomp = Stomp::open(&server, &[V12]);
        let (first, rest) = all.as_bytes().split_at(cut);
        stomp.socket().send(if cut % 2 == 0 { TEXT } else { BINARY }, first);
        stomp.socket().send(if cut % 4 < 2 { TEXT } else { BINARY }, rest);
        check_answers(&mut stomp);
    }
}

/// One WebSocket message is sent in several fragments, with a ping between them.
#[test]
fn fragments_are_one_message() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut stomp = Stomp::open(&server, &[V12]);
    let all = opening() + &subscription();
    let parts: Vec<&[u8]> = all.as_bytes().chunks(20).collect();
    for (n, part) in parts.iter().enumerate() {
        let kind = if n == 0 { TEXT } else { CONTINUATION };
        stomp.socket().send_fragment(n == parts.len() - 1, kind, part);
        stomp.socket().ping(b"between");
    }
    check_answers(&mut stomp);
}

#[test]
fn a_ping_is_answered() {
    let server = Server::fresh();
    let mut socket = WebSocket::open(server.address(), &[V12]);
    socket.ping(b"are you there?");
    assert_eq!(socket.receive(DEADLINE), Received::Pong(b"are you there?".to_vec()));
}

#[test]
fn lines_may_end_in_cr_lf() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut stomp = Stomp::open(&server, &[V12]);
    stomp.socket().send(TEXT, b"CONNECT\r\naccept-version:1.2\r\nheart-beat:0,0\r\n\r\n\0\r\n");
    stomp.socket().send(TEXT, b"SUBSCRIBE\r\nid:0\r\ndestination:/topic/s\r\nreceipt:r\r\n\r\n\0");
    check_answers(&mut stomp);
}

#[test]
fn the_first_of_repeated_headers_counts() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut stomp = Stomp::connect(&server);
    let headers = [
        ("id", "0"),
        ("id", "1"),
        ("destination", "/topic/s"),
        ("destination", "/topic/unknown"),
        ("receipt", "first"),
        ("receipt", "second"),
    ];
    stomp.send("SUBSCRIBE", &headers, "");
    let mut frames = [stomp.receive(), stomp.receive()];
    frames.sort_by(|a, b| a.command.cmp(&b.command));
    let [message, receipt] = frames;
    message.is("MESSAGE").has("subscription", "0").has("destination", "/topic/s");
    receipt.is("RECEIPT").has("receipt-id", "first");
}

/// Escapes in both directions: the id of a subscription may be any text.
#[test]
fn headers_are_escaped() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    for id in ["a:b", "back\\slash", "line\nfeed", "carriage\rreturn", "🌮", " spaces ", "\\n"] {
        let mut stomp = Stomp::connect(&server);
        stomp.subscribe(id, "/topic/s");
        stomp.receive().is("MESSAGE").has("subscription", id);
    }
}

#[test]
fn an_unknown_escape_is_fatal() {
    let server = Server::fresh();
    for header in ["id:a\\tb", "id:a\\", "i\\xd:a"] {
        let mut stomp = Stomp::connect(&server);
        let frame = format!("SUBSCRIBE\n{header}\nid:0\ndestination:/topic/only-once\n\n\0");
        stomp.socket().send(TEXT, frame.as_bytes());
        stomp.receive().is("ERROR");
        stomp.expect_close();
    }
}

#[test]
fn content_length_counts_octets() {
    let server = Server::fresh();
    let mut stomp = Stomp::connect(&server);
    for (n, body) in ["", "x", "a\0b", "🌮", "\0\0\0"].into_iter().enumerate() {
        let (length, receipt) = (body.len().to_string(), n.to_string());
        let headers =
            [("destination", "/app/time"), ("content-length", length.as_str()), ("receipt", &receipt)];
        stomp.send("SEND", &headers, body);
        stomp.receive().is("RECEIPT").has("receipt-id", &receipt);
    }
    // A `content-length` that contradicts the body is an error.
    stomp.send("SEND", &[("destination", "/app/time"), ("content-length", "2")], "🌮🌮");
    stomp.receive().is("ERROR");
    stomp.expect_close();
}

#[test]
fn malformed_frames_are_errors() {
    let server = Server::fresh();
    for octets in [
        &b"SUBSCRIBE\nno colon here\n\n\0"[..],
        b"\0",
        b"SEND\ndestination:/app/time\ncontent-length:x\n\n\0",
        b"SEND\ndestination:/app/time\ncontent-length:-1\n\n\0",
        b"SEND\ndestination:/app/time\ncontent-length:99999999999999999999999\n\n\0",
        b"SUBSCRIBE\nid:0\ndestination:/topic/only-once\n\nwith a body\0",
    ] {
        let mut stomp = Stomp::connect(&server);
        stomp.socket().send(BINARY, octets);
        stomp.receive().is("ERROR");
        stomp.expect_close();
    }
    // A header that is not UTF-8; and two errors of WebSocket itself: a text message that is not UTF-8, and an unknown
    // opcode.
    for (kind, octets) in [(BINARY, &b"SUBSCRIBE\nid:\xff\n\n\0"[..]), (TEXT, b"\xff\xfe"), (0x5, b"x")] {
        let mut stomp = Stomp::connect(&server);
        stomp.socket().send(kind, octets);
        stomp.receive().is("ERROR").has("message", "InvalidFrame");
        stomp.expect_close();
    }
    Stomp::connect(&server).sync("alive");
}

/// Everything that could grow without end has a bound: a body, a header, the number of headers, a WebSocket message.
#[test]
fn frames_that_are_too_large_are_refused() {
    let server = Server::fresh();
    let head = b"SEND\ndestination:/app/time\n\n".to_vec();
    let large = [
        (head.clone(), vec![b'x'; 100_000]),
        (b"SEND\ndestination:/app/time\nx:".to_vec(), vec![b'x'; 100_000]),
        (b"SEND\n".to_vec(), b"a:b\n".repeat(25_000)),
        (Vec::new(), vec![b'X'; 100_000]),
    ];
    for (start, part) in large {
        let mut stomp = Stomp::connect(&server);
        let mut sent = stomp.socket().try_send(BINARY, &start).is_ok();
        // In all 6 MB, a hundred times what a frame may have: the server must not accept that.
        for _ in 0..64 {
            sent = sent && stomp.socket().try_send(BINARY, &part).is_ok();
        }
        stomp.expect_close();
    }
    let mut stomp = Stomp::connect(&server);
    let mut whole = head;
    whole.extend(vec![b'x'; 4 << 20]);
    stomp.socket().send(BINARY, &whole);
    stomp.receive().is("ERROR").has("message", "FrameTooLarge");
    stomp.expect_close();
    Stomp::connect(&server).sync("alive");
}

/// Many frames within the bounds are accepted, even at once.
#[test]
fn frames_of_moderate_size_are_accepted() {
    let server = Server::fresh();
    let mut stomp = Stomp::connect(&server);
    let body = "x".repeat(10_000);
    for n in 0..50 {
        let receipt = n.to_string();
        stomp.send("SEND", &[("destination", "/app/time"), ("receipt", &receipt)], &body);
        stomp.receive().is("RECEIPT").has("receipt-id", &receipt);
    }
}

/// The number of subscriptions of a connection is bounded. Below the bound, all of them work.
#[test]
fn subscriptions_are_bounded() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut stomp = Stomp::connect(&server);
    for n in 0..8 {
        stomp.follow(&n.to_string(), "/topic/s");
    }
    let mut refused = false;
    for n in 8..100_000 {
        stomp.subscribe(&n.to_string(), "/topic/s");
        match stomp.receive_within(DEADLINE).map(|frame| frame.command) {
            Some(command) if command == "MESSAGE" => {}
            _ => {
                refused = true;
                break;
            }
        }
    }
    assert!(refused, "a hundred thousand subscriptions on one connection");
}

/// A connection on which the client sends nothing is closed at some time. The contract does not say when.
#[test]
fn silent_connections_are_closed() {
    let server = Server::fresh();
    let silent: Vec<WebSocket> = (0..50).map(|_| WebSocket::open(server.address(), &[V12])).collect();
    let mut stomp = Stomp::connect(&server);
    stomp.sync("alive");
    assert_eq!(stomp.receive_within(Duration::from_millis(10)), None);
    drop(silent);
}

/// The version decides what is escaped: nothing in 1.0, everything except the carriage return in 1.1.
#[test]
fn each_version_has_its_own_escapes() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    for (version, sent, meant) in [
        ("1.0", "a\\cb", "a\\cb"),
        ("1.0", "a:b", "a:b"),
        ("1.1", "a\\cb", "a:b"),
        ("1.1", "a\\\\cb", "a\\cb"),
        ("1.1", "a\\nb", "a\nb"),
        ("1.2", "a\\cb", "a:b"),
        ("1.2", "a\\\\nb", "a\\nb"),
        ("1.2", "a\\rb", "a\rb"),
    ] {
        let (mut stomp, _) = Stomp::connect_with(&server, &[], &[("accept-version", version)]);
        let frame = format!("SUBSCRIBE\nid:{sent}\ndestination:/topic/s\n\n\0");
        stomp.socket().send(TEXT, frame.as_bytes());
        stomp.receive().is("MESSAGE").has("subscription", meant);
    }
    let (mut stomp, _) = Stomp::connect_with(&server, &[], &[("accept-version", "1.1")]);
    stomp.socket().send(TEXT, b"SUBSCRIBE\nid:a\\rb\ndestination:/topic/s\n\n\0");
    stomp.receive().is("ERROR");
    stomp.expect_close();
}
