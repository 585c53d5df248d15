//! The queues of requests that wait for limits without a window. Each group has a queue, in the order of arrival over all
//! families.
//!
//! A request waits in the groups of all enforced limits without a window that it takes from, and holds nothing meanwhile. What
//! would take from a group in which an earlier request waits is refused, or waits behind it. Leases and decisions wait in the
//! same queues; decisions are kept by their own module, which also grants everything that waits. While a lock keeps a decision
//! waiting, it stands in none of these queues.

use super::{
    check_request::Take,
    groups::{GroupKey, GroupOwner},
};
use crate::{
    WaitId,
    key_values::KeyValues,
    leftovers::Leftovers,
    resident::{self, Heap, Shrink},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use hashbrown::HashMap;

/// The largest number of waiting requests of a namespace.
pub(crate) const MAX_WAITING: usize = 131_072;

/// The place of a request that does not wait: behind all that do.
pub(crate) const LAST: WaitId = WaitId(u64::MAX);

/// The place of what passes all that waits.
pub(super) const FIRST: WaitId = WaitId(0);

/// The queues of all groups.
#[derive(Debug, Default)]
pub(crate) struct SlotQueues {
    queues: HashMap<GroupKey, BTreeSet<WaitId>>,
    places: BTreeMap<WaitId, Place>,
    /// Requests that have come to the head of a queue, or whose group has more room than before.
    woken: BTreeSet<WaitId>,
    /// The resident bytes of all places.
    bytes: u64,
}

/// A waiting request.
#[derive(Debug)]
struct Place {
    /// What it takes. The groups are found anew when rules change.
    entries: Vec<Take>,
    slots: Slots,
    /// Whether it stands in the queues of these groups. A request whose locks are not free does not.
    is_queued: bool,
}

impl Place {
    fn resident_bytes(&self) -> u64 {
        self.slots.bytes(&self.entries)
    }
}

/// The groups in which a request waits.
#[derive(Debug, Default)]
pub(crate) struct Slots(pub(super) Vec<GroupKey>);

impl Slots {
    /// The resident bytes of a place of these entries, with those that it takes in the queues of its groups.
    pub(crate) fn bytes(&self, entries: &[Take]) -> u64 {
        let group = |key: &GroupKey| {
            resident::hash_slot::<(GroupKey, BTreeSet<WaitId>)>()
                + resident::small_tree::<WaitId>(1)
                + 2 * key.values.heap()
        };
        let heap = entries.iter().map(|entry| entry.key_values.heap()).sum::<u64>();
        resident::tree_slot::<(WaitId, Place)>()
            + resident::heap(size_of_val(entries))
            + resident::heap(size_of_val(&self.0[..]))
            + heap
            + self.0.iter().map(group).sum::<u64>()
    }
}

/// What the first place takes besides, and its queue.
const FIRST_PLACE_BYTES: u64 =
    resident::first_in_tree::<(WaitId, Place)>() + resident::first_in_hash::<(GroupKey, BTreeSet<WaitId>)>();

impl SlotQueues {
    /// Whether an earlier request than `place` waits in the group.
    pub(super) fn has_earlier(&self, owner: GroupOwner, values: &KeyValues, place: WaitId) -> bool {
        self.queue(owner, values).and_then(BTreeSet::first).is_some_and(|first| *first < place)
    }

    /// The number of requests other than `place` that wait in the group.
    pub(super) fn waiting(&self, owner: GroupOwner, values: &KeyValues, place: WaitId) -> usize {
        self.queue(owner, values).map_or(0, |queue| queue.len() - usize::from(queue.contains(&place)))
    }

    /// The number of requests that wait in the group.
    pub(super) fn waiting_in(&self, key: &GroupKey) -> usize {
        self.queues.get(key).map_or(0, BTreeSet::len)
    }

    fn queue(&self, owner: GroupOwner, values: &KeyValues) -> Option<&BTreeSet<WaitId>> {
        if self.queues.is_empty() {
            return None;
        }
        self.queues.get(&GroupKey { owner, values: values.clone() })
    }

    /// Adds a request, which enters its queues now or later.
    pub(super) fn join(&mut self, place: WaitId, entries: Vec<Take>, mut slots: Slots, is_queued: bool) {
        slots.0.shrink_to_fit();
        let new = Place { entries, slots, is_queued: false };
        self.bytes += new.resident_bytes();
        self.places.insert(place, new);
        if is_queued {
            self.enter(place);
        }
    }

    /// The request stands in its queues from now on, by its arrival.
    pub(super) fn enter(&mut self, place: WaitId) {
        let Some(Place { slots, is_queued, .. }) = self.places.get_mut(&place) else { return };
        if core::mem::replace(is_queued, true) {
            return;
        }
        for key in &slots.0 {
            self.queues.entry(key.clone()).or_default().insert(place);
        }
    }

    /// Removes a request, and wakes those that are at the heads of its queues then.
    pub(super) fn leave(&mut self, place: WaitId) {
        self.woken.remove(&place);
        let Some(left) = self.places.remove(&place) else { return };
        self.bytes -= left.resident_bytes();
        for key in left.slots.0.into_iter().filter(|_| left.is_queued) {
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            queue.remove(&place);
            if let Some(first) = queue.first().copied() {
                self.woken.insert(first);
            } else {
                self.queues.remove(&key);
            }
        }
        self.queues.shrink();
    }

    /// Whether no request stands in a queue.
    pub(super) fn are_queues_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Wakes the first request that waits in the group.
    pub(super) fn wake_first(&mut self, key: &GroupKey) {
        if let Some(first) = self.queues.get(key).and_then(BTreeSet::first) {
            self.woken.insert(*first);
        }
    }

    pub(super) fn wake(&mut self, place: WaitId) {
        self.woken.insert(place);
    }

    /// The earliest request that was woken.
    pub(super) fn first_woken(&self) -> Option<WaitId> {
        self.woken.first().copied()
    }

    pub(super) fn handle_woken(&mut self, place: WaitId) {
        self.woken.remove(&place);
    }

    pub(super) fn clear_woken(&mut self) {
        self.woken.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// All requests with what they take, and whether they stand in their queues.
    pub(super) fn into_requests(self) -> impl Iterator<Item = (WaitId, Vec<Take>, bool)> {
        self.places.into_iter().map(|(place, Place { entries, is_queued, .. })| (place, entries, is_queued))
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        self.bytes + resident::unless_empty(self.places.len(), FIRST_PLACE_BYTES)
    }

    /// The resident bytes, summed up anew.
    pub(super) fn recount_bytes(&self) -> u64 {
        let places = self.places.values().map(Place::resident_bytes).sum::<u64>();
        places + resident::unless_empty(self.places.len(), FIRST_PLACE_BYTES)
    }

    pub(super) fn into_leftovers(self) -> Leftovers {
        Leftovers::of(self.queues).and(self.places)
    }
}
