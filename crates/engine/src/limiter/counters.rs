//! Counters: what is in use for one exact set of key-values.

use super::keys;
use crate::{
    ids::NamespaceId,
    key_values::KeyValues,
    record::{self, Malformed},
    resident::{self, Heap},
    slab::{Slab, SlabIndex},
    turn::BatchChanges,
};
use alloc::vec::Vec;
use limina_api::limiter as api;
use serde::{Deserialize, Serialize};

/// What is in use for exact key-values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    /// The part that clients give back themselves; at most [`Counter::MAX_UNLEASED`].
    pub(crate) unleased: u64,
    /// The part that leases hold. It is given back when they are released or expire.
    pub(crate) leased: u128,
    is_changed: bool,
    is_stored: bool,
}

impl Counter {
    /// The unleased part saturates here. The clients of the API cannot count this far.
    pub(crate) const MAX_UNLEASED: u64 = 1 << 62;

    pub(crate) fn total(&self) -> u128 {
        u128::from(self.unleased) + self.leased
    }
}

/// A counter as it is stored. The leased part is stored in the records of the leases.
#[derive(Serialize, Deserialize)]
struct StoredCounter {
    key_values: KeyValues,
    unleased: u64,
}

/// All counters of a namespace that are above 0.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counters: Slab<KeyValues, Counter>,
    changed: Vec<SlabIndex>,
    /// The resident bytes of all key-values that need memory besides the slab.
    text_bytes: u64,
}

impl Counters {
    pub(crate) fn len(&self) -> usize {
        self.counters.len()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.text_bytes + self.counters.bytes()
    }

