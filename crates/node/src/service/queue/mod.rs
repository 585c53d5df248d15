//! The queue of a shard: which requests may enter it, and in which order the shard takes them.
//!
//! The queue is bounded by time and by bytes, not by the number of requests. [`Queue::push`] estimates how long a request
//! would wait, and refuses it at once if that is too long. Two bounds apply, as in CoDel. A burst may fill the queue with
//! work for [`QueueOptions::max_wait`]. But once requests are refused the queue is a standing one, which only adds latency,
//! so from then on only a small part of that time is allowed, until nothing was refused for a while. What the shard has taken,
//! and answers that their callers have not fetched yet ([`Unanswered`]), count like what waits: on busy processors an accepted
//! request would otherwise wait longer there than in the queue. The bound is never less than the time of an append, because the
//! shard needs work for that time to stay busy.
//!
//! Namespaces take turns (deficit round robin by weight): a namespace that fills the queue makes itself wait, not others.
//! Within a namespace the order is that of arrival.
//!
//! Nothing here reads a clock, and nothing here waits: `shard_channel` does both.

mod drain;
#[cfg(test)]
mod tests;
mod unanswered;

pub(crate) use unanswered::Unanswered;

use drain::{AppendTime, DrainTime};
use hashbrown::HashMap;
use limina_engine::Name;
use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};
use tokio::time::Instant;
use unanswered::UnansweredWeight;

/// The weight that a namespace may take in its turn before the next namespace has its turn.
const QUANTUM: u64 = 128;
/// The part of [`QueueOptions::max_wait`] that requests may wait while others are refused, unless an append takes longer.
const STANDING_PART: u32 = 100;
/// The most requests for which [`Queue::take`] allocates before it knows how many it takes.
const RESERVED: usize = 1024;
/// The number of namespaces without waiting requests that are kept at least, before they are looked through for those that
/// can be forgotten.
const MIN_KEPT_LANES: usize = 64;
/// The most waiting requests for which an empty lane keeps memory.
const KEPT_IN_LANE: usize = 64;
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

/// The cost of a request, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The work, in units of about a microsecond, as [`Request::weight`](limina_engine::Request::weight) estimates it.
    pub(crate) weight: u64,
    pub(crate) bytes: usize,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.weight += other.weight;
        self.bytes += other.bytes;
    }

    fn remove(&mut self, other: Cost) {
        self.weight -= other.weight;
        self.bytes -= other.bytes;
    }
}

/// A request was refused, because it would have waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded {
    /// How long the requests that wait now will take. After that the same request may be accepted.
    pub(crate) retry_after: Duration,
}

/// What [`Queue::take`] removed from the queue.
pub(crate) struct Taken<T> {
    /// Requests to begin, in this order.
    pub(crate) begin: Vec<T>,
    /// Requests that have waited for too long. They were not begun, and are to be refused.
    pub(crate) late: Vec<T>,
    /// Requests whose clients have gone. They were not begun.
    pub(crate) gone: Vec<T>,
    /// How long the longest-waiting request of these has waited.
    pub(crate) longest_wait: Duration,
}

/// Requests that wait for their shard.
pub(crate) struct Queue<T> {
    options: QueueOptions,
    /// The namespaces that have waiting or unanswered requests, and some that had.
    lanes: HashMap<Name, Lane<T>>,
    /// The number of lanes at which those that had requests are forgotten.
    forget_lanes_at: usize,
    /// The namespaces with waiting requests. The first one has its turn.
    turns: VecDeque<Name>,
    total: Cost,
    drain_time: DrainTime,
    append_time: AppendTime,
    busy_with: Option<Round>,
    /// Since when requests have been waiting without any being taken. None while no request waits.
    waiting_since: Option<Instant>,
    refused_at: Option<Instant>,
}

/// The waiting requests of one namespace, in the order of their arrival.
struct Lane<T> {
    waiting: VecDeque<Waiting<T>>,
    /// The weight of the waiting requests.
    weight: u64,
    unanswered: UnansweredWeight,
    /// The weight that the namespace may still take in its turn. What it does not use is kept for its next turn.
    deficit: u64,
    is_in_turn: bool,
}

