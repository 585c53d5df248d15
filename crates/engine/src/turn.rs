//! One command's turn at a namespace: what the command may read, and where its changes go. Every family uses this module.

use crate::{
    Effect, Position, Time,
    answer_size::TooLarge,
    ids::NamespaceId,
    quotas::{Quota, QuotaExceeded, Quotas},
    reads::{Fetched, Missing, ReadError, Reader},
    recent::{RecentWrites, Writes},
    record::NamespaceHead,
    timers::{TimerKey, TimerSource, Timers},
};
use alloc::{sync::Arc, vec::Vec};
use bytes::Bytes;
use core::ops::Range;
use serde::Serialize;

/// The changes since the last seal.
#[derive(Debug, Default)]
pub(crate) struct BatchChanges {
    pub(crate) writes: RecentWrites,
    pub(crate) effects: Vec<Effect>,
    /// Ranges of keys whose records are removed in slices later.
    pub(crate) sweeps: Vec<Range<Bytes>>,
    /// An estimate of the bytes that families add to `writes` when the batch is sealed.
    unflushed: usize,
    /// Whether records of the audit were written since the engine looked.
    pub(crate) has_audited: bool,
}

impl BatchChanges {
    /// Stores the record under the key.
    pub(crate) fn put<T: Serialize>(&mut self, key: &[u8], record: &T) {
        self.writes.put(key, record, false);
    }

    /// Removes the record under the key.
    pub(crate) fn remove(&mut self, key: impl AsRef<[u8]>) {
        self.writes.remove(key.as_ref());
    }

    /// Announces writes that a family makes when the batch is sealed. Each change of a record is counted, though only
    /// the last one is written.
    pub(crate) fn will_write(&mut self, bytes: usize) {
        self.unflushed += bytes;
    }

    /// An estimate of the batch's size.
    pub(crate) fn bytes(&self) -> usize {
        self.writes.bytes() + self.unflushed
    }

    /// Takes the writes and effects since the last call.
    pub(crate) fn take(&mut self) -> (RecentWrites<Arc<Writes>>, Vec<Effect>) {
        self.unflushed = 0;
        (self.writes.seal(), core::mem::take(&mut self.effects))
    }
}

/// Why a command could not run. The command has changed nothing.
#[derive(Debug)]
pub(crate) enum CannotRun {
    /// These records must be fetched first; then the command runs again.
    Missing(Missing),
    /// A record that the command needs could not be read.
    Unreadable,
    /// The answer would be too large.
    TooLarge,
}

impl From<TooLarge> for CannotRun {
    fn from(TooLarge: TooLarge) -> CannotRun {
        CannotRun::TooLarge
    }
}

/// The work that one turn of a command may do, in units of about a microsecond. A long command is done in slices: when a slice
/// is used up, requests of other namespaces have their turn.
#[derive(Debug)]
pub(crate) struct Slice {
    left: usize,
    spent: usize,
}

impl Slice {
    pub(crate) fn new(work: usize) -> Slice {
        Slice { left: work, spent: 0 }
    }

    pub(crate) fn spend(&mut self, work: usize) {
        self.left = self.left.saturating_sub(work);
        self.spent += work;
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }

    pub(crate) fn spent(&self) -> usize {
        self.spent
    }

    /// Whether the turn has done anything.
    pub(crate) fn is_begun(&self) -> bool {
        self.spent > 0
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// The work of writing, sending and storing this many bytes.
    pub(crate) fn work_of_bytes(bytes: usize) -> usize {
        bytes / 256
    }
}

/// How a turn of a command that is done in slices has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sliced {
    /// The command is done.
    Done,
    /// The slice is used up, or the next part needs records that are not fetched yet.
    Unfinished,
}

/// The result of a command that may have to wait for its answer.
pub(crate) enum Attempt<T> {
    /// The command is decided.
    Done(T),
    /// The command waits. Its family completes it in a later step.
    Waits,
    /// Too many commands of the namespace wait already. The command has changed nothing.
    TooManyWaiting,
}

/// What a command may read: the time, and the stored records, including the changes of all commands before it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) now: Time,
    pub(crate) namespace: NamespaceId,
    /// The position of the namespace's last change.
    pub(crate) position: Position,
    pub(crate) building: &'a RecentWrites,
    pub(crate) sealed: &'a RecentWrites<Arc<Writes>>,
    pub(crate) fetched: &'a Fetched,
}

