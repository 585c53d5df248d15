//! One shard's task: it drives the shard's loop with requests, time and the store.
//!
//! [`limina_shard::Shard`] decides what to do next and does no IO. The driver does the IO (`outputs`), and calls the shard
//! back with the result. `shared_core` is what the task shares with tasks that submit requests: they decide small requests themselves while
//! nobody else drives the shard. `loading` builds a shard's engine from what is stored, and `prepared` does most of that before this node
//! owns the shard.

mod loading;
mod look_ups;
mod outputs;
mod prepared;
mod shared_core;

pub use loading::load_engine;
pub(crate) use loading::open;
pub(crate) use prepared::{NotPrepared, PreparedShard};

use crate::{
    Metrics, NodeOptions, OpenError, Service,
    clock::Clocks,
    cluster::TenureGuard,
    memory::{Account, Kind},
    metrics::ShardGauges,
    opener::Opener,
    service::{Cost, NotDecided, ShardReceiver, Ticket},
};
use limina_engine::{Engine, Millis, QuotaTable, Stats, Time, engine::is_kept_by_id, record};
use limina_shard::{Failure, Loss, Opening, Options, Output, Shard, ShardClock};
use limina_store::{ConfirmError, FilteredKeys, Journal, NodeId, ShardId, ShardStore, StoreError, Table};
use look_ups::Found;
use shared_core::{SharedCore, Turn, send};
use std::{
    error::Error,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// How long to wait before a shard that could not be opened is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// How long to wait before due work that found no room in the store is tried again.
const ROOM_PAUSE: Duration = Duration::from_millis(200);

/// How long to wait before looking again whether the store is ready for sweeps.
const SWEEP_PAUSE: Duration = Duration::from_millis(500);

/// The most that is taken from the queue at a time. A larger request is taken alone.
///
/// What waits in the queue is ordered and refused by the queue's rules, so only a little of it is taken at once: a small part
/// of what an append may cover. While an append is in flight, more of it follows.
const ROUND: Cost = Cost { weight: 2_048, bytes: 8 << 20 };

/// How long the task runs without giving other tasks of its thread a turn, if requests wait all the time.
const MAX_RUN: Duration = Duration::from_millis(5);

type InFlight<R> = Option<Pin<Box<dyn Future<Output = R> + Send>>>;

/// What the tasks of all shards share. A clone shares it too.
#[derive(Clone)]
pub(crate) struct ShardContext {
    pub(crate) service: Service,
    pub(crate) metrics: Metrics,
    pub(crate) clocks: Clocks,
    pub(crate) tenure_guard: TenureGuard,
    pub(crate) opener: Opener,
    /// The keys of which stores have a filter, if they can.
    pub(crate) filtered: FilteredKeys,
    options: Options,
    quotas: Arc<QuotaTable>,
    audit_kept: Millis,
}

impl ShardContext {
    pub(crate) fn new(
        service: &Service,
        metrics: &Metrics,
        clocks: Clocks,
        tenure_guard: TenureGuard,
        options: &NodeOptions,
    ) -> ShardContext {
        let filtered = filtered_keys(metrics);
        let (service, metrics) = (service.clone(), metrics.clone());
        ShardContext {
            service,
            metrics,
            clocks,
            tenure_guard,
            opener: Opener::new(),
            filtered,
            options: options.shard.clone(),
            quotas: options.quotas.clone(),
            audit_kept: options.audit_kept,
        }
    }
}

fn filtered_keys(metrics: &Metrics) -> FilteredKeys {
    FilteredKeys {
        range: record::key::paged_records(),
        is_filtered: is_kept_by_id,
        counts: metrics.store.filter_counts.clone(),
    }
}

/// What a shard's task is ordered to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Serve. The same order again means: check whether this node still owns the shard.
    Serve,
    /// Answer the accepted requests, then end.
    Close {
        /// The node that gets the shard next, if one is chosen.
        to: Option<NodeId>,
    },
}

/// Another node has taken the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotOwned;

/// The time at which another node handed a shard over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandedTime {
    /// Shard time when this node's monotonic clock showed `monotonic`, or a little before.
    pub(crate) time: Time,
    /// In microseconds.
    pub(crate) monotonic: u64,
}

