//! Rules and their overrides, as they are kept.

use super::{
    reply::{OverrideInfo, RuleInfo},
    terms::{Durability, NewOverride, NewRule, Window},
    window::{Clock, Meter},
};
use crate::{Name, Position, Time, key_values::KeyValues};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, btree_map},
    sync::Arc,
    vec::Vec,
};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// A rule with its overrides.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) stored: StoredRule,
    /// The keys by which it groups, in order.
    pub(crate) keys: Vec<Box<str>>,
    /// Shared with the rule that is to take its place, while that is being counted.
    pub(crate) overrides: Arc<Overrides>,
    /// It takes part in checks. Until then its groups are being counted.
    pub(crate) is_active: bool,
}

/// A rule as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredRule {
    pub(crate) terms: NewRule,
    pub(crate) is_file_managed: bool,
    /// The change that made it, which is its id in the keys of records.
    pub(crate) id: Position,
    /// The change since which its groups count. A later one begins with empty groups.
    pub(crate) generation: Position,
    /// A bucket's own time.
    pub(crate) clock: Clock,
}

impl Rule {
    pub(crate) fn new(stored: StoredRule, overrides: Arc<Overrides>, is_active: bool) -> Rule {
        Rule { keys: sorted(&stored.terms.group_by), stored, overrides, is_active }
    }

    /// Its overrides, to be changed. They are not while they are shared: other changes wait.
    pub(crate) fn overrides_mut(&mut self) -> &mut Overrides {
        Arc::make_mut(&mut self.overrides)
    }

    /// Changes what it is.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut StoredRule)) {
        change(&mut self.stored);
        self.keys = sorted(&self.stored.terms.group_by);
    }

    pub(crate) fn terms(&self) -> &NewRule {
        &self.stored.terms
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.terms().durability() == Durability::Durable
    }

    /// Whether it applies; then `group` is the bytes of the group.
    pub(crate) fn applies(&self, key_values: &KeyValues, group: &mut Vec<u8>) -> bool {
        group.clear();
        key_values.project(&self.keys, group) && self.terms().selection.selects(key_values)
    }

    pub(crate) fn is_bucket(&self) -> bool {
        matches!(self.terms().window, Some(Window::Bucket { .. }))
    }

    pub(crate) fn meter(&self) -> Meter {
        let terms = self.terms();
        Meter::new(terms.limit, terms.window, burst_of(terms.window), self.stored.clock)
    }

    pub(crate) fn override_meter(&self, item: &Override) -> Meter {
        Meter::new(item.stored.terms.limit, self.terms().window, item.stored.terms.burst, item.stored.clock)
    }

    /// The meter of a group of this rule: its own, or that of the override which stands for exactly this group.
    pub(crate) fn meter_of(&self, override_id: Option<Position>, group: &KeyValues) -> Option<Meter> {
        match override_id {
            Some(id) => self.overrides.by_id(id).map(|item| self.override_meter(item)),
            None => Some(match self.overrides.exact(&self.keys, group) {
                Some(item) => self.override_meter(item),
                None => self.meter(),
            }),
        }
    }

    /// Whether an override's keys are exactly those by which the rule groups, so that it is about one whole group.
    pub(crate) fn is_exact(&self, key_values: &KeyValues) -> bool {
        key_values.len() == self.keys.len()
    }

    /// Whether the count of what is in use would have to be made anew for these terms.
    pub(crate) fn counts_differently(&self, terms: &NewRule) -> bool {
        let old = self.terms();
        terms.window.is_none()
            && (old.window.is_some() || old.selection != terms.selection || !self.has_same_keys(terms))
    }

    /// Whether groups begin empty with these terms.
    pub(crate) fn begins_anew(&self, terms: &NewRule) -> bool {
        let same_window = match (self.terms().window, terms.window) {
            (Some(Window::Bucket { per: a, .. }), Some(Window::Bucket { per: b, .. })) => a == b,
            (a, b) => a == b,
        };
        !same_window || !self.has_same_keys(terms)
    }

    pub(crate) fn has_same_keys(&self, terms: &NewRule) -> bool {
        sorted(&terms.group_by) == self.keys
    }

    pub(crate) fn info(&self) -> RuleInfo {
        RuleInfo {
            rule: self.terms().clone(),
            overrides: self.overrides.len() - self.overrides.inactive,
            is_file_managed: self.stored.is_file_managed,
            created_at: self.stored.id,
        }
    }

    pub(crate) fn override_info(&self, item: &Override) -> OverrideInfo {
        OverrideInfo {
            rule: self.terms().name.clone(),
            item: item.stored.terms.clone(),
            created_at: item.stored.created_at,
        }
    }
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

/// An override as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Override {
    pub(crate) stored: StoredOverride,
    /// It takes part in checks. Until then what is in use is being counted.
    pub(crate) is_active: bool,
}

/// An override as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredOverride {
    pub(crate) terms: NewOverride,
    /// The change that gave it its key-values: its id in the keys of records, and that of its own count.
    pub(crate) id: Position,
    /// The change that made it.
    pub(crate) created_at: Position,
    /// A bucket's own time.
    pub(crate) clock: Clock,
}

impl StoredOverride {
    pub(crate) fn new(terms: NewOverride, id: Position, now: Time) -> StoredOverride {
        let clock = Clock::new(now, terms.limit);
        StoredOverride { terms, id, created_at: id, clock }
    }
}

