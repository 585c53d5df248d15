//! Key-values and their values.

use limina_api::key_values as wire;
use limina_engine::{
    Invalid,
    key_values::{KeyValues, OwnedValue, Value},
};
use std::borrow::Cow;

/// The field `key_values`.
pub(super) fn key_values(wire::KeyValues(pairs): wire::KeyValues<'_>) -> Result<KeyValues, Invalid> {
    let pairs = pairs.into_iter().map(|(key, value)| (key, borrowed(value))).collect();
    KeyValues::new::<Cow<'_, str>, Cow<'_, str>>(pairs)
}

fn borrowed(value: wire::KeyValue<'_>) -> Value<Cow<'_, str>> {
    match value {
        wire::KeyValue::String(text) => Value::String(text),
        wire::KeyValue::Integer(number) => Value::Integer(number),
        wire::KeyValue::Float(number) => Value::Float(number),
        wire::KeyValue::Boolean(flag) => Value::Boolean(flag),
    }
}

/// A value without a key, in a condition.
pub(super) fn value(value: wire::KeyValue<'_>) -> OwnedValue {
    match value {
        wire::KeyValue::String(text) => Value::String(text.into()),
        wire::KeyValue::Integer(number) => Value::Integer(number),
        // −0.0 is 0.0.
        wire::KeyValue::Float(number) => Value::Float(number + 0.0),
        wire::KeyValue::Boolean(flag) => Value::Boolean(flag),
    }
}
