//! The limiter of one namespace, resident: rules, groups, counters, leases.

use super::{
    build::Building,
    counters::Counters,
    groups::{GroupKey, Groups, Owner},
    keys,
    leases::Lease,
    matching::{Matching, RuleNumber},
    reply::{CounterInfo, Refusal, Reply},
    rule::{Override, Rule, StoredOverride, StoredRule},
    terms::{Limit, Window},
    window::{Clock, Meter},
};
use crate::{
    Millis, Name, Position, Time, WaitId,
    ids::NamespaceId,
    key_values::KeyValues,
    keyed::Place,
    record::{self, Malformed, key::ResidentKey},
    timers::Timers,
    turn::{Changes, Turn},
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use hashbrown::HashMap;

/// About what a stored counter takes, besides its key-values.
const COUNTER_BYTES: usize = 32;
/// How many overrides of a rule that is gone are freed at a time.
const GARBAGE_SLICE: usize = 1_024;

/// Everything of the limiter in a namespace.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    pub(super) rules: Rules,
    pub(super) groups: Groups,
    pub(super) counters: Counters,
    pub(super) leases: BTreeMap<Name, Lease>,
    pub(super) building: Building,
    /// Whether the timers for windows are set.
    pub(super) is_writing_set: bool,
    pub(super) is_dropping_set: bool,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Rules.
    pub rules: usize,
    /// Groups of rules and overrides that count something.
    pub groups: usize,
    /// Counters above zero.
    pub counters: usize,
    /// Leases that live.
    pub leases: usize,
}

impl Sizes {
    /// One namespace has become larger or smaller.
    pub(crate) fn change(&mut self, before: Sizes, after: Sizes) {
        self.rules = self.rules + after.rules - before.rules;
        self.groups = self.groups + after.groups - before.groups;
        self.counters = self.counters + after.counters - before.counters;
        self.leases = self.leases + after.leases - before.leases;
    }
}

