//! The part of a shard that decides. The shard's task shares it with the tasks that submit requests: whoever has its lock drives
//! the shard.
//!
//! The contract between these tasks:
//!
//! - **Nothing waits under the lock.** A round is synchronous code. So a client that hangs up, which drops the future of its
//!   request, can never drop a round under way.
//! - **Only the shard's task begins an append, waits for the store, or sleeps until a timer is due.** If a round in another task
//!   leaves such work, that task wakes the shard's task.
//! - **What waits goes first.** The shard's task takes requests from the queue under the lock. So a task that has the lock and finds the
//!   queue and the shard empty knows that no request came before its own.
//! - **A task that submits never waits for the lock.** If somebody else has it, the request enters the queue.

use super::{
    InFlight, ROOM_PAUSE, SWEEP_PAUSE, ShardContext,
    look_ups::{Found, look_up},
};
use crate::{
    Metrics,
    clock::Clocks,
    cluster::TenureGuard,
    service::{DecideNow, NotDecided, Submission, Ticket},
};
use limina_engine::{Engine, Name, Read, Time};
use limina_shard::{Failure, Loss, Output, Reply, Shard, ShardClock};
use limina_store::{FreeSpace, Journal, ShardId, ShardStore, Table};
use std::{
    any::Any,
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

/// No more is taken while this many requests are in the shard's own queue, because they did not fit into the batch. A
/// request that is done in slices does not count, nor does what waits behind it: other namespaces go first between two slices.
const MAX_IN_SHARD: usize = 4;

/// The core, its lock, and what wakes the shard's task.
pub(super) struct SharedCore<J, T> {
    core: Mutex<Core<J, T>>,
    /// Notified when a task that submits requests has left work for the shard's task.
    pub(super) has_work: Notify,
}

/// What a round needs, and nothing that waits.
pub(super) struct Core<J, T> {
    id: ShardId,
    store: Arc<ShardStore<J, T>>,
    pub(super) shard: Shard<Ticket>,
    pub(super) clock: ShardClock,
    clocks: Clocks,
    tenure_guard: TenureGuard,
    metrics: Metrics,
    /// Whether other nodes share the store.
    is_shared: bool,
    serving: watch::Receiver<bool>,
    /// Whether shard time stands still until clients are served.
    is_postponed: bool,
    /// Set when an append found no room. Until then the store counts as full, whatever [`ShardStore::free_space`] says. Otherwise
    /// a store that promises room and has none would make the shard append due work, fail and open again without a pause.
    full_until: Option<Instant>,
    /// Look-ups that were not answered at once. The shard's task waits for them.
    looking_up: InFlight<Found>,
    /// The shard time at which the shard's task polls the shard again, whatever else happens.
    task_polls_at: Option<Time>,
    /// A panic in a task that submits requests. It is a panic of the shard, so the shard's task continues it.
    panic: Option<Box<dyn Any + Send>>,
}

/// What the shard's task needs to know after a turn.
pub(super) struct Turn {
    pub(super) polled_at: Instant,
    /// When the task should poll again, even if nothing happens before.
    pub(super) polls_at: Option<Instant>,
    /// A batch is done in part, and the shard would go on with it.
    pub(super) is_unfinished: bool,
    pub(super) is_postponed: bool,
    pub(super) is_open: bool,
    /// Whether nothing waits, is decided, or is in flight.
    pub(super) is_idle: bool,
    /// Whether the shard takes more requests from the queue.
    pub(super) has_room: bool,
    /// The namespaces whose requests stay in the queue.
    pub(super) held_up: HashSet<Name>,
    /// Look-ups that the task waits for from now on.
    pub(super) looking_up: InFlight<Found>,
}

impl<J: Journal, T: Table> SharedCore<J, T> {
    pub(super) fn new(id: ShardId, store: Arc<ShardStore<J, T>>, context: &ShardContext) -> SharedCore<J, T> {
        let core = Core {
            id,
            store,
            shard: Shard::new(context.options.clone()),
            clock: ShardClock::start(Time(0), context.clocks.read()),
            clocks: context.clocks.clone(),
            tenure_guard: context.tenure_guard.clone(),
            metrics: context.metrics.clone(),
            is_shared: context.service.others().is_some(),
            serving: context.service.serving(),
            is_postponed: false,
            full_until: None,
            looking_up: None,
            task_polls_at: None,
            panic: None,
        };
        SharedCore { core: Mutex::new(core), has_work: Notify::new() }
    }

    /// For the shard's task, which is the only one that waits for the lock. Nobody keeps the lock longer than a round takes.
    pub(super) fn lock(&self) -> MutexGuard<'_, Core<J, T>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Journal, T: Table> DecideNow for SharedCore<J, T> {
    fn decide_now(&self, submission: Submission, may_decide: &dyn Fn() -> bool) -> Option<Submission> {
        let Ok(mut core) = self.core.try_lock() else { return Some(submission) };
        if core.panic.is_some() || !may_decide() {
            return Some(submission);
        }
        let decided = catch_unwind(AssertUnwindSafe(|| core.decide(submission)));
        let rejected = decided.unwrap_or_else(|panic| {
            core.panic = Some(panic);
            None
        });
        let is_task_needed = rejected.is_none() && core.is_task_needed();
        drop(core);
        if is_task_needed {
            self.has_work.notify_one();
        }
        rejected
    }
}

impl<J: Journal, T: Table> Core<J, T> {
    /// If clients are not served yet, shard time stands still until they are.
    pub(super) fn wait_for_serving(&mut self) {
        self.is_postponed = !*self.serving.borrow();
        if self.is_postponed {
            self.shard.wait_for_serving();
        }
    }

    /// The turn of the shard's task: polls the shard until it has nothing more to do, and adds to `outputs` what the task has to
    /// carry out, in this order.
    pub(super) fn turn(&mut self, outputs: &mut Vec<Output<Ticket>>) -> Turn {
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
        let polled_at = Instant::now();
        let now = self.advance();
        // Checked before each poll: a client's request is never decided while time still stands.
        if self.is_postponed && *self.serving.borrow() {
            self.is_postponed = false;
            self.shard.handle_serving(now);
        }
        self.check_space(polled_at);
        self.shard.handle_tenure(self.tenure_guard.is_sure());
        let do_sweeps_wait = self.shard.has_sweeps() && !self.store.prepare_scan();
        self.shard.handle_scans(!do_sweeps_wait);
        let mut is_unfinished = false;
        while !is_unfinished && let Some(output) = self.shard.poll(now) {
            is_unfinished = matches!(output, Output::Unfinished);
            match output {
                Output::Fetch(reads) => self.look_up(reads),
                output => outputs.push(output),
            }
        }
        if let Some(time) = self.shard.take_lag() {
            self.clock.hold(time);
        }
        self.task_polls_at = self.shard.next_wakeup();
        // Counted from when the clock was read: everything done since then took time too.
        let pause = if self.shard.is_out_of_space() {
            Some(ROOM_PAUSE)
        } else {
            let next = self.task_polls_at.map(|at| Duration::from_millis(at.0.saturating_sub(now.0)));
            next.into_iter().chain(do_sweeps_wait.then_some(SWEEP_PAUSE)).min()
        };
        Turn {
            polled_at,
            polls_at: pause.map(|pause| polled_at + pause),
            is_unfinished,
            is_postponed: self.is_postponed,
            is_open: self.shard.engine().is_some(),
            is_idle: self.shard.is_idle(),
            has_room: self.shard.ready_len() < MAX_IN_SHARD,
            held_up: self.shard.held_up().clone(),
            looking_up: self.looking_up.take(),
        }
    }

    /// Decides a request in the task that submits it. Returns the request if other work comes first.
    fn decide(&mut self, submission: Submission) -> Option<Submission> {
        // If the tenure is not sure, the store may be away. Then the shard's task rejects what it takes.
        if self.is_postponed || !self.tenure_guard.is_sure() {
            return Some(submission);
        }
        self.check_space(Instant::now());
        let now = self.advance();
        if !self.shard.is_free(now) {
            return Some(submission);
        }
        self.shard.handle_tenure(true);
        let (ticket, request) = submission;
        self.shard.handle_direct(now, ticket, request);
        while let Some(output) = self.shard.poll_direct() {
            match output {
                Output::Fetch(reads) => self.look_up(reads),
                Output::Reply(reply) => send(reply),
                // Only the simulator needs to know.
                Output::Waits { .. } | Output::Slice { .. } | Output::Unfinished | Output::Cut { .. } => {}
                Output::Append { .. } | Output::Confirm | Output::Effect(_) => {
                    unreachable!("only the shard's task seals batches, and releases them")
                }
            }
        }
        None
    }

    /// Whether the shard's task has to do something because of a request that it has not seen.
    fn is_task_needed(&self) -> bool {
        self.panic.is_some()
            || self.looking_up.is_some()
            || self.shard.is_ready_to_poll()
            || self.shard.next_wakeup().is_some_and(|next| self.task_polls_at.is_none_or(|at| next < at))
    }

    /// Looks records up. Most are in memory, so that the answers are there at once, and the round goes on.
    fn look_up(&mut self, reads: Vec<Read>) {
        let seconds = self.metrics.shards.fetch_seconds.clone();
        let mut looking_up = look_up(self.store.clone(), reads, self.is_shared, seconds);
        match looking_up.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => self.shard.handle_fetched(found),
            // The shard's task polls it again, with its own waker.
            Poll::Pending => self.looking_up = Some(looking_up),
        }
    }

    fn check_space(&mut self, at: Instant) {
        let is_full = self.full_until.is_some_and(|until| at < until);
        self.shard.handle_space(!is_full && self.store.free_space() == FreeSpace::Ample);
    }

    fn advance(&mut self) -> Time {
        let (now, step) = self.clock.advance(self.clocks.read());
        if let Some(step_ms) = step {
            self.metrics.shards.clock_steps.inc();
            tracing::warn!(
                shard = self.id.0,
                step_ms,
                "the wall clock was stepped; shard time does not follow"
            );
        }
        now
    }

    /// Puts a request into the shard's own queue.
    pub(super) fn handle_request(&mut self, (ticket, request): Submission) {
        if let Err(ticket) = self.shard.handle_request(ticket, request) {
            let _client_gone = ticket.send(Err(NotDecided::Failed(Failure::Unavailable)));
        }
    }

    /// The shard's memory cannot be trusted. Returns it, because freeing it takes long.
    pub(super) fn handle_lost(&mut self, loss: Loss) -> Option<Engine> {
        if loss == Loss::Full {
            self.full_until = Some(Instant::now() + ROOM_PAUSE);
        }
        self.looking_up = None;
        self.shard.handle_lost(loss)
    }
}

pub(super) fn send(reply: Reply<Ticket>) {
    let _client_gone = reply.ticket.send(reply.result.map_err(NotDecided::Failed));
}