struct Waiting<T> {
    item: T,
    since: Instant,
    cost: Cost,
    makes_room: bool,
}

/// What the shard has taken and is busy with.
struct Round {
    weight: u64,
    /// The most of the weight that is done before the shard takes more: it does a large request in slices, and takes requests of other
    /// namespaces after the first one.
    first_slice: u64,
    since: Instant,
    /// Whether the round took as much as it could, and left requests behind.
    is_full: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(options: QueueOptions) -> Queue<T> {
        Queue {
            options,
            lanes: HashMap::new(),
            forget_lanes_at: MIN_KEPT_LANES,
            turns: VecDeque::new(),
            total: Cost::default(),
            drain_time: DrainTime::default(),
            append_time: AppendTime::default(),
            busy_with: None,
            waiting_since: None,
            refused_at: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Whether [`Queue::take`] would find a request.
    pub(crate) fn has_work(&self, held_up: &HashSet<Name>) -> bool {
        self.turns.iter().any(|namespace| !held_up.contains(namespace))
    }

    /// Adds a request, or returns it if it would wait for too long or the queue has too many bytes. The request counts as
    /// unanswered until the result is dropped.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        namespace: &Name,
        item: T,
        cost: Cost,
        makes_room: bool,
    ) -> Result<Unanswered, (T, Overloaded)> {
        if let Err(overloaded) = self.check(now, namespace, cost.bytes, makes_room) {
            return Err((item, overloaded));
        }
        self.forget_lanes();
        let lane = self.lanes.entry_ref(namespace).or_default();
        if lane.waiting.is_empty() {
            self.turns.push_back(namespace.clone());
        }
        lane.weight += cost.weight;
        lane.waiting.push_back(Waiting { item, since: now, cost, makes_room });
        self.total.add(cost);
        self.waiting_since.get_or_insert(now);
        Ok(lane.unanswered.add(cost.weight))
    }

    /// Whether a request of this size may enter now. The answer is the one that [`Queue::push`] would give.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        namespace: &Name,
        bytes: usize,
        makes_room: bool,
    ) -> Result<(), Overloaded> {
        let max_bytes = self.options.max_bytes
            + if makes_room { self.options.max_bytes / EXTRA_BYTES_DIVISOR } else { 0 };
        let has_bytes = self.is_empty() || self.total.bytes.saturating_add(bytes) <= max_bytes;
        if self.work_ahead(namespace) <= self.max_work_ahead(now, makes_room)
            && self.stalled(now) <= self.options.patience(makes_room)
            && has_bytes
        {
            return Ok(());
        }
        self.refused_at = Some(now);
        Err(self.overloaded(now))
    }

