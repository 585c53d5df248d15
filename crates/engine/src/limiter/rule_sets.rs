//! The rule sets of a namespace: which there are, and which rules belong to each.

use super::terms::SetOverrides;
use crate::{
    Name, Position,
    leftovers::Leftovers,
    resident::{self, Heap},
};
use alloc::collections::{BTreeMap, BTreeSet};
use limina_api::limiter::RuleSetInfo;
use serde::{Deserialize, Serialize};

/// A rule set as it is stored. Its rules are stored apart, each with the name of its set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredRuleSet {
    pub(crate) name: Name,
    /// The position of the change that created the set: its id in the keys of records.
    pub(crate) id: Position,
    pub(crate) overrides: SetOverrides,
}

#[derive(Debug, Default)]
pub(super) struct RuleSets {
    sets: BTreeMap<Name, StoredRuleSet>,
    /// The names of each set's rules. They may be known before their set: records of rules are loaded first.
    rules: BTreeMap<Name, BTreeSet<Name>>,
    /// The resident bytes of the sets without their rules.
    bytes: u64,
}

impl RuleSets {
    pub(super) fn resident_bytes(&self) -> u64 {
        self.bytes
    }

    /// The resident bytes, summed up anew.
    pub(super) fn recount_bytes(&self) -> u64 {
        self.sets.keys().map(rule_set_bytes).sum()
    }

    pub(super) fn get(&self, set: &Name) -> Option<&StoredRuleSet> {
        self.sets.get(set)
    }

    pub(super) fn info(&self, set: &StoredRuleSet) -> RuleSetInfo {
        RuleSetInfo {
            name: set.name.clone(),
            rules: self.rules.get(&set.name).map_or(0, |rules| rules.len() as u64),
            overrides: set.overrides,
            created_position: set.id,
        }
    }

    /// The sets whose names follow `after`, by name.
    pub(super) fn after(&self, after: Option<&Name>) -> impl Iterator<Item = &StoredRuleSet> {
        use core::ops::Bound::{Excluded, Unbounded};
        self.sets.range::<Name, _>((after.map_or(Unbounded, Excluded), Unbounded)).map(|(_, set)| set)
    }

    /// The names of the set's rules, sorted.
    pub(super) fn rules_of(&self, set: &Name) -> impl Iterator<Item = &Name> {
        self.rules.get(set).into_iter().flatten()
    }

    /// Whether clients may make overrides of the rules of the set.
    pub(super) fn is_open(&self, set: &Name) -> bool {
        self.get(set).is_some_and(|set| set.overrides == SetOverrides::Open)
    }

    pub(super) fn insert(&mut self, set: StoredRuleSet) {
        let bytes = rule_set_bytes(&set.name);
        if self.sets.insert(set.name.clone(), set).is_none() {
            self.bytes += bytes;
        }
    }

    pub(super) fn remove(&mut self, set: &Name) -> Option<StoredRuleSet> {
        let removed = self.sets.remove(set)?;
        self.bytes -= rule_set_bytes(set);
        Some(removed)
    }

    pub(super) fn add_rule(&mut self, set: Name, rule: Name) {
        self.rules.entry(set).or_default().insert(rule);
    }

    pub(super) fn remove_rule(&mut self, set: &Name, rule: &Name) {
        if let Some(rules) = self.rules.get_mut(set) {
            rules.remove(rule);
            if rules.is_empty() {
                self.rules.remove(set);
            }
        }
    }

    pub(super) fn into_leftovers(self, others: Leftovers) -> Leftovers {
        others.and(self.sets).and(self.rules)
    }
}

/// The resident bytes of a rule set without its rules.
pub(super) fn rule_set_bytes(name: &Name) -> u64 {
    resident::tree_slot::<(Name, StoredRuleSet)>()
        + resident::tree_slot::<(Name, BTreeSet<Name>)>()
        + 2 * name.heap()
}
