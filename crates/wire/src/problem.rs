//! Errors: the problem document of RFC 9457.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// The media type of a [`Problem`].
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Where the kind of problem is explained, relative to the server.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in a few words.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time, for a human reader.
    pub detail: String,
    /// The kind of problem as a stable word for programs.
    pub code: Cow<'static, str>,
    /// What else helps a program: `field`, `limit_name`, `limit_names`, `operation_id`, `state`, …
    #[serde(flatten)]
    #[schema(additional_properties, value_type = Object)]
    pub extensions: serde_json::Map<String, serde_json::Value>,
}
