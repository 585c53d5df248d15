//! Enums that JSON writes as one of a few words.

/// Reads an enum from its words. serde's derived code is not used for JSON, because its error for an unknown word does not carry
/// the path of the field. In other forms it is a variant, as serde derives it.
macro_rules! from_word {
    ($type:ident: $first:literal => $first_variant:ident $(, $word:literal => $variant:ident)*) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                /// The same variants, as nodes send them.
                #[derive(serde::Deserialize)]
                enum Encoded {
                    #[serde(rename = $first)]
                    $first_variant,
                    $(#[serde(rename = $word)] $variant,)*
                }
                if !deserializer.is_human_readable() {
                    return Ok(match Encoded::deserialize(deserializer)? {
                        Encoded::$first_variant => $type::$first_variant,
                        $(Encoded::$variant => $type::$variant,)*
                    });
                }
                match &*<alloc::borrow::Cow<'_, str>>::deserialize(deserializer)? {
                    $first => Ok($type::$first_variant),
                    $($word => Ok($type::$variant),)*
                    _ => Err(serde::de::Error::custom(
                        concat!("must be one of \"", $first, "\"", $(", \"", $word, "\""),*),
                    )),
                }
            }
        }
    };
}

pub(crate) use from_word;
