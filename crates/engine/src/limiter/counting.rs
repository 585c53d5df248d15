//! Keeps what is in use: a counter, and the groups of all rules and overrides that count it.

use super::{
    groups::{GroupOwner, Groups},
    overrides::Override,
    rule::{Rule, RuleNumber},
    state::Limiter,
};
use crate::{ByteBuffer, key_values::KeyValues, slab::SlabIndex, turn::Turn};

/// An estimate of the bytes of a stored counter without its key-values.
const COUNTER_BYTES: usize = 32;

impl Limiter {
    /// Sets a counter, and updates the groups of all rules and overrides that count it.
    pub(super) fn set_counter(
        &mut self,
        turn: &mut Turn<'_>,
        key_values: &KeyValues,
        unleased: u64,
        leased: u128,
    ) {
        let before = self.counters.get(key_values).total();
        let index = self.counters.set(key_values, unleased, leased, turn.namespace, turn.changes);
        let after = self.counters.get(key_values).total();
        if let Some(index) = index {
            turn.changes.will_write(COUNTER_BYTES + key_values.as_bytes().len());
            self.count(key_values, index, after as i128 - before as i128);
        }
    }

    /// Adds the change of a counter to every group that counts it. For a rule or override that is being backfilled, this is
    /// done only if the backfill has passed the counter: otherwise the backfill adds the counter's new total later.
    pub(super) fn count(&mut self, key_values: &KeyValues, index: SlabIndex, change: i128) {
        let Limiter { rules, groups, rule_changes, .. } = self;
        let is_backfilled = rule_changes.has_counted(index);
        rules.for_each_match(key_values, |rule, group| {
            if rule.terms().window.is_none() && (rule.is_active || is_backfilled) {
                count_for_rule(rule, key_values, group.as_bytes(), groups, change, |item| {
                    is_backfilled || (rule.is_active && item.is_active)
                });
            }
        });
    }

    /// Counts one counter for a rule that is being backfilled, or for the overrides of an active rule that are.
    pub(super) fn count_for_backfill(&mut self, number: RuleNumber, key_values: &KeyValues, total: u128) {
        let Limiter { rules, groups, .. } = self;
        let mut group = ByteBuffer::new();
        let rule = rules.at(number);
        if rule.terms().window.is_some() || !rule.applies(key_values, &mut group) {
            return;
        }
        match rule.is_active {
            true => count_for_overrides(rule, key_values, groups, total as i128, |item| !item.is_active),
            false => count_for_rule(rule, key_values, group.as_slice(), groups, total as i128, |_| true),
        }
    }
}

/// Adds a change to the rule's group and to the groups of those overrides that `which` selects.
pub(super) fn count_for_rule(
    rule: &Rule,
    key_values: &KeyValues,
    group: &[u8],
    groups: &mut Groups,
    change: i128,
    which: impl Fn(&Override) -> bool,
) {
    groups.count(GroupOwner::Rule(rule.stored.generation), group, change);
    count_for_overrides(rule, key_values, groups, change, which);
}

/// An override for a whole group has no group of its own: it uses the rule's.
fn count_for_overrides(
    rule: &Rule,
    key_values: &KeyValues,
    groups: &mut Groups,
    change: i128,
    which: impl Fn(&Override) -> bool,
) {
    let mut scratch = ByteBuffer::new();
    for item in rule.overrides.applying(key_values, &mut scratch) {
        let own = &item.stored.terms.key_values;
        if which(item) && !rule.is_exact(own) {
            let owner = GroupOwner::Override { generation: rule.stored.generation, id: item.stored.id };
            groups.count(owner, own.as_bytes(), change);
        }
    }
}
