//! Escaping of headers in each version.

use super::frame::Version;
use alloc::string::String;
use bytes::{BufMut, BytesMut};

/// For each escape: the byte, the letter after the backslash, and the first version that defines it.
const ESCAPES: [(u8, u8, Version); 4] = [
    (b'\\', b'\\', Version::V1_1),
    (b'\n', b'n', Version::V1_1),
    (b':', b'c', Version::V1_1),
    (b'\r', b'r', Version::V1_2),
];

/// Writes `text` into a header; without a version, without escapes.
///
/// A character that would end the line or the frame, and cannot be escaped, becomes a space. So no text, whoever wrote
/// it, can inject a header.
pub(super) fn escape(text: &str, version: Option<Version>, out: &mut BytesMut) {
    for byte in text.bytes() {
        let escape = ESCAPES.iter().find(|(octet, _, since)| *octet == byte && Some(*since) <= version);
        match escape {
            Some((_, letter, _)) => out.put_slice(&[b'\\', *letter]),
            None if matches!(byte, b'\n' | b'\r' | 0) => out.put_u8(b' '),
            None => out.put_u8(byte),
        }
    }
}

/// Reverses [`escape`]. `None` if there is an escape that `version` does not define.
pub(super) fn unescape(text: &str, version: Version) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escaped)) = rest.split_once('\\') {
        plain.push_str(before);
        let letter = *escaped.as_bytes().first()?;
        let (octet, ..) = ESCAPES.iter().find(|(_, other, since)| *other == letter && *since <= version)?;
        plain.push(char::from(*octet));
        rest = &escaped[1..];
    }
    plain.push_str(rest);
    Some(plain)
}