pub(crate) struct Driver<J, T> {
    id: ShardId,
    store: Arc<ShardStore<J, T>>,
    core: Arc<SharedCore<J, T>>,
    service: Service,
    metrics: Metrics,
    gauges: ShardGauges,
    /// The memory of the engine's state.
    state: Account,
    clocks: Clocks,
    tenure_guard: TenureGuard,
    opener: Opener,
    options: Options,
    quotas: Arc<QuotaTable>,
    audit_kept: Millis,
    receiver: ShardReceiver,
    /// Empty between two turns. It is kept for its memory.
    outputs: Vec<Output<Ticket>>,
    looking_up: InFlight<Found>,
    persisting: InFlight<Result<(), Loss>>,
    opening: InFlight<Result<Engine, OpenError>>,
    /// Finds out whether this node still owns the shard.
    checking: InFlight<Result<(), ConfirmError>>,
}

impl<J: Journal, T: Table> Driver<J, T> {
    pub(crate) fn new(
        id: ShardId,
        store: Arc<ShardStore<J, T>>,
        context: ShardContext,
        receiver: ShardReceiver,
    ) -> Driver<J, T> {
        let core = Arc::new(SharedCore::new(id, store.clone(), &context));
        let ShardContext {
            service, metrics, clocks, tenure_guard, opener, options, quotas, audit_kept, ..
        } = context;
        let state = service.memory().account(Kind::State);
        Driver {
            id,
            store,
            core,
            service,
            gauges: ShardGauges::new(metrics.clone()),
            state,
            metrics,
            clocks,
            tenure_guard,
            opener,
            options,
            quotas,
            audit_kept,
            receiver,
            outputs: Vec::new(),
            looking_up: None,
            persisting: None,
            opening: None,
            checking: None,
        }
    }

    /// Serves until it is ordered to close, or another node has taken the shard. Returns the shard's clock, which goes on.
    pub(crate) async fn run(
        mut self,
        engine: Engine,
        handed: Option<HandedTime>,
        mut orders: watch::Receiver<Order>,
    ) -> Result<ShardClock, NotOwned> {
        let mut is_store_away = self.tenure_guard.is_store_away();
        let mut serving = self.service.serving();
        self.core.lock().wait_for_serving();
        let (clock, opening) = match handed {
            None => (ShardClock::start(engine.time(), self.clocks.read()), Opening::Interrupted),
            Some(handed) => (self.continue_clock(engine.time(), handed), Opening::HandedOver),
        };
        self.handle_opened(engine, clock, opening);
        let core: Weak<SharedCore<J, T>> = Arc::downgrade(&self.core);
        self.receiver.share(core);
        let mut is_stopping = false;
        let mut is_closed = false;
        // Set while more requests wait than are taken at once.
        let mut busy_since = None;
        loop {
            let turn = self.turn();
            if is_closed && turn.is_idle {
                if self.core.lock().shard.flush_relaxed() {
                    continue;
                }
                return Ok(self.end());
            }
            // While the shard is being opened, requests stay in the queue, which refuses more of them when that takes long.
            let takes = turn.is_open || is_stopping || *is_store_away.borrow();
            let wants_more = takes && !is_closed && turn.has_room;
            if busy_since.is_some_and(|since| turn.polled_at - since > MAX_RUN) {
                tokio::task::yield_now().await;
                busy_since = Some(Instant::now());
            }
            tokio::select! {
                () = tokio::task::yield_now(), if turn.is_unfinished => {}
                () = self.receiver.changed(wants_more, &turn.held_up) => {
                    self.take_requests(wants_more);
                    if wants_more {
                        is_closed = self.receiver.has_ended();
                        busy_since = if self.receiver.is_empty() { None } else { busy_since.or(Some(turn.polled_at)) };
                        self.handle_store_away(*is_store_away.borrow());
                    }
                }
                () = self.core.has_work.notified() => {}
                found = finished(&mut self.looking_up) => self.core.lock().shard.handle_fetched(found),
                result = finished(&mut self.persisting) => match result {
                    Ok(()) => self.handle_persisted(),
                    Err(loss) => self.handle_lost(loss, "an append or a confirm failed"),
                },
                owned = finished(&mut self.checking) => self.handle_checked(owned),
                result = finished(&mut self.opening) => match result {
                    Ok(engine) => {
                        let so_far = self.core.lock().clock.time();
                        let clock = ShardClock::start(engine.time().max(so_far), self.clocks.read());
                        self.handle_opened(engine, clock, Opening::Interrupted);
                    }
                    Err(OpenError::Store { source: StoreError::NotOwned, .. }) => {
                        self.end();
                        return Err(NotOwned);
                    }
                    Err(error) => {
                        tracing::error!(shard = self.id.0, error = &error as &dyn Error, "a shard cannot be opened");
                        self.reject_waiting();
                        self.reopen(REOPEN_PAUSE, None);
                    }
                },
                Ok(()) = is_store_away.changed() => self.handle_store_away(*is_store_away.borrow_and_update()),
                () = sleep_until(turn.polls_at) => {}
                _ = serving.changed(), if turn.is_postponed => {}
                changed = orders.changed(), if !is_stopping => match (changed, *orders.borrow_and_update()) {
                    (Ok(()), Order::Serve) => self.check_ownership(),
                    // An error means that the node was dropped.
                    (Err(_), Order::Serve) | (_, Order::Close { .. }) => {
                        is_stopping = true;
                        // Requests that are in the channel are still received. Later ones are rejected by the channel.
                        self.receiver.close();
                        self.core.lock().shard.handle_closing();
                    }
                },
            }
        }
    }

