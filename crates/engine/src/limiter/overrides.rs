//! The overrides of a rule, in memory and as they are stored.

use super::{terms::NewOverride, window::BucketClock};
use crate::{
    ByteBuffer, Name, Position, Time,
    key_values::KeyValues,
    resident::Heap,
    resident::{self, Shrink},
};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, btree_map},
    vec::Vec,
};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone)]
pub(crate) struct Override {
    pub(crate) stored: StoredOverride,
    /// Whether the override takes part in checks. An inactive override is being backfilled.
    pub(crate) is_active: bool,
}

/// An override as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredOverride {
    pub(crate) terms: NewOverride,
    /// The position of the change that gave the override its key-values: its id in the keys of records and of its group.
    pub(crate) id: Position,
    /// The position of the change that created the override.
    pub(crate) created_at: Position,
    /// Used only while the rule is a bucket.
    pub(crate) clock: BucketClock,
    /// Whether the override belongs to the set of its rule. Otherwise a client has made it.
    pub(crate) is_of_set: bool,
}

impl StoredOverride {
    pub(crate) fn new(terms: NewOverride, id: Position, now: Time, is_of_set: bool) -> StoredOverride {
        let clock = BucketClock::new(now, terms.limit);
        StoredOverride { terms, id, created_at: id, clock, is_of_set }
    }
}

/// The overrides of a rule, by name, by id and by key-values.
#[derive(Debug, Default, Clone)]
pub(crate) struct Overrides {
    by_name: BTreeMap<Name, Override>,
    ids: HashMap<Position, Name>,
    /// One element for each distinct set of keys. A look-up costs one hash for each of them, however many overrides there
    /// are.
    by_keys: Vec<OverridesByKeys>,
    inactive: usize,
    /// The resident bytes of all overrides.
    bytes: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct OverridesByKeys {
    /// Sorted.
    keys: Vec<Box<str>>,
    names: HashMap<KeyValues, Name>,
}

impl Overrides {
    /// The number of active overrides.
    pub(crate) fn active(&self) -> usize {
        self.by_name.len() - self.inactive
    }

    /// The number of overrides, active or not.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.bytes
    }

