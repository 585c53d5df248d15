//! The frames between nodes, as bytes.
//!
//! A frame is the length of its body (four bytes), its kind (one byte), the number of its call (eight bytes), and the body;
//! numbers are little endian. A message that is longer than [`MAX_BODY`] takes several frames: the first has the kind of the
//! message, the others are [`Kind::Continued`], and all but the last have the bit [`MORE`]. Frames of other calls may come between
//! them, so that a short message does not wait for a long one.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::HashMap;

/// The bytes of a frame before its body.
pub(super) const HEAD: usize = 4 + 1 + 8;
/// The longest body of a frame.
pub(super) const MAX_BODY: usize = 32 << 10;
/// The bit of the kind that says that the message goes on in another frame of the same call.
const MORE: u8 = 0x80;

/// What a message means. The asking side sends the kinds up to `Ping`, the answering side the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The rest of a message. It never is the kind of a whole message.
    Continued = 0,
    /// Execute a request. The body is the number of the shard (two bytes), and the request.
    Ask = 1,
    /// Return the name of the node. The body is the address under which the other node looked for it.
    Who = 2,
    /// Follow a stream. Several messages answer it.
    Follow = 3,
    /// Return the latest refusals of the node.
    Refusals = 4,
    /// The caller no longer waits. There is no answer.
    Cancel = 5,
    /// The follower has taken this many bytes (eight bytes) of the answers to `Follow`.
    Taken = 6,
    /// The answering side returns it as `Pong`.
    Ping = 7,
    /// The only answer to a call, or the last one.
    Answer = 16,
    /// An answer that is followed by others.
    Part = 17,
    /// Nothing was done. The body says why.
    Refused = 18,
    /// The answer to `Ping`.
    Pong = 19,
    /// The node is stopping. It answers the calls up to this number, and has not looked at later ones.
    GoAway = 20,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            0 => Kind::Continued,
            1 => Kind::Ask,
            2 => Kind::Who,
            3 => Kind::Follow,
            4 => Kind::Refusals,
            5 => Kind::Cancel,
            6 => Kind::Taken,
            7 => Kind::Ping,
            16 => Kind::Answer,
            17 => Kind::Part,
            18 => Kind::Refused,
            19 => Kind::Pong,
            20 => Kind::GoAway,
            _ => return None,
        })
    }
}

/// Appends a frame. The body is at most [`MAX_BODY`] bytes long.
pub(super) fn put_frame(output: &mut BytesMut, kind: Kind, call: u64, body: &[u8], has_more: bool) {
    debug_assert!(body.len() <= MAX_BODY, "a longer message takes several frames");
    output.reserve(HEAD + body.len());
    output.put_u32_le(body.len() as u32);
    output.put_u8(kind as u8 | if has_more { MORE } else { 0 });
    output.put_u64_le(call);
    output.put_slice(body);
}

/// What has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A whole message.
    Message(Message),
    /// The beginning of a message, or more of it. `bytes` have arrived so far. See [`Decoder::discard`].
    Unfinished { kind: Kind, call: u64, bytes: usize },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) call: u64,
    pub(super) body: Bytes,
}

/// The bytes are not frames. The connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a frame of {0} bytes")]
    TooLong(usize),
    #[error("a frame of the unknown kind {0}")]
    UnknownKind(u8),
    #[error("two messages at once of call {0}")]
    Interleaved(u64),
}

/// Decodes frames that arrive in pieces of any size.
#[derive(Default)]
pub(super) struct Decoder {
    /// Bytes that have arrived and are not decoded yet.
    pub(super) input: BytesMut,
    unfinished: HashMap<u64, (Kind, BytesMut)>,
}

