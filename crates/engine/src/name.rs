//! Names and ids, as clients give them.

use crate::resident;
use alloc::sync::Arc;
use core::{borrow::Borrow, fmt};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A name or id: 1–256 bytes of UTF-8 without control characters, and neither `.` nor `..`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

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
        if text.chars().any(char::is_control) {
            return Err(InvalidName::ControlCharacter);
        }
        if text == "." || text == ".." {
            return Err(InvalidName::Dots);
        }
        Ok(Name(text.into()))
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The memory that the text takes besides this value.
    pub(crate) fn heap(&self) -> u64 {
        resident::shared(self.0.len())
    }

    /// The text's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
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
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        let text = <&str>::deserialize(deserializer)?;
        Name::new(text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
