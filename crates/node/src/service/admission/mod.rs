//! Admission: which requests may wait for their shard, and which are refused.
//!
//! What may wait is bounded by time and by bytes, not by the number of requests. [`Admission::admit`] estimates how long a
//! request would wait, and refuses it at once if that is too long. Two bounds apply, as in CoDel. A burst may fill the queue with
//! work for [`QueueOptions::max_wait`]. But once requests are refused the queue is a standing one, which only adds latency,
//! so from then on only a small part of that time is allowed, until nothing was refused for a while. What the shard has taken,
//! and answers that their callers have not fetched yet ([`Unanswered`]), count like what waits: on busy processors an accepted
//! request would otherwise wait longer there than in the queue. The bound is never less than the time of an append, because the
//! shard needs work for that time to stay busy.
//!
//! The order in which the namespaces have their turns is that of the [`FairQueue`], which holds what waits. What a request may add
//! to the memory of the process is bounded by [`Budget::admit`](crate::Budget), which is asked first. Nothing here reads a clock, and
//! nothing here waits: `shard_channel` does both.

mod drain;
#[cfg(test)]
mod tests;
mod unanswered;

pub(crate) use unanswered::Unanswered;

use drain::{AppendTime, DrainTime};
use hashbrown::HashMap;
use limina_engine::Name;
use limina_shard::{FairQueue, fair_queue::QUANTUM};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// The part of [`QueueOptions::max_wait`] that requests may wait while others are refused, unless an append takes longer.
const STANDING_PART: u32 = 100;
/// The number of namespaces without unanswered requests that are kept at least, before they are looked through for those that
/// can be forgotten.
const MIN_KEPT_NAMESPACES: usize = 64;
/// How many times longer requests that make room may wait.
const PATIENCE_FACTOR: u32 = 4;
/// Requests that make room may use [`QueueOptions::max_bytes`] divided by this in addition.
const EXTRA_BYTES_DIVISOR: usize = 4;

/// The bounds of a shard's queue.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// A request that would wait longer than this is refused at once. Requests that make room may wait four times as long.
    pub max_wait: Duration,
    /// The most bytes of requests that wait, in their compact encoding. Requests that make room may use a quarter more.
    pub max_bytes: usize,
}

impl QueueOptions {
    fn patience(&self, makes_room: bool) -> Duration {
        self.max_wait * if makes_room { PATIENCE_FACTOR } else { 1 }
    }
}

impl Default for QueueOptions {
    fn default() -> QueueOptions {
        QueueOptions { max_wait: Duration::from_millis(250), max_bytes: 64 << 20 }
    }
}

/// A request was refused, because it would have waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded {
    /// How long the requests that wait now will take. After that the same request may be accepted.
    pub(crate) retry_after: Duration,
}

/// A request that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admitted {
    since: Instant,
    /// The bytes that it takes in the queue.
    pub(crate) bytes: usize,
    makes_room: bool,
}

impl Admitted {
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

/// Decides which requests may wait in a shard's queue.
pub(crate) struct Admission {
    options: QueueOptions,
    /// The weight of the unanswered requests of each namespace that has some, and of some that had.
    unanswered: HashMap<Name, Arc<AtomicUsize>>,
    /// The number of namespaces at which those that had are forgotten.
    forget_at: usize,
    /// The bytes of the requests that wait and were never taken.
    bytes: usize,
    drain_time: DrainTime,
    append_time: AppendTime,
    busy_with: Option<Round>,
    /// Since when requests have been waiting without any being taken. None while no request waits.
    waiting_since: Option<Instant>,
    refused_at: Option<Instant>,
}

/// What the shard has taken and is busy with.
struct Round {
    since: Instant,
    /// Whether the round took as much as it could, and left requests behind.
    is_full: bool,
}

impl Admission {
    pub(crate) fn new(options: QueueOptions) -> Admission {
        Admission {
            options,
            unanswered: HashMap::new(),
            forget_at: MIN_KEPT_NAMESPACES,
            bytes: 0,
            drain_time: DrainTime::default(),
            append_time: AppendTime::default(),
            busy_with: None,
            waiting_since: None,
            refused_at: None,
        }
    }

    /// Lets a request into the queue, unless it would wait there for too long or the queue has too many bytes. The request
    /// counts as unanswered until the first part of the result is dropped. The second part is for [`Admission::handle_left`].
    pub(crate) fn admit<I>(
        &mut self,
        queue: &FairQueue<I>,
        now: Instant,
        namespace: &Name,
        weight: usize,
        bytes: usize,
        makes_room: bool,
    ) -> Result<(Unanswered, Admitted), Overloaded> {
        self.check(queue, now, namespace, bytes, makes_room)?;
        self.forget_namespaces();
        self.bytes += bytes;
        self.waiting_since.get_or_insert(now);
        let total = self.unanswered.entry_ref(namespace).or_default().clone();
        Ok((Unanswered::new(weight, total), Admitted { since: now, bytes, makes_room }))
    }

