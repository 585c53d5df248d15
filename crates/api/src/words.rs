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

pub(crate) use from_word;
