//! Fields with a meaning of their own: one that a PATCH may leave out, and one that is read and dropped.

use core::{fmt, marker::PhantomData};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A field of a PATCH. JSON is only read: absent is `Keep`, which is the default, and `null` is `Remove`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub enum Patch<T> {
    /// The request does not mention the field: it keeps its value.
    #[default]
    Keep,
    /// The request says `null`: the value is removed.
    Remove,
    /// The field gets this value.
    Set(T),
}

impl<T> Patch<T> {
    /// The new value, if the field gets one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Patch::Set(value) => Some(value),
            Patch::Keep | Patch::Remove => None,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Patch<T>, D::Error> {
        /// The same variants, as nodes send them.
        #[derive(Deserialize)]
        enum Encoded<T> {
            Keep,
            Remove,
            Set(T),
        }
        if deserializer.is_human_readable() {
            return Ok(Option::deserialize(deserializer)?.map_or(Patch::Remove, Patch::Set));
        }
        Ok(match Encoded::deserialize(deserializer)? {
            Encoded::Keep => Patch::Keep,
            Encoded::Remove => Patch::Remove,
            Encoded::Set(value) => Patch::Set(value),
        })
    }
}

/// A field of a reply that a request may send back: a value of its type is read and dropped.
pub struct Ignored<T>(PhantomData<fn() -> T>);

impl<T> Default for Ignored<T> {
    fn default() -> Ignored<T> {
        Ignored(PhantomData)
    }
}

impl<T> Clone for Ignored<T> {
    fn clone(&self) -> Ignored<T> {
        Ignored::default()
    }
}

impl<T> PartialEq for Ignored<T> {
    fn eq(&self, _: &Ignored<T>) -> bool {
        true
    }
}

impl<T> fmt::Debug for Ignored<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ignored")
    }
}

impl<T> Serialize for Ignored<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ignored<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ignored<T>, D::Error> {
        match deserializer.is_human_readable() {
            true => T::deserialize(deserializer).map(drop)?,
            false => <()>::deserialize(deserializer)?,
        }
        Ok(Ignored::default())
    }
}
