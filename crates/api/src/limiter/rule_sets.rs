//! Rule sets: rules with their overrides, replaced whole or not at all.

use super::{Durability, NewOverride, NewWindow, Override, Window};
#[cfg(feature = "openapi")]
use crate::Name;
#[cfg(feature = "openapi")]
use crate::schema::Key;
use crate::{Selection, object, words::from_word};
use alloc::borrow::Cow;
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `PUT /rule-sets/{set}`: make the set exactly this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRuleSet {
    /// The rules of the set, each name once.
    #[serde(deserialize_with = "object::list::<10_000, _, _>")]
    #[schema(max_items = 10000)]
    pub rules: Vec<NewSetRule>,
    /// Whether clients may make overrides of the rules. Default: `closed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<SetOverrides>,
    /// Ignored: a set that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub name: Option<String>,
    /// Ignored: a set that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub created_position: Option<u64>,
}

/// Whether clients may make overrides of the rules of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", try_from = "Cow<'_, str>")]
pub enum SetOverrides {
    /// The rules have the overrides that the set names, and no others.
    Closed,
    /// Clients may make overrides of their own. Putting the set leaves them as they are.
    Open,
}

from_word!(SetOverrides: "closed" => Closed, "open" => Open);

/// A rule of a set, with its overrides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSetRule {
    /// The name, unique within the namespace.
    #[serde(alias = "Name")]
    #[schema(value_type = Name, example = "per-card")]
    pub name: String,
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
    /// The overrides of the rule that belong to the set, each name and each key-values once; each has a name. Default:
    /// none.
    #[serde(default, deserialize_with = "object::list::<100_000, _, _>")]
    #[schema(max_items = 100000)]
    pub overrides: Vec<NewOverride>,
    /// Ignored: a rule that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub managed_by: Option<String>,
    /// Ignored: a rule that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub created_position: Option<u64>,
}

/// A rule set with its rules. It can be sent back with PUT.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RuleSet<'a> {
    /// The name, unique within the namespace.
    pub name: Cow<'a, str>,
    /// The rules, ordered by name.
    pub rules: Vec<SetRule<'a>>,
    /// Whether clients may make overrides of the rules.
    pub overrides: SetOverrides,
    /// The position at which the set was created.
    pub created_position: u64,
}

/// A rule of a set, with its overrides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SetRule<'a> {
    /// The name, unique within the namespace.
    pub name: Cow<'a, str>,
    /// Each distinct combination of these keys' values is a group with a limit of its own.
    pub group_by: Vec<Cow<'a, str>>,
    /// Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys.
    pub selection: Selection,
    /// How much may be in use in a group, or happen in it within the window. −1: no limit.
    pub limit: i64,
    /// The window in which hits count; `null` if they count until they are given back.
    #[schema(required)]
    pub window: Option<Window>,
    /// Whether the rule only counts and reports, and never refuses.
    pub shadow: bool,
    /// Whether the answer to a check waits for the disk.
    pub durability: Durability,
    /// The client's notes about the rule, or `null`.
    #[schema(required)]
    pub description: Option<Cow<'a, str>>,
    /// The overrides of the rule that belong to the set, ordered by name. Overrides that clients have made in an open set
    /// are not among them.
    pub overrides: Vec<Override<'a>>,
    /// The set.
    pub managed_by: Cow<'a, str>,
    /// The position at which the rule was created.
    pub created_position: u64,
}

/// A rule set without its rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RuleSetInfo<'a> {
    /// The name, unique within the namespace.
    pub name: Cow<'a, str>,
    /// The number of its rules.
    pub rules: u64,
    /// Whether clients may make overrides of the rules.
    pub overrides: SetOverrides,
    /// The position at which the set was created.
    pub created_position: u64,
}

/// What putting a rule set has changed, or would change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RuleSetChanges<'a> {
    /// The names of the rules that are created, ordered.
    pub created: Vec<Cow<'a, str>>,
    /// The rules that change, or whose overrides do, ordered by name.
    pub changed: Vec<ChangedRule<'a>>,
    /// The names of the rules that are deleted, ordered.
    pub deleted: Vec<Cow<'a, str>>,
    /// Why putting the set is refused, ordered by rule. Empty unless this is a dry run.
    pub conflicts: Vec<SetConflict<'a>>,
}

/// A rule that changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangedRule<'a> {
    /// The name of the rule.
    pub rule: Cow<'a, str>,
    /// The fields that change: those of a rule, `overrides`, and `managed_by` for a rule that belonged to no set.
    pub fields: Vec<Cow<'static, str>>,
    /// Whether what the rule has counted is forgotten: its window has another type or length, or it groups by other keys.
    pub starts_empty: bool,
}

/// Why a rule set cannot be put.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SetConflict<'a> {
    /// The name of the rule.
    pub rule: Cow<'a, str>,
    /// The code with which the PUT is refused: `RuleManagedBySet`, `OverridesConflict` or `OverrideAlreadyExists`.
    pub code: Cow<'static, str>,
    /// For `RuleManagedBySet`: the set that the rule belongs to; otherwise `null`.
    #[schema(required)]
    pub managed_by: Option<Cow<'a, str>>,
    /// For the other codes: the client's override that is in the way; otherwise `null`.
    #[serde(rename = "override")]
    #[schema(required)]
    pub override_name: Option<Cow<'a, str>>,
}
