//! A namespace: the unit of atomicity and of order. One position counter orders the changes of all families.

use crate::{
    Effect, Idempotency, Name, Outcome, Position, Sizes, Time, WaitId,
    events::Events,
    ledger::Ledger,
    limiter::Limiter,
    locks::Locks,
    reads::{Absent, Fetched, Missing, Reader},
    recent::{Recent, Writes},
    record::{
        self,
        key::{self, Key, NamespaceId},
    },
    timers::{SetBy, TimerKey, Timers},
};
use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};
use bytes::Bytes;
use core::ops::Range;
use serde::Serialize;

/// Everything resident of a namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) id: NamespaceId,
    pub(crate) head: record::NamespaceHead,
    pub(crate) families: Families,
    /// Idempotency keys of requests that are answered later.
    pub(crate) keys_in_use: BTreeSet<Name>,
    /// Whether it is on the list of what the next seal writes.
    pub(crate) changed: bool,
}

impl Namespace {
    pub(crate) fn new(id: NamespaceId, name: Name, position: Position) -> Namespace {
        let head = record::NamespaceHead { name, position, replies: None };
        Namespace { id, head, families: Families::default(), keys_in_use: BTreeSet::new(), changed: false }
    }
}

/// What each family keeps in memory.
#[derive(Debug, Default)]
pub(crate) struct Families {
    pub(crate) ledger: Ledger,
    pub(crate) limiter: Limiter,
    pub(crate) locks: Locks,
    pub(crate) events: Events,
}

impl Families {
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            ledger_limits: self.ledger.len(),
            limiter: self.limiter.sizes(),
            locks: self.locks.sizes(),
            events: self.events.sizes(),
        }
    }

    /// Gives up whatever waits for its answer.
    pub(crate) fn end_waits(&mut self) -> impl Iterator<Item = WaitId> {
        let locks = self.locks.end_waits().into_iter().map(|waiter| waiter.waiting.id);
        self.limiter.stop_building().chain(locks)
    }
}

/// Somebody who waits for an answer.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) id: WaitId,
    /// Under which the answer is kept.
    pub(crate) idempotency: Option<Idempotency>,
}

/// What was changed since the last seal.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) writes: Recent,
    pub(crate) effects: Vec<Effect>,
    /// Ranges of keys that are to be removed bit by bit.
    pub(crate) sweeps: Vec<Range<Bytes>>,
    /// Answers to those who had to wait.
    pub(crate) completed: Vec<(Waiting, Outcome)>,
}

impl Changes {
    /// The record stands under the key from now on.
    pub(crate) fn put<T: Serialize>(&mut self, key: &[u8], record: &T) {
        self.writes.put(key, record, false);
    }

    /// Nothing stands under the key from now on.
    pub(crate) fn remove(&mut self, key: impl AsRef<[u8]>) {
        self.writes.remove(key.as_ref());
    }

    /// Everything since the last time.
    pub(crate) fn take(&mut self) -> (Recent<Arc<Writes>>, Vec<Effect>) {
        (self.writes.seal(), core::mem::take(&mut self.effects))
    }
}

/// Why a command could not run. Nothing was changed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// This must be fetched first.
    Missing(Missing),
    /// A record that it needs could not be read.
    Unreadable,
}

/// What a command may look at: the time, and the stored records as of all that was decided before it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) now: Time,
    pub(crate) keys: Keys,
    /// The position of the namespace's last change.
    pub(crate) position: Position,
    pub(crate) building: &'a Recent,
    pub(crate) sealed: &'a Recent<Arc<Writes>>,
    pub(crate) fetched: &'a Fetched,
}

impl View<'_> {
    /// Runs the reading part of a command.
    pub(crate) fn read<T>(&self, f: impl FnOnce(&Reader<'_>) -> Result<T, Absent>) -> Result<T, Stop> {
        let reader = Reader::new(self.building, self.sealed, self.fetched);
        f(&reader).map_err(|absent| match absent {
            Absent::NotFetched => Stop::Missing(reader.into_missing()),
            Absent::Unreadable => Stop::Unreadable,
        })
    }

    /// Stops if any of these records must be fetched first.
    pub(crate) fn prefetch(&self, keys: impl Iterator<Item = impl AsRef<[u8]>>) -> Result<(), Stop> {
        self.read(|reader| {
            keys.for_each(|key| reader.want(key));
            if reader.has_missing() { Err(Absent::NotFetched) } else { Ok(()) }
        })
    }
}