impl View<'_> {
    /// Runs the reading part of a command. If `f` needs records that are not fetched yet, the error names all of them.
    pub(crate) fn read<T>(
        &self,
        f: impl FnOnce(&Reader<'_>) -> Result<T, ReadError>,
    ) -> Result<T, CannotRun> {
        let reader = Reader::new(self.building, self.sealed, self.fetched);
        f(&reader).map_err(|absent| match absent {
            ReadError::NotFetched => CannotRun::Missing(reader.into_missing()),
            ReadError::Unreadable => CannotRun::Unreadable,
        })
    }

    /// Stops if any of these records must be fetched first.
    pub(crate) fn prefetch(&self, keys: impl Iterator<Item = impl AsRef<[u8]>>) -> Result<(), CannotRun> {
        self.read(|reader| {
            keys.for_each(|key| reader.want(key));
            if reader.has_missing() { Err(ReadError::NotFetched) } else { Ok(()) }
        })
    }
}

/// One command's turn at a namespace.
pub(crate) struct Turn<'a> {
    pub(crate) now: Time,
    pub(crate) namespace: NamespaceId,
    pub(crate) head: &'a mut NamespaceHead,
    pub(crate) timers: &'a mut Timers,
    pub(crate) changes: &'a mut BatchChanges,
    pub(crate) sealed: &'a RecentWrites<Arc<Writes>>,
    pub(crate) fetched: &'a Fetched,
    pub(crate) quotas: &'a Quotas,
    /// The resident bytes of the namespace as the turn began, without those of the family whose turn it is.
    pub(crate) other_bytes: u64,
    /// The number of requests that waited in the namespace as the turn began, without those of the family whose turn it is.
    pub(crate) other_waiting: usize,
}

impl Turn<'_> {
    /// Begins the turn of a family that has so many resident bytes.
    pub(crate) fn begin_family(&mut self, bytes: u64) {
        self.other_bytes = self.other_bytes.saturating_sub(bytes);
    }

    /// Begins the turn of a family in which so many requests wait.
    pub(crate) fn begin_waits(&mut self, waiting: usize) {
        self.other_waiting = self.other_waiting.saturating_sub(waiting);
    }

    /// Fails if the namespace, which has `used`, must not get `more`.
    pub(crate) fn check_quota(&self, quota: Quota, used: usize, more: usize) -> Result<(), QuotaExceeded> {
        self.quotas.check(quota, used as u64, more as u64)
    }

    /// Fails if the family, which has so many resident bytes now, must not get `more`.
    pub(crate) fn check_bytes(&self, bytes: u64, more: u64) -> Result<(), QuotaExceeded> {
        self.quotas.check(Quota::ResidentBytes, self.other_bytes + bytes, more)
    }

    pub(crate) fn view(&self) -> View<'_> {
        View {
            now: self.now,
            namespace: self.namespace,
            position: self.head.position,
            building: &self.changes.writes,
            sealed: self.sealed,
            fetched: self.fetched,
        }
    }

    /// Gives a change its position, the next one of the namespace.
    pub(crate) fn advance(&mut self) -> Position {
        self.head.position = self.head.position.next();
        self.head.position
    }

    pub(crate) fn put<T: Serialize>(&mut self, key: impl AsRef<[u8]>, record: &T) {
        self.changes.writes.put(key.as_ref(), record, false);
    }

    /// Stores a record under a key that was never used before. If the record is removed before the next checkpoint, as
    /// most marks and timers are, it never reaches the table.
    pub(crate) fn put_first<T: Serialize>(&mut self, key: impl AsRef<[u8]>, record: &T) {
        self.changes.writes.put(key.as_ref(), record, true);
    }

    pub(crate) fn remove(&mut self, key: impl AsRef<[u8]>) {
        self.changes.writes.remove(key.as_ref());
    }

    /// Begins a sweep that removes a range of records in slices. The caller guarantees that no command looks them up any
    /// more.
    pub(crate) fn sweep(&mut self, range: Range<Bytes>) {
        self.changes.sweeps.push(range);
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.changes.effects.push(effect);
    }

    /// The key of a timer of this namespace.
    pub(crate) fn timer_key(&self, due: Time, source: TimerSource) -> TimerKey {
        TimerKey { due, namespace: self.namespace, source }
    }
}