    /// Whether a request of this size may enter now. The answer is the one that [`Admission::admit`] would give.
    pub(crate) fn check<I>(
        &mut self,
        queue: &FairQueue<I>,
        now: Instant,
        namespace: &Name,
        bytes: usize,
        makes_room: bool,
    ) -> Result<(), Overloaded> {
        let max_bytes = self.options.max_bytes
            + if makes_room { self.options.max_bytes / EXTRA_BYTES_DIVISOR } else { 0 };
        let has_bytes = queue.is_empty() || self.bytes.saturating_add(bytes) <= max_bytes;
        if self.work_ahead(queue, namespace) <= self.max_work_ahead(now, makes_room)
            && self.stalled(now) <= self.options.patience(makes_room)
            && has_bytes
        {
            return Ok(());
        }
        self.refused_at = Some(now);
        Err(self.overloaded(queue, now))
    }

    /// Whether a request has waited for too long, and need not be begun: the client was promised an answer earlier. If the shard
    /// is not overloaded, it is begun nevertheless.
    pub(crate) fn is_late(&self, admitted: &Admitted, now: Instant) -> bool {
        self.is_overloaded(now) && admitted.waited(now) > self.options.patience(admitted.makes_room)
    }

    /// A request has left the queue, for whatever reason.
    pub(crate) fn handle_left(&mut self, admitted: &Admitted) {
        self.bytes -= admitted.bytes;
    }

    /// The queue is empty.
    pub(crate) fn handle_empty(&mut self) {
        (self.bytes, self.waiting_since) = (0, None);
    }

    /// The shard has taken a round from the queue.
    pub(crate) fn handle_taken<I>(&mut self, queue: &FairQueue<I>, now: Instant) {
        let is_full = !queue.is_empty();
        self.waiting_since = is_full.then_some(now);
        self.busy_with.get_or_insert(Round { since: now, is_full }).is_full = is_full;
    }

    /// The shard would take more: it has finished everything that it has taken, except for requests that it has put
    /// back into the queue. If nothing else can be taken before those, the round continues.
    pub(crate) fn handle_ready<I>(&mut self, queue: &mut FairQueue<I>, now: Instant) {
        if queue.is_held_up() {
            return;
        }
        let weight = queue.take_begun_weight();
        if let Some(Round { since, is_full }) = self.busy_with.take().filter(|_| weight > 0) {
            let time = now.saturating_duration_since(since);
            match is_full {
                true => self.drain_time.measured(time, weight),
                false => self.drain_time.at_most(time, weight),
            }
        }
    }

    /// An append of the shard took this long.
    pub(crate) fn handle_appended(&mut self, time: Duration) {
        self.append_time.measured(time);
    }

    /// The shard was lost while it was busy. How long it takes to open again says nothing about how long its work takes.
    pub(crate) fn handle_lost<I>(&mut self, queue: &mut FairQueue<I>) {
        queue.take_begun_weight();
        self.busy_with = None;
    }

    /// Why a request that has waited for too long is refused.
    pub(crate) fn overloaded<I>(&self, queue: &FairQueue<I>, now: Instant) -> Overloaded {
        Overloaded { retry_after: self.drain_time.of(queue.weight()).max(self.stalled(now)) }
    }

    /// How long the shard will be busy before it takes a request of this namespace that enters now, plus how long it was busy
    /// with those of the namespace that it has taken and that are not answered.
    fn work_ahead<I>(&self, queue: &FairQueue<I>, namespace: &Name) -> Duration {
        let own = queue.weight_of(namespace);
        let others = queue.namespaces() - usize::from(own.is_some());
        let own = own.unwrap_or(0);
        let unanswered = self.unanswered.get(namespace).map_or(0, |total| total.load(Ordering::Relaxed));
        // Before this request, each other namespace takes at most as much as this one, and one turn more.
        let ahead = queue.weight().min(own + others.saturating_mul(own + QUANTUM));
        self.drain_time.of(ahead + unanswered.saturating_sub(own))
    }

    /// Forgets namespaces that have no unanswered requests, when there may be many of them.
    fn forget_namespaces(&mut self) {
        if self.unanswered.len() >= self.forget_at {
            self.unanswered.retain(|_, total| total.load(Ordering::Relaxed) > 0);
            self.forget_at = MIN_KEPT_NAMESPACES.max(self.unanswered.len() * 2);
        }
    }

    /// How long requests have been waiting without any being taken. That may be a disk that hangs, but also a shard that waits
    /// for a processor. Refusing requests does not help against the latter, so the smaller bound does not apply to this time.
    fn stalled(&self, now: Instant) -> Duration {
        self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn max_work_ahead(&self, now: Instant, makes_room: bool) -> Duration {
        match !makes_room && self.is_overloaded(now) {
            true => {
                let standing = self.options.max_wait / STANDING_PART;
                standing.max(self.append_time.get()).min(self.options.max_wait)
            }
            false => self.options.patience(makes_room),
        }
    }

    /// Whether a request was refused a short time ago.
    fn is_overloaded(&self, now: Instant) -> bool {
        self.refused_at.is_some_and(|at| now.saturating_duration_since(at) <= self.options.max_wait)
    }
}
