//! Rules, and which of them apply.

use super::{Limit, Override};
#[cfg(feature = "openapi")]
use crate::schema::{Key, WindowLength};
use crate::{Duration, KeyValues, Millis, Name, Position, Selection, object, words::from_word};
use alloc::{boxed::Box, string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /rules` and `PUT /rules/{name}`: create a rule, or replace everything except its name and its overrides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRule {
    /// The name, unique within the namespace. In a PUT it may be absent; otherwise it must be the name in the path.
    #[serde(default, alias = "Name", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>, example = "per-card")]
    pub name: Option<String>,
    /// Each distinct combination of these keys' values is a group with a limit of its own. Empty: one group for
    /// everything. Default: empty.
    #[serde(default, alias = "GroupBy", deserialize_with = "object::values::<16, _, _>")]
    #[schema(value_type = BTreeSet<Key>, max_items = 16, example = json!(["card"]))]
    pub group_by: Vec<String>,
    /// Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys. Default:
    /// none.
    #[serde(default, alias = "Selection", alias = "Seletion", skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// How much may be in use in a group, or happen in it within the window: at most 2^53−1. −1: no limit. 0: nothing
    /// passes.
    #[serde(alias = "Limit")]
    #[schema(minimum = -1, maximum = 9_007_199_254_740_991_i64, example = 100)]
    pub limit: i64,
    /// The window in which hits count. Absent: hits count until they are given back.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub window: Option<NewWindow>,
    /// Count and report, but never refuse. Default: `false`.
    #[serde(default)]
    pub shadow: bool,
    /// Whether the answer to a check waits for the disk. Default: `relaxed` with a window, `durable` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// The client's notes about the rule, up to 1,024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024, extensions(("x-max-bytes" = json!(1024))))]
    pub description: Option<String>,
    /// Ignored: a rule that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub overrides: Option<u64>,
    /// Ignored: a rule that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub managed_by: Option<String>,
    /// Ignored: a rule that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub created_position: Option<u64>,
}

/// The time span in which hits count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWindow {
    /// The type of the window.
    #[serde(rename = "type")]
    pub kind: WindowType,
    /// The length of the window: 1 ms–366 d. For a bucket: the time in which the whole limit is refilled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = WindowLength)]
    pub per: Option<Duration>,
    /// The length of the window in milliseconds, in place of `per`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_622_400_000_u64)]
    pub per_ms: Option<u64>,
    /// Only for a bucket: the most that it can contain, 1 to 2^53−1. Default: the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub burst: Option<u64>,
}

/// The type of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowType {
    /// Consecutive spans, aligned to the epoch.
    Fixed,
    /// Every span of this length: at no moment may the last `per` contain more than the limit.
    Sliding,
    /// A token bucket: it is refilled evenly with `limit` tokens in each `per`, up to `burst`.
    Bucket,
}

from_word!(WindowType: "fixed" => Fixed, "sliding" => Sliding, "bucket" => Bucket);

/// Whether the answer to a check waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The answer is returned when the change is on disk. A crash loses nothing.
    Durable,
    /// The answer does not wait for the disk. A crash may lose the last hits before it.
    Relaxed,
}

from_word!(Durability: "durable" => Durable, "relaxed" => Relaxed);

/// `PATCH /rules/{name}`: change the given fields. `null` removes an optional field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RulePatch {
    /// The new limit: −1 to 2^53−1.
    #[serde(
        default,
        alias = "Limit",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::present"
    )]
    #[schema(minimum = -1, maximum = 9_007_199_254_740_991_i64, nullable = false)]
    pub limit: Option<i64>,
    /// The new window, as a whole. With another type or another `per`, it starts empty.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch_object")]
    #[schema(value_type = Option<NewWindow>)]
    pub window: Option<Option<NewWindow>>,
    /// The new selection, as a whole.
    #[serde(
        default,
        alias = "Selection",
        alias = "Seletion",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::patch"
    )]
    #[schema(value_type = Option<Selection>)]
    pub selection: Option<Option<Selection>>,
    /// Whether the rule only counts and reports. `null`: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<bool>)]
    pub shadow: Option<Option<bool>>,
    /// Whether the answer to a check waits for the disk. `null`: the default for the window.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<Durability>)]
    pub durability: Option<Option<Durability>>,
    /// The client's notes about the rule, up to 1,024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<String>, max_length = 1024, extensions(("x-max-bytes" = json!(1024))))]
    pub description: Option<Option<String>>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rule {
    /// The name, unique within the namespace.
    pub name: Name,
    /// Each distinct combination of these keys' values is a group with a limit of its own.
    #[schema(value_type = Vec<String>)]
    pub group_by: Vec<Box<str>>,
    /// Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys.
    pub selection: Selection,
    /// How much may be in use in a group, or happen in it within the window. −1: no limit.
    #[schema(value_type = i64)]
    pub limit: Limit,
    /// The window in which hits count; `null` if they count until they are given back.
    #[schema(required)]
    pub window: Option<Window>,
    /// Whether the rule only counts and reports, and never refuses.
    pub shadow: bool,
    /// Whether the answer to a check waits for the disk.
    pub durability: Durability,
    /// The client's notes about the rule, or `null`.
    #[schema(required, value_type = Option<String>)]
    pub description: Option<Box<str>>,
    /// The number of overrides of the rule.
    pub overrides: u64,
    /// The rule set that the rule belongs to, which alone can change it, or `null`. `file` is the server's rules file.
    #[schema(required)]
    pub managed_by: Option<Name>,
    /// The position at which the rule was created.
    #[schema(value_type = u64)]
    pub created_position: Position,
}

/// The time span in which hits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    /// The type of the window.
    #[serde(rename = "type")]
    pub kind: WindowType,
    /// The length of the window in milliseconds.
    #[schema(value_type = u64)]
    pub per_ms: Millis,
    /// The most that a bucket can contain; `null` for the limit, and for the other types.
    #[schema(required)]
    pub burst: Option<u64>,
}

/// `POST /rules/match`: which rules and overrides would apply to a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchQuery {
    /// The key-values of the check.
    #[serde(alias = "KeyValues")]
    pub key_values: KeyValues,
}

/// The rules that apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MatchReply {
    /// The rules, ordered by name.
    pub rules: Vec<RuleMatch>,
}

/// A rule that applies, with its group and those of its overrides that apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RuleMatch {
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule,
    /// The group: the `group_by` keys with their values.
    pub group: KeyValues,
    /// The overrides that apply, ordered by name. If there is any, the own limit of the rule refuses nothing.
    pub matching_overrides: Vec<Override>,
}
