//! The part of a message that is the same for all subscribers.

use super::encode::write_content_length;
use bytes::{BufMut, Bytes, BytesMut};
use core::ops::Range;

/// The part of a MESSAGE that is the same for every subscriber: from `content-type` to the NUL, encoded once.
///
/// The part that differs (subscription, message id) comes before it. It has a few dozen bytes, and
/// [`Session::begin_message`](crate::Session::begin_message) writes it. The payload needs no escapes, so it is the same
/// in every version. A clone shares the bytes.
#[derive(Clone, Debug)]
pub struct Payload {
    bytes: Bytes,
    body: Range<usize>,
}

impl Payload {
    /// Encodes a body.
    ///
    /// # Panics
    ///
    /// If `content_type` is empty, or has a character that a version of STOMP would escape. It must come from the
    /// program, never from a client.
    pub fn new(content_type: &'static str, body: &[u8]) -> Payload {
        let plain = |byte: u8| (b' '..=b'~').contains(&byte) && !matches!(byte, b':' | b'\\');
        assert!(!content_type.is_empty() && content_type.bytes().all(plain), "{content_type:?} is no type");
        let mut out = BytesMut::with_capacity(content_type.len() + body.len() + 64);
        out.put_slice(b"content-type:");
        out.put_slice(content_type.as_bytes());
        out.put_u8(b'\n');
        write_content_length(&mut out, body.len());
        out.put_u8(b'\n');
        let start = out.len();
        out.put_slice(body);
        let body = start..out.len();
        out.put_u8(0);
        Payload { bytes: out.freeze(), body }
    }

    /// The bytes that must follow those of [`Session::begin_message`](crate::Session::begin_message).
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The body within a payload's bytes.
    pub fn body_of(bytes: &[u8]) -> &[u8] {
        let start = bytes.windows(2).position(|pair| pair == b"\n\n").map_or(0, |end| end + 2);
        bytes[start..].strip_suffix(&[0]).unwrap_or_default()
    }

    /// The body alone, for transports other than STOMP. It shares the payload's bytes.
    pub fn body(&self) -> Bytes {
        self.bytes.slice(self.body.clone())
    }
}
