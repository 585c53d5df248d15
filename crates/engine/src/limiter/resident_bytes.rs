//! The resident bytes of each thing that the limiter keeps in memory.

use super::{
    command::NewLease,
    counters::Counter,
    groups::{Group, GroupKey},
    leases::Lease,
    overrides::{Override, Overrides, OverridesByKeys},
    rule::{Rule, SortedKeys, StoredRule},
    rule_index::RuleNumber,
    rule_sets::StoredRuleSet,
    terms::{NewOverride, NewRule},
    window::GroupState,
};
use crate::{
    Name, Position,
    key_values::{KeyValues, OwnedValue, Value},
    resident,
    selection::Test,
    timers::TIMER_BYTES,
};
use alloc::{boxed::Box, collections::BTreeSet, vec::Vec};

/// A limiter with nothing in it.
pub(crate) const EMPTY_BYTES: u64 = resident::shared(size_of::<Overrides>());
/// What the first rule takes besides.
pub(super) const FIRST_RULE: u64 = resident::first_in_vec::<Option<Rule>>()
    + resident::first_in_tree::<(Name, RuleNumber)>()
    + 2 * resident::first_in_hash::<(Position, RuleNumber)>()
    + resident::first_in_hash::<(KeyValues, Vec<RuleNumber>)>()
    + resident::first_in_hash::<(Box<[u8]>, Vec<RuleNumber>)>()
    + resident::first_in_hash::<SortedKeys>()
    + resident::hash_slot::<SortedKeys>();
/// A rule without its texts, its conditions and its overrides.
const RULE: u64 = resident::vec_slot::<Option<Rule>>()
    + resident::vec_slot::<RuleNumber>()
    + resident::heap(size_of::<StoredRule>())
    + resident::tree_slot::<(Name, RuleNumber)>()
    + 2 * resident::hash_slot::<(Position, RuleNumber)>();
/// What the index of rules has for each value of a condition, or for a key.
const ANCHOR: u64 = resident::hash_slot::<(KeyValues, Vec<RuleNumber>)>() + resident::heap(16);
const OVERRIDE: u64 = resident::tree_slot::<(Name, Override)>()
    + resident::hash_slot::<(Position, Name)>()
    + resident::hash_slot::<(KeyValues, Name)>();
/// What the first override of a rule takes besides.
const FIRST_OVERRIDE: u64 =
    resident::first_in_tree::<(Name, Override)>() + resident::first_in_hash::<(Position, Name)>();
const KEY_SET: u64 =
    2 * resident::vec_slot::<OverridesByKeys>() + resident::first_in_hash::<(KeyValues, Name)>();
const GROUP: u64 = resident::slab_slot::<(GroupKey, Group)>();
const COUNTER: u64 = resident::slab_slot::<(KeyValues, Counter)>();
const LEASE: u64 = resident::tree_slot::<(Name, Lease)>() + TIMER_BYTES;
/// What the first lease takes besides.
pub(super) const FIRST_LEASE: u64 = resident::first_in_tree::<(Name, Lease)>();

/// A rule without its overrides. A rule of a set is in the list of the set's rules too.
pub(super) fn of_rule(terms: &NewRule, set: Option<&Name>) -> u64 {
    let text = |text: &str| size_of::<Box<str>>() as u64 + resident::heap(text.len());
    // The keys of `group_by` are kept twice: as they were given, and sorted. That rules share sorted keys is not counted: the
    // estimate of a rule must not depend on other rules.
    let keys = terms.group_by.iter().map(|key| 2 * text(key)).sum::<u64>();
    let conditions = terms.selection.conditions().map(|(key, tests)| {
        let tests_bytes = resident::heap(size_of_val(tests));
        text(key) + size_of::<Vec<Test>>() as u64 + tests_bytes + tests.iter().map(of_test).sum::<u64>()
    });
    let description = terms.description.as_deref().map_or(0, |text| resident::heap(text.len()));
    let in_set = set.map_or(0, |set| set.heap() + resident::tree_slot::<Name>());
    RULE + ANCHOR + terms.name.heap() + keys + conditions.sum::<u64>() + description + in_set
}

fn of_test(test: &Test) -> u64 {
    match test {
        Test::Eq(value) => of_value(value),
        Test::Ne(value) | Test::Lt(value) | Test::Lte(value) | Test::Gt(value) | Test::Gte(value) => {
            text_of(value)
        }
        // The rule may be indexed under each of the values.
        Test::In(values) => {
            values.iter().map(|value| size_of::<OwnedValue>() as u64 + of_value(value) + ANCHOR).sum()
        }
        Test::Prefix(text) => resident::heap(text.len()),
        Test::Exists(_) => 0,
    }
}

/// The text of a value, and the text of its pair in the index.
fn of_value(value: &OwnedValue) -> u64 {
    2 * text_of(value)
}

fn text_of(value: &OwnedValue) -> u64 {
    match value {
        Value::String(text) => resident::heap(text.len()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => 0,
    }
}

/// A rule set without its rules.
pub(super) fn of_rule_set(name: &Name) -> u64 {
    resident::tree_slot::<(Name, StoredRuleSet)>()
        + resident::tree_slot::<(Name, BTreeSet<Name>)>()
        + 2 * name.heap()
}

pub(super) fn of_override(terms: &NewOverride) -> u64 {
    OVERRIDE + terms.name.heap() + terms.key_values.heap()
}

/// What the first override of a rule takes besides.
pub(super) fn of_first_override() -> u64 {
    FIRST_OVERRIDE + resident::shared(size_of::<Overrides>())
}

/// What the first override with these keys takes besides.
pub(super) fn of_key_set(keys: &[Box<str>]) -> u64 {
    let texts = keys.iter().map(|key| resident::heap(key.len())).sum::<u64>();
    KEY_SET + resident::heap(2 * size_of_val(keys)) + texts
}

pub(super) fn of_group(values: &KeyValues, state: &GroupState) -> u64 {
    GROUP + values.heap() + state.heap()
}

pub(super) fn of_counter(key_values: &KeyValues) -> u64 {
    COUNTER + key_values.heap()
}

pub(super) fn of_lease(new: &NewLease) -> u64 {
    of_lease_parts(&new.id, &new.session, &new.key_values, new.owner.as_ref())
}

pub(super) fn of_lease_parts(id: &Name, session: &Name, key_values: &KeyValues, owner: Option<&Name>) -> u64 {
    LEASE + id.heap() + session.heap() + key_values.heap() + owner.map_or(0, Name::heap)
}
