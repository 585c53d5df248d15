//! How a client reads replies, and how it writes key-values.
//!
//! The server's types borrow, so that a check copies nothing. A client keeps a reply longer than the bytes that it came from, so
//! the replies' strings are read as copies. They also pass through serde's `flatten`, which cannot pass on raw JSON.

use crate::{
    KeyValues, Selection,
    key_values::KeyValue,
    selection::{Condition, Tests},
};
use alloc::borrow::Cow;
use alloc::{borrow::ToOwned, boxed::Box, string::String, string::ToString, vec::Vec};
use core::fmt;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};

/// The key-values of a reply.
pub(crate) fn key_values<'de, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<KeyValues<'a>, D::Error> {
    OwnedKeyValues::deserialize(deserializer).map(|OwnedKeyValues(values)| values)
}

/// The key-values of a reply, or none.
pub(crate) fn optional_key_values<'de, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<KeyValues<'a>>, D::Error> {
    let values = Option::deserialize(deserializer)?;
    Ok(values.map(|OwnedKeyValues(values)| values))
}

struct OwnedKeyValues<'a>(KeyValues<'a>);

impl<'de> Deserialize<'de> for OwnedKeyValues<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor;

        impl<'de> Visitor<'de> for MapVisitor {
            type Value = KeyValues<'static>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of key-values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, OwnedValue(value))) = map.next_entry::<String, _>()? {
                    pairs.push((key.into(), value));
                }
                Ok(KeyValues(pairs))
            }
        }
        deserializer.deserialize_map(MapVisitor).map(OwnedKeyValues)
    }
}

/// The selection of a reply.
pub(crate) fn selection<'de, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Selection<'a>, D::Error> {
    let json = serde_json::Value::deserialize(deserializer)?.to_string();
    let Selection(conditions) = serde_json::from_str(&json).map_err(de::Error::custom)?;
    let owned =
        |(key, condition): (Cow<'_, str>, _)| (Cow::Owned(key.into_owned()), own_condition(condition));
    Ok(Selection(conditions.into_iter().map(owned).collect()))
}

fn own_condition<'a>(condition: Condition<'_>) -> Condition<'a> {
    match condition {
        Condition::Equals(value) => Condition::Equals(own(value)),
        Condition::Tests(tests) => {
            let Tests { eq, ne, lt, lte, gt, gte, one_of, prefix, exists } = *tests;
            Condition::Tests(Box::new(Tests {
                eq: eq.map(own),
                ne: ne.map(own),
                lt: lt.map(own),
                lte: lte.map(own),
                gt: gt.map(own),
                gte: gte.map(own),
                one_of: one_of.map(|values| values.into_iter().map(own).collect()),
                prefix: prefix.map(|prefix| Cow::Owned(prefix.into_owned())),
                exists,
            }))
        }
    }
}

fn own<'a>(value: KeyValue<'_>) -> KeyValue<'a> {
    match value {
        KeyValue::String(text) => KeyValue::String(Cow::Owned(text.into_owned())),
        KeyValue::Integer(number) => KeyValue::Integer(number),
        KeyValue::Float(number) => KeyValue::Float(number),
        KeyValue::Boolean(flag) => KeyValue::Boolean(flag),
    }
}

struct OwnedValue<'a>(KeyValue<'a>);

impl<'de> Deserialize<'de> for OwnedValue<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;

        impl Visitor<'_> for ValueVisitor {
            type Value = KeyValue<'static>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or a boolean")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(KeyValue::from(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(KeyValue::Integer(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                i64::try_from(number).map(KeyValue::Integer).map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
                Ok(KeyValue::Float(number))
            }

            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Self::Value, E> {
                Ok(KeyValue::Boolean(flag))
            }
        }
        deserializer.deserialize_any(ValueVisitor).map(OwnedValue)
    }
}

impl<'a> From<&'a str> for KeyValue<'a> {
    fn from(text: &'a str) -> Self {
        KeyValue::String(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for KeyValue<'a> {
    fn from(text: &'a String) -> Self {
        KeyValue::String(Cow::Borrowed(text))
    }
}

impl From<String> for KeyValue<'_> {
    fn from(text: String) -> Self {
        KeyValue::String(Cow::Owned(text))
    }
}

impl From<i64> for KeyValue<'_> {
    fn from(number: i64) -> Self {
        KeyValue::Integer(number)
    }
}

impl From<i32> for KeyValue<'_> {
    fn from(number: i32) -> Self {
        KeyValue::Integer(number.into())
    }
}

impl From<u32> for KeyValue<'_> {
    fn from(number: u32) -> Self {
        KeyValue::Integer(number.into())
    }
}

impl From<f64> for KeyValue<'_> {
    fn from(number: f64) -> Self {
        KeyValue::Float(number)
    }
}

impl From<bool> for KeyValue<'_> {
    fn from(flag: bool) -> Self {
        KeyValue::Boolean(flag)
    }
}

impl<'a, K: Into<Cow<'a, str>>, V: Into<KeyValue<'a>>> FromIterator<(K, V)> for KeyValues<'a> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        KeyValues(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl<'a, K: Into<Cow<'a, str>>, V: Into<KeyValue<'a>>, const N: usize> From<[(K, V); N]> for KeyValues<'a> {
    fn from(pairs: [(K, V); N]) -> Self {
        pairs.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::limiter::{Counter, MatchReply};

    /// Replies are read into types that borrow nothing, and are written as they were.
    #[test]
    fn replies_survive_the_bytes_that_they_came_from() {
        #[track_caller]
        fn check<T: serde::de::DeserializeOwned + serde::Serialize>(json: serde_json::Value) {
            let reply: T = serde_json::from_str(&json.to_string()).unwrap();
            assert_eq!(serde_json::to_value(reply).unwrap(), json);
        }
        let group = serde_json::json!({"a": "x\n", "b": -1, "c": 1.0, "d": true});
        check::<Counter<'static>>(serde_json::json!({"key_values": group, "counters": 3, "leased": 1}));
        check::<MatchReply<'static>>(serde_json::json!({"rules": [{
            "name": "r", "group_by": ["a"], "limit": 3, "window": {"type": "bucket", "per_ms": 1000, "burst": null},
            "selection": {"a": "x", "b": {"gte": -2, "in": [1, 2.5]}, "c": {"exists": true}, "s": {"prefix": "p"}},
            "shadow": false, "durability": "relaxed", "description": null, "overrides": 1, "managed_by": null,
            "created_position": 7, "group": group,
            "matching_overrides": [{
                "rule": "r", "name": "o", "key_values": {"a": "x"}, "limit": 9, "burst": null, "created_position": 8,
            }],
        }]}));
    }
}
