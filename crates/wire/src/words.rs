//! Words that stand for one of a few things.

/// Reads a closed set of words. (What serde derives does not say which field it is that is no word.)
macro_rules! from_word {
    ($type:ident: $first:literal => $first_variant:ident $(, $word:literal => $variant:ident)*) => {
        impl TryFrom<std::borrow::Cow<'_, str>> for $type {
            type Error = &'static str;

            fn try_from(word: std::borrow::Cow<'_, str>) -> Result<$type, &'static str> {
                match &*word {
                    $first => Ok($type::$first_variant),
                    $($word => Ok($type::$variant),)*
                    _ => Err(concat!("expected one of \"", $first, "\"", $(", \"", $word, "\""),*)),
                }
            }
        }
    };
}

pub(crate) use from_word;
