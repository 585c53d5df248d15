//! What turns work with, and what they leave behind, whichever namespace they are at.

use super::{Sizes, WaitId};
use crate::{
    Fetched, Name, Outcome, Time, events, idempotency, limiter,
    namespace::{Changes, Families, Keys, Namespace, Turn},
    recent::{Recent, Writes},
    record::key::NamespaceId,
    timers::Timers,
};
use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};

#[derive(Debug)]
pub(super) struct Desk {
    pub(super) timers: Timers,
    pub(super) changes: Changes,
    /// The writes of the last sealed batch, which may not be durable yet.
    pub(super) sealed: Recent<Arc<Writes>>,
    pub(super) sizes: Sizes,
    /// Namespaces of which the next seal writes something.
    pub(super) changed: Vec<Name>,
    /// Namespaces with a change of rules under way.
    pub(super) building: BTreeSet<NamespaceId>,
    pub(super) completions: Vec<(WaitId, Outcome)>,
    /// Memory to be freed bit by bit.
    pub(super) garbage: Vec<Garbage>,
}

/// What is out of use and large.
#[derive(Debug)]
pub(super) enum Garbage {
    Limiter(limiter::Garbage),
    Events(events::Garbage),
}

impl Desk {
    pub(super) fn new() -> Desk {
        let mut changes = Changes::default();
        // Nothing yet; the two are looked through together, by the same hash.
        let (sealed, _) = changes.take();
        Desk {
            timers: Timers::default(),
            changes,
            sealed,
            sizes: Sizes::default(),
            changed: Vec::new(),
            building: BTreeSet::new(),
            completions: Vec::new(),
            garbage: Vec::new(),
        }
    }

    /// One turn at a namespace, and what follows from it.
    pub(super) fn step<R>(
        &mut self,
        namespace: &mut Namespace,
        now: Time,
        fetched: &Fetched,
        act: impl FnOnce(&mut Families, &mut Turn<'_>) -> R,
    ) -> R {
        let Namespace { id, head, families, keys_in_use, .. } = namespace;
        let sizes_before = families.sizes();
        let before = (head.position, head.replies);
        let mut turn = Turn {
            now,
            keys: Keys(*id),
            head,
            timers: &mut self.timers,
            changes: &mut self.changes,
            sealed: &self.sealed,
            fetched,
        };
        let result = act(families, &mut turn);
        for (waiting, outcome) in core::mem::take(&mut turn.changes.completed) {
            if let Some(idempotency) = &waiting.idempotency {
                keys_in_use.remove(&idempotency.key);
                if outcome.is_done() {
                    idempotency::keep(&mut turn, idempotency, &outcome);
                }
            }
            self.completions.push((waiting.id, outcome));
        }
        let is_changed = (head.position, head.replies) != before;

        let sizes = families.sizes();
        self.sizes.change(sizes_before, sizes);
        match families.limiter.is_building() {
            true => self.building.insert(*id),
            false => self.building.remove(id),
        };
        self.garbage.extend(families.limiter.take_garbage().map(Garbage::Limiter));
        self.garbage.extend(families.events.take_garbage(*id).map(Garbage::Events));
        // A window that no answer waits for is reason enough for a namespace to be.
        let is_born = sizes_before == Sizes::default() && sizes != sizes_before;
        if is_changed || is_born || families.limiter.has_to_write() {
            self.mark_changed(namespace);
        }
        result
    }

    /// The next seal writes what is new of this namespace.
    pub(super) fn mark_changed(&mut self, namespace: &mut Namespace) {
        if !namespace.changed {
            namespace.changed = true;
            self.changed.push(namespace.head.name.clone());
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.changed.is_empty() || !self.changes.writes.is_empty()
    }

    pub(super) fn free_some(&mut self) {
        let is_freed = match self.garbage.last_mut() {
            None => false,
            Some(Garbage::Limiter(garbage)) => garbage.free_some(),
            Some(Garbage::Events(garbage)) => garbage.free_some(&mut self.timers),
        };
        if is_freed {
            self.garbage.pop();
        }
    }
}