    /// Lets the shard do all that it can do now.
    fn turn(&mut self) -> Turn {
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut turn = self.core.lock().turn(&mut outputs);
        if let Some(looking_up) = turn.looking_up.take() {
            self.looking_up = Some(looking_up);
        }
        // Without the lock: answers wake many tasks, and some of them decide their next requests at once.
        outputs.drain(..).for_each(|output| self.handle_output(output));
        self.outputs = outputs;
        turn
    }

    /// The clock of a shard that another node handed over. It goes on from that node's time, plus what has passed here since
    /// this node learned of it.
    fn continue_clock(&self, stored: Time, handed: HandedTime) -> ShardClock {
        let reading = self.clocks.read();
        let since = reading.monotonic.saturating_sub(handed.monotonic) / 1000;
        ShardClock::go_on(stored.max(Time(handed.time.0.saturating_add(since))), reading)
    }

    /// Passes cancellations to the shard, and requests from the queue if it takes more. Refuses those that have waited for too
    /// long.
    fn take_requests(&mut self, wants_more: bool) {
        // What was taken from the queue must be in the shard before another task looks whether something waits.
        let mut core = self.core.lock();
        let cancellations = self.receiver.take_cancellations();
        cancellations.into_iter().for_each(|submission| core.handle_request(submission));
        if !wants_more {
            return;
        }
        let (taken, overloaded) = self.receiver.take(ROUND, core.shard.held_up());
        taken.begin.into_iter().for_each(|submission| core.handle_request(submission));
        drop(core);
        let metrics = &self.metrics.requests;
        metrics.queue_wait_seconds.observe(taken.longest_wait.as_secs_f64());
        metrics.abandoned.inc_by(taken.gone.len() as u64);
        for (ticket, _) in taken.late {
            let _client_gone = ticket.send(Err(NotDecided::Late(overloaded)));
        }
    }

    /// Rejects all requests that are not decided: nothing was done.
    fn reject_waiting(&mut self) {
        for (ticket, _) in self.receiver.drain() {
            let _client_gone = ticket.send(Err(NotDecided::Failed(Failure::Unavailable)));
        }
        self.core.lock().shard.reject_waiting(Failure::Unavailable);
    }

    fn handle_opened(&mut self, mut engine: Engine, clock: ShardClock, opening: Opening) {
        engine.set_quotas(self.quotas.clone());
        engine.set_audit_kept(self.audit_kept);
        let (stats, bytes) = (engine.stats(), engine.resident_bytes());
        let mut core = self.core.lock();
        core.shard.handle_opened(engine, clock.time(), opening);
        core.clock = clock;
        drop(core);
        self.update_gauges(stats, bytes);
        self.service.set_open(self.id, true);
    }

