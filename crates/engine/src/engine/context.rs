//! State that all namespaces of a shard share: timers, the batch being built, and work that is left to do.

use super::{
    Sizes,
    namespace::{Families, KeyedWait, KeyedWaits, Namespace, kept_replies, own_bytes},
};
use crate::{
    Fetched, Name, Outcome, Time, decisions, events, idempotency,
    ids::{NamespaceId, WaitId},
    leftovers::Leftovers,
    limiter,
    recent::{RecentWrites, Writes},
    record::NamespaceHead,
    resident::Shrink,
    timers::{TimerKey, Timers},
    turn::{BatchChanges, Turn},
};
use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};

#[derive(Debug)]
pub(super) struct Context {
    pub(super) timers: Timers,
    pub(super) changes: BatchChanges,
    /// The writes of the last sealed batch, which may not be durable yet.
    pub(super) sealed: RecentWrites<Arc<Writes>>,
    pub(super) sizes: Sizes,
    /// Namespaces that the next seal must flush.
    pub(super) changed: Vec<Name>,
    /// The largest size of an answer, in bytes.
    pub(super) max_answer: usize,
    /// Namespaces in which more requests that wait may be granted.
    pub(super) granting: BTreeSet<NamespaceId>,
    /// Namespaces with a rule that is being backfilled.
    pub(super) backfilling: BTreeSet<NamespaceId>,
    pub(super) completions: Vec<(WaitId, Outcome)>,
    /// Namespaces with a batch that is not finished.
    pub(super) unfinished: BTreeSet<NamespaceId>,
    /// The work since [`super::Engine::take_work`] was called.
    pub(super) work: usize,
    /// Memory that is freed in slices.
    pub(super) garbage: Vec<Garbage>,
}

/// Large memory that is no longer in use.
#[derive(Debug)]
pub(super) enum Garbage {
    Limiter(limiter::Garbage),
    Events(events::Garbage),
    /// Maps of a deleted namespace.
    Maps(Leftovers),
    /// The timers of a deleted namespace, from `from` on.
    Timers {
        namespace: NamespaceId,
        from: Option<TimerKey>,
    },
}

/// What a namespace has, without what every namespace takes.
fn sizes_of(head: &NamespaceHead, families: &Families, waits: &KeyedWaits) -> Sizes {
    Sizes { kept_replies: kept_replies(head, waits), ..families.sizes() }
}
/// The largest number of waiting requests that one step grants or refuses. The others follow in the next slices: nothing can
/// overtake them, because they keep their places.
const MOST_GRANTS: usize = 256;
/// The most bytes that the grants of one step write, except for the last of them: a request for locks may have a megabyte.
const MOST_GRANTED_BYTES: usize = 1 << 20;
/// The number of entries that one slice frees.
const FREE_SLICE: usize = 1_024;
/// The number of timers that one slice looks at.
const TIMERS_SLICE: usize = 4_096;

impl Context {
    pub(super) fn new(max_answer: usize) -> Context {
        let mut changes = BatchChanges::default();
        // This empty batch shares its hash function with the batch being built, so that a look-up hashes the key once.
        let (sealed, _) = changes.take();
        Context {
            timers: Timers::default(),
            changes,
            sealed,
            sizes: Sizes::default(),
            changed: Vec::new(),
            max_answer,
            granting: BTreeSet::new(),
            backfilling: BTreeSet::new(),
            completions: Vec::new(),
            unfinished: BTreeSet::new(),
            work: 0,
            garbage: Vec::new(),
        }
    }

    /// Runs one turn at a namespace. Then collects what it has completed, changed and put out of use.
    pub(super) fn step<R>(
        &mut self,
        namespace: &mut Namespace,
        now: Time,
        fetched: &Fetched,
        act: impl FnOnce(&mut Families, &mut Turn<'_>) -> R,
    ) -> R {
        let Namespace { id, head, families, waits, drafts, quotas, .. } = namespace;
        let sizes_before = sizes_of(head, families, waits);
        let own_bytes = own_bytes(&head.name);
        let before = (head.position, head.replies);
        let mut turn = Turn {
            now,
            namespace: *id,
            head,
            timers: &mut self.timers,
            changes: &mut self.changes,
            sealed: &self.sealed,
            fetched,
            quotas,
            other_bytes: own_bytes + sizes_before.resident_bytes,
            other_waiting: sizes_before.locks.waiting,
        };
        let result = act(families, &mut turn);
        // A timer's work is done as of the time at which it was due. Grants begin now.
        turn.now = now;
        let (mut grants, written_before) = (0, turn.changes.bytes());
        let is_slice_full = loop {
            for (wait, outcome) in families.take_completed() {
                if let Some(draft) = drafts.remove(&wait)
                    && outcome.is_done()
                    && turn.head.position != before.0
                {
                    let (target, after) = draft.store(&mut turn, families, &outcome);
                    // A change that waited behind this one begins where this one has ended.
                    drafts.values_mut().for_each(|draft| draft.follow(&target, after.as_ref()));
                }
                if let Some(KeyedWait { idempotency, replaced }) = waits.end(wait)
                    && outcome.is_done()
                {
                    idempotency::keep(&mut turn, &idempotency, &outcome, replaced);
                }
                self.completions.push((wait, outcome));
            }
            if grants == MOST_GRANTS || turn.changes.bytes() - written_before >= MOST_GRANTED_BYTES {
                break true;
            }
            if !grant_next(families, &mut turn, own_bytes, self.max_answer) {
                break false;
            }
            grants += 1;
        };
        match is_slice_full {
            true => self.granting.insert(*id),
            false => self.granting.remove(id),
        };
        let is_changed = (head.position, head.replies) != before;
        self.collect(namespace, sizes_before, is_changed);
        result
    }

    /// Collects what a turn at the namespace has changed and put out of use.
    fn collect(&mut self, namespace: &mut Namespace, sizes_before: Sizes, is_changed: bool) {
        let Namespace { id, head, families, waits, .. } = namespace;
        self.work += families.limiter.take_work();
        let sizes = sizes_of(head, families, waits);
        self.sizes.change(sizes_before, sizes);
        match families.limiter.is_backfilling() {
            true => self.backfilling.insert(*id),
            false => self.backfilling.remove(id),
        };
        self.garbage.extend(families.limiter.take_garbage().map(Garbage::Limiter));
        self.garbage.extend(families.events.take_garbage(*id).map(Garbage::Events));
        // A relaxed check changes no position, but its window creates the namespace.
        let is_created = sizes_before == Sizes::default() && sizes != sizes_before;
        if is_changed || is_created || families.limiter.has_to_write() {
            self.mark_changed(namespace);
        }
    }

    /// Makes the next seal flush this namespace.
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
            Some(Garbage::Maps(leftovers)) => leftovers.free_some(FREE_SLICE),
            Some(Garbage::Timers { namespace, from }) => {
                *from = self.timers.drop_some(*namespace, *from, TIMERS_SLICE);
                from.is_none()
            }
        };
        if is_freed {
            self.garbage.pop();
            self.garbage.shrink();
        }
    }
}

/// Asks the next waiting request that may be granted. Returns false if there is none.
fn grant_next(families: &mut Families, turn: &mut Turn<'_>, own_bytes: u64, max_answer: usize) -> bool {
    let (decisions, mut parts) = families.split();
    decisions::grant_next(decisions, &mut parts, turn, own_bytes, max_answer)
}
