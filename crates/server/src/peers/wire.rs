//! The encoding of what is in the messages between nodes: the API's binary form, which a node of another version can read.

use bytes::Bytes;
use limina_api::binary;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Why a node has done nothing for a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Refusal {
    /// There is no memory for the call, or too many calls are open.
    Overloaded,
    /// The bytes are not a request, or not a valid one.
    Invalid {
        /// The field that is not valid.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Encodes the body of a message.
pub(super) fn encode<T: Serialize>(value: &T) -> Bytes {
    encode_after(&[], value)
}

/// Encodes the body of a message after these bytes.
pub(super) fn encode_after<T: Serialize>(head: &[u8], value: &T) -> Bytes {
    binary::encode_after(head.to_vec(), value).expect("messages have only types that can be written").into()
}

/// Decodes the body of a message. None if the bytes are not exactly one value.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    binary::decode(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_is_decoded() {
        assert_eq!(decode(&encode(&7_u64)), Some(7_u64));
        assert_eq!(decode::<u64>(&[]), None);
        assert_eq!(decode::<u64>(&[7, 7]), None, "bytes to spare");
        assert_eq!(decode::<u64>(&[0xe8]), None, "bytes are missing");
        assert_eq!(encode_after(&[1, 2], &7_u64)[..], [1, 2, 7]);
    }
}
