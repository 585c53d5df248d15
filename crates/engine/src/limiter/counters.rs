//! Counters: what is in use for one exact set of key-values.

use super::{keys, reply::CounterInfo};
use crate::{
    ids::NamespaceId,
    key_values::KeyValues,
    keyed::{Keyed, Place},
    record::{self, Malformed},
    turn::Changes,
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What is in use. Leases hold their part; the rest is given back by clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    /// At most [`Counter::MAX_UNLEASED`].
    pub(crate) unleased: u64,
    pub(crate) leased: u128,
    is_changed: bool,
    is_stored: bool,
}

impl Counter {
    /// More than clients can count to; taking more leaves it there.
    pub(crate) const MAX_UNLEASED: u64 = 1 << 62;

    pub(crate) fn total(&self) -> u128 {
        u128::from(self.unleased) + self.leased
    }
}

/// A counter as it is stored. What leases hold stands in their records.
#[derive(Serialize, Deserialize)]
struct StoredCounter {
    key_values: KeyValues,
    unleased: u64,
}

/// All counters of a namespace. One at nothing is not there.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counters: Keyed<KeyValues, Counter>,
    changed: Vec<Place>,
}

impl Counters {
    pub(crate) fn len(&self) -> usize {
        self.counters.len()
    }

    pub(crate) fn has_to_write(&self) -> bool {
        !self.changed.is_empty()
    }

    pub(crate) fn end(&self) -> Place {
        self.counters.end()
    }

    pub(crate) fn get(&self, key_values: &KeyValues) -> Counter {
        let place = self.counters.find(key_values);
        place.and_then(|place| self.counters.at(place)).map(|(_, counter)| *counter).unwrap_or_default()
    }

    pub(crate) fn info(&self, key_values: &KeyValues) -> CounterInfo {
        info(key_values, &self.get(key_values))
    }

    /// By place, from `from` on.
    pub(crate) fn iter_from(&self, from: Place) -> impl Iterator<Item = (Place, &KeyValues, &Counter)> {
        self.counters.iter_from(from)
    }

    /// Makes the counter so. Says where it stands, or stood.
    pub(crate) fn set(
        &mut self,
        key_values: &KeyValues,
        unleased: u64,
        leased: u128,
        namespace: NamespaceId,
        changes: &mut Changes,
    ) -> Option<Place> {
        let place = match self.counters.find(key_values) {
            Some(place) => place,
            None if unleased == 0 && leased == 0 => return None,
            None => self.counters.insert(key_values.clone(), Counter::default()),
        };
        let (_, counter) = self.counters.at_mut(place).expect("it is there");
        let is_unleased_changed = counter.unleased != unleased;
        (counter.unleased, counter.leased) = (unleased, leased);
        if unleased == 0 && leased == 0 {
            if counter.is_stored {
                changes.remove(keys::counter(namespace, place));
            }
            self.counters.remove(place);
        } else if is_unleased_changed && !counter.is_changed {
            counter.is_changed = true;
            self.changed.push(place);
        }
        Some(place)
    }

    /// Writes what changed since the last time.
    pub(crate) fn flush(&mut self, namespace: NamespaceId, changes: &mut Changes) {
        for place in self.changed.drain(..) {
            let Some((key_values, counter)) = self.counters.at_mut(place) else { continue };
            if !core::mem::take(&mut counter.is_changed) {
                continue;
            }
            if counter.unleased > 0 {
                counter.is_stored = true;
                let key_values = key_values.clone();
                let stored = StoredCounter { key_values, unleased: counter.unleased };
                changes.put(&keys::counter(namespace, place), &stored);
            } else if core::mem::take(&mut counter.is_stored) {
                changes.remove(keys::counter(namespace, place));
            }
        }
    }

    /// Takes in a stored counter.
    pub(crate) fn load(&mut self, place: Place, bytes: &[u8]) -> Result<(), Malformed> {
        let StoredCounter { key_values, unleased } = record::decode(bytes)?;
        if unleased == 0 || self.counters.find(&key_values).is_some() {
            return Err(Malformed);
        }
        let counter = Counter { unleased, leased: 0, is_changed: false, is_stored: true };
        self.counters.insert_at(place, key_values, counter);
        Ok(())
    }

    /// Takes in what a stored lease holds. Leases come after the counters.
    pub(crate) fn load_lease(&mut self, key_values: &KeyValues, hits: u64) {
        let place = match self.counters.find(key_values) {
            Some(place) => place,
            None => self.counters.insert(key_values.clone(), Counter::default()),
        };
        let (_, counter) = self.counters.at_mut(place).expect("it is there");
        counter.leased += u128::from(hits);
    }

    /// Frees a part of the memory, if any is left.
    pub(crate) fn drop_part(&mut self) -> bool {
        self.counters.drop_part()
    }
}

pub(crate) fn info(key_values: &KeyValues, counter: &Counter) -> CounterInfo {
    let shown = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
    CounterInfo {
        key_values: key_values.clone(),
        total: shown(counter.total()),
        leased: shown(counter.leased),
    }
}
