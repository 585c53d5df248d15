//! Decoding and encoding, as tables of cases.

use limina_stomp::{Command, Decoded, Decoder, Frame, FrameError, Headers, Limits, Payload, Version};
use std::fmt::Write;

const LIMITS: Limits = Limits { body: 16, headers: 4, header_line: 40 };

/// Everything that is decoded from `bytes`: a frame as `COMMAND {name=value} "body"`, one or more heart-beats as
/// `beat`.
fn read<'a>(version: Version, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut decoder = Decoder::new(LIMITS);
    decoder.set_version(version);
    let mut pieces = pieces.into_iter();
    let (mut input, mut text): (&[u8], _) = (&[], String::new());
    loop {
        match decoder.decode(&mut input) {
            Ok(Some(Decoded::HeartBeat)) if text.ends_with("beat ") => {}
            Ok(Some(Decoded::HeartBeat)) => text += "beat ",
            Ok(Some(Decoded::Frame(frame))) => {
                let headers: Vec<_> =
                    frame.headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(text, "{} {{{}}} ", frame.command.as_str(), headers.join(",")).unwrap();
                if !frame.body.is_empty() {
                    write!(text, "{:?} ", String::from_utf8_lossy(&frame.body)).unwrap();
                }
            }
            Ok(None) => match pieces.next() {
                Some(piece) => input = piece,
                None => return text.trim_end().to_owned(),
            },
            Err(error) => {
                assert_eq!(decoder.decode(&mut &b"\n"[..]), Err(error), "an error is final");
                return format!("{text}{error:?}");
            }
        }
    }
}

#[track_caller]
fn check(versions: &[Version], bytes: &str, expect: &str) {
    for version in versions {
        assert_eq!(read(*version, [bytes.as_bytes()]), expect, "{bytes:?} in {version}");
        assert_eq!(
            read(*version, bytes.as_bytes().chunks(1)),
            expect,
            "{bytes:?} in {version}, byte by byte"
        );
    }
}

use Version::{V1_0, V1_1, V1_2};
const ALL: &[Version] = &Version::ALL;

/// Work is counted in steps: a megabyte of ends of line must not cause a million steps.
#[test]
fn a_run_of_ends_of_line_is_one_step() {
    let mut decoder = Decoder::new(LIMITS);
    for run in ["\n".repeat(1 << 20), "\r\n".repeat(1 << 19), "\n\r\n\n".repeat(1 << 18)] {
        let mut input = run.as_bytes();
        assert_eq!(decoder.decode(&mut input), Ok(Some(Decoded::HeartBeat)));
        assert_eq!(input.len(), 0, "one step takes the whole run");
        assert_eq!(decoder.decode(&mut input), Ok(None));
    }
    // A CR at the end of a piece may belong to a CR LF, and a frame may follow the run.
    let mut input: &[u8] = b"\n\n\r";
    assert_eq!(decoder.decode(&mut input), Ok(Some(Decoded::HeartBeat)));
    assert_eq!((decoder.decode(&mut input), input.len()), (Ok(None), 0));
    let mut input: &[u8] = b"\n\nBEGIN\n\n\0";
    assert_eq!(decoder.decode(&mut input), Ok(Some(Decoded::HeartBeat)));
    assert_eq!(decoder.decode(&mut input), Ok(Some(Decoded::HeartBeat)));
    assert!(matches!(decoder.decode(&mut input), Ok(Some(Decoded::Frame(_)))));
}

#[test]
fn frames_and_heart_beats() {
    check(ALL, "", "");
    check(ALL, "\n", "beat");
    check(ALL, "\n\r\n\n", "beat");
    check(ALL, "BEGIN\ntransaction:t1\n\n\0", "BEGIN {transaction=t1}");
    check(ALL, "\nBEGIN\n\n\0\n\nABORT\n\n\0", "beat BEGIN {} beat ABORT {}");
    check(ALL, "BEGIN\r\ntransaction:t1\r\n\r\n\0\r\n", "BEGIN {transaction=t1} beat");
    check(ALL, "BEGIN\n\r\n\0", "BEGIN {}");
    check(ALL, "SEND\ndestination:/a\n\nhello", "");
    check(ALL, "SEND\ndestination:/a\n\nhello\0", "SEND {destination=/a} \"hello\"");
    check(ALL, "SEND\n\n\r\n\n\0", "SEND {} \"\\r\\n\\n\"");
}