/// The overrides of a rule: by name, by id, and by which key-values they apply to.
#[derive(Debug, Default, Clone)]
pub(crate) struct Overrides {
    by_name: BTreeMap<Name, Override>,
    ids: HashMap<Position, Name>,
    /// For each distinct set of keys, the overrides by their values.
    shapes: Vec<Shape>,
    /// How many are not active yet.
    inactive: usize,
}

#[derive(Debug, Clone)]
struct Shape {
    /// In order.
    keys: Vec<Box<str>>,
    names: HashMap<KeyValues, Name>,
}

impl Overrides {
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&Override> {
        self.by_name.get(name)
    }

    /// One that was put in inactive takes part from now on.
    pub(crate) fn activate(&mut self, name: &Name) -> Option<&Override> {
        let item = self.by_name.get_mut(name)?;
        self.inactive -= usize::from(!item.is_active);
        item.is_active = true;
        Some(item)
    }

    /// Whatever is changed must be neither the name nor the id nor the key-values.
    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut Override> {
        self.by_name.get_mut(name)
    }

    pub(crate) fn by_id(&self, id: Position) -> Option<&Override> {
        self.by_name.get(self.ids.get(&id)?)
    }

    /// The one with exactly these key-values.
    pub(crate) fn with(&self, key_values: &KeyValues) -> Option<&Override> {
        let shape = self.shapes.iter().find(|shape| has_keys(key_values, &shape.keys))?;
        self.by_name.get(shape.names.get(key_values)?)
    }

    /// The active one for a whole group.
    pub(crate) fn exact(&self, keys: &[Box<str>], group: &KeyValues) -> Option<&Override> {
        let shape = self.shapes.iter().find(|shape| shape.keys == keys)?;
        self.by_name.get(shape.names.get(group)?).filter(|item| item.is_active)
    }

    /// The first by name that lacks one of these keys. Where there is none, they are not looked at one by one.
    pub(crate) fn lacking(&self, keys: &[Box<str>]) -> Option<&Name> {
        let has_all = |shape: &Shape| keys.iter().all(|key| shape.keys.contains(key));
        if self.shapes.iter().all(has_all) {
            return None;
        }
        let lacks = |item: &Override| keys.iter().any(|key| item.stored.terms.key_values.get(key).is_none());
        self.by_name.iter().find(|(_, item)| lacks(item)).map(|(name, _)| name)
    }

    pub(crate) fn iter(&self) -> btree_map::Iter<'_, Name, Override> {
        self.by_name.iter()
    }

    /// By name, what follows `after`.
    pub(crate) fn after(&self, after: Option<&Name>) -> impl Iterator<Item = &Override> {
        use core::ops::Bound::{Excluded, Unbounded};
        self.by_name.range::<Name, _>((after.map_or(Unbounded, Excluded), Unbounded)).map(|(_, item)| item)
    }

    /// Those that apply to the key-values, whether they are active yet or not. `scratch` is overwritten.
    pub(crate) fn applying<'a>(
        &'a self,
        key_values: &'a KeyValues,
        scratch: &'a mut Vec<u8>,
    ) -> impl Iterator<Item = &'a Override> {
        self.shapes.iter().filter_map(move |shape| {
            scratch.clear();
            if !key_values.project(&shape.keys, scratch) {
                return None;
            }
            self.by_name.get(shape.names.get(scratch.as_slice())?)
        })
    }

    pub(crate) fn insert(&mut self, item: Override) {
        let (name, key_values) = (item.stored.terms.name.clone(), item.stored.terms.key_values.clone());
        let shape = match self.shapes.iter_mut().position(|shape| has_keys(&key_values, &shape.keys)) {
            Some(place) => &mut self.shapes[place],
            None => {
                let keys = key_values.iter().map(|pair| pair.key.into()).collect();
                self.shapes.push(Shape { keys, names: HashMap::new() });
                self.shapes.last_mut().expect("was just pushed")
            }
        };
        shape.names.insert(key_values, name.clone());
        self.ids.insert(item.stored.id, name.clone());
        self.inactive += usize::from(!item.is_active);
        self.by_name.insert(name, item);
    }

    /// Frees some of them, for good. Says whether all are gone.
    pub(crate) fn drop_some(&mut self, limit: usize) -> bool {
        for _ in 0..limit {
            let Some((name, _)) = self.by_name.first_key_value() else { return true };
            let name = name.clone();
            self.remove(&name);
        }
        false
    }

    pub(crate) fn remove(&mut self, name: &Name) -> Option<Override> {
        let item = self.by_name.remove(name)?;
        self.ids.remove(&item.stored.id);
        self.inactive -= usize::from(!item.is_active);
        let key_values = &item.stored.terms.key_values;
        if let Some(place) = self.shapes.iter().position(|shape| has_keys(key_values, &shape.keys)) {
            if self.shapes[place].names.get(key_values) == Some(name) {
                self.shapes[place].names.remove(key_values);
            }
            if self.shapes[place].names.is_empty() {
                self.shapes.swap_remove(place);
            }
        }
        Some(item)
    }
}

fn has_keys(key_values: &KeyValues, keys: &[Box<str>]) -> bool {
    key_values.iter().map(|pair| pair.key).eq(keys.iter().map(|key| &**key))
}
