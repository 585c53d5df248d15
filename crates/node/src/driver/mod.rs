//! One shard's task: it drives the shard's loop with requests, time and the store.
//!
//! [`limina_shard::Shard`] decides what to do next and does no IO. The driver does the IO (`outputs`), and calls the shard
//! back with the result. `loading` builds a shard's engine from what is stored, and `prepared` does most of that before this node owns the
//! shard.

mod control_signals;
mod loading;
mod outputs;
mod prepared;
mod restored;
mod wake_timer;

pub use loading::load_engine;
pub(crate) use loading::open;
pub(crate) use prepared::{NotPrepared, PreparedShard};
pub(crate) use restored::jump_if_restored;

use crate::{
    Metrics, NodeOptions, OpenError, Service,
    clock::Clocks,
    cluster::TenureGuard,
    interruption::InterruptionDetector,
    memory::{Account, Kind},
    metrics::ShardGauges,
    opener::Opener,
    service::{NotDecided, ShardReceiver, Ticket},
};
use control_signals::ControlSignals;
use limina_engine::{Engine, Millis, QuotaTable, Read, ReadResult, Time, engine::is_kept_by_id, record};
use limina_shard::{Failure, Loss, Opening, Options, Output, Shard, ShardClock, clock::Reading};
use limina_store::{
    ConfirmError, FilteredKeys, FreeSpace, Journal, LogLimit, NodeId, ShardId, ShardStore, StoreError, Table,
};
use restored::Positions;
use std::{error::Error, future::Future, pin::Pin, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
    time::Instant,
};
use wake_timer::WakeTimer;

/// How long to wait before a shard that could not be opened is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// How long to wait before due work that found no room in the store is tried again.
const ROOM_PAUSE: Duration = Duration::from_millis(200);