    /// Removes requests that the shard should begin now: at least one if any is left, and at most about `most`. Also removes
    /// the requests before them that need not be begun, because their clients have gone or they have waited for too long.
    /// Requests of a namespace that is held up stay here: the shard has a long request of it, and does that first.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        most: Cost,
        held_up: &HashSet<Name>,
        is_gone: impl Fn(&T) -> bool,
    ) -> Taken<T> {
        let mut taken =
            Taken { begin: Vec::new(), late: Vec::new(), gone: Vec::new(), longest_wait: Duration::ZERO };
        let is_overloaded = self.is_overloaded(now);
        let mut begun = Cost::default();
        let mut passed_over = 0;
        'turns: while passed_over < self.turns.len()
            && let Some(namespace) = self.turns.front()
        {
            if held_up.contains(namespace) {
                self.turns.rotate_left(1);
                passed_over += 1;
                continue;
            }
            passed_over = 0;
            let lane = self.lanes.get_mut(namespace).expect("a namespace with a turn has a lane");
            if !std::mem::replace(&mut lane.is_in_turn, true) {
                lane.deficit += QUANTUM;
            }
            taken.begin.reserve(lane.waiting.len().min(RESERVED));
            while let Some(Waiting { item, since, cost, makes_room }) = lane.waiting.front() {
                let (cost, waited) = (*cost, now.saturating_duration_since(*since));
                let patience = self.options.patience(*makes_room);
                let into = if is_gone(item) {
                    &mut taken.gone
                } else if is_overloaded && waited > patience {
                    &mut taken.late
                } else if cost.weight > lane.deficit && self.turns.len() > 1 {
                    lane.is_in_turn = false;
                    self.turns.rotate_left(1);
                    continue 'turns;
                } else if begun.weight > 0
                    && (begun.weight + cost.weight > most.weight || begun.bytes + cost.bytes > most.bytes)
                {
                    break 'turns;
                } else {
                    lane.deficit = lane.deficit.saturating_sub(cost.weight);
                    begun.add(cost);
                    &mut taken.begin
                };
                let waiting = lane.waiting.pop_front().expect("it was just there");
                into.push(waiting.item);
                lane.weight -= cost.weight;
                self.total.remove(cost);
                taken.longest_wait = taken.longest_wait.max(waited);
            }
            (lane.deficit, lane.is_in_turn) = (0, false);
            lane.waiting.shrink_to(KEPT_IN_LANE);
            self.turns.pop_front();
        }
        let is_full = !self.is_empty();
        self.waiting_since = is_full.then_some(now);
        let (weight, first_slice) = (begun.weight, most.weight);
        self.busy_with = (weight > 0).then_some(Round { weight, first_slice, since: now, is_full });
        taken
    }

    /// The shard would take more. Either it is done with what it took, or namespaces are held up by large requests, and there are
    /// others. If all requests are held up, it cannot take any, so its round goes on.
    pub(crate) fn handle_ready(&mut self, now: Instant, held_up: &HashSet<Name>) {
        if !held_up.is_empty() && !self.has_work(held_up) {
            return;
        }
        if let Some(Round { weight, first_slice, since, is_full }) = self.busy_with.take() {
            let time = now.saturating_duration_since(since);
            let weight = if held_up.is_empty() { weight } else { weight.min(first_slice) };
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
    pub(crate) fn handle_lost(&mut self) {
        self.busy_with = None;
    }

    /// Removes all requests.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.turns.clear();
        (self.total, self.waiting_since) = (Cost::default(), None);
        let lanes = std::mem::take(&mut self.lanes);
        lanes.into_values().flat_map(|lane| lane.waiting).map(|waiting| waiting.item)
    }

    /// Why a request that has waited for too long is refused.
    pub(crate) fn overloaded(&self, now: Instant) -> Overloaded {
        Overloaded { retry_after: self.drain_time.of(self.total.weight).max(self.stalled(now)) }
    }

    /// How long the shard will be busy before it takes a request of this namespace that enters now, plus how long it was busy
    /// with those of the namespace that it has taken and that are not answered.
    fn work_ahead(&self, namespace: &Name) -> Duration {
        let lane = self.lanes.get(namespace);
        let (own, unanswered) = lane.map_or((0, 0), |lane| (lane.weight, lane.unanswered.get()));
        let others = (self.turns.len() - usize::from(own > 0)) as u64;
        // Before this request, each other namespace takes at most as much as this one, and one turn more.
        let ahead = self.total.weight.min(own + others.saturating_mul(own + QUANTUM));
        self.drain_time.of(ahead + unanswered.saturating_sub(own))
    }

    /// Forgets namespaces that have no requests, when there may be many of them.
    fn forget_lanes(&mut self) {
        if self.lanes.len() >= self.forget_lanes_at {
            self.lanes.retain(|_, lane| !lane.waiting.is_empty() || lane.unanswered.get() > 0);
            self.forget_lanes_at = MIN_KEPT_LANES.max(self.lanes.len() * 2);
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

impl<T> Default for Lane<T> {
    fn default() -> Lane<T> {
        Lane {
            waiting: VecDeque::new(),
            weight: 0,
            unanswered: UnansweredWeight::default(),
            deficit: 0,
            is_in_turn: false,
        }
    }
}
