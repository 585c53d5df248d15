//! What is being refused, as server-sent events.

use crate::KeyValues;
#[cfg(feature = "openapi")]
use crate::Name;
use alloc::borrow::Cow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request, or an item of a batch, that was refused. A field that does not apply is `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusedRequest<'a> {
    /// When it was refused, in epoch milliseconds.
    pub time: u64,
    /// The namespace of the request.
    #[schema(value_type = Name)]
    pub namespace: Cow<'a, str>,
    /// The family of the request: `limiter`, `locks`, `events`, `ledger` or `decisions`.
    pub family: Cow<'a, str>,
    /// The error code, as in problem documents.
    pub code: Cow<'a, str>,
    /// The first rule of the limiter that refused the request.
    #[schema(required)]
    pub rule: Option<Cow<'a, str>>,
    /// The first limit of the ledger that refused the request.
    #[schema(required)]
    pub limit_name: Option<Cow<'a, str>>,
    /// The stream that refused the event.
    #[schema(required)]
    pub stream: Option<Cow<'a, str>>,
    /// The group of the rule, or the lock.
    #[serde(default)]
    #[schema(required)]
    pub key_values: Option<KeyValues>,
    /// The operation of the ledger, or the decision.
    #[schema(required)]
    pub operation_id: Option<Cow<'a, str>>,
}
