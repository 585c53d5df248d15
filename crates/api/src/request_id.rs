//! The id of a request.

use crate::small_bytes::SmallBytes;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The id under which a request is found in its answer, in logs and in the audit: 1–64 visible ASCII characters. Cheap to clone.
///
/// An id of up to 30 characters is stored inline. Those that the server makes are that short, so they need no allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestId(SmallBytes);

impl RequestId {
    /// The longest id, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Takes the bytes if they are a valid id.
    pub fn new(bytes: &[u8]) -> Option<RequestId> {
        let is_valid = (1..=RequestId::MAX_BYTES).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_graphic());
        is_valid.then(|| RequestId(SmallBytes::new(bytes)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.0.as_slice()).expect("the id is ASCII")
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequestId, D::Error> {
        struct RequestIdVisitor;

        impl de::Visitor<'_> for RequestIdVisitor {
            type Value = RequestId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("1–64 visible ASCII characters")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RequestId, E> {
                RequestId::new(text.as_bytes())
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(RequestIdVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_ascii_of_bounded_length_is_an_id() {
        #[track_caller]
        fn check(bytes: &[u8], is_valid: bool) {
            assert_eq!(RequestId::new(bytes).is_some(), is_valid, "{bytes:?}");
        }
        check(b"a", true);
        check(b".", true);
        check(b"!~", true);
        check(&[b'x'; 31], true);
        check(&[b'x'; 64], true);
        check(b"", false);
        check(&[b'x'; 65], false);
        check(b"a b", false);
        check(b"a\x7f", false);
        check(b"a\tb", false);
        check("é".as_bytes(), false);
    }
}