    fn handle_persisted(&mut self) {
        let mut core = self.core.lock();
        core.shard.handle_persisted();
        let size = core.shard.engine().map(|engine| (engine.stats(), engine.resident_bytes()));
        drop(core);
        if let Some((stats, bytes)) = size {
            self.update_gauges(stats, bytes);
        }
    }

    /// The shard's memory cannot be trusted. The shard drops it, and loads what is stored before it answers again.
    fn handle_lost(&mut self, loss: Loss, reason: &str) {
        tracing::warn!(shard = self.id.0, ?loss, "{reason}; the shard opens again");
        self.metrics.shards.losses.inc();
        self.looking_up = None;
        let memory = self.core.lock().handle_lost(loss);
        self.service.set_open(self.id, false);
        self.reopen(Duration::ZERO, memory);
    }

    /// Opens the shard again. Its old memory is freed first, on the same thread, because freeing millions of records would
    /// block a worker too.
    fn reopen(&mut self, pause: Duration, memory: Option<Engine>) {
        let (store, shard, opener) = (self.store.clone(), self.id, self.opener.clone());
        let opening = async move {
            drop(memory);
            store.retake().await.map_err(|source| OpenError::Store { shard: shard.0, source })?;
            load_engine(&store, shard).await
        };
        self.opening = Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            opener.run(opening).await
        }));
    }

    /// While the store does not answer, no request waits for it. The outcome of an append that was sent is unknown; everything
    /// else certainly was not done.
    fn handle_store_away(&mut self, is_away: bool) {
        if !is_away {
            return;
        }
        // If nothing is under way, the shard's memory agrees with the store. The next append or confirm shows whether this
        // node still owns the shard.
        let is_at_rest = {
            let core = self.core.lock();
            core.shard.is_idle() && !core.shard.has_waiters()
        };
        if self.opening.is_none() && !is_at_rest {
            let is_sent = self.persisting.take().is_some() && !self.store.withdraw();
            let loss = if is_sent { Loss::Unknown } else { Loss::NotDone };
            self.handle_lost(loss, "the store does not answer");
        }
        self.reject_waiting();
    }

    /// A view has shown another owner. The view may be older than this node's claim, so the store is asked. An append in flight
    /// will show it too.
    fn check_ownership(&mut self) {
        if self.persisting.is_none() && self.opening.is_none() && self.checking.is_none() {
            let store = self.store.clone();
            self.checking = Some(Box::pin(async move { store.confirm().await }));
        }
    }

    /// If another node has taken the shard, opening it again fails, and the task ends.
    fn handle_checked(&mut self, owned: Result<(), ConfirmError>) {
        let Err(error) = owned else { return };
        if self.persisting.is_none() && self.opening.is_none() {
            tracing::warn!(
                shard = self.id.0,
                error = &error as &dyn Error,
                "ownership could not be confirmed"
            );
            self.handle_lost(Loss::NotDone, "another node may own the shard");
        }
    }

    /// Stops serving. Requests that still wait are rejected: nothing was done. Returns the shard's clock.
    fn end(&mut self) -> ShardClock {
        self.service.set_open(self.id, false);
        self.receiver.close();
        self.reject_waiting();
        let (memory, clock) = {
            let mut core = self.core.lock();
            let now = core.shard.engine().map_or(Time(0), Engine::time);
            while let Some(Output::Reply(reply)) = core.shard.poll(now) {
                send(reply);
            }
            (std::mem::replace(&mut core.shard, Shard::new(self.options.clone())), core.clock.clone())
        };
        self.service.shard_left(self.id);
        // Freeing millions of records would block a worker.
        drop(tokio::task::spawn_blocking(move || drop(memory)));
        clock
    }

    fn update_gauges(&mut self, stats: Stats, resident_bytes: u64) {
        self.gauges.set(stats);
        self.state.set(usize::try_from(resident_bytes).unwrap_or(usize::MAX));
    }
}

/// Waits for the future in `slot`, empties the slot and returns the result. Waits forever if the slot is empty.
async fn finished<R>(slot: &mut InFlight<R>) -> R {
    match slot {
        Some(future) => {
            let result = future.as_mut().await;
            *slot = None;
            result
        }
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
