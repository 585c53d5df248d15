//! Reading JSON objects strictly.
//!
//! What serde derives for a struct also accepts an array of its fields in order, and a map silently keeps the last of
//! two equal keys. The contract knows neither.

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use std::{collections::BTreeMap, fmt, marker::PhantomData};

/// A `T` that was written as a JSON object, and not as an array of its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// A list of objects.
pub(crate) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|Object(object)| object).collect())
}

/// A list of objects, or `null`.
pub(crate) fn optional_list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let objects = Option::<Vec<Object<T>>>::deserialize(deserializer)?;
    Ok(objects.map(|objects| objects.into_iter().map(|Object(object)| object).collect()))
}

/// Texts by text, each key once.
struct Texts(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        struct TextsVisitor;

        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
                let mut texts = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if texts.contains_key(&key) {
                        return Err(de::Error::custom(format_args!("duplicate field `{key}`")));
                    }
                    texts.insert(key, value);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_map(TextsVisitor)
    }
}

/// A context, or `null`.
pub(crate) fn optional_texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    Ok(Option::<Texts>::deserialize(deserializer)?.map(|Texts(texts)| texts))
}

/// A field of a PATCH that is there, with a context or `null`; where it is absent this is not called.
pub(crate) fn patch_texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<BTreeMap<String, String>>>, D::Error> {
    optional_texts(deserializer).map(Some)
}

/// A field of a PATCH that is there, with a value or `null`; where it is absent this is not called.
pub(crate) fn patch<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A field that may be left out, but is not `null`; where it is absent this is not called.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// An object, or `null`.
pub(crate) fn optional<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|Object(object)| object))
}

/// A field of a PATCH that is there, with an object or `null`; where it is absent this is not called.
pub(crate) fn patch_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    optional(deserializer).map(Some)
}
