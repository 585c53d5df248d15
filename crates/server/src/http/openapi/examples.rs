//! Adds the samples of the reference to the OpenAPI document, for programs that show or send examples.

use super::{super::docs::samples::FAMILIES, operations};
use serde_json::Value;
use utoipa::openapi::{Content, PathItem, RefOr, path::PathsMap};

/// Adds the first sample of each request, and of each status of an answer.
pub(super) fn add(paths: &mut PathsMap<String, PathItem>) {
    let calls = FAMILIES.iter().flat_map(|family| &family.groups).flat_map(|group| &group.calls);
    let calls: Vec<_> = calls.collect();
    for operation in paths.values_mut().flat_map(operations) {
        let id = operation.operation_id.as_deref().unwrap_or_default();
        let Some(call) = calls.iter().find(|call| call.operation_id == id) else { continue };
        for exchange in &call.exchanges {
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                body.content.iter_mut().for_each(|content| set(content, &exchange.request));
            }
            if let Some(RefOr::T(response)) = operation.responses.responses.get_mut(exchange.status) {
                response.content.iter_mut().for_each(|content| set(content, &exchange.response));
            }
        }
    }
}

/// Sets the example of a body, unless it has one. Only the type of JSON bodies, and that of a plain text, is that of the body itself.
fn set((media_type, content): (&String, &mut RefOr<Content>), sample: &str) {
    let RefOr::T(content) = content else { return };
    let example = match media_type.as_str() {
        "application/json" | "application/problem+json" => serde_json::from_str(sample).ok(),
        "text/plain" if !sample.is_empty() => Some(Value::from(sample)),
        _ => None,
    };
    content.example = content.example.take().or(example);
}
