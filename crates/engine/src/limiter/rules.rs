//! All rules of a namespace, by number, by name, by id and by generation, and the index that finds the matching ones.

use super::{
    groups::{GroupKey, GroupOwner},
    overrides::Overrides,
    rule::{Rule, RuleNumber, SortedKeys, StoredRule},
    rule_index::RuleIndex,
    rule_sets::RuleSets,
    terms::Limit,
    window::Meter,
};
use crate::{
    ByteBuffer, Name, Position,
    key_values::KeyValues,
    leftovers::Leftovers,
    resident::{self, Shrink},
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use core::hint::black_box;
use hashbrown::{HashMap, HashSet};

#[derive(Debug, Default)]
pub(super) struct Rules {
    /// By number.
    rules: Vec<Option<Rule>>,
    /// Numbers that can be used again.
    free: Vec<RuleNumber>,
    /// The rules that clients can name. A rule that is being backfilled to replace another one is not among them until it
    /// does.
    pub(super) by_name: BTreeMap<Name, RuleNumber>,
    by_id: HashMap<Position, RuleNumber>,
    by_generation: HashMap<Position, RuleNumber>,
    index: RuleIndex,
    /// The keys by which rules group, each set of keys once.
    key_sets: HashSet<SortedKeys>,
    /// What rules without overrides share.
    no_overrides: Arc<Overrides>,
    pub(super) sets: RuleSets,
    /// Removed rules with overrides. Their memory is freed in slices.
    removed: Vec<Rule>,
    /// The number of overrides of all rules.
    overrides: usize,
    /// The resident bytes of all rules with their overrides. Overrides that two rules share are counted for both.
    bytes: u64,
}

/// What the first rule takes besides.
pub(super) const FIRST_RULE_BYTES: u64 = resident::first_in_vec::<Option<Rule>>()
    + resident::first_in_tree::<(Name, RuleNumber)>()
    + 2 * resident::first_in_hash::<(Position, RuleNumber)>()
    + resident::first_in_hash::<(KeyValues, Vec<RuleNumber>)>()
    + resident::first_in_hash::<(Box<[u8]>, Vec<RuleNumber>)>()
    + resident::first_in_hash::<SortedKeys>()
    + resident::hash_slot::<SortedKeys>();

/// A limiter with nothing in it.
pub(crate) const EMPTY_BYTES: u64 = resident::shared(size_of::<Overrides>());

impl Rules {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn overrides(&self) -> usize {
        self.overrides
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        self.bytes + self.container_bytes() + self.sets.resident_bytes()
    }

    /// What the first rule takes besides, and the room of removed rules: numbers are kept, so the list does not become shorter.
    fn container_bytes(&self) -> u64 {
        let room = self.free.len() as u64 * resident::vec_slot::<Option<Rule>>();
        resident::unless_empty(self.rules.len(), FIRST_RULE_BYTES) + room
    }

    /// The number of overrides and the resident bytes, summed up anew.
    pub(super) fn recount(&self) -> (usize, u64) {
        let first = self.container_bytes() + self.sets.recount_bytes();
        self.rules.iter().flatten().fold((0, first), |(overrides, bytes), rule| {
            let own = rule.overrides.recount_bytes();
            (overrides + rule.overrides.iter().len(), bytes + rule.own_bytes() + own)
        })
    }

    pub(super) fn at(&self, number: RuleNumber) -> &Rule {
        self.rules[number as usize].as_ref().expect("a number in use belongs to a rule")
    }

    pub(super) fn at_mut(&mut self, number: RuleNumber) -> &mut Rule {
        self.rules[number as usize].as_mut().expect("a number in use belongs to a rule")
    }

    pub(super) fn number(&self, name: &Name) -> Option<RuleNumber> {
        self.by_name.get(name).copied()
    }

    pub(super) fn by_name(&self, name: &Name) -> Option<&Rule> {
        self.number(name).map(|number| self.at(number))
    }

    pub(super) fn number_of(&self, id: Position) -> Option<RuleNumber> {
        self.by_id.get(&id).copied()
    }

    /// Changes the overrides of a rule.
    pub(super) fn change_overrides<R>(
        &mut self,
        number: RuleNumber,
        change: impl FnOnce(&mut Overrides) -> R,
    ) -> R {
        let overrides = self.rules[number as usize].as_mut().map(Rule::overrides_mut);
        let overrides = overrides.expect("a number in use belongs to a rule");
        let (before, bytes_before) = (overrides.len(), overrides.resident_bytes());
        let result = change(overrides);
        self.overrides = self.overrides + overrides.len() - before;
        self.bytes = self.bytes + overrides.resident_bytes() - bytes_before;
        result
    }

    pub(super) fn by_generation(&self, generation: Position) -> Option<&Rule> {
        self.by_generation.get(&generation).map(|number| self.at(*number))
    }

    /// The meter of a group. `None` if its rule or override no longer exists.
    pub(super) fn meter_of(&self, key: &GroupKey) -> Option<Meter> {
        let (generation, override_id) = match key.owner {
            GroupOwner::Rule(generation) => (generation, None),
            GroupOwner::Override { generation, id } => (generation, Some(id)),
            GroupOwner::Request(per) => return Some(Meter::of_request(Limit::Unlimited, per)),
        };
        self.by_generation(generation)?.meter_of(override_id, &key.values)
    }

    /// The active rules whose names follow `after`, by name.
    pub(super) fn after(&self, after: Option<&Name>) -> impl Iterator<Item = &Rule> {
        use core::ops::Bound::{Excluded, Unbounded};
        let range = self.by_name.range::<Name, _>((after.map_or(Unbounded, Excluded), Unbounded));
        range.map(|(_, number)| self.at(*number)).filter(|rule| rule.is_active)
    }

    /// Calls `each` with every rule that applies to the key-values, active or not, and the values of its group. Returns about
    /// how much work it was.
    ///
    /// With many rules, most of the time is spent waiting for memory. So this reads only the rule itself, and what it shares
    /// with other rules.
    pub(super) fn for_each_match<'r>(
        &'r self,
        key_values: &KeyValues,
        mut each: impl FnMut(&'r Rule, &KeyValues),
    ) -> usize {
        /// How many comparisons are a unit of work: of long strings that are not in the processor's cache.
        const COMPARISONS: usize = 4;
        let mut scratch = ByteBuffer::new();
        let mut work = 0;
        // Rules under one anchor often have the same keys, and then the same group.
        let mut last: Option<(&SortedKeys, Option<KeyValues>)> = None;
        self.for_each_candidate(key_values, |rule| {
            work += 1 + rule.comparisons as usize / COMPARISONS + rule.overrides.key_sets();
            if last.as_ref().is_none_or(|(keys, _)| !Arc::ptr_eq(keys, &rule.keys)) {
                scratch.clear();
                let has_keys = key_values.project(&rule.keys, &mut scratch);
                last = Some((&rule.keys, has_keys.then(|| KeyValues::from_projected(scratch.as_slice()))));
            }
            debug_assert!(!rule.is_selected_by_anchor || rule.terms().selection.selects(key_values));
            if let Some((_, Some(group))) = &last
                && (rule.is_selected_by_anchor || rule.terms().selection.selects(key_values))
            {
                each(rule, group);
            }
        });
        work
    }

    /// Calls `each` with every rule that may apply to the key-values. It reads less memory than [`Rules::for_each_match`].
    pub(super) fn for_each_candidate<'r>(&'r self, key_values: &KeyValues, mut each: impl FnMut(&'r Rule)) {
        /// So few rules are in the processor's cache.
        const FEW_RULES: usize = 256;
        /// So many rules are loaded together. They must stay in the cache until they are used.
        const BLOCK: usize = 64;
        self.index.candidates(key_values, |numbers| {
            for numbers in numbers.chunks(BLOCK) {
                if self.rules.len() > FEW_RULES && numbers.len() > 1 {
                    self.load(numbers);
                }
                numbers.iter().for_each(|number| each(self.at(*number)));
            }
        });
    }

    /// Loads rules from memory. None of these reads depends on another one, so the processor does several at a time.
    fn load(&self, numbers: &[RuleNumber]) {
        let load = |number: &RuleNumber| {
            let rule = self.at(*number);
            u32::from(rule.is_active) ^ rule.head.generation.0 as u32
        };
        black_box(numbers.iter().fold(0, |loaded, number| loaded ^ load(number)));
    }

    /// All rules, active or not, if there are no more than `most`.
    pub(super) fn few(&self, most: usize) -> Option<impl Iterator<Item = &Rule>> {
        (self.rules.len() <= most).then(|| self.rules.iter().flatten())
    }

    /// Inserts a rule that clients can name from now on.
    pub(super) fn insert(&mut self, rule: Rule) -> RuleNumber {
        let number = self.insert_unnamed(rule);
        self.publish(number);
        number
    }

    /// Inserts a rule that clients cannot name yet.
    pub(super) fn insert_unnamed(&mut self, mut rule: Rule) -> RuleNumber {
        let number = self.free.pop().unwrap_or(self.rules.len() as RuleNumber);
        if number as usize == self.rules.len() {
            self.rules.push(None);
        }
        if rule.overrides.is_empty() {
            rule.overrides = self.no_overrides.clone();
        }
        self.index(number, &mut rule);
        self.by_generation.insert(rule.stored.generation, number);
        self.overrides += rule.overrides.len();
        self.bytes += rule.resident_bytes();
        self.rules[number as usize] = Some(rule);
        number
    }

    fn index(&mut self, number: RuleNumber, rule: &mut Rule) {
        rule.keys = self.key_sets.get_or_insert_with(&rule.keys, Arc::clone).clone();
        rule.is_selected_by_anchor = self.index.insert(number, rule);
    }

    fn unindex(&mut self, number: RuleNumber, rule: &mut Rule) {
        self.index.remove(number, rule);
        let keys = core::mem::take(&mut rule.keys);
        // No other rule has these keys if only the set and `keys` refer to them.
        if Arc::strong_count(&keys) == 2 {
            self.key_sets.remove(&keys);
            self.key_sets.shrink();
        }
    }

    /// Makes an unnamed rule the one that its name and id stand for. If another rule has the name, this one replaces it.
    pub(super) fn publish(&mut self, number: RuleNumber) {
        let rule = self.at(number);
        let (name, id) = (rule.terms().name.clone(), rule.stored.id);
        if let Some(set) = rule.stored.managed_by.clone() {
            self.sets.add_rule(set, name.clone());
        }
        self.by_name.insert(name, number);
        self.by_id.insert(id, number);
    }

    pub(super) fn remove(&mut self, number: RuleNumber) {
        let Some(mut rule) = self.rules[number as usize].take() else { return };
        self.unindex(number, &mut rule);
        self.overrides -= rule.overrides.len();
        self.bytes -= rule.resident_bytes();
        self.by_generation.remove(&rule.stored.generation);
        self.by_generation.shrink();
        if self.by_name.get(&rule.terms().name) == Some(&number) {
            self.by_name.remove(&rule.terms().name);
            if let Some(set) = &rule.stored.managed_by {
                self.sets.remove_rule(set, &rule.terms().name);
            }
        }
        if self.by_id.get(&rule.stored.id) == Some(&number) {
            self.by_id.remove(&rule.stored.id);
            self.by_id.shrink();
        }
        self.free.push(number);
        if self.free.len() == self.rules.len() {
            (self.rules, self.free) = (Vec::new(), Vec::new());
        }
        if Arc::get_mut(&mut rule.overrides).is_some_and(|overrides| !overrides.is_empty()) {
            self.removed.push(rule);
        }
    }

    /// Changes a rule's record, and updates the look-ups that depend on it. The name and the id must stay, and clients must be
    /// able to name the rule.
    pub(super) fn change(&mut self, number: RuleNumber, change: impl FnOnce(&mut StoredRule)) {
        let mut rule = self.rules[number as usize].take().expect("a number in use belongs to a rule");
        self.unindex(number, &mut rule);
        self.by_generation.remove(&rule.stored.generation);
        self.bytes -= rule.resident_bytes();
        let old_set = rule.stored.managed_by.clone();
        rule.change(change);
        self.bytes += rule.resident_bytes();
        if old_set != rule.stored.managed_by {
            let name = &rule.terms().name;
            if let Some(set) = old_set {
                self.sets.remove_rule(&set, name);
            }
            if let Some(set) = rule.stored.managed_by.clone() {
                self.sets.add_rule(set, name.clone());
            }
        }
        self.index(number, &mut rule);
        self.by_generation.insert(rule.stored.generation, number);
        self.rules[number as usize] = Some(rule);
    }

    /// The rules that were removed since the last call and have overrides.
    pub(super) fn take_removed(&mut self) -> Vec<Rule> {
        core::mem::take(&mut self.removed)
    }

    /// All rules, also those that were removed and not taken yet, and the look-ups that led to them.
    pub(super) fn into_garbage(self) -> (Vec<Rule>, Leftovers) {
        let look_ups = self.index.into_leftovers().and(self.key_sets);
        let look_ups = look_ups.and(self.by_name).and(self.by_id).and(self.by_generation);
        let look_ups = self.sets.into_leftovers(look_ups);
        (self.rules.into_iter().flatten().chain(self.removed).collect(), look_ups)
    }
}
