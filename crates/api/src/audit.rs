//! The audit.

use crate::RequestId;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A management action: who did what, from where, and what it changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// When it was done, in epoch milliseconds.
    pub time: u64,
    /// The namespace in which it was done.
    pub namespace: String,
    /// The position of the change. For the deletion of a namespace, that of the last change before it.
    pub position: u64,
    /// The name of the token. `null` on a server without tokens, and for what the server does itself.
    pub actor: Option<String>,
    /// The address from which the client's connection came. `null` for what the server does itself.
    pub address: Option<String>,
    /// The id of the request, which its answer had as `X-Request-Id`. `null` for what the server does itself.
    #[serde(default)]
    #[schema(required)]
    pub request_id: Option<RequestId>,
    /// What was done, such as `put_rule` or `force_release_lock`.
    pub action: String,
    /// With what: a name or id; `RULE/OVERRIDE` for an override; the key-values of a counter as JSON.
    pub target: String,
    /// How it was before, as a read returns it. `null` if it did not exist. If it is larger than 16 KiB, an object with `summary`.
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// How it was afterwards. `null` if it no longer existed.
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}
