//! The memory budget of the process.
//!
//! Whatever a client can make large reserves its bytes here before they are held, and returns them when they are freed. At the
//! limit, the next reservation is refused, so that the process rejects requests instead of running out of memory.
//!
//! A [`Reservation`] is for bytes that may be refused, and an [`Account`] for sizes that are known only afterwards, such as the
//! state of the engines. Both return their bytes when they are dropped.
//!
//! The last part of the budget is kept back. The three thresholds of [`Priority`] divide it, so that a full server can still
//! be read, and locks, leases and holds can still be released.

mod answers;
mod kind;
#[cfg(test)]
mod tests;

pub use kind::Kind;

use crate::Metrics;
use bytes::Bytes;
use limina_engine::Request;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// How far a reservation may fill the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// New state, which stays: up to seven eighths of the limit.
    State,
    /// Large buffers, which are freed soon: up to fifteen sixteenths of the limit, and to the share of their [`Kind`].
    Buffer,
    /// What every request needs, also one that releases something: up to the limit.
    Request,
    /// What is needed to be reachable at all: up to the share of its [`Kind`], whatever the other kinds use.
    Reachable,
}

/// There is no room in the memory budget. Nothing was reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory budget is used up")]
pub struct MemoryFull;

/// The memory budget of a process. A clone is the same budget.
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

struct Shared {
    /// The most bytes. `u64::MAX` means no limit.
    limit: u64,
    used: AtomicU64,
    by_kind: [Gauge; Kind::ALL.len()],
    refusals: Counter,
}

impl Budget {
    /// A budget without a limit. It only counts.
    pub fn unlimited() -> Budget {
        Budget::new(u64::MAX, &Metrics::new())
    }

    /// A budget of `limit` bytes, published by `metrics`.
    pub fn new(limit: u64, metrics: &Metrics) -> Budget {
        let metrics = &metrics.memory;
        let by_kind = Kind::ALL.map(|kind| metrics.gauge(kind));
        let refusals = metrics.refusals.clone();
        let budget = Budget(Arc::new(Shared { limit, used: AtomicU64::new(0), by_kind, refusals }));
        metrics.limit.set(budget.limit().map_or(0, |limit| i64::try_from(limit).unwrap_or(i64::MAX)));
        budget
    }

    /// Reserves bytes, or fails if the budget has no room for them.
    pub fn reserve(&self, kind: Kind, bytes: usize, priority: Priority) -> Result<Reservation, MemoryFull> {
        self.take(kind, bytes as u64, priority)?;
        Ok(Reservation { budget: self.clone(), kind, bytes })
    }

    /// Reserves bytes that are held already or must be held, whether or not there is room.
    pub fn reserve_anyway(&self, kind: Kind, bytes: usize) -> Reservation {
        self.add(kind, bytes as u64);
        Reservation { budget: self.clone(), kind, bytes }
    }

    /// An account of a size that is known only afterwards. It starts at 0.
    pub fn account(&self, kind: Kind) -> Account {
        Account(self.reserve_anyway(kind, 0))
    }

    /// Admits a request to its shard, or refuses it: because it may add state, or because its answer may be large. Returns the
    /// memory of a large answer, which must be held until the answer is there.
    pub(crate) fn admit(&self, request: &Request) -> Result<Option<Reservation>, MemoryFull> {
        if self.used() > self.threshold(Priority::State) && request.may_add_state() {
            return Err(self.refused());
        }
        match answers::answer_bytes(&request.command) {
            0 => Ok(None),
            bytes => self.reserve(Kind::Answers, bytes, Priority::Buffer).map(Some),
        }
    }

    /// Whether memory is short: more than three quarters are in use. Clients that do not read their answers are then
    /// disconnected early, before anything is refused.
    pub fn is_short(&self) -> bool {
        self.used() > self.part(3, 4)
    }

    /// The bytes in use.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The bytes in use of one kind.
    pub fn used_by(&self, kind: Kind) -> u64 {
        self.0.by_kind[kind as usize].get() as u64
    }

    /// The most bytes. None if there is no limit.
    pub fn limit(&self) -> Option<u64> {
        Some(self.0.limit).filter(|limit| *limit < u64::MAX)
    }

    fn part(&self, numerator: u64, denominator: u64) -> u64 {
        self.0.limit / denominator * numerator
    }

    fn threshold(&self, priority: Priority) -> u64 {
        match priority {
            Priority::State => self.part(7, 8),
            Priority::Buffer => self.part(15, 16),
            Priority::Request => self.0.limit,
            Priority::Reachable => u64::MAX,
        }
    }

    fn take(&self, kind: Kind, bytes: u64, priority: Priority) -> Result<(), MemoryFull> {
        let (used, used_by_kind) = self.add(kind, bytes);
        let (numerator, denominator) = kind.share();
        let is_within_share = used_by_kind <= self.part(numerator, denominator);
        if used <= self.threshold(priority) && is_within_share {
            return Ok(());
        }
        self.subtract(kind, bytes);
        Err(self.refused())
    }

    fn refused(&self) -> MemoryFull {
        self.0.refusals.inc();
        MemoryFull
    }

    /// Returns the bytes in use afterwards: of all kinds, and of this kind.
    fn add(&self, kind: Kind, bytes: u64) -> (u64, u64) {
        let used = self.0.used.fetch_add(bytes, Ordering::Relaxed);
        let used_by_kind = self.0.by_kind[kind as usize].inc_by(bytes as i64) as u64;
        (used.saturating_add(bytes), used_by_kind.saturating_add(bytes))
    }

    fn subtract(&self, kind: Kind, bytes: u64) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        self.0.by_kind[kind as usize].dec_by(bytes as i64);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("used", &self.used()).field("limit", &self.limit()).finish()
    }
}

/// Bytes of the budget. They are returned when this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    kind: Kind,
    bytes: usize,
}

impl Reservation {
    /// The reserved bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves more bytes, up to this total. Does nothing if there are as many already. Keeps what it has if it fails.
    pub fn grow_to(&mut self, bytes: usize, priority: Priority) -> Result<(), MemoryFull> {
        if let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) {
            self.budget.take(self.kind, more as u64, priority)?;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Returns all bytes except this many.
    pub fn shrink_to(&mut self, bytes: usize) {
        if let Some(less) = self.bytes.checked_sub(bytes).filter(|less| *less > 0) {
            self.budget.subtract(self.kind, less as u64);
            self.bytes = bytes;
        }
    }

    /// Bytes that hold this reservation until their last clone or slice is dropped, wherever a protocol library keeps them.
    pub fn attach_to(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _reservation: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.subtract(self.kind, self.bytes as u64);
        }
    }
}

struct Held {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A size that is in use whether or not there is room for it, and that changes over time.
#[derive(Debug)]
pub struct Account(Reservation);

impl Account {
    /// Replaces the size.
    pub fn set(&mut self, bytes: usize) {
        let Reservation { budget, kind, bytes: old } = &mut self.0;
        match bytes.checked_sub(*old) {
            Some(0) => return,
            Some(more) => {
                budget.add(*kind, more as u64);
            }
            None => budget.subtract(*kind, (*old - bytes) as u64),
        }
        *old = bytes;
    }
}