/// One command's turn at a namespace: what it may look at, and where its changes go.
pub(crate) struct Turn<'a> {
    pub(crate) now: Time,
    pub(crate) keys: Keys,
    pub(crate) head: &'a mut record::NamespaceHead,
    pub(crate) timers: &'a mut Timers,
    pub(crate) changes: &'a mut Changes,
    pub(crate) sealed: &'a Recent<Arc<Writes>>,
    pub(crate) fetched: &'a Fetched,
}

impl Turn<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        View {
            now: self.now,
            keys: self.keys,
            position: self.head.position,
            building: &self.changes.writes,
            sealed: self.sealed,
            fetched: self.fetched,
        }
    }

    /// The position of a change that is made now.
    pub(crate) fn advance(&mut self) -> Position {
        self.head.position = self.head.position.next();
        self.head.position
    }

    pub(crate) fn put<T: Serialize>(&mut self, key: impl AsRef<[u8]>, record: &T) {
        self.changes.writes.put(key.as_ref(), record, false);
    }

    /// Puts a record under a key under which nothing has ever stood. If it is removed again soon, as marks and timers
    /// are, it never gets as far as the table.
    pub(crate) fn put_first<T: Serialize>(&mut self, key: impl AsRef<[u8]>, record: &T) {
        self.changes.writes.put(key.as_ref(), record, true);
    }

    pub(crate) fn remove(&mut self, key: impl AsRef<[u8]>) {
        self.changes.writes.remove(key.as_ref());
    }

    /// Removes a whole range bit by bit. What is in it must be out of reach already.
    pub(crate) fn sweep(&mut self, range: Range<Bytes>) {
        self.changes.sweeps.push(range);
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.changes.effects.push(effect);
    }

    /// Answers somebody who had to wait.
    pub(crate) fn complete(&mut self, waiting: Waiting, outcome: Outcome) {
        self.changes.completed.push((waiting, outcome));
    }

    /// The key of a timer of this namespace.
    pub(crate) fn timer_key(&self, due: Time, set_by: SetBy) -> TimerKey {
        TimerKey { due, namespace: self.keys.id(), set_by }
    }
}

/// The keys of one namespace's records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys(pub(crate) NamespaceId);

impl Keys {
    pub(crate) fn id(self) -> NamespaceId {
        self.0
    }

    pub(crate) fn head(self) -> Key {
        key::namespace(self.0)
    }

    pub(crate) fn limit(self, limit: u32) -> Key {
        key::ledger_limit(self.0, limit)
    }

    pub(crate) fn balance(self, limit: u32) -> Key {
        key::ledger_balance(self.0, limit)
    }

    pub(crate) fn expiry(self, due: Time, held_at: Position) -> Key {
        key::ledger_expiry(self.0, due, held_at)
    }

    pub(crate) fn operation(self, id: &Name) -> Key {
        key::ledger_operation(self.0, id)
    }

    pub(crate) fn open(self, id: &Name) -> Key {
        key::ledger_open(self.0, id)
    }

    pub(crate) fn entry(self, limit: u32, position: Position) -> Key {
        key::ledger_entry(self.0, limit, position)
    }

    pub(crate) fn limiter_rule(self, rule: Position) -> Key {
        key::limiter_rule(self.0, rule)
    }

    pub(crate) fn limiter_override(self, rule: Position, item: Position) -> Key {
        key::limiter_override(self.0, rule, item)
    }

    pub(crate) fn limiter_overrides(self, rule: Position) -> Range<Bytes> {
        key::limiter_overrides(self.0, rule)
    }

    pub(crate) fn limiter_window(self, place: u32) -> Key {
        key::limiter_window(self.0, place)
    }

    pub(crate) fn limiter_counter(self, place: u32) -> Key {
        key::limiter_counter(self.0, place)
    }

    pub(crate) fn limiter_lease(self, token: Position) -> Key {
        key::limiter_lease(self.0, token)
    }

    pub(crate) fn lock(self, token: Position) -> Key {
        key::lock(self.0, token)
    }

    pub(crate) fn lock_listeners(self, token: Position) -> Key {
        key::lock_listeners(self.0, token)
    }

    pub(crate) fn event_stream(self, stream: Position) -> Key {
        key::event_stream(self.0, stream)
    }

    pub(crate) fn event_key(self, stream: Position, number: Position) -> Key {
        key::event_key(self.0, stream, number)
    }

    pub(crate) fn event_keys(self, stream: Position) -> Range<Bytes> {
        key::event_keys(self.0, stream)
    }

    pub(crate) fn event_change(self, stream: Position, clock: u64) -> Key {
        key::event_change(self.0, stream, clock)
    }

    pub(crate) fn event_changes(self, stream: Position) -> Range<Bytes> {
        key::event_changes(self.0, stream)
    }
}