    /// The resident bytes, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        let texts = self.counters.iter_from(0).map(|(_, key_values, _)| key_values.heap());
        texts.sum::<u64>() + self.counters.recount_bytes()
    }

    pub(crate) fn contains(&self, key_values: &KeyValues) -> bool {
        self.counters.find(key_values).is_some()
    }

    fn insert(&mut self, key_values: &KeyValues) -> SlabIndex {
        self.text_bytes += key_values.heap();
        self.counters.insert(key_values.clone(), Counter::default())
    }

    pub(crate) fn has_to_write(&self) -> bool {
        !self.changed.is_empty()
    }

    pub(crate) fn end(&self) -> SlabIndex {
        self.counters.end()
    }

    pub(crate) fn get(&self, key_values: &KeyValues) -> Counter {
        let index = self.counters.find(key_values);
        index.and_then(|index| self.counters.at(index)).map(|(_, counter)| *counter).unwrap_or_default()
    }

    pub(crate) fn info(&self, key_values: &KeyValues) -> api::Counter {
        info(key_values, &self.get(key_values))
    }

    /// The counters from index `from` on, by index.
    pub(crate) fn iter_from(
        &self,
        from: SlabIndex,
    ) -> impl Iterator<Item = (SlabIndex, &KeyValues, &Counter)> {
        self.counters.iter_from(from)
    }

    /// Sets a counter, and removes it if it becomes 0. Returns its index, or `None` if there was no counter and there still
    /// is none.
    pub(crate) fn set(
        &mut self,
        key_values: &KeyValues,
        unleased: u64,
        leased: u128,
        namespace: NamespaceId,
        changes: &mut BatchChanges,
    ) -> Option<SlabIndex> {
        let index = match self.counters.find(key_values) {
            Some(index) => index,
            None if unleased == 0 && leased == 0 => return None,
            None => self.insert(key_values),
        };
        let (_, counter) = self.counters.at_mut(index).expect("the index was just found");
        let is_unleased_changed = counter.unleased != unleased;
        (counter.unleased, counter.leased) = (unleased, leased);
        if unleased == 0 && leased == 0 {
            if counter.is_stored {
                changes.remove(keys::counter(namespace, index));
            }
            self.counters.remove(index);
            self.text_bytes -= key_values.heap();
        } else if is_unleased_changed && !counter.is_changed {
            counter.is_changed = true;
            self.changed.push(index);
        }
        Some(index)
    }

    /// Writes the after-images of the counters that have changed since the last call.
    pub(crate) fn flush(&mut self, namespace: NamespaceId, changes: &mut BatchChanges) {
        for index in core::mem::take(&mut self.changed) {
            let Some((key_values, counter)) = self.counters.at_mut(index) else { continue };
            if !core::mem::take(&mut counter.is_changed) {
                continue;
            }
            if counter.unleased > 0 {
                counter.is_stored = true;
                let key_values = key_values.clone();
                let stored = StoredCounter { key_values, unleased: counter.unleased };
                changes.put(&keys::counter(namespace, index), &stored);
            } else if core::mem::take(&mut counter.is_stored) {
                changes.remove(keys::counter(namespace, index));
            }
        }
    }

    /// Loads a stored counter.
    pub(crate) fn load(&mut self, index: SlabIndex, bytes: &[u8]) -> Result<(), Malformed> {
        let StoredCounter { key_values, unleased } = record::decode(bytes)?;
        if unleased == 0 || self.counters.find(&key_values).is_some() {
            return Err(Malformed);
        }
        let counter = Counter { unleased, leased: 0, is_changed: false, is_stored: true };
        self.text_bytes += key_values.heap();
        self.counters.insert_at(index, key_values, counter);
        Ok(())
    }

    /// Replaces the stored counter at an index, or removes it. Returns by how much which counters have changed. `None` if that is
    /// not possible, because this slab has another entry where the one that was stored had none.
    pub(crate) fn amend(
        &mut self,
        index: SlabIndex,
        bytes: Option<&[u8]>,
    ) -> Result<Option<Vec<(KeyValues, i128)>>, Malformed> {
        let new: Option<StoredCounter> = bytes.map(record::decode).transpose()?;
        let mut changes = Vec::new();
        if let Some((key_values, counter)) = self.counters.at_mut(index) {
            let is_same = new.as_ref().is_none_or(|new| new.key_values == *key_values);
            if counter.leased > 0 && !is_same {
                return Ok(None);
            }
            let key_values = key_values.clone();
            let unleased = new.as_ref().filter(|_| is_same).map_or(0, |new| new.unleased);
            changes.push((key_values.clone(), i128::from(unleased) - i128::from(counter.unleased)));
            (counter.unleased, counter.is_stored) = (unleased, unleased > 0);
            if counter.total() == 0 {
                self.counters.remove(index);
                self.text_bytes -= key_values.heap();
            }
            if is_same {
                return Ok(Some(changes));
            }
        }
        if let Some(StoredCounter { key_values, unleased }) = new {
            if self.counters.find(&key_values).is_some() {
                return Ok(None);
            }
            let counter = Counter { unleased, leased: 0, is_changed: false, is_stored: true };
            self.text_bytes += key_values.heap();
            self.counters.insert_at(index, key_values.clone(), counter);
            changes.push((key_values, i128::from(unleased)));
        }
        Ok(Some(changes))
    }

    /// Adds what a stored lease holds. All counters must be loaded before.
    pub(crate) fn load_lease(&mut self, key_values: &KeyValues, hits: u64) {
        let index = match self.counters.find(key_values) {
            Some(index) => index,
            None => self.insert(key_values),
        };
        let (_, counter) = self.counters.at_mut(index).expect("the index was just found");
        counter.leased += u128::from(hits);
    }

    /// Frees a part of the memory. Returns whether any was left.
    pub(crate) fn free_chunk(&mut self) -> bool {
        self.counters.free_chunk()
    }
}

/// The resident bytes of a new counter.
pub(super) fn counter_bytes(key_values: &KeyValues) -> u64 {
    resident::slab_slot::<(KeyValues, Counter)>() + key_values.heap()
}

pub(crate) fn info(key_values: &KeyValues, counter: &Counter) -> api::Counter {
    let shown = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
    api::Counter {
        key_values: key_values.clone(),
        counters: shown(counter.total()),
        leased: shown(counter.leased),
    }
}