impl Limiter {
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            rules: self.rules.by_name.len(),
            groups: self.groups.len(),
            counters: self.counters.len(),
            leases: self.leases.len(),
        }
    }

    pub(super) fn rule(&self, name: &Name) -> Option<&Rule> {
        self.rules.by_name.get(name).map(|number| self.rules.at(*number))
    }

    pub(super) fn counter(&self, key_values: &KeyValues) -> CounterInfo {
        self.counters.info(key_values)
    }

    /// Makes a counter so, and every count that it is part of.
    pub(super) fn set_counter(
        &mut self,
        turn: &mut Turn<'_>,
        key_values: &KeyValues,
        unleased: u64,
        leased: u128,
    ) {
        let before = self.counters.get(key_values).total();
        let place = self.counters.set(key_values, unleased, leased, turn.namespace, turn.changes);
        let after = self.counters.get(key_values).total();
        if let Some(place) = place {
            turn.changes.will_write(COUNTER_BYTES + key_values.as_bytes().len());
            self.count(key_values, place, after as i128 - before as i128);
        }
    }

    /// Adds a counter's change to what is in use in every group that it belongs to. A rule or override that is being
    /// counted has this counter already, or will come to it.
    fn count(&mut self, key_values: &KeyValues, place: Place, change: i128) {
        let Limiter { rules, groups, building, .. } = self;
        let is_counted = building.has_counted(place);
        rules.matching(key_values, |rule, group| {
            if rule.terms().window.is_none() && (rule.is_active || is_counted) {
                count_in(rule, key_values, group, groups, change, |item| {
                    is_counted || (rule.is_active && item.is_active)
                });
            }
        });
    }

    /// Counts one counter for a rule that is being built, or for an override of an active one that is.
    pub(super) fn count_for_build(&mut self, number: RuleNumber, key_values: &KeyValues, total: u128) {
        let Limiter { rules, groups, .. } = self;
        let mut group = Vec::with_capacity(64);
        let rule = rules.at(number);
        if rule.terms().window.is_some() || !rule.applies(key_values, &mut group) {
        } else if rule.is_active {
            count_overrides(rule, key_values, groups, total as i128, |item| !item.is_active);
        } else {
            count_in(rule, key_values, &group, groups, total as i128, |_| true);
        }
    }

    /// Looks at some groups, and drops the idle ones and those of rules that are gone. Says whether it came to the end.
    pub(super) fn drop_idle(&mut self, turn: &mut Turn<'_>, limit: usize) -> bool {
        let Limiter { rules, groups, .. } = self;
        let now = turn.now;
        groups.drop_idle(limit, turn.namespace, turn.changes, |key, state| match meter_of(rules, key) {
            Some(meter) => meter.is_idle(state, now),
            None => true,
        })
    }

    /// Writes the after-images of what changed since the last time.
    pub(crate) fn flush(&mut self, namespace: NamespaceId, changes: &mut Changes) {
        self.counters.flush(namespace, changes);
        self.groups.flush(namespace, changes);
    }

    /// Loads a stored record. Records come in the order of their keys: rules, overrides, windows, counters, leases.
    pub(crate) fn load(&mut self, key: ResidentKey<'_>, bytes: &[u8]) -> Result<(), Malformed> {
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Rule(id) => self.load_rule(id, bytes),
            keys::Resident::Override { rule, .. } => self.load_override(rule, bytes),
            keys::Resident::Window(place) => self.groups.load(place, bytes),
            keys::Resident::Counter(place) => self.counters.load(place, bytes),
            keys::Resident::Lease(_) => self.load_lease(bytes),
        }
    }

    fn load_rule(&mut self, id: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let stored: StoredRule = record::decode(bytes)?;
        if stored.id != id || self.rules.by_name.contains_key(&stored.terms.name) {
            return Err(Malformed);
        }
        self.rules.insert(Rule::new(stored, Arc::default(), true));
        Ok(())
    }

    /// An override whose rule is gone is being swept.
    fn load_override(&mut self, rule: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let stored: StoredOverride = record::decode(bytes)?;
        if let Some(number) = self.rules.by_id.get(&rule) {
            self.rules.at_mut(*number).overrides_mut().insert(Override { stored, is_active: true });
        }
        Ok(())
    }

    /// Counts what is in use and sets the timers, once everything stored is taken in.
    pub(crate) fn finish_load(&mut self, now: Time, id: NamespaceId, timers: &mut Timers) {
        self.set_timers(now, id, timers);
        let Limiter { rules, groups, counters, .. } = self;
        for (_, key_values, counter) in counters.iter_from(0) {
            rules.matching(key_values, |rule, group| {
                if rule.terms().window.is_none() {
                    count_in(rule, key_values, group, groups, counter.total() as i128, |_| true);
                }
            });
        }
    }

    /// Whether the next seal has anything of it to write.
    pub(crate) fn has_to_write(&self) -> bool {
        self.groups.has_to_write_now() || self.counters.has_to_write()
    }

    pub(crate) fn is_building(&self) -> bool {
        self.building.is_busy()
    }

    /// The answers to changes that waited, since the last call, in order.
    pub(crate) fn take_completed(&mut self) -> Vec<(WaitId, Result<Reply, Refusal>)> {
        self.building.take_completed()
    }

    /// Gives up the changes of rules that are under way or wait.
    pub(crate) fn stop_building(&mut self) -> impl Iterator<Item = WaitId> + use<> {
        core::mem::take(&mut self.building).into_waiting()
    }

    /// What is out of use and large.
    pub(crate) fn take_garbage(&mut self) -> Option<Garbage> {
        (!self.rules.gone.is_empty()).then(|| Garbage::Rules(core::mem::take(&mut self.rules.gone)))
    }

    /// All of it.
    pub(crate) fn into_garbage(self) -> impl Iterator<Item = Garbage> {
        let rules: Vec<Rule> = self.rules.rules.into_iter().flatten().chain(self.rules.gone).collect();
        let rules = (!rules.is_empty()).then_some(Garbage::Rules(rules));
        let has_counts = self.groups.len() + self.counters.len() > 0;
        let counts = has_counts.then(|| Garbage::Counts(Box::new((self.groups, self.counters))));
        rules.into_iter().chain(counts)
    }
}

/// Memory that is freed bit by bit, since all at once it would be a pause that everybody notices.
#[derive(Debug)]
pub(crate) enum Garbage {
    Rules(Vec<Rule>),
    Counts(Box<(Groups, Counters)>),
}

impl Garbage {
    /// Frees some. Says whether that was all.
    pub(crate) fn free_some(&mut self) -> bool {
        match self {
            Garbage::Rules(rules) => {
                // What is still shared is freed with the last that has it.
                let own = rules.last_mut().and_then(|rule| Arc::get_mut(&mut rule.overrides));
                if own.is_none_or(|overrides| overrides.drop_some(GARBAGE_SLICE)) {
                    rules.pop();
                }
                rules.is_empty()
            }
            Garbage::Counts(counts) => !counts.0.drop_part() && !counts.1.drop_part(),
        }
    }
}

/// Counts a change in a rule's group and in the overrides' own counts.
fn count_in(
    rule: &Rule,
    key_values: &KeyValues,
    group: &[u8],
    groups: &mut Groups,
    change: i128,
    which: impl Fn(&Override) -> bool,
) {
    groups.count(Owner::Rule(rule.stored.generation), group, change);
    count_overrides(rule, key_values, groups, change, which);
}

fn count_overrides(
    rule: &Rule,
    key_values: &KeyValues,
    groups: &mut Groups,
    change: i128,
    which: impl Fn(&Override) -> bool,
) {
    let mut scratch = Vec::new();
    for item in rule.overrides.applying(key_values, &mut scratch) {
        let own = &item.stored.terms.key_values;
        if which(item) && !rule.is_exact(own) {
            let owner = Owner::Override { generation: rule.stored.generation, id: item.stored.id };
            groups.count(owner, own.as_bytes(), change);
        }
    }
}

