//! Errors: the problem document of RFC 9457.

use crate::RequestId;
use alloc::borrow::Cow;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a [`Problem`].
pub const MEDIA_TYPE: &str = "application/problem+json";

/// An error, as a problem document (RFC 9457).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A link to the explanation of `code`, relative to the server.
    #[serde(rename = "type")]
    pub kind: String,
    /// What `code` means, in a few words. For people; may change.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong with this request. For people; may change.
    pub detail: String,
    /// The kind of problem: a stable word for programs.
    pub code: Cow<'static, str>,
    /// The id of the request, which the header `X-Request-Id` has too. Absent in the results of a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub request_id: Option<RequestId>,
    /// Fields that depend on `code`: `field`, `limit_name`, `limit_names`, `operation_id`, `state`, …
    #[serde(flatten)]
    #[schema(additional_properties, value_type = Object)]
    pub extensions: serde_json::Map<String, serde_json::Value>,
}
