//! Key-values as arguments of a program.

use crate::{
    Invalid, KeyValues,
    value::{OwnedValue, Value},
};
use alloc::{boxed::Box, string::String, vec::Vec};
use serde::{Serialize, Serializer};

/// Key-values that are not checked yet: keys with their values in any order. Arrays of pairs convert to it:
///
/// ```
/// use limina_api::Keys;
///
/// let one_type: Keys = [("user", "ann"), ("route", "/pay")].into();
/// let several_types = Keys::new().with("user", "ann").with("tenant", 7).with("is_trial", true);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Keys(Vec<(Box<str>, OwnedValue)>);

impl Keys {
    /// No keys yet.
    pub fn new() -> Keys {
        Keys::default()
    }

    /// Adds a key. The order does not matter. Each key may be there once.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<OwnedValue>) -> Keys {
        self.0.push((key.into(), value.into()));
        self
    }

    /// Checks the keys and the values.
    pub fn build(self) -> Result<KeyValues, Invalid> {
        KeyValues::new(self.0)
    }
}

/// Writes the pairs as they are, so that a server can say what is wrong with them.
impl Serialize for Keys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<K: AsRef<str>, V: Into<OwnedValue>> FromIterator<(K, V)> for Keys {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Keys {
        Keys(pairs.into_iter().map(|(key, value)| (key.as_ref().into(), value.into())).collect())
    }
}

impl<K: AsRef<str>, V: Into<OwnedValue>, const N: usize> From<[(K, V); N]> for Keys {
    fn from(pairs: [(K, V); N]) -> Keys {
        pairs.into_iter().collect()
    }
}

/// The keys of an answer, to ask about the same thing again.
impl From<&KeyValues> for Keys {
    fn from(key_values: &KeyValues) -> Keys {
        key_values.iter().map(|pair| (pair.key, pair.value.to_owned())).collect()
    }
}

impl From<KeyValues> for Keys {
    fn from(key_values: KeyValues) -> Keys {
        Keys::from(&key_values)
    }
}

impl From<&str> for OwnedValue {
    fn from(text: &str) -> OwnedValue {
        Value::String(text.into())
    }
}

impl From<&String> for OwnedValue {
    fn from(text: &String) -> OwnedValue {
        Value::String(text.as_str().into())
    }
}

impl From<String> for OwnedValue {
    fn from(text: String) -> OwnedValue {
        Value::String(text.into())
    }
}

impl From<i64> for OwnedValue {
    fn from(number: i64) -> OwnedValue {
        Value::Integer(number)
    }
}

impl From<i32> for OwnedValue {
    fn from(number: i32) -> OwnedValue {
        Value::Integer(number.into())
    }
}

impl From<u32> for OwnedValue {
    fn from(number: u32) -> OwnedValue {
        Value::Integer(number.into())
    }
}

impl From<f64> for OwnedValue {
    fn from(number: f64) -> OwnedValue {
        Value::Float(number)
    }
}

impl From<bool> for OwnedValue {
    fn from(flag: bool) -> OwnedValue {
        Value::Boolean(flag)
    }
}
