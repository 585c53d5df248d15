//! The groups of a rule that use the most of their limits.

use super::Limit;
use crate::{KeyValues, Millis, Name};
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The groups of a rule that use the most of their limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Groups {
    /// The groups. Those that use the largest part of their limit come first; groups without a limit come last, ordered by
    /// what they use. Groups that use nothing are absent.
    pub items: Vec<Group>,
    /// Always `null`: there are no further pages.
    #[schema(required, nullable)]
    pub next: Option<String>,
    /// Whether these are certainly the groups that use the most. `false` if the namespace has so many groups, or so large ones,
    /// that not all of them could be looked at or returned.
    pub complete: bool,
}

/// A group of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// The group: the `group_by` keys with their values, or the key-values of the override.
    pub group: KeyValues,
    /// The name of the override whose limit applies; `null` if this is the rule's own limit.
    #[serde(rename = "override")]
    #[schema(required)]
    pub override_name: Option<Name>,
    /// The limit; for a bucket, its burst. −1: no limit.
    #[schema(value_type = i64)]
    pub limit: Limit,
    /// How much is used. For a bucket: the burst minus the whole tokens left.
    pub used: u64,
    /// `limit` − `used`, at least 0; `null` if there is no limit.
    #[schema(required)]
    pub remaining: Option<u64>,
    /// The time in milliseconds after which nothing that is used now counts any more; `null` without a window, if never,
    /// or if it is more than 2^53−1.
    #[schema(required, value_type = Option<u64>)]
    pub reset_ms: Option<Millis>,
    /// The number of requests that wait in the group.
    pub waiting: usize,
}
