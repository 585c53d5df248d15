//! Enums that JSON writes as one of a few words.

/// Reads an enum from its words. serde's derived code is not used, because its error for an unknown word does not carry the
/// path of the field.
macro_rules! from_word {
    ($type:ident: $first:literal => $first_variant:ident $(, $word:literal => $variant:ident)*) => {
        impl TryFrom<alloc::borrow::Cow<'_, str>> for $type {
            type Error = &'static str;

            fn try_from(word: alloc::borrow::Cow<'_, str>) -> Result<$type, &'static str> {
                match &*word {
                    $first => Ok($type::$first_variant),
                    $($word => Ok($type::$variant),)*
                    _ => Err(concat!("must be one of \"", $first, "\"", $(", \"", $word, "\""),*)),
                }
            }
        }
    };
}

/// Reads an enum from its words in JSON, and from its variants in the binary form. The variants are those of the enum, in its order.
macro_rules! word_or_variant {
    ($type:ident: $($word:literal => $variant:ident),*) => {
        crate::words::from_word!($type: $($word => $variant),*);

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                #[derive(serde::Deserialize)]
                enum Encoded {
                    $(#[serde(rename = $word)]
                    $variant),*
                }
                if deserializer.is_human_readable() {
                    let word = alloc::borrow::Cow::<'_, str>::deserialize(deserializer)?;
                    return $type::try_from(word).map_err(serde::de::Error::custom);
                }
                Ok(match Encoded::deserialize(deserializer)? {
                    $(Encoded::$variant => $type::$variant),*
                })
            }
        }
    };
}

pub(crate) use {from_word, word_or_variant};
