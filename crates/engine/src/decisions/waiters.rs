//! The decisions that wait, in memory. They are not stored.

use super::{command::DecideRequest, open};
use crate::{
    Name, Time, WaitId,
    ids::NamespaceId,
    leftovers::Leftovers,
    locks,
    resident::Heap,
    resident::{self, Shrink},
    timers::{TimerKey, TimerSource},
};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::ops::Index;
use hashbrown::HashMap;
use limina_api::decisions::Decide;

/// The decisions that wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// By their places in the queues.
    by_place: BTreeMap<WaitId, Waiter>,
    places: HashMap<Name, WaitId>,
    /// The resident bytes of all waiters.
    bytes: u64,
}

/// A waiting request.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) asked: DecideRequest,
    /// The request that is answered. It may have taken over the place of an earlier one.
    pub(super) wait: WaitId,
    pub(super) until: Time,
}

impl Waiter {
    pub(super) fn request(&self) -> &Arc<Decide> {
        &self.asked.wanted
    }

    pub(super) fn timer_key(&self, namespace: NamespaceId, place: WaitId) -> TimerKey {
        TimerKey { due: self.until, namespace, source: TimerSource::Wait(place) }
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        waiter_bytes(&self.asked)
    }
}

/// The resident bytes of a waiter with this request.
pub(super) fn waiter_bytes(DecideRequest { wanted, waiter }: &DecideRequest) -> u64 {
    resident::tree_slot::<(WaitId, Waiter)>()
        + resident::hash_slot::<(Name, WaitId)>()
        + open::growth(wanted)
        + waiter.as_ref().map_or(0, Name::heap)
        + locks::parts::places_bytes(&wanted.parts().locks)
}

/// What the first waiter takes besides. Its id is reserved in the ledger.
const FIRST_BYTES: u64 = resident::first_in_tree::<(WaitId, Waiter)>()
    + resident::first_in_hash::<(Name, WaitId)>()
    + resident::first_in_hash::<(Name, Time)>();

impl Index<WaitId> for Waiters {
    type Output = Waiter;

    fn index(&self, place: WaitId) -> &Waiter {
        &self.by_place[&place]
    }
}

impl Waiters {
    pub(super) fn has(&self, id: &Name) -> bool {
        self.places.contains_key(id)
    }

    /// The place of the request that waits under this id.
    pub(super) fn place_of(&self, id: &Name) -> Option<WaitId> {
        self.places.get(id).copied()
    }

    pub(super) fn get(&self, place: WaitId) -> Option<&Waiter> {
        self.by_place.get(&place)
    }

    /// Inserts a waiter. Returns the one of the same id whose place it takes.
    pub(super) fn insert(&mut self, place: WaitId, waiter: Waiter) -> Option<Waiter> {
        self.bytes += waiter.resident_bytes();
        self.places.insert(waiter.request().operation_id().clone(), place);
        let replaced = self.by_place.insert(place, waiter);
        self.bytes -= replaced.as_ref().map_or(0, Waiter::resident_bytes);
        replaced
    }

    pub(super) fn remove(&mut self, place: WaitId) -> Option<Waiter> {
        let waiter = self.by_place.remove(&place)?;
        self.bytes -= waiter.resident_bytes();
        self.places.remove(waiter.request().operation_id());
        self.places.shrink();
        Some(waiter)
    }

    /// All waiters, by their places.
    pub(super) fn into_waiters(self) -> impl Iterator<Item = (WaitId, Waiter)> {
        self.by_place.into_iter()
    }

    pub(super) fn len(&self) -> usize {
        self.by_place.len()
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        self.bytes + resident::unless_empty(self.by_place.len(), FIRST_BYTES)
    }

    /// The resident bytes, summed up anew.
    pub(super) fn recount_bytes(&self) -> u64 {
        let waiters = self.by_place.values().map(Waiter::resident_bytes).sum::<u64>();
        waiters + resident::unless_empty(self.by_place.len(), FIRST_BYTES)
    }

    /// The requests that wait in a deleted namespace, and the rest of the memory.
    pub(super) fn into_waits_and_leftovers(self) -> (Vec<WaitId>, Leftovers) {
        let waits = self.by_place.values().map(|waiter| waiter.wait).collect();
        (waits, Leftovers::of(self.by_place).and(self.places))
    }
}
