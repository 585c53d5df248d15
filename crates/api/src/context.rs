//! A client's own words about a limit, by key.

use crate::{
    Invalid, Reason,
    invalid::{check_bytes, check_items, key_path},
    object::too_many_keys,
};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, btree_map},
};
use core::{fmt, ops::Deref};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor},
};

/// The client's notes about a limit (provider, terminal, …), by key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Context(BTreeMap<Box<str>, Box<str>>);

impl Context {
    /// The most entries.
    pub const MAX_ENTRIES: usize = 64;
    /// The longest key, in bytes. A key is not empty.
    pub const MAX_KEY_BYTES: usize = 256;
    /// The longest value, in bytes.
    pub const MAX_VALUE_BYTES: usize = 1024;

    /// Takes the entries in any order. Each key may be given once.
    pub fn new<K: Into<Box<str>>, V: Into<Box<str>>>(
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Context, Invalid> {
        let mut context = Context::default();
        for (key, value) in entries {
            let key = key.into();
            if context.0.contains_key(&key) {
                return Err(Invalid::new(key_path("context", &key), Reason::Repeated));
            }
            context.0.insert(key, value.into());
        }
        context.validate()?;
        Ok(context)
    }

    /// Checks what reading does not: how long the texts are.
    pub fn validate(&self) -> Result<(), Invalid> {
        check_items("context", self.0.len(), 0..=Context::MAX_ENTRIES)?;
        self.0.iter().try_for_each(|(key, value)| {
            check_bytes("", key, 1..=Context::MAX_KEY_BYTES)
                .and_then(|()| check_bytes("", value, 0..=Context::MAX_VALUE_BYTES))
                .map_err(|invalid| invalid.renamed(key_path("context", key)))
        })
    }
}

impl IntoIterator for Context {
    type Item = (Box<str>, Box<str>);
    type IntoIter = btree_map::IntoIter<Box<str>, Box<str>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Deref for Context {
    type Target = BTreeMap<Box<str>, Box<str>>;

    fn deref(&self) -> &BTreeMap<Box<str>, Box<str>> {
        &self.0
    }
}

/// A repeated key is an error, and reading stops behind the last entry that is allowed.
impl<'de> Deserialize<'de> for Context {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Context, D::Error> {
        struct ContextVisitor;

        impl<'de> Visitor<'de> for ContextVisitor {
            type Value = Context;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Context, A::Error> {
                let mut texts = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<Box<str>, Box<str>>()? {
                    if texts.len() == Context::MAX_ENTRIES {
                        return Err(too_many_keys(Context::MAX_ENTRIES));
                    }
                    if texts.contains_key(&key) {
                        return Err(de::Error::custom(format_args!("duplicate field `{key}`")));
                    }
                    texts.insert(key, value);
                }
                Ok(Context(texts))
            }
        }
        deserializer.deserialize_map(ContextVisitor)
    }
}
