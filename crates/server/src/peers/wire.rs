//! The bytes between nodes.

use bytes::{Buf, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

/// The longest answer or message: a little more than a key frame of a million events of 1 KiB.
pub(super) const MAX_MESSAGE: usize = 5 << 28;
/// An empty message, which shows that the sender is alive.
pub(super) const SIGN_OF_LIFE: &[u8] = &[0; LENGTH_BYTES];

const LENGTH_BYTES: usize = size_of::<u32>();

/// Encodes a body.
pub(super) fn encode<T: Serialize>(value: &T) -> Bytes {
    postcard::to_allocvec(value).expect("it is written to memory, and all lengths are known").into()
}

/// Decodes a body. None if the bytes are not exactly one value.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// Encodes one of several messages: its length (four bytes, little endian), then the value.
pub(super) fn encode_message<T: Serialize>(value: &T) -> Bytes {
    let mut bytes = postcard::to_extend(value, vec![0; LENGTH_BYTES])
        .expect("it is written to memory, and all lengths are known");
    let length = u32::try_from(bytes.len() - LENGTH_BYTES).expect("messages are within their bound");
    bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    bytes.into()
}

/// Decodes messages that arrive in pieces of any size.
#[derive(Default)]
pub(super) struct Messages {
    bytes: BytesMut,
}

/// A message is longer than [`MAX_MESSAGE`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Messages {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next complete message. Signs of life are skipped.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        while let Some(head) = self.bytes.first_chunk() {
            let length = u32::from_le_bytes(*head) as usize;
            if length > MAX_MESSAGE {
                return Err(TooLong);
            }
            if self.bytes.len() < LENGTH_BYTES + length {
                break;
            }
            self.bytes.advance(LENGTH_BYTES);
            if length > 0 {
                return Ok(Some(self.bytes.split_to(length).freeze()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_pieces_of_any_size() {
        let sent = [&encode_message(&"first"), SIGN_OF_LIFE, &encode_message(&2_000_u64)].concat();
        for size in 1..=sent.len() {
            let mut messages = Messages::default();
            let mut arrived = Vec::new();
            for piece in sent.chunks(size) {
                messages.push(piece);
                arrived.extend(std::iter::from_fn(|| messages.next().unwrap()));
            }
            assert_eq!(arrived, [encode(&"first"), encode(&2_000_u64)], "in pieces of {size}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_not_waited_for() {
        let mut messages = Messages::default();
        messages.push(&(MAX_MESSAGE as u32).to_le_bytes());
        assert_eq!(messages.next(), Ok(None));
        let mut messages = Messages::default();
        messages.push(&(MAX_MESSAGE as u32 + 1).to_le_bytes());
        assert_eq!(messages.next(), Err(TooLong));
    }

    #[test]
    fn only_the_whole_is_decoded() {
        assert_eq!(decode(&encode(&7_u64)), Some(7_u64));
        assert_eq!(decode::<u64>(&[]), None);
        assert_eq!(decode::<u64>(&[7, 7]), None, "bytes to spare");
        assert_eq!(decode::<u64>(&[0xff]), None, "bytes are missing");
    }
}
