//! The leases of a namespace, in memory and as they are stored.

use super::{
    command::NewLease,
    reply::{Checked, Reply},
};
use crate::{
    Millis, Name, Position, Time,
    ids::NamespaceId,
    key_values::KeyValues,
    leftovers::Leftovers,
    resident::{self, Heap},
    timers::{TIMER_BYTES, Timer, TimerKey, TimerSource},
};
use alloc::{boxed::Box, collections::BTreeMap};
use limina_api::limiter as api;
use serde::{Deserialize, Serialize};

/// All leases of a namespace, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    by_id: BTreeMap<Name, Lease>,
    bytes: u64,
}

/// What the first lease takes besides.
const FIRST_LEASE_BYTES: u64 = resident::first_in_tree::<(Name, Lease)>();

impl Leases {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn get(&self, id: &Name) -> Option<&Lease> {
        self.by_id.get(id)
    }

    /// The caller must change neither the texts nor the key-values.
    pub(super) fn get_mut(&mut self, id: &Name) -> Option<&mut Lease> {
        self.by_id.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.by_id.values()
    }

    /// The caller must change neither the texts nor the key-values.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lease> {
        self.by_id.values_mut()
    }

    /// The leases whose ids follow `after`, by id.
    pub(super) fn after(&self, after: Option<&Name>) -> impl Iterator<Item = &Lease> {
        use core::ops::Bound::{Excluded, Unbounded};
        self.by_id.range::<Name, _>((after.map_or(Unbounded, Excluded), Unbounded)).map(|(_, lease)| lease)
    }

    /// Inserts a lease. Returns the one that had the same id.
    pub(super) fn insert(&mut self, lease: Lease) -> Option<Lease> {
        self.bytes += lease.resident_bytes();
        let replaced = self.by_id.insert(lease.id.clone(), lease);
        self.bytes -= replaced.as_ref().map_or(0, Lease::resident_bytes);
        replaced
    }

    pub(super) fn remove(&mut self, id: &Name) -> Option<Lease> {
        let lease = self.by_id.remove(id)?;
        self.bytes -= lease.resident_bytes();
        Some(lease)
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        self.bytes + resident::unless_empty(self.len(), FIRST_LEASE_BYTES)
    }

    /// The resident bytes, summed up anew.
    pub(super) fn recount_bytes(&self) -> u64 {
        let leases = self.iter().map(Lease::resident_bytes).sum::<u64>();
        leases + resident::unless_empty(self.len(), FIRST_LEASE_BYTES)
    }

    pub(super) fn into_leftovers(self, others: Leftovers) -> Leftovers {
        others.and(self.by_id)
    }
}

/// A lease, in memory and as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(super) id: Name,
    pub(super) session: Name,
    pub(super) key_values: KeyValues,
    pub(super) hits: u64,
    pub(super) owner: Option<Name>,
    pub(super) ttl: Millis,
    pub(super) taken_at: Time,
    pub(super) expires_at: Time,
    pub(super) token: Position,
    /// The decision that the lease is a part of. The decision stores such a lease, and ends it.
    pub(super) operation_id: Option<Name>,
    /// Whether the lease ends if the client that waited for it has gone: no other request was answered with it. This is not
    /// stored. After an opening, its ttl ends a lease that nobody has heard of.
    #[serde(skip)]
    pub(super) ends_with_client: bool,
}

impl Lease {
    pub(super) fn timer_key(&self, namespace: NamespaceId) -> TimerKey {
        TimerKey { due: self.expires_at, namespace, source: TimerSource::Change(self.token) }
    }

    pub(super) fn timer(&self) -> Timer {
        Timer::LeaseExpiry { id: self.id.clone() }
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        lease_bytes(&self.id, &self.session, &self.key_values, self.owner.as_ref())
            + self.operation_id.as_ref().map_or(0, Name::heap)
    }

    /// The answer to the client that has taken the lease. No other answer contains the session.
    pub(super) fn taken(&self, now: Time, decision: Checked) -> Reply {
        Reply::LeaseTaken { lease: Box::new(self.info(now)), session: self.session.clone(), decision }
    }

    pub(super) fn info(&self, now: Time) -> api::Lease {
        api::Lease {
            lease_id: self.id.clone(),
            operation_id: self.operation_id.clone(),
            fencing_token: self.token,
            key_values: self.key_values.clone(),
            hits: self.hits,
            owner: self.owner.clone(),
            held_ms: now.since(self.taken_at),
            expires_in_ms: self.expires_at.since(now),
            ttl_ms: self.ttl,
        }
    }
}

/// The resident bytes of a new lease.
pub(super) fn new_lease_bytes(new: &NewLease) -> u64 {
    lease_bytes(&new.id, &new.session, &new.key_values, new.owner.as_ref())
}

fn lease_bytes(id: &Name, session: &Name, key_values: &KeyValues, owner: Option<&Name>) -> u64 {
    let slot = resident::tree_slot::<(Name, Lease)>() + TIMER_BYTES;
    slot + id.heap() + session.heap() + key_values.heap() + owner.map_or(0, Name::heap)
}
