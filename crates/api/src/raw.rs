//! JSON as text: a string that is copied only if it must be, and the raw text of a whole value.

use alloc::{
    borrow::{Cow, ToOwned},
    string::ToString,
};
use core::fmt;
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, Visitor},
};

/// A string that is copied only if it was written with escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'de>, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// The JSON of a value, without whitespace around it.
///
/// serde_json has a type for this too, `RawValue`. It cannot be read where serde keeps values for later, as it does for a struct
/// that is flattened into another one. Such values have been parsed already, and are written as JSON again.
pub(crate) struct Raw<'a>(pub(crate) Cow<'a, str>);

/// The name by which serde_json's parser recognizes that a value is wanted as text. If another release of serde_json calls it
/// otherwise, every value is parsed and written again, and the tests of integers beyond 64 bits fail.
const RAW: &str = "$serde_json::private::RawValue";

impl<'de> Deserialize<'de> for Raw<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw<'de>, D::Error> {
        struct RawVisitor;

        impl<'de> Visitor<'de> for RawVisitor {
            type Value = Raw<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw<'de>, A::Error> {
                match map.next_entry::<IgnoredAny, Text<'de>>()? {
                    Some((_, Text(json))) => Ok(Raw(json)),
                    None => Err(de::Error::custom("has no text")),
                }
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Raw<'de>, D::Error> {
                let value = serde_json::Value::deserialize(deserializer)?;
                Ok(Raw(Cow::Owned(value.to_string())))
            }
        }
        deserializer.deserialize_newtype_struct(RAW, RawVisitor)
    }
}
