//! Properties that hold for all frames, all bytes, and all ways to split them into pieces.
//!
//! `PROPTEST_CASES=1000000 cargo test -p limina-stomp --release codec_properties` is the long run.

use limina_stomp::{Command, Decoded, Decoder, Frame, FrameError, Headers, Limits, Version};
use proptest::prelude::*;
use proptest::sample::select;

const LIMITS: Limits = Limits { body: 64, headers: 6, header_line: 48 };

/// What is decoded from `pieces`, and how it ends. Consecutive heart-beats count as one.
fn decode<'a>(
    version: Version,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Decoded>, Option<FrameError>) {
    let mut decoder = Decoder::new(LIMITS);
    decoder.set_version(version);
    let mut items = Vec::new();
    for mut piece in pieces {
        loop {
            let before = piece.len();
            let item = decoder.decode(&mut piece);
            // A vector doubles when it grows, and starts with eight.
            let most = 2 * (LIMITS.header_line + LIMITS.body) + LIMITS.headers * LIMITS.header_line + 16;
            assert!(decoder.buffered() <= most, "{} bytes are buffered", decoder.buffered());
            match item {
                Ok(Some(item)) => {
                    assert!(piece.len() < before, "an item was made of nothing");
                    // The number of heart-beats in a run of ends of line depends on how it is split.
                    if item != Decoded::HeartBeat || items.last() != Some(&Decoded::HeartBeat) {
                        items.push(item);
                    }
                }
                Ok(None) => {
                    assert!(piece.is_empty(), "bytes were left");
                    break;
                }
                Err(error) => return (items, Some(error)),
            }
        }
    }
    (items, None)
}

fn version() -> impl Strategy<Value = Version> {
    select(&Version::ALL[..])
}

/// Text for headers that `version` can express in a frame of `command`.
fn text(version: Version, command: Command, name: bool) -> impl Strategy<Value = String> {
    let plain = version == Version::V1_0 || matches!(command, Command::Connect | Command::Connected);
    let pattern = match (plain, name, version) {
        (true, true, _) => "[a-z\\\\🌮]{1,5}",
        (true, false, _) => "([a-z\\\\:🌮]( ?[a-z\\\\:🌮]){0,4})?",
        (false, true, Version::V1_2) => "[a-z \\\\:\n\r🌮]{1,5}",
        (false, false, Version::V1_2) => "[a-z \\\\:\n\r🌮]{0,9}",
        (false, true, _) => "[a-z \\\\:\n🌮]{1,5}",
        (false, false, _) => "[a-z \\\\:\n🌮]{0,9}",
    };
    pattern.prop_map(String::from)
}

fn frame(version: Version) -> impl Strategy<Value = Frame> {
    select(Command::ALL).prop_flat_map(move |command| {
        let header = (text(version, command, true), text(version, command, false));
        let headers = prop::collection::vec(header, 0..5);
        let body = prop::collection::vec(prop_oneof![Just(0u8), Just(b'\n'), any::<u8>()], 0..64);
        (headers, body).prop_map(move |(headers, body)| Frame {
            command,
            headers: headers.into_iter().collect::<Headers>(),
            body: if command.has_body() { body.into() } else { Default::default() },
        })
    })
}

/// Bytes that are nearly frames: parts of the protocol in any order, or valid frames with some bytes changed.
fn nearly_frames() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&[u8]] = &[
        b"SEND\n",
        b"CONNECT\r\n",
        b"ACK\n",
        b"MESSAGE",
        b"\n",
        b"\n\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\n\0",
        b":",
        b"\\",
        b"\\n",
        b"\\c",
        b"\\r",
        b"\\t",
        b"a:b\n",
        b"id:1\r\n",
        b"content-length:",
        b"content-length:3\n",
        b"3\n",
        b"99\n",
        b"receipt:r\n",
        b"abc",
        b"\xff",
        b"\xf0\x9f",
        "🌮".as_bytes(),
        b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ];
    let words = prop::collection::vec(select(WORDS), 0..40).prop_map(|words| words.concat());
    let frames = version().prop_flat_map(|version| {
        let bytes = prop::collection::vec(frame(version), 1..4).prop_map(move |frames| {
            frames.iter().flat_map(|frame| frame.encode(version)).collect::<Vec<_>>()
        });
        let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        (bytes, changes).prop_map(|(mut bytes, changes)| {
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes
        })
    });
    prop_oneof![words, frames, prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #[test]
    fn encoded_frames_can_be_decoded(
        (version, frames) in version().prop_flat_map(|v| (Just(v), prop::collection::vec(frame(v), 0..5))),
        beats in prop::collection::vec(0..3usize, 5),
    ) {
        let (mut bytes, mut expect) = (Vec::new(), Vec::new());
        for (frame, beats) in frames.into_iter().zip(beats) {
            bytes.extend_from_slice(&frame.encode(version));
            bytes.extend(std::iter::repeat_n(b'\n', beats));
            expect.push(Decoded::Frame(frame));
            expect.extend((beats > 0).then_some(Decoded::HeartBeat));
        }
        prop_assert_eq!(decode(version, [&bytes[..]]), (expect, None));
    }

    #[test]
    fn splitting_the_input_makes_no_difference(
        version in version(),
        bytes in nearly_frames(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let whole = decode(version, [&bytes[..]]);
        prop_assert_eq!(&decode(version, bytes.chunks(1)), &whole);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
        prop_assert_eq!(&decode(version, pieces), &whole);
    }

    /// Whatever was decoded in any version can be encoded and decoded again, so text cannot break out of its header.
    #[test]
    fn decoded_frames_can_be_encoded_again(version in version(), bytes in nearly_frames()) {
        for item in decode(version, [&bytes[..]]).0 {
            if let Decoded::Frame(frame) = item {
                // An escaped frame can be longer than the one it was decoded from.
                let mut decoder = Decoder::new(Limits { header_line: 4 * LIMITS.header_line, ..LIMITS });
                decoder.set_version(version);
                let encoded = frame.encode(version);
                prop_assert_eq!(decoder.decode(&mut &encoded[..]), Ok(Some(Decoded::Frame(frame))));
            }
        }
    }
}

/// Text that a version cannot express is still one header of one frame.
#[test]
fn text_cannot_break_out_of_its_header() {
    for version in Version::ALL {
        for command in [Command::Receipt, Command::Connected] {
            let frame = Frame::new(command, [("receipt-id", "1\n\n\0ERROR\nmessage:x\r\n\r\n\0")]);
            let (items, error) = decode_large(version, &frame.encode(version));
            assert_eq!((items.len(), error), (1, None), "{version} {command:?}");
        }
    }
}

fn decode_large(version: Version, mut bytes: &[u8]) -> (Vec<Decoded>, Option<FrameError>) {
    let mut decoder = Decoder::new(Limits::default());
    decoder.set_version(version);
    let mut items = Vec::new();
    loop {
        match decoder.decode(&mut bytes) {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, None),
            Err(error) => return (items, Some(error)),
        }
    }
}
