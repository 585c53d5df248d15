//! The state machine of one shard.
//!
//! Read in this order: this file, `apply` (runs a request), `slices` (runs a batch), `context` (shared by all turns), `due` (timers and background
//! work), `loading` (makes an engine from stored records), `restoring` (what that does after a restore).

mod amending;
mod apply;
mod audit;
mod context;
mod due;
mod guard;
mod loading;
mod namespace;
mod restoring;
mod slices;
mod stats;

pub use due::Due;
pub use loading::{BadRecord, Loading, is_kept_by_id};
pub use restoring::POSITION_JUMP;
pub use stats::{Sizes, Stats};

use crate::{
    Caller, Effect, Millis, Name, Options, Outcome, Page, Position, QuotaTable, Time,
    audit::{Action, AuditRecord, Target},
    decisions,
    ids::{NamespaceId, WaitId},
    ledger,
    outcome::NamespaceInfo,
    recent::Writes,
    record::{self, key},
    resident::Shrink,
    sweep::Sweeping,
    timers::{Timer, TimerKey, TimerSource},
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use bytes::Bytes;
use context::{Context, Garbage};
use core::ops::Range;
use hashbrown::HashMap;
use namespace::{Families, Namespace};

/// The state machine of one shard. Requests are applied one after another, each at one instant of shard time.
#[derive(Debug)]
pub struct Engine {
    options: Options,
    meta: record::ShardMeta,
    /// Whether `meta` is as it was loaded or sealed last.
    is_meta_stored: bool,
    /// Each in an allocation of its own: a node of the map has room for eleven.
    namespaces: BTreeMap<Name, Box<Namespace>>,
    names: HashMap<NamespaceId, Name>,
    sweeps: BTreeMap<u64, Sweeping>,
    next_wait: u64,
    /// How far positions jumped when the engine was loaded, if the shard was restored from an older state.
    jumped: Option<u64>,
    /// See [`Engine::take_discards`].
    discards: Vec<Range<Bytes>>,
    context: Context,
}

/// The result of applying a request.
#[derive(Debug)]
pub enum Applied {
    /// The request is decided.
    Done {
        /// The answer.
        outcome: Outcome,
        /// Whether the answer may be sent before the writes sealed after it are durable.
        is_relaxed: bool,
    },
    /// The answer comes with the completions ([`Engine::take_completions`]) after a later step.
    Waiting(WaitId),
    /// A slice of a batch is done. The batch must be applied again with the same [`Job`](crate::Job). Until it is done, no other request of
    /// its namespace may be applied; requests of other namespaces may.
    Unfinished,
}

/// A batch's result. `writes` must be durable before any outcome decided since the last seal, or any of `effects`, is
/// sent to anyone. The one exception is a relaxed outcome.
#[derive(Debug, Default)]
pub struct Sealed {
    /// After-images, each key once.
    pub writes: Arc<Writes>,
    /// Effects, in the order in which they must be released.
    pub effects: Vec<Effect>,
}

impl Engine {
    /// Gives every lock, lease and decision at least its whole ttl from `ready` on, so that no holder loses one because the server
    /// was away. Call it right after opening, unless the shard was handed over without a pause, see
    /// [`Engine::continue_grace_period`].
    pub fn apply_grace_period(&mut self, ready: Time) {
        let Sizes { limiter, locks, decisions, .. } = self.context.sizes;
        if limiter.leases + locks.held + decisions > 0 {
            self.meta.grace_at = Some(ready);
            self.is_meta_stored = false;
            self.extend_holders(ready);
        }
    }

    /// Applies the last grace period again, because only its time is stored, not the extended expiries. Call it right after opening, if
    /// the shard was handed over without a pause. After an interruption that time may be in the future: the wall clock may have been
    /// ahead when it was stored, and have been set back since.
    pub fn continue_grace_period(&mut self) {
        if let Some(ready) = self.meta.grace_at {
            self.extend_holders(ready);
        }
    }

    fn extend_holders(&mut self, ready: Time) {
        for namespace in self.namespaces.values_mut() {
            let Namespace { id, families, .. } = &mut **namespace;
            families.limiter.apply_grace_period(ready, *id, &mut self.context.timers);
            families.locks.apply_grace_period(ready, *id, &mut self.context.timers);
            let (decisions, mut families) = families.split();
            decisions.apply_grace_period(&mut families, ready, *id, &mut self.context.timers);
        }
    }

    /// The latest time that was passed to this engine. Time must never go back behind it.
    pub fn time(&self) -> Time {
        self.meta.time
    }

    /// Sets how much each namespace may have. A namespace that has more keeps it, and must not grow.
    pub fn set_quotas(&mut self, quotas: Arc<QuotaTable>) {
        for (name, namespace) in &mut self.namespaces {
            namespace.quotas = quotas.of(name);
        }
        self.options.quotas = quotas;
    }

    /// Sets how long the audit is kept.
    pub fn set_audit_kept(&mut self, kept: Millis) {
        self.options.audit_kept = kept;
    }

    /// An estimate of the memory that the state of all namespaces takes, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.context.sizes.resident_bytes
    }

    /// The names of all namespaces, in order.
    pub fn namespaces(&self) -> impl Iterator<Item = &Name> {
        self.namespaces.keys()
    }

    /// Every namespace with the position of its last change, in the order of their names.
    pub fn positions(&self) -> impl Iterator<Item = (&Name, Position)> {
        self.namespaces.iter().map(|(name, namespace)| (name, namespace.head.position))
    }

    /// What a namespace has: what its quotas are compared with.
    pub fn usage(&self, namespace: &Name) -> Option<Sizes> {
        self.namespaces.get(namespace).map(|namespace| namespace.sizes())
    }

    /// The same as [`Engine::usage`], summed up anew from every entry. For tests.
    pub fn recount(&self, namespace: &Name) -> Option<Sizes> {
        let namespace = self.namespaces.get(namespace)?;
        let mut sizes = namespace.recount();
        for key in self.context.timers.due(Time(u64::MAX), usize::MAX) {
            if let (true, Some(Timer::HoldExpiry { operation_id, .. })) =
                (key.namespace == namespace.id, self.context.timers.get(key))
            {
                sizes.resident_bytes += ledger::expiry_bytes(operation_id);
            }
        }
        Some(sizes)
    }

    /// How much the engine holds.
    pub fn stats(&self) -> Stats {
        Stats {
            namespaces: self.namespaces.len(),
            sizes: self.context.sizes,
            timers: self.context.timers.len(),
            sweeps: self.sweeps.len(),
        }
    }

    fn delete_namespace(&mut self, name: &Name, caller: &Caller) -> Outcome {
        let Some(namespace) = self.namespaces.remove(name) else {
            return Outcome::NamespaceNotFound;
        };
        let record = AuditRecord {
            time: self.meta.time,
            namespace: name.clone(),
            position: namespace.head.position,
            actor: caller.actor.clone(),
            address: caller.address,
            request_id: caller.request_id.clone(),
            action: Action::DeleteNamespace,
            target: Target::Namespace,
            before: None,
            after: None,
        };
        audit::store(&mut self.context.changes, &record);
        self.context.sizes.change(namespace.sizes(), Sizes::default());
        let Namespace { id, head, families, .. } = *namespace;
        self.names.remove(&id);
        self.names.shrink();
        self.meta.position_floor = self.meta.position_floor.max(head.position);
        self.context.changes.remove(key::namespace(id));
        for range in key::namespace_ranges(id) {
            self.discards.push(range.clone());
            self.begin_sweep(range);
        }
        let context = &mut self.context;
        context.backfilling.remove(&id);
        context.unfinished.remove(&id);
        let Families { ledger, mut limiter, locks, events, decisions } = families;
        let (lock_waits, locks) = locks.into_waits_and_leftovers();
        let (decision_waits, decisions, waiting) = decisions.into_waits_and_leftovers();
        context.granting.remove(&id);
        let waits = limiter.stop_waits().chain(lock_waits).chain(decision_waits);
        context.completions.extend(waits.map(|wait| (wait, Outcome::NamespaceNotFound)));
        // The namespace is gone at this position. Its memory is freed in slices, and so are its timers: a timer of a
        // namespace that does not exist does nothing.
        context.garbage.push(Garbage::Timers { namespace: id, from: None });
        context.garbage.push(Garbage::Maps(ledger.into_leftovers()));
        context.garbage.push(Garbage::Maps(locks));
        context.garbage.push(Garbage::Maps(decisions));
        context.garbage.push(Garbage::Maps(waiting));
        context.garbage.extend(limiter.into_garbage().map(Garbage::Limiter));
        for (stream, garbage) in events.into_garbage(id) {
            context.garbage.push(Garbage::Events(garbage));
            context.changes.effects.push(Effect::StreamDeleted { namespace: head.name.clone(), stream });
        }
        self.begin_sweeps();
        Outcome::NamespaceDeleted
    }

    fn list_namespaces(&self, page: &Page<Name>) -> Outcome {
        use core::ops::Bound::{Excluded, Unbounded};
        let range = (page.after.as_ref().map_or(Unbounded, Excluded), Unbounded);
        let namespaces = self.namespaces.range::<Name, _>(range).take(page.limit());
        let info = namespaces
            .map(|(name, namespace)| NamespaceInfo { name: name.clone(), position: namespace.head.position });
        Outcome::Namespaces(info.collect())
    }

    /// Marks relaxed window states, the time that reads have seen, and the last grace period, to be written with the next seal. For a planned stop:
    /// call it, and seal, until it returns false.
    pub fn flush_relaxed(&mut self) -> bool {
        let mut any = false;
        for namespace in self.namespaces.values_mut() {
            if namespace.families.limiter.flush_relaxed() {
                any = true;
                self.context.mark_changed(namespace);
            }
        }
        // Reads have returned this time to clients, so the next engine of this shard must not begin before it.
        if !self.is_meta_stored {
            self.context.changes.put(&key::shard_meta(), &self.meta);
            any = true;
        }
        any
    }

    /// Ends every wait for locks and slots, and returns the requests that waited. For a planned stop. They have changed nothing.
    pub fn end_lock_waits(&mut self) -> Vec<WaitId> {
        let mut ended = Vec::new();
        for namespace in self.namespaces.values_mut() {
            let before = namespace.sizes();
            let Namespace { id, families, waits, .. } = &mut **namespace;
            for (wait, until) in families.limiter.end_waits() {
                let source = TimerSource::Wait(wait);
                self.context.timers.cancel(TimerKey { due: until, namespace: *id, source });
                waits.end(wait);
                ended.push(wait);
            }
            let (decisions, mut parts) = families.split();
            for (wait, timer) in decisions::end_waits(decisions, &mut parts, *id) {
                self.context.timers.cancel(timer);
                waits.end(wait);
                ended.push(wait);
            }
            for waiter in families.locks.end_waits() {
                self.context.timers.cancel(waiter.timer_key(*id));
                waits.end(waiter.wait);
                ended.push(waiter.wait);
            }
            self.context.sizes.change(before, namespace.sizes());
        }
        ended
    }

    /// About how many bytes the next seal has to write.
    pub fn unsealed_bytes(&self) -> usize {
        self.context.changes.bytes()
    }

    /// Whether the next seal has anything to write.
    pub fn has_changes(&self) -> bool {
        self.context.has_changes()
    }

    /// Closes the batch: everything applied since the last seal. The batch before it must be durable by now.
    pub fn seal(&mut self) -> Sealed {
        let context = &mut self.context;
        for name in context.changed.drain(..) {
            if let Some(namespace) = self.namespaces.get_mut(&name) {
                namespace.changed = false;
                namespace.families.ledger.flush(namespace.id, &mut context.changes);
                namespace.families.limiter.flush(namespace.id, &mut context.changes);
                namespace.families.events.flush(namespace.id, &mut context.changes);
                context.changes.put(&key::namespace(namespace.id), &namespace.head);
            }
        }
        if !context.changes.writes.is_empty() {
            context.changes.put(&key::shard_meta(), &self.meta);
            self.is_meta_stored = true;
        }
        let (writes, effects) = context.changes.take();
        context.sealed = writes;
        Sealed { writes: context.sealed.writes().clone(), effects }
    }

    /// Takes the ranges of the records of namespaces that were deleted since the last call. When the batch of the deletions is
    /// durable, nobody looks these records up any more, so the store may drop all of them at once. Sweeps remove what it keeps.
    pub fn take_discards(&mut self) -> Vec<Range<Bytes>> {
        core::mem::take(&mut self.discards)
    }

    /// Takes the answers to requests that waited, in order. Like every outcome, an answer may be released once its batch is
    /// durable. Call it after each step, so that the completions are in the right order among the other decisions.
    pub fn take_completions(&mut self) -> Vec<(WaitId, Outcome)> {
        core::mem::take(&mut self.context.completions)
    }

    /// The work since the last call, in units of about a microsecond.
    pub fn take_work(&mut self) -> usize {
        core::mem::take(&mut self.context.work)
    }

    fn advance_time(&mut self, now: Time) {
        assert!(now >= self.meta.time, "shard time went back from {:?} to {now:?}", self.meta.time);
        self.is_meta_stored &= now == self.meta.time;
        self.meta.time = now;
        self.remove_old_audit();
    }
}

impl Applied {
    fn durable(outcome: Outcome) -> Applied {
        Applied::Done { outcome, is_relaxed: false }
    }

    fn too_large(max_answer: usize) -> Applied {
        Applied::durable(Outcome::AnswerTooLarge { max_bytes: max_answer as u64 })
    }
}