#[test]
fn content_length() {
    check(ALL, "SEND\ncontent-length:3\n\na\0b\0", "SEND {} \"a\\0b\"");
    check(ALL, "SEND\ncontent-length:0\n\n\0", "SEND {}");
    check(ALL, "ACK\ncontent-length:0\n\n\0", "ACK {}");
    check(ALL, "SEND\ncontent-length:03\n\nabc\0", "SEND {} \"abc\"");
    check(ALL, "SEND\ncontent-length:1\ncontent-length:x\n\na\0", "SEND {} \"a\"");
    check(ALL, "SEND\ncontent-length:2\n\nabc\0", "ContentLengthWrong");
    check(ALL, "SEND\ncontent-length:4\n\nabc\0", "");
    // stompjs can split a surrogate pair; each half becomes three bytes.
    check(ALL, "SEND\ncontent-length:4\n\n\u{fffd}\u{fffd}\0", "ContentLengthWrong");
    for wrong in ["", "-1", "+1", "1.0", "0x1", "99999999999999999999999"] {
        check(ALL, &format!("SEND\ncontent-length:{wrong}\n\n\0"), "ContentLengthNotANumber");
    }
    check(ALL, "ACK\ncontent-length:1\n\na\0", "BodyNotAllowed(Ack)");
    check(ALL, "ACK\n\na\0", "BodyNotAllowed(Ack)");
}

#[test]
fn headers() {
    check(ALL, "ACK\na:1\na:2\nb:3\n\n\0", "ACK {a=1,b=3}");
    check(ALL, "ACK\na:\n\n\0", "ACK {a=}");
    check(ALL, "ACK\na:b:c\n\n\0", "ACK {a=b:c}");
    check(ALL, "ACK\nA:1\na:2\n\n\0", "ACK {A=1,a=2}");
    check(ALL, "ACK\na:🌮\n\n\0", "ACK {a=🌮}");
    check(&[V1_0], "ACK\n a : b c \n\n\0", "ACK {a=b c}");
    check(&[V1_1, V1_2], "ACK\n a : b c \n\n\0", "ACK { a = b c }");
    check(ALL, "ACK\na\n\n\0", "HeaderWithoutName");
    check(ALL, "ACK\n:a\n\n\0", "HeaderWithoutName");
    check(ALL, "ACK\na:b\rc\n\n\0", "CarriageReturn");
    check(ALL, "ACK\na:b\0", "HeadersNotEnded");
    check(ALL, "ACK\n\0", "HeadersNotEnded");
    assert_eq!(read(V1_2, [&b"ACK\na:\xff\n\n\0"[..]]), "HeaderNotUtf8");
}

#[test]
fn commands() {
    for command in Command::ALL {
        let name = command.as_str();
        check(ALL, &format!("{name}\n\n\0"), &format!("{name} {{}}"));
    }
    for wrong in
        ["connect\n", "CONNECT \n", "GET / HTTP/1.1\r\n", "SUBSCRIBE:\n", "\0", "ACK\0", "A very long line"]
    {
        check(ALL, wrong, "UnknownCommand");
    }
    check(ALL, "\r\r\n", "CarriageReturn");
}

#[test]
fn escapes() {
    let all = r"ACK
a\cb:\\n\n\c
";
    check(&[V1_0], &format!("{all}\n\0"), r"ACK {a\cb=\\n\n\c}");
    check(&[V1_1, V1_2], &format!("{all}\n\0"), "ACK {a:b=\\n\n:}");
    check(&[V1_2], "ACK\na:\\r\n\n\0", "ACK {a=\r}");
    check(&[V1_1], "ACK\na:\\r\n\n\0", "UndefinedEscape(V1_1)");
    for wrong in ["\\t", "\\", "x\\", "\\\\\\", "\\N", "\\🌮"] {
        check(&[V1_0], &format!("ACK\na:{wrong}\n\n\0"), &format!("ACK {{a={wrong}}}"));
        check(&[V1_1], &format!("ACK\na:{wrong}\n\n\0"), "UndefinedEscape(V1_1)");
        check(&[V1_2], &format!("ACK\n{wrong}:a\n\n\0"), "UndefinedEscape(V1_2)");
    }
    for command in ["CONNECT", "CONNECTED"] {
        check(ALL, &format!("{command}\na:\\t\\c\n\n\0"), &format!("{command} {{a=\\t\\c}}"));
    }
}

#[test]
fn limits() {
    check(ALL, "SEND\n\n0123456789abcdef\0", "SEND {} \"0123456789abcdef\"");
    check(ALL, "SEND\n\n0123456789abcdefg", "BodyTooLong(16)");
    check(ALL, "SEND\ncontent-length:17\n\n", "BodyTooLong(16)");
    check(ALL, "ACK\na:1\nb:1\nc:1\nd:1\n\n\0", "ACK {a=1,b=1,c=1,d=1}");
    check(ALL, "ACK\na:1\na:1\na:1\na:1\na:1\n", "TooManyHeaders(4)");
    let longest = "x".repeat(38);
    check(ALL, &format!("ACK\na:{longest}\n\n\0"), &format!("ACK {{a={longest}}}"));
    check(ALL, &format!("ACK\na:{longest}x"), "HeaderLineTooLong(40)");
}