/// The way of counting of a group; none if its rule or override is gone.
fn meter_of(rules: &Rules, key: &GroupKey) -> Option<Meter> {
    let (generation, override_id) = match key.owner {
        Owner::Rule(generation) => (generation, None),
        Owner::Override { generation, id } => (generation, Some(id)),
        Owner::Request(per) => return Some(request_meter(Limit::Unlimited, per)),
    };
    let number = rules.by_generation.get(&generation)?;
    rules.at(*number).meter_of(override_id, &key.values)
}

/// The way of counting of a limit that comes with a request.
pub(super) fn request_meter(limit: Limit, per: Millis) -> Meter {
    Meter::new(limit, Some(Window::Fixed { per }), None, Clock::new(Time(0), Limit::Unlimited))
}

/// All rules, in every way in which they are looked for.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Option<Rule>>,
    free: Vec<RuleNumber>,
    /// Those that are or will be active. What replaces a rule is not here until it does.
    pub(super) by_name: BTreeMap<Name, RuleNumber>,
    by_id: HashMap<Position, RuleNumber>,
    by_generation: HashMap<Position, RuleNumber>,
    matching: Matching,
    /// Rules that are gone; their memory is freed in slices.
    gone: Vec<Rule>,
}

impl Rules {
    pub(super) fn at(&self, number: RuleNumber) -> &Rule {
        self.rules[number as usize].as_ref().expect("a known number is of a rule")
    }

    pub(super) fn at_mut(&mut self, number: RuleNumber) -> &mut Rule {
        self.rules[number as usize].as_mut().expect("a known number is of a rule")
    }

    pub(super) fn number(&self, name: &Name) -> Option<RuleNumber> {
        self.by_name.get(name).copied()
    }

    /// By name, what follows `after`.
    pub(super) fn after(&self, after: Option<&Name>) -> impl Iterator<Item = &Rule> {
        use core::ops::Bound::{Excluded, Unbounded};
        let range = self.by_name.range::<Name, _>((after.map_or(Unbounded, Excluded), Unbounded));
        range.map(|(_, number)| self.at(*number)).filter(|rule| rule.is_active)
    }

    /// The rules that apply, active or not, with the bytes of the group.
    pub(super) fn matching(&self, key_values: &KeyValues, mut each: impl FnMut(&Rule, &[u8])) {
        let mut group = Vec::with_capacity(64);
        self.matching.candidates(key_values, |number| {
            let rule = self.at(number);
            if rule.applies(key_values, &mut group) {
                each(rule, &group);
            }
        });
    }

    /// Takes in a rule, under its name too.
    pub(super) fn insert(&mut self, rule: Rule) -> RuleNumber {
        let (name, id) = (rule.terms().name.clone(), rule.stored.id);
        let number = self.insert_unnamed(rule);
        self.by_name.insert(name, number);
        self.by_id.insert(id, number);
        number
    }

    /// Takes in a rule that is not to be found by name yet.
    pub(super) fn insert_unnamed(&mut self, rule: Rule) -> RuleNumber {
        let number = self.free.pop().unwrap_or(self.rules.len() as RuleNumber);
        if number as usize == self.rules.len() {
            self.rules.push(None);
        }
        self.matching.insert(number, &rule);
        self.by_generation.insert(rule.stored.generation, number);
        self.rules[number as usize] = Some(rule);
        number
    }

    /// Gives a rule that was taken in unnamed its name, in place of the one that has it.
    pub(super) fn name(&mut self, number: RuleNumber) {
        let rule = self.at(number);
        let (name, id) = (rule.terms().name.clone(), rule.stored.id);
        self.by_name.insert(name, number);
        self.by_id.insert(id, number);
    }

    /// Takes a rule out.
    pub(super) fn remove(&mut self, number: RuleNumber) {
        let Some(mut rule) = self.rules[number as usize].take() else { return };
        self.matching.remove(number, &rule);
        self.by_generation.remove(&rule.stored.generation);
        if self.by_name.get(&rule.terms().name) == Some(&number) {
            self.by_name.remove(&rule.terms().name);
        }
        if self.by_id.get(&rule.stored.id) == Some(&number) {
            self.by_id.remove(&rule.stored.id);
        }
        self.free.push(number);
        if Arc::get_mut(&mut rule.overrides).is_some_and(|overrides| !overrides.is_empty()) {
            self.gone.push(rule);
        }
    }

    /// Changes a rule's own terms; what it is found by is kept true.
    pub(super) fn change(&mut self, number: RuleNumber, change: impl FnOnce(&mut StoredRule)) {
        let mut rule = self.rules[number as usize].take().expect("a known number is of a rule");
        self.matching.remove(number, &rule);
        self.by_generation.remove(&rule.stored.generation);
        rule.change(change);
        self.matching.insert(number, &rule);
        self.by_generation.insert(rule.stored.generation, number);
        self.rules[number as usize] = Some(rule);
    }
}
