//! What the server answered.

use bytes::Bytes;
use std::ops::{Deref, DerefMut};

/// A reply: its typed fields, through dereferencing, and the JSON as the server sent it.
#[derive(Debug, Clone)]
pub struct Reply<T> {
    value: T,
    json: Bytes,
}

impl<T> Reply<T> {
    pub(crate) fn new(value: T, json: Bytes) -> Reply<T> {
        Reply { value, json }
    }

    /// The JSON of the reply, with the fields that this client does not know. If the call travelled in a batch, this is its item of
    /// the batch, which has the additional field `status`.
    pub fn json(&self) -> &str {
        // The value was read from this JSON, which serde_json takes only as UTF-8.
        str::from_utf8(&self.json).unwrap_or_default()
    }

    /// The typed fields alone.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for Reply<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Reply<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