/// The frames in the specifications.
#[test]
fn examples_of_the_specifications() {
    let mut decoder = Decoder::new(Limits::default());
    let mut check = |version, bytes: &str, expect: Frame| {
        decoder.set_version(version);
        assert_eq!(decoder.decode(&mut bytes.as_bytes()), Ok(Some(Decoded::Frame(expect))), "{bytes:?}");
    };
    let with_body = |mut frame: Frame, body: &'static str| {
        frame.body = body.into();
        frame
    };
    check(
        V1_0,
        "CONNECT\nlogin: <username>\npasscode:<passcode>\n\n\0",
        Frame::new(Command::Connect, [("login", "<username>"), ("passcode", "<passcode>")]),
    );
    check(
        V1_0,
        "SUBSCRIBE\ndestination: /queue/foo\nack: client\n\n\0",
        Frame::new(Command::Subscribe, [("destination", "/queue/foo"), ("ack", "client")]),
    );
    check(
        V1_0,
        "SEND\ndestination:/queue/a\n\nhello queue a\n\0",
        with_body(Frame::new(Command::Send, [("destination", "/queue/a")]), "hello queue a\n"),
    );
    check(V1_1, "CONNECTED\nversion:1.1\n\n\0", Frame::new(Command::Connected, [("version", "1.1")]));
    check(V1_2, "MESSAGE\nfoo:World\nfoo:Hello\n\n\0", Frame::new(Command::Message, [("foo", "World")]));
    check(
        V1_2,
        "ERROR\nreceipt-id:message-12345\ncontent-type:text/plain\ncontent-length:9\nmessage:malformed frame received\n\n-----\nxyz\0",
        with_body(
            Frame::new(
                Command::Error,
                [
                    ("receipt-id", "message-12345"),
                    ("content-type", "text/plain"),
                    ("message", "malformed frame received"),
                ],
            ),
            "-----\nxyz",
        ),
    );
}

#[test]
fn how_frames_are_written() {
    let check = |version, headers: &[(&str, &str)], body: &str, expect: &str| {
        let headers = headers.iter().copied().collect::<Headers>();
        let frame = Frame { command: Command::Error, headers, body: body.to_owned().into() };
        assert_eq!(frame.encode(version), expect, "{frame:?} in {version}");
    };
    check(V1_2, &[], "", "ERROR\ncontent-length:0\n\n\0");
    check(V1_2, &[("a", "1"), ("b", "")], "x\0y", "ERROR\na:1\nb:\ncontent-length:3\n\nx\0y\0");
    check(V1_2, &[("content-length", "99")], "x", "ERROR\ncontent-length:1\n\nx\0");
    let nasty = &[("a", "\\ \n \r : \0 🌮")];
    check(V1_2, nasty, "", "ERROR\na:\\\\ \\n \\r \\c   🌮\ncontent-length:0\n\n\0");
    check(V1_1, nasty, "", "ERROR\na:\\\\ \\n   \\c   🌮\ncontent-length:0\n\n\0");
    check(V1_0, nasty, "", "ERROR\na:\\     :   🌮\ncontent-length:0\n\n\0");
    let connected = Frame::new(Command::Connected, [("session", "a:\\\nb")]);
    assert_eq!(connected.encode(V1_2), "CONNECTED\nsession:a:\\ b\n\n\0");
}

#[test]
fn a_payload_is_encoded_once() {
    let payload = Payload::new("application/json", "{\"event\":\"🌮\"}".as_bytes());
    assert_eq!(*payload.bytes(), "content-type:application/json\ncontent-length:16\n\n{\"event\":\"🌮\"}\0");
    assert_eq!(payload.body(), "{\"event\":\"🌮\"}");
    let copy = payload.clone();
    assert_eq!(copy.bytes().as_ptr(), payload.bytes().as_ptr(), "a clone shares the bytes");
    assert!(payload.bytes().as_ptr_range().contains(&payload.body().as_ptr()), "and so does the body");
}

#[test]
fn headers_of_a_failed_frame_can_be_read() {
    let mut decoder = Decoder::new(LIMITS);
    let failed = decoder.decode(&mut &b"SEND\nreceipt:r1\ncontent-length:99\n\n"[..]);
    assert_eq!(failed, Err(FrameError::BodyTooLong(16)));
    assert_eq!(decoder.partial_header("receipt"), Some("r1"));
}
