//! Overrides of rules.

use super::Limit;
use crate::{KeyValues, Name, Position, object};
use alloc::string::String;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /rules/{name}/overrides` and `PUT …/overrides/{override}`: create an override, or replace everything except
/// its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOverride {
    /// The name, unique within the rule. In a PUT it may be absent; otherwise it must be the name in the path.
    #[serde(default, alias = "Name", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>, example = "big-customer")]
    pub name: Option<String>,
    /// The override applies to checks that have all these key-values. Every `group_by` key of the rule is required;
    /// more are allowed.
    #[serde(alias = "KeyValues")]
    pub key_values: KeyValues,
    /// The limit that replaces the limit of the rule: at most 2^53−1. −1: no limit.
    #[serde(alias = "Limit")]
    #[schema(minimum = -1, maximum = 9_007_199_254_740_991_i64, example = 1000)]
    pub limit: i64,
    /// Only if the rule is a bucket: the most that it can contain, 1 to 2^53−1. Default: this limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub burst: Option<u64>,
    /// Ignored: an override that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub rule: Option<String>,
    /// Ignored: an override that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub created_position: Option<u64>,
}

/// `PATCH /rules/{name}/overrides/{override}`: change the given fields. `null` removes the burst.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverridePatch {
    /// The new key-values, as a whole.
    #[serde(
        default,
        alias = "KeyValues",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::present"
    )]
    #[schema(nullable = false)]
    pub key_values: Option<KeyValues>,
    /// The new limit: −1 to 2^53−1.
    #[serde(
        default,
        alias = "Limit",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::present"
    )]
    #[schema(minimum = -1, maximum = 9_007_199_254_740_991_i64, nullable = false)]
    pub limit: Option<i64>,
    /// The new burst: 1 to 2^53−1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub burst: Option<Option<u64>>,
}

/// An override: another limit for exact values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Override {
    /// The rule that the override belongs to.
    pub rule: Name,
    /// The name, unique within the rule.
    pub name: Name,
    /// The override applies to checks that have all these key-values.
    pub key_values: KeyValues,
    /// The limit that replaces the limit of the rule. −1: no limit.
    #[schema(value_type = i64)]
    pub limit: Limit,
    /// The most that the bucket can contain; `null` for the limit, and if the rule is not a bucket.
    #[schema(required)]
    pub burst: Option<u64>,
    /// The position at which the override was created.
    #[schema(value_type = u64)]
    pub created_position: Position,
}
