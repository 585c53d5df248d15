//! A rule in memory and as it is stored.

use super::{
    overrides::{Override, Overrides},
    terms::{Durability, Limit, NewOverride, NewRule, Window},
    window::{BucketClock, Meter},
};
use crate::{
    ByteBuffer, Name, Position,
    key_values::{KeyValues, OwnedValue, Value},
    resident::{self, Heap},
    selection::Test,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use limina_api::limiter as api;
use serde::{Deserialize, Serialize};

/// The number of a rule in `Rules`. It is used again after the rule was removed.
pub(crate) type RuleNumber = u32;

/// The keys by which a rule groups, sorted.
pub(crate) type SortedKeys = Arc<[Box<str>]>;

/// A rule with its overrides.
///
/// With many rules, a check mostly waits for memory. So a rule takes exactly two lines of the processor's cache, and a check needs
/// the box behind it only if the rule is a bucket or has conditions.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Rule {
    /// A copy of what every check needs.
    pub(crate) head: RuleHead,
    pub(crate) stored: Box<StoredRule>,
    /// The keys of `group_by`, sorted. Rules with the same keys share them.
    pub(crate) keys: SortedKeys,
    /// Shared with the rule that will replace this one, while that one is being backfilled. Rules without overrides share an
    /// empty value.
    pub(crate) overrides: Arc<Overrides>,
    /// Whether the selection selects everything that the rule's anchor in the index finds.
    pub(crate) is_selected_by_anchor: bool,
    /// The most comparisons of values that the selection makes.
    pub(crate) comparisons: u32,
    /// Whether the rule takes part in checks. An inactive rule is being backfilled.
    pub(crate) is_active: bool,
}

/// What a check needs of a rule without conditions and without overrides.
#[derive(Debug)]
pub(crate) struct RuleHead {
    pub(crate) name: Name,
    pub(crate) generation: Position,
    pub(crate) limit: Limit,
    pub(crate) window: Option<Window>,
    pub(crate) is_shadow: bool,
    pub(crate) is_durable: bool,
}

impl RuleHead {
    fn of(stored: &StoredRule) -> RuleHead {
        let terms = &stored.terms;
        RuleHead {
            name: terms.name.clone(),
            generation: stored.generation,
            limit: terms.limit,
            window: terms.window,
            is_shadow: terms.shadow,
            is_durable: terms.durability() == Durability::Durable,
        }
    }
}

/// A rule as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredRule {
    pub(crate) terms: NewRule,
    /// The set to which the rule belongs.
    pub(crate) managed_by: Option<Name>,
    /// The position of the change that created the rule: its id in the keys of records.
    pub(crate) id: Position,
    /// The position of the change since which its groups count. A new generation begins with empty groups.
    pub(crate) generation: Position,
    /// Used only while the rule is a bucket.
    pub(crate) clock: BucketClock,
}

impl Rule {
    pub(crate) fn new(stored: StoredRule, overrides: Arc<Overrides>, is_active: bool) -> Rule {
        Rule {
            head: RuleHead::of(&stored),
            keys: sorted(&stored.terms.group_by).into(),
            overrides,
            is_selected_by_anchor: false,
            comparisons: comparisons_of(&stored),
            is_active,
            stored: Box::new(stored),
        }
    }

    /// The overrides, to be changed. Nobody changes them while two rules share them, because other changes wait for the
    /// backfill. So this copies nothing, or an empty value.
    pub(crate) fn overrides_mut(&mut self) -> &mut Overrides {
        Arc::make_mut(&mut self.overrides)
    }

