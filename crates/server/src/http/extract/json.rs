//! Parses JSON bodies, and says which field is wrong.

use super::super::problem::Failure;
use limina_api::{JsonFault, Object};
use serde::Deserialize;

/// The most characters of a client's text that a problem document repeats.
const MAX_ECHO: usize = 512;

/// Parses one JSON object. An empty body counts as `{}`.
///
/// Recording the path of the field costs time, so a body is parsed a second time, with the path, only after an error.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Failure> {
    if bytes.is_empty() {
        return serde_json::from_str("{}")
            .map_err(|_| Failure::invalid("body", "must not be empty, because some fields are required"));
    }
    match serde_json::from_slice::<Object<T>>(bytes) {
        Ok(Object(value)) => Ok(value),
        Err(error) => {
            let mut deserializer = serde_json::Deserializer::from_slice(bytes);
            Err(match serde_path_to_error::deserialize::<_, Object<T>>(&mut deserializer) {
                // The object itself is valid: the error is about what follows it.
                Ok(_) => failure(&JsonFault::of(&error), String::new()),
                Err(found) if found.path().iter().len() == 0 => {
                    failure(&JsonFault::of(found.inner()), String::new())
                }
                Err(found) => failure(&JsonFault::of(found.inner()), found.path().to_string()),
            })
        }
    }
}

/// `path` is where the parser was when it failed; empty for the body itself.
fn failure(fault: &JsonFault, path: String) -> Failure {
    let field = match fault {
        JsonFault::Syntax(_) => String::new(),
        JsonFault::Missing(name) | JsonFault::Repeated(name) | JsonFault::Within { field: name, .. } => {
            match path.is_empty() {
                true => name.clone(),
                false => format!("{path}.{name}"),
            }
        }
        JsonFault::Unknown { .. } | JsonFault::Value(_) => path,
    };
    let field = if field.is_empty() { "body".to_owned() } else { shortened(&field) };
    let failure = Failure::invalid(field, shortened(&fault.reason()));
    match fault {
        JsonFault::Unknown { known: Some(known), .. } => failure.hinting(format!("Known fields: {known}.")),
        _ => failure,
    }
}

/// Cuts a client's text that a problem document repeats.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_ECHO) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