/// How long to wait before looking again whether the store is ready for sweeps.
const SWEEP_PAUSE: Duration = Duration::from_millis(500);

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
    pub(crate) interruptions: InterruptionDetector,
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
        let interruptions = InterruptionDetector::start(clocks.clone(), tenure_guard.clone());
        ShardContext {
            service,
            metrics,
            clocks,
            tenure_guard,
            interruptions,
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

/// How a shard was closed.
#[derive(Debug)]
pub(crate) enum Closed {
    /// Everything is stored. The shard's clock goes on at the next owner.
    Stored(ShardClock),
    /// Not everything is stored: the shard was lost and could not be opened again, or the store had no space for its last append. Whoever
    /// opens it next must treat that as an interruption.
    Interrupted,
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
    service: Service,
    metrics: Metrics,
    gauges: ShardGauges,
    /// The memory of the engine's state.
    state: Account,
    clocks: Clocks,
    tenure_guard: TenureGuard,
    interruptions: InterruptionDetector,
    /// Since then the shard's store is among those of the node, and the answer to a renewal is checked for the loss of this shard. In
    /// microseconds of the monotonic clock.
    served_since: u64,
    opener: Opener,
    quotas: Arc<QuotaTable>,
    audit_kept: Millis,
    shard: Shard<Ticket, ShardReceiver>,
    fetching: InFlight<Vec<(Read, ReadResult)>>,
    persisting: InFlight<Result<(), Loss>>,
    /// When the last append or confirm began.
    persisting_since: Instant,
    opening: InFlight<Result<Engine, OpenError>>,
    /// Finds out whether this node still owns the shard.
    checking: InFlight<Result<(), ConfirmError>>,
    /// Set when an append found no room. Until then the store counts as full, whatever [`ShardStore::free_space`] says. Otherwise
    /// a store that promises room and has none would make the shard append due work, fail and open again without a pause.
    full_until: Option<Instant>,
    /// What the shard's memory had when it was lost, until the shard is open again. Only for a store that other nodes share: such a store may
    /// have gone back to an older state.
    lost_positions: Arc<Mutex<Positions>>,
    /// Whether the log has said that the shard cannot be opened, since it was open last.
    is_failure_logged: bool,
    /// The table is dropping the records of deleted namespaces.
    discarding: Vec<JoinHandle<()>>,
    /// Whether sweeps were under way when the shard was last polled.
    had_sweeps: bool,
}

impl<J: Journal, T: Table> Driver<J, T> {
    /// The shard's store must be among those of the node by now.
    pub(crate) fn new(
        id: ShardId,
        store: Arc<ShardStore<J, T>>,
        context: ShardContext,
        receiver: ShardReceiver,
    ) -> Driver<J, T> {
        let ShardContext {
            service,
            metrics,
            clocks,
            tenure_guard,
            interruptions,
            opener,
            options,
            quotas,
            audit_kept,
            ..
        } = context;
        let state = service.memory().account(Kind::State);
        Driver {
            id,
            store,
            service,
            gauges: ShardGauges::new(metrics.clone()),
            state,
            metrics,
            served_since: clocks.monotonic(),
            clocks,
            tenure_guard,
            interruptions,
            opener,
            shard: Shard::with_requests(options, receiver),
            quotas,
            audit_kept,
            fetching: None,
            persisting: None,
            persisting_since: Instant::now(),
            opening: None,
            checking: None,
            full_until: None,
            lost_positions: Arc::default(),
            is_failure_logged: false,
            discarding: Vec::new(),
            had_sweeps: false,
        }
    }

    /// Serves until it is ordered to close, or another node has taken the shard.
    pub(crate) async fn run(
        mut self,
        engine: Engine,
        handed: Option<HandedTime>,
        orders: watch::Receiver<Order>,
    ) -> Result<Closed, NotOwned> {
        let mut signals =
            ControlSignals::new(orders, self.tenure_guard.is_store_away(), self.service.serving());
        let mut is_reachable = signals.is_serving();
        let mut clock = self.begin(engine, handed, is_reachable);
        let mut interruptions = self.interruptions.count(self.clocks.read());
        let (mut is_stopping, mut is_closed) = (false, false);
        // Set while more requests wait than are taken at once.
        let mut busy_since = None;
        let mut was_persisted_at_once = false;
        let mut wake_timer = WakeTimer::default();
        loop {
            let polled_at = Instant::now();
            // Checked before each poll: nothing falls due that was held when the process stood still.
            let now = self.advance_past_interruptions(&mut clock, &mut interruptions);
            // Checked before each poll: a client's request is never decided while time still stands.
            is_reachable = self.follow_reachable(is_reachable, &mut signals, now);
            let do_sweeps_wait = self.update_permissions(polled_at);
            let is_unfinished = self.poll(now, &mut clock);
            if is_closed && self.opening.is_none() && self.shard.is_idle() {
                // The next owner continues shard time from this clock, even if shard time stood still here.
                self.shard.handle_serving(now);
                if self.shard.flush_relaxed() {
                    continue;
                }
                return Ok(self.close(clock));
            }
            // Counted from when the clock was read: everything done since then took time too.
            wake_timer.set(self.wake_after(now, do_sweeps_wait).map(|span| polled_at + span));
            // While the shard is being opened, requests stay in the queue, and more of them are refused when that takes long. While the
            // store is away, they are rejected.
            let wants_requests = !is_unfinished && (self.shard.wants_requests() || signals.is_store_away());
            busy_since = busy_since.or(Some(polled_at)).filter(|_| self.shard.requests().left_some());
            if busy_since.is_some_and(|since| polled_at - since > MAX_RUN) {
                tokio::task::yield_now().await;
                busy_since = Some(Instant::now());
            }
            // The branches are polled in order, until one is ready. When a control signal has changed, this turn takes no requests:
            // they would starve it.
            let has_signals = signals.has_changed();
            // A store in memory completes an append at once. Then the next turn leaves appends out: otherwise a sweep, which appends
            // again and again, would starve the requests.
            let gives_way = std::mem::take(&mut was_persisted_at_once);
            tokio::select! {
                biased;
                result = finished(&mut self.persisting), if !gives_way => {
                    was_persisted_at_once = self.persisting_since >= polled_at;
                    self.handle_persisted(result);
                }
                answers = finished(&mut self.fetching) => self.shard.handle_fetched(answers),
                owned = finished(&mut self.checking) => self.handle_checked(owned),
                result = finished(&mut self.opening) => {
                    if let Some(ended) = self.handle_reopened(result, &mut clock, is_stopping) {
                        return ended;
                    }
                }
                () = tokio::task::yield_now(), if is_unfinished || gives_way => {}
                has_ended = self.shard.requests().changed(is_closed), if wants_requests && !has_signals => {
                    is_closed |= has_ended;
                    self.handle_store_away(signals.is_store_away());
                }
                () = wake_timer.expired() => {}
                () = signals.changed() => is_stopping |= self.handle_control_signals(&mut signals),
            }
        }
    }

    /// Begins to serve. Returns the shard's clock.
    fn begin(&mut self, engine: Engine, handed: Option<HandedTime>, is_serving: bool) -> ShardClock {
        let (clock, opening) = match handed {
            None => (ShardClock::start(engine.time(), self.clocks.read()), Opening::Interrupted),
            Some(handed) => (self.continue_clock(engine.time(), handed), Opening::HandedOver),
        };
        if !is_serving {
            self.shard.wait_for_serving(clock.time());
        }
        self.handle_opened(engine, clock.time(), opening);
        clock
    }

    /// The clock of a shard that another node handed over. It continues from that node's time, plus the time that has
    /// passed since this node learned of it.
    fn continue_clock(&self, stored: Time, handed: HandedTime) -> ShardClock {
        let reading = self.clocks.read();
        let since = reading.monotonic.saturating_sub(handed.monotonic) / 1000;
        ShardClock::go_on(stored.max(Time(handed.time.0.saturating_add(since))), reading)
    }

    /// Reads the clocks. If the process stood still since the last call, the shard handles that first.
    fn advance_past_interruptions(&mut self, clock: &mut ShardClock, interruptions: &mut u64) -> Time {
        let reading = self.clocks.read();
        let now = self.advance(clock, reading);
        let counted = self.interruptions.count(reading);
        if std::mem::replace(interruptions, counted) == counted {
            return now;
        }
        // The clocks may have been read before the interruption.
        let now = self.advance(clock, self.clocks.read());
        self.shard.handle_interruption(now);
        self.interruptions.excuse(self.clocks.read());
        now
    }

    fn advance(&mut self, clock: &mut ShardClock, reading: Reading) -> Time {
        let (now, step) = clock.advance(reading);
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

    /// Stops shard time while clients do not reach this process, and while the store is away. Returns whether time
    /// continues.
    fn follow_reachable(&mut self, was_reachable: bool, signals: &mut ControlSignals, now: Time) -> bool {
        let is_reachable = signals.is_serving() && !signals.is_store_away();
        match (was_reachable, is_reachable) {
            (false, true) => self.shard.handle_serving(now),
            (true, false) => self.shard.wait_for_serving(now),
            _ => {}
        }
        is_reachable
    }

    /// Tells the shard what it may do at this moment. Returns whether sweeps must wait for the store.
    fn update_permissions(&mut self, now: Instant) -> bool {
        let is_full = self.full_until.is_some_and(|until| now < until);
        self.shard.handle_space(!is_full && self.store.free_space() == FreeSpace::Ample);
        self.shard.handle_tenure(self.tenure_guard.is_sure(self.served_since));
        self.discarding.retain(|discarding| !discarding.is_finished());
        let has_sweeps = self.shard.has_sweeps();
        if std::mem::replace(&mut self.had_sweeps, has_sweeps) && !has_sweeps {
            self.store.handle_swept();
        }
        let do_sweeps_wait = has_sweeps && (!self.discarding.is_empty() || !self.store.prepare_scan());
        self.shard.handle_scans(!do_sweeps_wait);
        do_sweeps_wait
    }

    /// Does what the shard asks for. Returns whether the shard has more to do at once.
    fn poll(&mut self, now: Time, clock: &mut ShardClock) -> bool {
        let mut is_unfinished = false;
        while !is_unfinished && let Some(output) = self.shard.poll(now) {
            is_unfinished = matches!(output, Output::Unfinished);
            self.handle_output(output);
        }
        if let Some(time) = self.shard.take_lag() {
            clock.hold(time);
        }
        is_unfinished
    }

    /// How long the shard may rest if nothing happens.
    fn wake_after(&self, now: Time, do_sweeps_wait: bool) -> Option<Duration> {
        if self.shard.is_out_of_space() {
            return Some(ROOM_PAUSE);
        }
        let next = self.shard.next_wakeup().map(|at| Duration::from_millis(at.0.saturating_sub(now.0)));
        next.into_iter().chain(do_sweeps_wait.then_some(SWEEP_PAUSE)).min()
    }

    fn handle_opened(&mut self, mut engine: Engine, now: Time, opening: Opening) {
        engine.set_quotas(self.quotas.clone());
        engine.set_audit_kept(self.audit_kept);
        self.shard.handle_opened(engine, now, opening);
        self.is_failure_logged = false;
        self.lost_positions = Arc::default();
        self.update_gauges();
        self.service.set_open(self.id, true);
    }

    /// An attempt to open the shard again has ended. Returns how the task ends, if it ends now.
    fn handle_reopened(
        &mut self,
        result: Result<Engine, OpenError>,
        clock: &mut ShardClock,
        is_stopping: bool,
    ) -> Option<Result<Closed, NotOwned>> {
        let error = match result {
            Ok(engine) => {
                *clock = ShardClock::start(engine.time().max(clock.time()), self.clocks.read());
                self.handle_opened(engine, clock.time(), Opening::Interrupted);
                return None;
            }
            Err(OpenError::Store { source: StoreError::NotOwned, .. }) => {
                self.end();
                return Some(Err(NotOwned));
            }
            Err(error) => error,
        };
        // Logged once: while a database is away, every shard fails to open twice a second.
        if !std::mem::replace(&mut self.is_failure_logged, true) {
            let (shard, error) = (self.id.0, &error as &dyn Error);
            tracing::error!(shard, error, "a shard cannot be opened; trying again");
        }
        if is_stopping {
            self.end();
            return Some(Ok(Closed::Interrupted));
        }
        self.shard.reject_waiting(Failure::Unavailable);
        self.reopen(REOPEN_PAUSE, None);
        None
    }

    /// Returns whether the shard is to be closed from now on.
    fn handle_control_signals(&mut self, signals: &mut ControlSignals) -> bool {
        if let Some(is_away) = signals.take_store_away() {
            self.handle_store_away(is_away);
        }
        match signals.take_order() {
            Some(Order::Serve) => self.check_ownership(),
            Some(Order::Close { .. }) => {
                self.shard.handle_closing();
                // Requests that are in the channel are still received. Later ones are rejected by the channel.
                self.shard.requests().close();
                return true;
            }
            None => {}
        }
        false
    }

    fn handle_persisted(&mut self, result: Result<(), Loss>) {
        if let Err(loss) = result {
            return self.handle_lost(loss, "an append or a confirm failed");
        }
        self.shard.requests().handle_appended(self.persisting_since.elapsed());
        self.shard.handle_persisted();
        self.update_gauges();
    }

    /// The shard's memory cannot be trusted. The shard drops it, and loads what is stored before it answers again.
    fn handle_lost(&mut self, loss: Loss, reason: &str) {
        static LOSSES: LogLimit = LogLimit::new();
        if let Some(times) = LOSSES.times_for(reason) {
            tracing::warn!(shard = self.id.0, ?loss, times, "{reason}; the shard opens again");
        }
        self.metrics.shards.losses.inc();
        if loss == Loss::Full {
            self.full_until = Some(Instant::now() + ROOM_PAUSE);
        }
        self.fetching = None;
        self.shard.requests().handle_lost();
        let memory = self.shard.handle_lost(loss);
        self.service.set_open(self.id, false);
        self.reopen(Duration::ZERO, memory);
    }

    /// Opens the shard again. Its old memory is freed first, on the same thread, because freeing millions of records would
    /// block a worker too.
    fn reopen(&mut self, pause: Duration, memory: Option<Engine>) {
        let (store, shard, opener) = (self.store.clone(), self.id, self.opener.clone());
        let (before, metrics) = (self.lost_positions.clone(), self.metrics.clone());
        let is_shared = self.service.others().is_some();
        let opening = async move {
            if let Some(positions) = memory.as_ref().filter(|_| is_shared).map(restored::positions) {
                *before.lock().await = positions;
            }
            drop(memory);
            store.retake().await.map_err(|source| OpenError::Store { shard: shard.0, source })?;
            let mut engine = load_engine(&store, shard).await?;
            jump_if_restored(&store, shard, &mut engine, &*before.lock().await, &metrics).await?;
            Ok(engine)
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
        if self.opening.is_none() && !self.shard.is_at_rest() {
            let is_sent = self.persisting.take().is_some() && !self.store.withdraw();
            let loss = if is_sent { Loss::Unknown } else { Loss::NotDone };
            self.handle_lost(loss, "the store does not answer");
        }
        self.shard.reject_waiting(Failure::Unavailable);
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
            static FAILURES: LogLimit = LogLimit::new();
            if let Some(times) = FAILURES.times(&error) {
                let (shard, error) = (self.id.0, &error as &dyn Error);
                tracing::warn!(shard, error, times, "ownership could not be confirmed");
            }
            self.handle_lost(Loss::NotDone, "another node may own the shard");
        }
    }

    /// Stops serving, when everything was done. Not everything is stored if the store had no space for the last append.
    fn close(&mut self, clock: ShardClock) -> Closed {
        let is_stored = !self.shard.is_out_of_space();
        self.end();
        if is_stored { Closed::Stored(clock) } else { Closed::Interrupted }
    }

    /// Stops serving. Requests that still wait are rejected: nothing was done.
    fn end(&mut self) {
        self.service.set_open(self.id, false);
        self.shard.requests().close();
        self.shard.reject_waiting(Failure::Unavailable);
        let now = self.shard.engine().map_or(Time(0), Engine::time);
        while let Some(Output::Reply(reply)) = self.shard.poll(now) {
            reply.ticket.answer(reply.result.map_err(NotDecided::Failed));
        }
        self.service.shard_left(self.id);
        let memory = self.shard.handle_lost(Loss::NotDone);
        // Freeing millions of records would block a worker.
        drop(tokio::task::spawn_blocking(move || drop(memory)));
    }

    fn update_gauges(&mut self) {
        if let Some(engine) = self.shard.engine() {
            set_gauges(&mut self.gauges, &mut self.state, engine);
        }
    }

    /// Shows what an engine holds that is about to be served.
    pub(crate) fn set_gauges(&mut self, engine: &Engine) {
        set_gauges(&mut self.gauges, &mut self.state, engine);
    }
}

fn set_gauges(gauges: &mut ShardGauges, state: &mut Account, engine: &Engine) {
    gauges.set(engine.stats());
    state.set(usize::try_from(engine.resident_bytes()).unwrap_or(usize::MAX));
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