impl Decoder {
    /// The next message, or the next part of one, if it has arrived.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>, FrameError> {
        while let Some(frame) = self.frame()? {
            if let Some(incoming) = self.join(frame)? {
                return Ok(Some(incoming));
            }
        }
        Ok(None)
    }

    /// Drops what has arrived of a message. The rest of it is skipped.
    pub(super) fn discard(&mut self, call: u64) {
        self.unfinished.remove(&call);
    }

    fn frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(head) = self.input.first_chunk::<HEAD>() else { return Ok(None) };
        let mut head = &head[..];
        let length = head.get_u32_le() as usize;
        if length > MAX_BODY {
            return Err(FrameError::TooLong(length));
        }
        let byte = head.get_u8();
        let kind = Kind::from_byte(byte & !MORE).ok_or(FrameError::UnknownKind(byte))?;
        let call = head.get_u64_le();
        if self.input.len() < HEAD + length {
            return Ok(None);
        }
        self.input.advance(HEAD);
        let body = self.input.split_to(length).freeze();
        Ok(Some(Frame { message: Message { kind, call, body }, has_more: byte & MORE != 0 }))
    }

    /// None: the frame continues a message that was discarded.
    fn join(&mut self, frame: Frame) -> Result<Option<Incoming>, FrameError> {
        let Frame { message: Message { kind, call, body }, has_more } = frame;
        if kind != Kind::Continued {
            if self.unfinished.contains_key(&call) && !kind.may_interrupt() {
                return Err(FrameError::Interleaved(call));
            }
            if !has_more {
                return Ok(Some(Incoming::Message(Message { kind, call, body })));
            }
            let bytes = body.len();
            self.unfinished.insert(call, (kind, BytesMut::from(&body[..])));
            return Ok(Some(Incoming::Unfinished { kind, call, bytes }));
        }
        let Some((kind, arrived)) = self.unfinished.get_mut(&call) else { return Ok(None) };
        arrived.extend_from_slice(&body);
        if has_more {
            return Ok(Some(Incoming::Unfinished { kind: *kind, call, bytes: arrived.len() }));
        }
        let whole = self.unfinished.remove(&call);
        Ok(whole.map(|(kind, body)| Incoming::Message(Message { kind, call, body: body.freeze() })))
    }
}

impl Kind {
    /// Whether the message may come between the frames of another message of the same call.
    fn may_interrupt(self) -> bool {
        matches!(self, Kind::Cancel | Kind::Taken | Kind::Ping | Kind::Pong | Kind::GoAway)
    }
}

struct Frame {
    message: Message,
    has_more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes bytes that arrive in pieces of this size.
    fn decode(bytes: &[u8], size: usize) -> Result<Vec<Incoming>, FrameError> {
        let mut decoder = Decoder::default();
        let mut found = Vec::new();
        for piece in bytes.chunks(size) {
            decoder.input.extend_from_slice(piece);
            while let Some(incoming) = decoder.next()? {
                found.push(incoming);
            }
        }
        Ok(found)
    }

    fn frame(kind: Kind, call: u64, body: &[u8], has_more: bool) -> BytesMut {
        let mut bytes = BytesMut::new();
        put_frame(&mut bytes, kind, call, body, has_more);
        bytes
    }

    fn message(kind: Kind, call: u64, body: &'static [u8]) -> Incoming {
        Incoming::Message(Message { kind, call, body: Bytes::from_static(body) })
    }

    #[test]
    fn messages_of_several_calls_arrive_in_pieces_of_any_size() {
        let sent = [
            frame(Kind::Ask, 1, b"one", true),
            frame(Kind::Ask, u64::MAX, b"", false),
            frame(Kind::Continued, 1, b" two", true),
            frame(Kind::Cancel, 1, b"", false),
            frame(Kind::Continued, 7, b"of a message that was discarded", false),
            frame(Kind::Continued, 1, b" three", false),
        ]
        .concat();
        let unfinished = |bytes| Incoming::Unfinished { kind: Kind::Ask, call: 1, bytes };
        for size in 1..=sent.len() {
            let expect = [
                unfinished(3),
                message(Kind::Ask, u64::MAX, b""),
                unfinished(7),
                message(Kind::Cancel, 1, b""),
                message(Kind::Ask, 1, b"one two three"),
            ];
            assert_eq!(decode(&sent, size).unwrap(), expect, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_frame_is_an_error_before_it_is_waited_for() {
        let check = |head: [u8; HEAD], expect| assert_eq!(decode(&head, HEAD), Err(expect));
        let length = (MAX_BODY as u32 + 1).to_le_bytes();
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&length);
        check(head, FrameError::TooLong(MAX_BODY + 1));
        check([0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0], FrameError::UnknownKind(8));
        let twice = [frame(Kind::Ask, 3, b"a", true), frame(Kind::Ask, 3, b"a", false)].concat();
        assert_eq!(decode(&twice, 5), Err(FrameError::Interleaved(3)));
    }

    #[test]
    fn the_rest_of_a_discarded_message_is_skipped() {
        let mut decoder = Decoder::default();
        decoder.input.extend_from_slice(&frame(Kind::Ask, 3, b"a", true));
        assert!(matches!(decoder.next(), Ok(Some(Incoming::Unfinished { .. }))));
        decoder.discard(3);
        decoder.input.extend_from_slice(&frame(Kind::Continued, 3, b"b", false));
        decoder.input.extend_from_slice(&frame(Kind::Who, 4, b"c", false));
        assert_eq!(decoder.next(), Ok(Some(message(Kind::Who, 4, b"c"))));
    }
}