    /// The resident bytes, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        let overrides = self.by_name.values().map(|item| override_bytes(&item.stored.terms)).sum::<u64>();
        let key_sets = self.by_keys.iter().map(|same_keys| key_set_bytes(&same_keys.keys)).sum::<u64>();
        overrides + key_sets + resident::unless_empty(self.by_name.len(), first_override_bytes())
    }

    /// The number of distinct sets of keys. At most one override of each applies to an entry of a check.
    pub(crate) fn key_sets(&self) -> usize {
        self.by_keys.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&Override> {
        self.by_name.get(name)
    }

    /// Makes an override active.
    pub(crate) fn activate(&mut self, name: &Name) -> Option<&Override> {
        let item = self.by_name.get_mut(name)?;
        self.inactive -= usize::from(!item.is_active);
        item.is_active = true;
        Some(item)
    }

    /// The caller must change neither the name nor the id nor the key-values.
    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut Override> {
        self.by_name.get_mut(name)
    }

    pub(crate) fn by_id(&self, id: Position) -> Option<&Override> {
        self.by_name.get(self.ids.get(&id)?)
    }

    /// The override with exactly these key-values.
    pub(crate) fn by_key_values(&self, key_values: &KeyValues) -> Option<&Override> {
        let same_keys = self.by_keys.iter().find(|same_keys| has_keys(key_values, &same_keys.keys))?;
        self.by_name.get(same_keys.names.get(key_values)?)
    }

    /// The active override for a whole group. `keys` are those of the rule, sorted.
    pub(crate) fn exact(&self, keys: &[Box<str>], group: &KeyValues) -> Option<&Override> {
        let same_keys = self.by_keys.iter().find(|same_keys| same_keys.keys == keys)?;
        self.by_name.get(same_keys.names.get(group)?).filter(|item| item.is_active)
    }

    /// The first override by name that lacks one of these keys.
    pub(crate) fn first_without_keys(&self, keys: &[Box<str>]) -> Option<&Name> {
        let has_all = |same_keys: &OverridesByKeys| keys.iter().all(|key| same_keys.keys.contains(key));
        if self.by_keys.iter().all(has_all) {
            return None;
        }
        let lacks = |item: &Override| keys.iter().any(|key| item.stored.terms.key_values.get(key).is_none());
        self.by_name.iter().find(|(_, item)| lacks(item)).map(|(name, _)| name)
    }

    pub(crate) fn iter(&self) -> btree_map::Iter<'_, Name, Override> {
        self.by_name.iter()
    }

    /// The overrides whose names follow `after`, by name.
    pub(crate) fn after(&self, after: Option<&Name>) -> impl Iterator<Item = &Override> {
        use core::ops::Bound::{Excluded, Unbounded};
        self.by_name.range::<Name, _>((after.map_or(Unbounded, Excluded), Unbounded)).map(|(_, item)| item)
    }

    /// The overrides that apply to the key-values, active or not. `scratch` is overwritten.
    pub(crate) fn applying<'a>(
        &'a self,
        key_values: &'a KeyValues,
        scratch: &'a mut ByteBuffer,
    ) -> impl Iterator<Item = &'a Override> {
        self.by_keys.iter().filter_map(move |same_keys| {
            scratch.clear();
            if !key_values.project(&same_keys.keys, scratch) {
                return None;
            }
            self.by_name.get(same_keys.names.get(scratch.as_slice())?)
        })
    }

    pub(crate) fn insert(&mut self, item: Override) {
        let (name, key_values) = (item.stored.terms.name.clone(), item.stored.terms.key_values.clone());
        let same_keys =
            match self.by_keys.iter_mut().position(|same_keys| has_keys(&key_values, &same_keys.keys)) {
                Some(index) => &mut self.by_keys[index],
                None => {
                    let keys: Vec<Box<str>> = key_values.iter().map(|pair| pair.key.into()).collect();
                    self.bytes += key_set_bytes(&keys);
                    self.by_keys.push(OverridesByKeys { keys, names: HashMap::new() });
                    self.by_keys.last_mut().expect("was just pushed")
                }
            };
        same_keys.names.insert(key_values, name.clone());
        self.ids.insert(item.stored.id, name.clone());
        self.inactive += usize::from(!item.is_active);
        self.bytes += override_bytes(&item.stored.terms);
        if self.by_name.is_empty() {
            self.bytes += first_override_bytes();
        }
        self.by_name.insert(name, item);
    }

    /// Drops up to `limit` overrides, to free their memory. Returns whether none are left.
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
        self.ids.shrink();
        self.inactive -= usize::from(!item.is_active);
        self.bytes -= override_bytes(&item.stored.terms);
        let key_values = &item.stored.terms.key_values;
        if let Some(index) = self.by_keys.iter().position(|same_keys| has_keys(key_values, &same_keys.keys)) {
            if self.by_keys[index].names.get(key_values) == Some(name) {
                self.by_keys[index].names.remove(key_values);
                self.by_keys[index].names.shrink();
            }
            if self.by_keys[index].names.is_empty() {
                self.bytes -= key_set_bytes(&self.by_keys[index].keys);
                self.by_keys.swap_remove(index);
                self.by_keys.shrink();
            }
        }
        if self.by_name.is_empty() {
            self.bytes -= first_override_bytes();
        }
        Some(item)
    }
}

fn has_keys(key_values: &KeyValues, keys: &[Box<str>]) -> bool {
    key_values.iter().map(|pair| pair.key).eq(keys.iter().map(|key| &**key))
}

const OVERRIDE_BYTES: u64 = resident::tree_slot::<(Name, Override)>()
    + resident::hash_slot::<(Position, Name)>()
    + resident::hash_slot::<(KeyValues, Name)>();

/// What the first override of a rule takes besides.
const FIRST_OVERRIDE_BYTES: u64 =
    resident::first_in_tree::<(Name, Override)>() + resident::first_in_hash::<(Position, Name)>();

const KEY_SET_BYTES: u64 =
    2 * resident::vec_slot::<OverridesByKeys>() + resident::first_in_hash::<(KeyValues, Name)>();

/// The resident bytes of an override.
pub(super) fn override_bytes(terms: &NewOverride) -> u64 {
    OVERRIDE_BYTES + terms.name.heap() + terms.key_values.heap()
}

/// What the first override of a rule takes besides.
fn first_override_bytes() -> u64 {
    FIRST_OVERRIDE_BYTES + resident::shared(size_of::<Overrides>())
}

/// What the first override with these keys takes besides.
fn key_set_bytes(keys: &[Box<str>]) -> u64 {
    let texts = keys.iter().map(|key| resident::heap(key.len())).sum::<u64>();
    KEY_SET_BYTES + resident::heap(2 * size_of_val(keys)) + texts
}
