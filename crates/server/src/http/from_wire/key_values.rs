//! Key-values and their values.

use super::super::{extract::shortened, problem::Failure};
use limina_engine::key_values::{InvalidKeyValues, KeyValues, OwnedValue, Value};
use limina_wire::key_values as wire;
use std::borrow::Cow;

/// The field `key_values`.
pub(super) fn key_values(wire::KeyValues(pairs): wire::KeyValues<'_>) -> Result<KeyValues, Failure> {
    let pairs = pairs.into_iter().map(|(key, value)| (key, borrowed(value))).collect();
    KeyValues::new::<Cow<'_, str>, Cow<'_, str>>(pairs).map_err(|invalid| {
        let field = match &invalid {
            InvalidKeyValues::TooManyKeys => "key_values".to_owned(),
            InvalidKeyValues::KeyLength(key)
            | InvalidKeyValues::DuplicateKey(key)
            | InvalidKeyValues::StringTooLong(key)
            | InvalidKeyValues::NotFinite(key) => format!("key_values.{}", shortened(key)),
        };
        Failure::invalid(field, shortened(&invalid.to_string()))
    })
}

fn borrowed(value: wire::KeyValue<'_>) -> Value<Cow<'_, str>> {
    match value {
        wire::KeyValue::String(text) => Value::String(text),
        wire::KeyValue::Integer(number) => Value::Integer(number),
        wire::KeyValue::Float(number) => Value::Float(number),
        wire::KeyValue::Boolean(flag) => Value::Boolean(flag),
    }
}

/// A value that stands by itself, in a condition.
pub(super) fn value(value: wire::KeyValue<'_>) -> Result<OwnedValue, String> {
    match value {
        wire::KeyValue::String(text) => short_text(&text).map(Value::String),
        wire::KeyValue::Integer(number) => Ok(Value::Integer(number)),
        // −0.0 is 0.0.
        wire::KeyValue::Float(number) => Ok(Value::Float(number + 0.0)),
        wire::KeyValue::Boolean(flag) => Ok(Value::Boolean(flag)),
    }
}

/// A text that is no longer than one in key-values.
pub(super) fn short_text(text: &str) -> Result<Box<str>, String> {
    if text.len() <= KeyValues::MAX_STRING_BYTES {
        Ok(text.into())
    } else {
        Err(format!("must not have more than {} bytes", KeyValues::MAX_STRING_BYTES))
    }
}

/// A key that stands by itself.
pub(super) fn key(text: &str) -> Result<Box<str>, String> {
    if (1..=KeyValues::MAX_KEY_BYTES).contains(&text.len()) {
        Ok(text.into())
    } else {
        Err(format!("a key has 1 to {} bytes", KeyValues::MAX_KEY_BYTES))
    }
}
