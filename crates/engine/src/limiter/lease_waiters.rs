//! The leases that wait, in memory. They are not stored.

use super::command::NewLease;
use crate::{
    Name, Time, WaitId,
    ids::NamespaceId,
    leftovers::Leftovers,
    resident::Heap,
    resident::{self, Shrink},
    timers::{TIMER_BYTES, TimerKey, TimerSource},
};
use alloc::collections::BTreeMap;
use hashbrown::HashMap;

/// All leases that wait in a namespace.
#[derive(Debug, Default)]
pub(crate) struct LeaseWaiters {
    /// By their places in the queues.
    by_place: BTreeMap<WaitId, LeaseWaiter>,
    places: HashMap<Name, WaitId>,
    bytes: u64,
}

impl LeaseWaiters {
    pub(super) fn len(&self) -> usize {
        self.by_place.len()
    }

    pub(super) fn get(&self, place: WaitId) -> Option<&LeaseWaiter> {
        self.by_place.get(&place)
    }

    /// The place of the lease that waits under this id.
    pub(super) fn place_of(&self, id: &Name) -> Option<WaitId> {
        self.places.get(id).copied()
    }

    pub(super) fn places(&self) -> impl Iterator<Item = WaitId> {
        self.by_place.keys().copied()
    }

    pub(super) fn insert(&mut self, place: WaitId, waiter: LeaseWaiter) {
        self.bytes += waiter_bytes(&waiter.new);
        self.places.insert(waiter.new.id.clone(), place);
        self.by_place.insert(place, waiter);
    }

    pub(super) fn remove(&mut self, place: WaitId) -> Option<LeaseWaiter> {
        let waiter = self.by_place.remove(&place)?;
        self.bytes -= waiter_bytes(&waiter.new);
        self.places.remove(&waiter.new.id);
        self.places.shrink();
        Some(waiter)
    }

    /// All leases that wait, by their places.
    pub(super) fn into_waiters(self) -> impl Iterator<Item = (WaitId, LeaseWaiter)> {
        self.by_place.into_iter()
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        self.bytes + resident::unless_empty(self.len(), FIRST_WAITER_BYTES)
    }

    /// The resident bytes, summed up anew.
    pub(super) fn recount_bytes(&self) -> u64 {
        let waiters = self.by_place.values().map(|waiter| waiter_bytes(&waiter.new)).sum::<u64>();
        waiters + resident::unless_empty(self.len(), FIRST_WAITER_BYTES)
    }

    pub(super) fn into_leftovers(self, others: Leftovers) -> Leftovers {
        others.and(self.by_place).and(self.places)
    }
}

/// A lease that waits.
#[derive(Debug)]
pub(crate) struct LeaseWaiter {
    pub(super) new: NewLease,
    pub(super) until: Time,
}

impl LeaseWaiter {
    pub(super) fn timer_key(&self, namespace: NamespaceId, wait: WaitId) -> TimerKey {
        TimerKey { due: self.until, namespace, source: TimerSource::Wait(wait) }
    }
}

/// The resident bytes of a lease that waits, without its place in the queues.
pub(super) fn waiter_bytes(new: &NewLease) -> u64 {
    resident::tree_slot::<(WaitId, LeaseWaiter)>()
        + resident::hash_slot::<(Name, WaitId)>()
        + TIMER_BYTES
        + 2 * new.id.heap()
        + new.session.heap()
        + new.owner.as_ref().map_or(0, Name::heap)
        + new.key_values.heap()
}

/// What the first lease that waits takes besides.
const FIRST_WAITER_BYTES: u64 =
    resident::first_in_tree::<(WaitId, LeaseWaiter)>() + resident::first_in_hash::<(Name, WaitId)>();
