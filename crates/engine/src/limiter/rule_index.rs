//! Finds the rules that may apply to key-values, without looking at every rule.
//!
//! Each rule is indexed under one anchor: a pair or a key that all key-values have to which the rule applies. So a check looks
//! up each of its pairs and keys, and its cost depends on the rules that apply, not on the number of rules. If a rule has
//! several possible anchors, it is indexed under the one with the fewest rules so far.

use super::rule::{Rule, RuleNumber};
use crate::{
    key_values::{KeyValues, OwnedValue, Value},
    leftovers::Leftovers,
    resident::Shrink,
    selection::Test,
};
use alloc::{boxed::Box, vec::Vec};
use hashbrown::{Equivalent, HashMap};

/// Rules by their anchors.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    /// By an encoded pair of key and value.
    by_pair: HashMap<KeyValues, Vec<RuleNumber>>,
    /// By a key.
    by_key: HashMap<Box<[u8]>, Vec<RuleNumber>>,
    /// Rules without any anchor: they may apply to all key-values.
    always: Vec<RuleNumber>,
}

/// What all key-values have to which a rule applies. Several pairs are alternatives: one of them is there.
enum Anchor {
    Pairs(Vec<KeyValues>),
    Key(Box<[u8]>),
    Nothing,
}

/// An encoded pair, for look-ups without an allocation.
#[derive(Hash)]
struct PairBytes<'a>(&'a [u8]);

impl Equivalent<KeyValues> for PairBytes<'_> {
    fn equivalent(&self, key: &KeyValues) -> bool {
        self.0 == key.as_bytes()
    }
}

impl RuleIndex {
    /// Inserts a rule. Returns whether its selection selects everything that its anchor finds.
    pub(crate) fn insert(&mut self, number: RuleNumber, rule: &Rule) -> bool {
        let anchor = self.best_anchor(rule);
        let is_selected = is_selected_by(&anchor, rule);
        match anchor {
            Anchor::Pairs(pairs) => {
                for pair in pairs {
                    self.by_pair.entry(pair).or_default().push(number);
                }
            }
            Anchor::Key(key) => self.by_key.entry(key).or_default().push(number),
            Anchor::Nothing => self.always.push(number),
        }
        is_selected
    }

    pub(crate) fn remove(&mut self, number: RuleNumber, rule: &Rule) {
        for anchor in anchors(rule) {
            match anchor {
                Anchor::Pairs(pairs) => {
                    for pair in pairs {
                        if let Some(rules) = self.by_pair.get_mut(&pair) {
                            rules.retain(|other| *other != number);
                            rules.shrink();
                            if rules.is_empty() {
                                self.by_pair.remove(&pair);
                            }
                        }
                    }
                    self.by_pair.shrink();
                }
                Anchor::Key(key) => {
                    if let Some(rules) = self.by_key.get_mut(&key) {
                        rules.retain(|other| *other != number);
                        rules.shrink();
                        if rules.is_empty() {
                            self.by_key.remove(&key);
                        }
                    }
                    self.by_key.shrink();
                }
                Anchor::Nothing => {
                    self.always.retain(|other| *other != number);
                    self.always.shrink();
                }
            }
        }
    }

    /// Calls `each` with the rules that may apply, each rule once. All rules that do apply are among them.
    pub(crate) fn candidates(&self, key_values: &KeyValues, mut each: impl FnMut(&[RuleNumber])) {
        each(&self.always);
        for pair in key_values.raw() {
            if !self.by_pair.is_empty()
                && let Some(rules) = self.by_pair.get(&PairBytes(pair.bytes))
            {
                each(rules);
            }
            if !self.by_key.is_empty()
                && let Some(rules) = self.by_key.get(pair.key)
            {
                each(rules);
            }
        }
    }

    pub(crate) fn into_leftovers(self) -> Leftovers {
        Leftovers::of(self.by_pair).and(self.by_key)
    }

    fn best_anchor(&self, rule: &Rule) -> Anchor {
        let rules_under = |anchor: &Anchor| match anchor {
            Anchor::Pairs(pairs) => {
                pairs.iter().map(|pair| self.by_pair.get(pair).map_or(0, Vec::len)).max().unwrap_or(0)
            }
            Anchor::Key(key) => self.by_key.get(key).map_or(0, Vec::len),
            Anchor::Nothing => self.always.len(),
        };
        anchors(rule).into_iter().min_by_key(rules_under).unwrap_or(Anchor::Nothing)
    }
}

/// Whether the selection of a rule selects all key-values that have its anchor: it has no condition, or the anchor is its only
/// one.
fn is_selected_by(anchor: &Anchor, rule: &Rule) -> bool {
    let mut conditions = rule.terms().selection.conditions();
    matches!(
        (conditions.next(), conditions.next(), anchor),
        (None, ..) | (Some((_, [Test::Eq(_) | Test::In(_)])), None, Anchor::Pairs(_))
    )
}

/// All possible anchors of a rule. Pairs come before keys, because fewer rules share a pair.
fn anchors(rule: &Rule) -> Vec<Anchor> {
    let mut anchors = Vec::new();
    let mut keys: Vec<&str> = rule.keys.iter().map(|key| &**key).collect();
    for (key, tests) in rule.terms().selection.conditions() {
        let mut is_needed = false;
        for test in tests {
            match test {
                Test::Eq(value) => {
                    anchors.extend(pair(key, value).map(|pair| Anchor::Pairs(Vec::from([pair]))))
                }
                Test::In(values) => {
                    let mut pairs: Vec<KeyValues> =
                        values.iter().filter_map(|value| pair(key, value)).collect();
                    pairs.sort_unstable();
                    pairs.dedup();
                    anchors.push(Anchor::Pairs(pairs));
                }
                Test::Exists(false) => continue,
                _ => {}
            }
            is_needed = true;
        }
        if is_needed {
            keys.push(key);
        }
    }
    anchors.extend(keys.into_iter().map(|key| Anchor::Key(key.as_bytes().into())));
    if anchors.is_empty() {
        anchors.push(Anchor::Nothing);
    }
    anchors
}

/// One encoded pair. `None` if no key-values can contain it, for example because the text is too long.
fn pair(key: &str, value: &OwnedValue) -> Option<KeyValues> {
    let value: Value<&str> = value.as_ref();
    KeyValues::new(Vec::from([(key, value)])).ok()
}
