//! The bodies of requests, built field by field.

use crate::error::{Error, Result};
use bytes::Bytes;
use limina_api::Keys;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// A JSON object. What cannot be written as JSON is reported when the request is sent.
#[derive(Clone, Default)]
pub(crate) struct Body {
    pub(crate) fields: Map<String, Value>,
    error: Option<String>,
}

impl Body {
    pub(crate) fn of(document: &(impl Serialize + ?Sized)) -> Body {
        Body::default().with_document(document)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Body {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Adds an item to a list.
    pub(crate) fn and(mut self, name: &str, item: Value) -> Body {
        match self.fields.entry(name).or_insert_with(|| json!([])) {
            Value::Array(items) => items.push(item),
            other => *other = json!([item]),
        }
        self
    }

    /// Adds the fields of a document.
    pub(crate) fn with_document(mut self, document: &(impl Serialize + ?Sized)) -> Body {
        match serde_json::to_value(document) {
            Ok(Value::Object(fields)) => self.fields.extend(fields),
            Ok(_) => self.error = Some("the body must be an object".to_owned()),
            Err(error) => self.error = Some(error.to_string()),
        }
        self
    }

    pub(crate) fn bytes(&self) -> Result<Bytes> {
        if let Some(error) = &self.error {
            return Err(Error::invalid(error));
        }
        json(&self.fields)
    }
}

pub(crate) fn json(document: &impl Serialize) -> Result<Bytes> {
    let bytes = serde_json::to_vec(document).map_err(|error| Error::invalid(error.to_string()))?;
    Ok(bytes.into())
}

pub(crate) fn key_values(key_values: impl Into<Keys>) -> Value {
    // Key-values are strings, numbers and booleans, so this cannot fail.
    serde_json::to_value(key_values.into()).unwrap_or_default()
}

/// A duration, as requests have it.
pub(crate) fn duration(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
