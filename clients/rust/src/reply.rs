//! What the server answered.

use crate::transport::Headers;
use bytes::Bytes;
use reqwest::header::{HeaderName, HeaderValue};
use std::ops::{Deref, DerefMut};

/// A reply: its typed fields, through dereferencing, and the JSON as the server sent it.
#[derive(Debug, Clone)]
pub struct Reply<T> {
    value: T,
    json: Bytes,
    headers: Headers,
}

impl<T> Reply<T> {
    pub(crate) fn new(value: T, json: Bytes, headers: Headers) -> Reply<T> {
        Reply { value, json, headers }
    }

    /// The JSON of the reply, with the fields that this client does not know. If the call travelled in a batch, this is its item of
    /// the batch, which has the additional field `status`.
    pub fn json(&self) -> &str {
        // The value was read from this JSON, which serde_json takes only as UTF-8.
        str::from_utf8(&self.json).unwrap_or_default()
    }

    /// `RateLimit-Policy`, `RateLimit` and `Retry-After` as the server sent them: for a service to pass on to its own client. Empty if the
    /// call travelled with others, see [`Check::alone`](crate::Check::alone).
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
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
