//! Rule sets: rules with their overrides, replaced whole or not at all.

use super::{Durability, Limit, NewOverride, NewWindow, Override, Window};
#[cfg(feature = "openapi")]
use crate::schema::Key;
use crate::{Name, Position, Selection, object, words::from_word};
use alloc::{boxed::Box, string::String, vec::Vec};
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SetOverrides {
    /// The rules have the overrides that the set names, and no others.
    #[default]
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
pub struct RuleSet {
    /// The name, unique within the namespace.
    pub name: Name,
    /// The rules, ordered by name.
    pub rules: Vec<SetRule>,
    /// Whether clients may make overrides of the rules.
    pub overrides: SetOverrides,
    /// The position at which the set was created.
    #[schema(value_type = u64)]
    pub created_position: Position,
}

/// A rule of a set, with its overrides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SetRule {
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
    /// The overrides of the rule that belong to the set, ordered by name. Overrides that clients have made in an open set
    /// are not among them.
    pub overrides: Vec<Override>,
    /// The set.
    pub managed_by: Name,
    /// The position at which the rule was created.
    #[schema(value_type = u64)]
    pub created_position: Position,
}

/// A rule set without its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleSetInfo {
    /// The name, unique within the namespace.
    pub name: Name,
    /// The number of its rules.
    pub rules: u64,
    /// Whether clients may make overrides of the rules.
    pub overrides: SetOverrides,
    /// The position at which the set was created.
    #[schema(value_type = u64)]
    pub created_position: Position,
}

/// What putting a rule set has changed, or would change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleSetChanges {
    /// The names of the rules that are created, ordered.
    pub created: Vec<Name>,
    /// The rules that change, or whose overrides do, ordered by name.
    pub changed: Vec<ChangedRule>,
    /// The names of the rules that are deleted, ordered.
    pub deleted: Vec<Name>,
    /// Why putting the set is refused, ordered by rule. Empty unless this is a dry run.
    pub conflicts: Vec<SetConflict>,
}

/// A rule that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedRule {
    /// The name of the rule.
    pub rule: Name,
    /// The fields that change: those of a rule, `overrides`, and `managed_by` for a rule that belonged to no set.
    pub fields: Vec<RuleField>,
    /// Whether what the rule has counted is forgotten: its window has another type or length, or it groups by other keys.
    pub starts_empty: bool,
}

/// A field of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleField {
    /// The keys by which it groups.
    GroupBy,
    /// Its selection.
    Selection,
    /// Its limit.
    Limit,
    /// Its window.
    Window,
    /// Whether it only reports.
    Shadow,
    /// Whether its answers wait for the disk.
    Durability,
    /// Its description.
    Description,
    /// Its overrides.
    Overrides,
    /// The set that it belongs to.
    ManagedBy,
}

impl RuleSetChanges {
    /// Whether no rule changes.
    pub fn is_empty(&self) -> bool {
        self.created.is_empty() && self.changed.is_empty() && self.deleted.is_empty()
    }
}

/// Why a rule set cannot be put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetConflict {
    /// The name of the rule.
    pub rule: Name,
    /// The code with which the PUT is refused.
    pub code: ConflictCode,
    /// For `RuleManagedBySet`: the set that the rule belongs to; otherwise `null`.
    #[schema(required)]
    pub managed_by: Option<Name>,
    /// For the other codes: the client's override that is in the way; otherwise `null`.
    #[serde(rename = "override")]
    #[schema(required)]
    pub override_name: Option<Name>,
}

/// The code with which a PUT of a rule set is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum ConflictCode {
    /// The rule belongs to another set.
    RuleManagedBySet,
    /// An override that a client has made lacks a key of the new `group_by`.
    OverridesConflict,
    /// An override that a client has made has the key-values of an override of the set, and another name.
    OverrideAlreadyExists,
}