    /// The resident bytes of the rule and its overrides.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.own_bytes() + self.overrides.resident_bytes()
    }

    /// The resident bytes of the rule without its overrides.
    pub(crate) fn own_bytes(&self) -> u64 {
        rule_bytes(self.terms(), self.stored.managed_by.as_ref())
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut StoredRule)) {
        change(&mut self.stored);
        self.head = RuleHead::of(&self.stored);
        self.keys = sorted(&self.stored.terms.group_by).into();
        self.comparisons = comparisons_of(&self.stored);
    }

    pub(crate) fn terms(&self) -> &NewRule {
        &self.stored.terms
    }

    /// Whether the rule applies to the key-values. If so, `group` is set to the encoded values of the group.
    pub(crate) fn applies(&self, key_values: &KeyValues, group: &mut ByteBuffer) -> bool {
        group.clear();
        key_values.project(&self.keys, group) && self.terms().selection.selects(key_values)
    }

    pub(crate) fn is_bucket(&self) -> bool {
        matches!(self.head.window, Some(Window::Bucket { .. }))
    }

    pub(crate) fn meter(&self) -> Meter {
        let RuleHead { limit, window, .. } = self.head;
        let clock = if self.is_bucket() { self.stored.clock } else { BucketClock::UNUSED };
        Meter::new(limit, window, burst_of(window), clock)
    }

    pub(crate) fn override_meter(&self, item: &Override) -> Meter {
        Meter::new(item.stored.terms.limit, self.terms().window, item.stored.terms.burst, item.stored.clock)
    }

    /// The meter of a group: that of the override with this id, of the override for exactly this group, or of the rule.
    /// `None` if there is no override with this id.
    pub(crate) fn meter_of(&self, override_id: Option<Position>, group: &KeyValues) -> Option<Meter> {
        match override_id {
            Some(id) => self.overrides.by_id(id).map(|item| self.override_meter(item)),
            None => Some(match self.overrides.exact(&self.keys, group) {
                Some(item) => self.override_meter(item),
                None => self.meter(),
            }),
        }
    }

    /// Whether an override's keys are exactly those of `group_by`, so that the override is for one whole group. (They are
    /// never fewer.)
    pub(crate) fn is_exact(&self, key_values: &KeyValues) -> bool {
        key_values.len() == self.keys.len()
    }

    /// Whether the rule must be backfilled if it gets these terms.
    pub(crate) fn needs_backfill(&self, terms: &NewRule) -> bool {
        let old = self.terms();
        terms.window.is_none()
            && (old.window.is_some() || old.selection != terms.selection || !self.has_same_keys(terms))
    }

    /// Whether all groups become empty if the rule gets these terms.
    pub(crate) fn resets_groups(&self, terms: &NewRule) -> bool {
        let same_window = match (self.terms().window, terms.window) {
            (Some(Window::Bucket { per: a, .. }), Some(Window::Bucket { per: b, .. })) => a == b,
            (a, b) => a == b,
        };
        !same_window || !self.has_same_keys(terms)
    }

    pub(crate) fn has_same_keys(&self, terms: &NewRule) -> bool {
        sorted(&terms.group_by)[..] == *self.keys
    }

    pub(crate) fn info(&self) -> api::Rule {
        let terms = self.terms().clone();
        api::Rule {
            durability: terms.durability(),
            name: terms.name,
            group_by: terms.group_by,
            selection: terms.selection,
            limit: terms.limit,
            window: terms.window.map(Into::into),
            shadow: terms.shadow,
            description: terms.description,
            overrides: self.overrides.active() as u64,
            managed_by: self.stored.managed_by.clone(),
            created_position: self.stored.id,
        }
    }

    /// The rule as one of its set, without overrides. `None` if it belongs to no set.
    pub(crate) fn info_of_set(&self) -> Option<api::SetRule> {
        let rule = self.info();
        Some(api::SetRule {
            name: rule.name,
            group_by: rule.group_by,
            selection: rule.selection,
            limit: rule.limit,
            window: rule.window,
            shadow: rule.shadow,
            durability: rule.durability,
            description: rule.description,
            overrides: Vec::new(),
            managed_by: rule.managed_by?,
            created_position: rule.created_position,
        })
    }

    pub(crate) fn override_info(&self, item: &Override) -> api::Override {
        let NewOverride { name, key_values, limit, burst } = item.stored.terms.clone();
        let (rule, created_position) = (self.terms().name.clone(), item.stored.created_at);
        api::Override { rule, name, key_values, limit, burst, created_position }
    }
}

fn comparisons_of(stored: &StoredRule) -> u32 {
    u32::try_from(stored.terms.selection.comparisons()).unwrap_or(u32::MAX)
}

fn sorted(keys: &[Box<str>]) -> Vec<Box<str>> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys
}

fn burst_of(window: Option<Window>) -> Option<u64> {
    match window {
        Some(Window::Bucket { burst, .. }) => burst,
        _ => None,
    }
}

/// A rule without its texts, its conditions and its overrides.
const RULE_BYTES: u64 = resident::vec_slot::<Option<Rule>>()
    + resident::vec_slot::<RuleNumber>()
    + resident::heap(size_of::<StoredRule>())
    + resident::tree_slot::<(Name, RuleNumber)>()
    + 2 * resident::hash_slot::<(Position, RuleNumber)>();

/// What the index of rules has for each value of a condition, or for a key.
const ANCHOR_BYTES: u64 = resident::hash_slot::<(KeyValues, Vec<RuleNumber>)>() + resident::heap(16);

/// A rule without its overrides. A rule of a set is in the list of the set's rules too.
pub(super) fn rule_bytes(terms: &NewRule, set: Option<&Name>) -> u64 {
    let text = |text: &str| size_of::<Box<str>>() as u64 + resident::heap(text.len());
    // The keys of `group_by` are kept twice: as they were given, and sorted. That rules share sorted keys is not counted: the
    // estimate of a rule must not depend on other rules.
    let keys = terms.group_by.iter().map(|key| 2 * text(key)).sum::<u64>();
    let conditions = terms.selection.conditions().map(|(key, tests)| {
        let tests_bytes = resident::heap(size_of_val(tests));
        text(key) + size_of::<Vec<Test>>() as u64 + tests_bytes + tests.iter().map(test_bytes).sum::<u64>()
    });
    let description = terms.description.as_deref().map_or(0, |text| resident::heap(text.len()));
    let in_set = set.map_or(0, |set| set.heap() + resident::tree_slot::<Name>());
    RULE_BYTES + ANCHOR_BYTES + terms.name.heap() + keys + conditions.sum::<u64>() + description + in_set
}

fn test_bytes(test: &Test) -> u64 {
    match test {
        Test::Eq(value) => value_bytes(value),
        Test::Ne(value) | Test::Lt(value) | Test::Lte(value) | Test::Gt(value) | Test::Gte(value) => {
            text_bytes(value)
        }
        // The rule may be indexed under each of the values.
        Test::In(values) => values
            .iter()
            .map(|value| size_of::<OwnedValue>() as u64 + value_bytes(value) + ANCHOR_BYTES)
            .sum(),
        Test::Prefix(text) => resident::heap(text.len()),
        Test::Exists(_) => 0,
    }
}

/// The text of a value, and the text of its pair in the index.
fn value_bytes(value: &OwnedValue) -> u64 {
    2 * text_bytes(value)
}

fn text_bytes(value: &OwnedValue) -> u64 {
    match value {
        Value::String(text) => resident::heap(text.len()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_takes_two_cache_lines() {
        assert_eq!(size_of::<Option<Rule>>(), 128);
    }
}
