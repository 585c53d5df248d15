//! Key-values as arguments.

use limina_engine::{Invalid, KeyValues, key_values::OwnedValue, key_values::Value};

/// The keys with their values that a check, a counter or a lock is about. Arrays of pairs convert to it:
///
/// ```
/// use limina_embed::Keys;
///
/// let one_type: Keys = [("user", "ann"), ("route", "/pay")].into();
/// let several_types = Keys::new().with("user", "ann").with("tenant", 7).with("is_trial", true);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Keys(Vec<(Box<str>, OwnedValue)>);

/// The value of a key. The type is part of the value: `1`, `1.0`, `"1"` and `true` are four different values.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyValue(OwnedValue);

impl Keys {
    /// No keys yet.
    pub fn new() -> Keys {
        Keys::default()
    }

    /// Adds a key. The order does not matter; each key may be there once.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<KeyValue>) -> Keys {
        let KeyValue(value) = value.into();
        self.0.push((key.into(), value));
        self
    }

    pub(crate) fn build(self) -> Result<KeyValues, Invalid> {
        KeyValues::new(self.0)
    }
}

impl<K: AsRef<str>, V: Into<KeyValue>, const N: usize> From<[(K, V); N]> for Keys {
    fn from(pairs: [(K, V); N]) -> Keys {
        pairs.into_iter().fold(Keys::new(), |keys, (key, value)| keys.with(key.as_ref(), value))
    }
}

/// The keys of an answer, to ask about the same thing again.
impl From<&KeyValues> for Keys {
    fn from(key_values: &KeyValues) -> Keys {
        Keys(key_values.iter().map(|pair| (pair.key.into(), pair.value.to_owned())).collect())
    }
}

impl From<&str> for KeyValue {
    fn from(text: &str) -> KeyValue {
        KeyValue(Value::String(text.into()))
    }
}

impl From<String> for KeyValue {
    fn from(text: String) -> KeyValue {
        KeyValue(Value::String(text.into()))
    }
}

impl From<i64> for KeyValue {
    fn from(number: i64) -> KeyValue {
        KeyValue(Value::Integer(number))
    }
}

impl From<i32> for KeyValue {
    fn from(number: i32) -> KeyValue {
        KeyValue(Value::Integer(number.into()))
    }
}

impl From<f64> for KeyValue {
    fn from(number: f64) -> KeyValue {
        KeyValue(Value::Float(number))
    }
}

impl From<bool> for KeyValue {
    fn from(flag: bool) -> KeyValue {
        KeyValue(Value::Boolean(flag))
    }
}
