//! Names and ids, as clients give them.

use alloc::sync::Arc;
use core::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The largest number of bytes that are stored inline. The value then takes 24 bytes.
const INLINE: usize = 22;

/// A name or id: 1–256 bytes of UTF-8 without control characters, and neither `.` nor `..`. Cheap to clone.
///
/// A short name is stored inline. A check answers with the name of each rule that applies, and a thread that drops the answer would
/// otherwise change a reference count in memory which the shard's thread needs for the next check.
#[derive(Clone)]
pub struct Name(Text);

#[derive(Clone)]
enum Text {
    Inline { length: u8, bytes: [u8; INLINE] },
    Shared(Arc<str>),
}

/// Why a text is not a [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidName {
    /// It has no bytes.
    Empty,
    /// It has more than [`Name::MAX_BYTES`].
    TooLong,
    /// It contains a control character.
    ControlCharacter,
    /// It is `.` or `..`, which a path cannot carry.
    Dots,
}

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Takes the text if it is a valid name.
    pub fn new(text: &str) -> Result<Name, InvalidName> {
        if text.is_empty() {
            return Err(InvalidName::Empty);
        }
        if text.len() > Name::MAX_BYTES {
            return Err(InvalidName::TooLong);
        }
        // Most names are ASCII, for which comparing bytes is enough.
        let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !is_plain && text.chars().any(char::is_control) {
            return Err(InvalidName::ControlCharacter);
        }
        if text == "." || text == ".." {
            return Err(InvalidName::Dots);
        }
        if text.len() > INLINE {
            return Ok(Name(Text::Shared(text.into())));
        }
        let mut bytes = [0; INLINE];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Name(Text::Inline { length: text.len() as u8, bytes }))
    }

    /// The text itself. [`Name::as_bytes`] is faster where text is not needed.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Inline { .. } => core::str::from_utf8(self.as_bytes()).expect("the name was made of text"),
            Text::Shared(text) => text,
        }
    }

    /// The length of the text, if it is kept in an allocation with two reference counts.
    pub fn shared_bytes(&self) -> Option<usize> {
        match &self.0 {
            Text::Inline { .. } => None,
            Text::Shared(text) => Some(text.len()),
        }
    }

    /// The text's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Text::Shared(text) => text.as_bytes(),
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        match (&self.0, &other.0) {
            // The bytes behind the text are 0, which is in no name.
            (Text::Inline { bytes, .. }, Text::Inline { bytes: others, .. }) => bytes == others,
            (Text::Shared(text), Text::Shared(other)) => text == other,
            _ => false,
        }
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of the texts is the order of their bytes.
impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
        // No text contains this byte, so two names have another hash than the same bytes divided in another way.
        state.write_u8(0xff);
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidName::Empty => "must not be empty",
            InvalidName::TooLong => "must not be longer than 256 bytes",
            InvalidName::ControlCharacter => "must not contain control characters",
            InvalidName::Dots => "must not be \".\" or \"..\"",
        })
    }
}

impl core::error::Error for InvalidName {}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        struct NameVisitor;

        impl de::Visitor<'_> for NameVisitor {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Name, E> {
                Name::new(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn short_and_long_names_read_back() {
        let made: Vec<Name> =
            (1..=Name::MAX_BYTES).map(|length| Name::new(&"x".repeat(length)).unwrap()).collect();
        for (name, length) in made.iter().zip(1..) {
            assert_eq!(name.as_str(), "x".repeat(length));
            assert_eq!(matches!(name.0, Text::Inline { .. }), length <= INLINE);
            assert_eq!(*name, name.clone());
        }
        assert!(made.is_sorted_by(|a, b| a < b && a != b));
        assert_eq!(size_of::<Option<Name>>(), 24);
    }

    #[test]
    fn names_are_checked() {
        #[track_caller]
        fn check(text: &str, expect: Result<(), InvalidName>) {
            assert_eq!(Name::new(text).map(|_| ()), expect, "{text:?}");
        }
        check("a", Ok(()));
        check("терминал 🌮", Ok(()));
        check("...", Ok(()));
        check(&"x".repeat(256), Ok(()));
        check("", Err(InvalidName::Empty));
        check(&"x".repeat(257), Err(InvalidName::TooLong));
        check("a\nb", Err(InvalidName::ControlCharacter));
        check("a\u{7f}", Err(InvalidName::ControlCharacter));
        check("a\u{85}", Err(InvalidName::ControlCharacter));
        check(".", Err(InvalidName::Dots));
        check("..", Err(InvalidName::Dots));
    }
}
