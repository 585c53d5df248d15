//! STOMP frames: how the bytes are cut into pieces makes no difference, and the decoder keeps its bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limina_stomp::{Decoded, Decoder, FrameError, Limits, Version};

const LIMITS: Limits = Limits { body: 512, headers: 8, header_line: 64 };

/// Twice the bounds, because a vector may have up to twice the capacity that it needs.
const MAX_BUFFERED: usize = 2 * (LIMITS.body + (LIMITS.headers + 1) * LIMITS.header_line);

fuzz_target!(|input: &[u8]| {
    let [version, cut, bytes @ ..] = input else { return };
    let version = [Version::V1_0, Version::V1_1, Version::V1_2][usize::from(version % 3)];
    let whole = decode(version, [bytes].into_iter());
    // Pieces of lengths that vary from 1 to a quarter of the bytes.
    let mut rest = bytes;
    let mut length = usize::from(*cut);
    let pieces = std::iter::from_fn(|| {
        if rest.is_empty() {
            return None;
        }
        length = (length * 31 + 7) % (bytes.len() / 4 + 1) + 1;
        let (piece, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        Some(piece)
    });
    assert_eq!(whole, decode(version, pieces));
    for frame in &whole.0 {
        assert!(frame.body.len() <= LIMITS.body && frame.headers.iter().count() <= LIMITS.headers);
        // What was read can be written, and is then read as the same frame.
        let written = frame.encode(version);
        let (again, error) = decode(version, [&written[..]].into_iter());
        if error.is_none() {
            assert_eq!(again.len(), 1);
            assert_eq!((&again[0].command, &again[0].body), (&frame.command, &frame.body));
        }
    }
});

/// The frames and the error. Heart-beats are left out: how many there are depends on the pieces.
fn decode<'a>(
    version: Version,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<limina_stomp::Frame>, Option<FrameError>) {
    let mut decoder = Decoder::new(LIMITS);
    decoder.set_version(version);
    let mut frames = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(Decoded::Frame(frame))) => frames.push(frame),
                Ok(Some(Decoded::HeartBeat)) => {}
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(decoder.buffered() <= MAX_BUFFERED, "{} bytes are buffered", decoder.buffered());
    }
    (frames, None)
}
