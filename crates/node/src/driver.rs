//! One shard's task: carries out what the shard's loop asks for.

use crate::{
    Metrics, NodeOptions, OpenError, Service,
    clock::Clocks,
    cluster::TenureGuard,
    service::{ShardReceiver, Ticket},
};
use limina_engine::{Effect, Engine, Loading, Name, Read, ReadResult, Request, Stats, Time, Writes, record};
use limina_shard::{Failure, Loss, Opening, Options, Output, Shard, ShardClock};
use limina_store::{
    self as store, AppendError, Batch, ConfirmError, Image, Journal, NodeId, Room, ShardId, ShardStore,
    StoreError, Table,
};
use std::{
    error::Error,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinSet};

/// How long to wait before a shard that could not be opened is tried again.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// How long to wait before a shared store that could not be reached is asked again.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// How often to look whether there is room again for what is due.
const ROOM_PAUSE: Duration = Duration::from_millis(200);

/// How many resident records are loaded at a time.
const LOAD_PAGE: usize = 16_384;

/// An append of more records has a task of its own: writing it down and taking it into the overlay are work for another
/// core while this one decides the next batch. Fewer are saved the way there and back; where it pays was not measured.
const LARGE_APPEND: usize = 512;

// What the engine promises of these keys, the store makes use of.
const _: () = assert!(record::key::HISTORY == store::HISTORY);

type InFlight<R> = Option<Pin<Box<dyn Future<Output = R> + Send>>>;

/// What every shard's task has around it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ShardContext {
    pub(crate) service: Service,
    pub(crate) metrics: Metrics,
    pub(crate) clocks: Clocks,
    pub(crate) tenure_guard: TenureGuard,
    options: Options,
}

impl ShardContext {
    pub(crate) fn new(
        service: &Service,
        metrics: &Metrics,
        clocks: Clocks,
        tenure_guard: TenureGuard,
        options: &NodeOptions,
    ) -> ShardContext {
        let (service, metrics) = (service.clone(), metrics.clone());
        ShardContext { service, metrics, clocks, tenure_guard, options: options.shard.clone() }
    }
}

/// What a shard's task is to do. To be told [`Order::Serve`] again means to look whether the shard is still ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Serve.
    Serve,
    /// Answer what was taken, then end. Somebody is to have the shard next, maybe.
    Close {
        /// Who.
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
    pub(crate) monotonic: u64,
}

pub(crate) struct Driver<J, T> {
    id: ShardId,
    store: Arc<ShardStore<J, T>>,
    service: Service,
    metrics: Metrics,
    clocks: Clocks,
    tenure_guard: TenureGuard,
    options: Options,
    receiver: ShardReceiver,
    shard: Shard<Ticket>,
    fetching: InFlight<Vec<(Read, ReadResult)>>,
    persisting: InFlight<Result<(), Loss>>,
    opening: InFlight<Result<Engine, OpenError>>,
    /// What this shard has added to the gauges.
    counted: Stats,
}

impl<J: Journal, T: Table> Driver<J, T> {
    pub(crate) fn new(
        id: ShardId,
        store: Arc<ShardStore<J, T>>,
        context: ShardContext,
        receiver: ShardReceiver,
    ) -> Driver<J, T> {
        let ShardContext { service, metrics, clocks, tenure_guard, options } = context;
        Driver {
            id,
            store,
            service,
            metrics,
            clocks,
            tenure_guard,
            shard: Shard::new(options.clone()),
            options,
            receiver,
            fetching: None,
            persisting: None,
            opening: None,
            counted: Stats::default(),
        }
    }

    /// Serves until it is told to end, or another node has the shard. Returns the shard's clock, which goes on.
    pub(crate) async fn run(
        mut self,
        engine: Engine,
        handed: Option<HandedTime>,
        mut orders: watch::Receiver<Order>,
    ) -> Result<ShardClock, NotOwned> {
        let mut is_away = self.tenure_guard.is_away();
        let (mut clock, opening) = match handed {
            None => (ShardClock::start(engine.time(), self.clocks.read()), Opening::Interrupted),
            Some(handed) => (self.go_on(engine.time(), handed), Opening::HandedOver),
        };
        let mut serving = self.service.serving();
        let mut is_held_back = !*serving.borrow_and_update();
        if is_held_back {
            self.shard.hold_back();
        }
        self.opened(engine, clock.time(), opening);
        let mut is_stopping = false;
        let mut is_closed = false;
        let mut arrived = Vec::new();
        let mut taken_back = Vec::new();
        loop {
            let told_at = Instant::now();
            let now = self.tell_time(&mut clock);
            // Looked at before each poll: a client's request is never decided while time still stands.
            if is_held_back && *serving.borrow_and_update() {
                is_held_back = false;
                self.shard.handle_serving(now);
            }
            self.shard.handle_room(self.store.room() == Room::Plenty);
            self.shard.handle_tenure(self.tenure_guard.is_sure());
            while let Some(output) = self.shard.poll(now) {
                self.carry_out(output);
            }
            if let Some(time) = self.shard.take_lag() {
                clock.hold(time);
            }
            if is_closed && self.shard.is_idle() {
                if self.shard.flush_relaxed() {
                    continue;
                }
                self.end();
                return Ok(clock);
            }
            // Counted from when the time was told: what was done since has taken time as well.
            let wakeup = if self.shard.is_starved() {
                Some(ROOM_PAUSE)
            } else {
                self.shard.next_wakeup().map(|at| Duration::from_millis(at.0.saturating_sub(now.0)))
            };
            let wants_more = !is_closed && self.shard.queue_len() < self.options.max_batch;
            tokio::select! {
                count = self.receiver.submissions.recv_many(&mut arrived, self.options.max_batch), if wants_more => {
                    is_closed = count == 0;
                    arrived.drain(..).for_each(|(ticket, request)| self.arrived(ticket, request));
                    self.look_after_store(*is_away.borrow());
                }
                Some(_) = some(self.receiver.taken_back.recv_many(&mut taken_back, self.options.max_batch)) => {
                    taken_back.drain(..).for_each(|(ticket, request)| self.arrived(ticket, request));
                }
                answers = doing(&mut self.fetching) => self.shard.handle_fetched(answers),
                result = doing(&mut self.persisting) => match result {
                    Ok(()) => self.persisted(),
                    Err(loss) => self.lost(loss),
                },
                result = doing(&mut self.opening) => match result {
                    Ok(engine) => {
                        clock = ShardClock::start(engine.time().max(clock.time()), self.clocks.read());
                        self.opened(engine, clock.time(), Opening::Interrupted);
                    }
                    Err(OpenError::Store { source: StoreError::NotOwned, .. }) => {
                        self.end();
                        return Err(NotOwned);
                    }
                    Err(error) => {
                        tracing::error!(shard = self.id.0, error = &error as &dyn Error, "a shard cannot be opened");
                        self.shard.reject_waiting(Failure::Unavailable);
                        self.reopen(REOPEN_PAUSE);
                    }
                },
                Ok(()) = is_away.changed() => self.look_after_store(*is_away.borrow_and_update()),
                () = sleep_until(wakeup.map(|span| told_at + span)) => {}
                _ = serving.changed(), if is_held_back => {}
                _ = orders.changed(), if !is_stopping => match *orders.borrow_and_update() {
                    Order::Serve => self.look(),
                    Order::Close { .. } => {
                        is_stopping = true;
                        self.shard.handle_closing();
                        // What was sent is still received; what comes later is refused at the door.
                        self.receiver.submissions.close();
                    }
                },
            }
        }
    }

    /// Time goes on from where another node left it. What passed since this node heard of that is counted by the clock here.
    fn go_on(&self, stored: Time, handed: HandedTime) -> ShardClock {
        let reading = self.clocks.read();
        let since = reading.monotonic.saturating_sub(handed.monotonic) / 1000;
        ShardClock::go_on(stored.max(Time(handed.time.0.saturating_add(since))), reading)
    }

    /// While the store is away nobody waits for it. Whether an append that was sent is done, is not known; nothing else is.
    fn look_after_store(&mut self, is_away: bool) {
        if !is_away {
            return;
        }
        // If nothing is under way, the memory is as good as before: the next append or confirm tells whether the shard is still
        // this node's.
        let is_at_rest = self.shard.is_idle() && !self.shard.has_waiters();
        if self.opening.is_none() && !is_at_rest {
            let is_sent = self.persisting.take().is_some() && !self.store.withdraw();
            self.lost(if is_sent { Loss::Unknown } else { Loss::NotDone });
        }
        self.shard.reject_waiting(Failure::Unavailable);
    }

    /// It is said that another node has the shard. An append under way will tell; without one, the shard is taken again,
    /// which fails if that is so.
    fn look(&mut self) {
        if self.persisting.is_none() && self.opening.is_none() {
            self.lost(Loss::NotDone);
        }
    }

    /// Nothing is served any more. Whoever still waits is told that nothing was done.
    fn end(&mut self) {
        self.service.set_open(self.id, false);
        self.receiver.submissions.close();
        while let Ok((ticket, _)) = self.receiver.submissions.try_recv() {
            let _client_gone = ticket.send(Err(Failure::Unavailable));
        }
        self.shard.reject_waiting(Failure::Unavailable);
        let now = self.shard.engine().map_or(Time(0), Engine::time);
        while let Some(Output::Reply(reply)) = self.shard.poll(now) {
            let _client_gone = reply.ticket.send(reply.result);
        }
        self.service.shard_left(self.id);
        self.count_as(Stats::default());
    }

    fn carry_out(&mut self, output: Output<Ticket>) {
        match output {
            Output::Fetch(reads) => {
                let (store, metrics) = (self.store.clone(), self.metrics.clone());
                let is_shared = self.service.others().is_some();
                self.fetching = Some(Box::pin(async move {
                    let begin = Instant::now();
                    let answers = fetch(&store, reads, is_shared).await;
                    metrics.fetch_seconds.observe(begin.elapsed().as_secs_f64());
                    answers
                }));
            }
            Output::Append { writes, requests } => {
                self.metrics.append_requests.observe(requests as f64);
                self.metrics.append_records.observe(writes.len() as f64);
                let is_large = writes.len() > LARGE_APPEND;
                let (store, metrics) = (self.store.clone(), self.metrics.clone());
                let append = async move {
                    let begin = Instant::now();
                    let result = store.append(store.seq().next(), batch(&writes)).await;
                    metrics.append_seconds.observe(begin.elapsed().as_secs_f64());
                    result.map_err(|error| loss_of(&error))
                };
                self.persisting = Some(match is_large {
                    true => {
                        let mut append = JoinSet::from_iter([append]);
                        Box::pin(async move {
                            append.join_next().await.and_then(Result::ok).unwrap_or(Err(Loss::Unknown))
                        })
                    }
                    false => Box::pin(append),
                });
            }
            Output::Confirm => {
                let store = self.store.clone();
                self.persisting = Some(Box::pin(async move {
                    store.confirm().await.map_err(|error: ConfirmError| {
                        tracing::warn!(error = &error as &dyn Error, "ownership could not be confirmed");
                        Loss::NotDone
                    })
                }));
            }
            Output::Reply(reply) => {
                let _client_gone = reply.ticket.send(reply.result);
            }
            // It is told with its answer.
            Output::Waits { .. } => {}
            Output::Effect(Effect::HoldExpired { namespace, operation_id, position }) => {
                self.metrics.holds_expired.inc();
                tracing::debug!(%namespace, %operation_id, position = position.0, "a hold expired");
            }
            Output::Effect(Effect::LeaseExpired { namespace, lease_id }) => {
                self.metrics.leases_expired.inc();
                tracing::debug!(%namespace, %lease_id, "a lease expired");
            }
            Output::Effect(Effect::LockExpired { namespace, lock_id, owner }) => {
                self.metrics.locks_expired.inc();
                let owner = owner.as_ref().map(Name::as_str);
                tracing::debug!(%namespace, %lock_id, owner, "a lock expired");
            }
            Output::Effect(Effect::StreamChanged { namespace, stream, change }) => {
                self.service.streams().changed(&namespace, &stream, change);
            }
            Output::Effect(Effect::KeyFrame { namespace, stream, frame }) => {
                self.service.streams().key_frame(&namespace, &stream, frame);
            }
            Output::Effect(Effect::StreamDeleted { namespace, stream }) => {
                self.service.streams().deleted(&namespace, &stream);
            }
            Output::Effect(Effect::TimerPostponed { namespace }) => {
                self.metrics.due_postponed.inc();
                tracing::error!(%namespace, "due work is put off: a stored record could not be read");
            }
        }
    }

    fn arrived(&mut self, ticket: Ticket, request: Request) {
        // What would be taken back at once is not begun.
        if ticket.is_closed() && request.cancellation().is_some() {
            return;
        }
        if let Err(ticket) = self.shard.handle_request(ticket, request) {
            let _client_gone = ticket.send(Err(Failure::Unavailable));
        }
    }

    fn opened(&mut self, engine: Engine, now: Time, opening: Opening) {
        self.shard.handle_opened(engine, now, opening);
        self.count();
        self.service.set_open(self.id, true);
    }

    fn persisted(&mut self) {
        self.shard.handle_persisted();
        self.count();
    }

    /// The batch in flight failed: everything in memory is dropped and read again before another word is said.
    fn lost(&mut self, loss: Loss) {
        tracing::warn!(shard = self.id.0, ?loss, "an append failed; the shard opens again");
        self.metrics.shard_losses.inc();
        self.fetching = None;
        self.shard.handle_lost(loss);
        self.service.set_open(self.id, false);
        self.reopen(Duration::ZERO);
    }

    fn reopen(&mut self, pause: Duration) {
        let (store, shard) = (self.store.clone(), self.id);
        self.opening = Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            store.retake().await.map_err(|source| OpenError::Store { shard: shard.0, source })?;
            load_engine(&store, shard).await
        }));
    }

    fn tell_time(&mut self, clock: &mut ShardClock) -> Time {
        let (now, step) = clock.advance(self.clocks.read());
        if let Some(step_ms) = step {
            self.metrics.clock_steps.inc();
            tracing::warn!(
                shard = self.id.0,
                step_ms,
                "the wall clock was stepped; shard time does not follow"
            );
        }
        now
    }

    /// Brings the gauges, which add up all shards, up to date with this one.
    fn count(&mut self) {
        if let Some(stats) = self.shard.engine().map(Engine::stats) {
            self.count_as(stats);
        }
    }

    fn count_as(&mut self, stats: Stats) {
        let add = |gauge: &prometheus_client::metrics::gauge::Gauge, new: usize, old: usize| {
            gauge.inc_by(new as i64 - old as i64);
        };
        add(&self.metrics.namespaces, stats.namespaces, self.counted.namespaces);
        let (new, old) = (stats.sizes, self.counted.sizes);
        add(&self.metrics.ledger_limits, new.ledger_limits, old.ledger_limits);
        add(&self.metrics.locks_held, new.locks.held, old.locks.held);
        add(&self.metrics.locks_waiting, new.locks.waiting, old.locks.waiting);
        add(&self.metrics.event_streams, new.events.streams, old.events.streams);
        let (new, old) = (new.limiter, old.limiter);
        add(&self.metrics.limiter_rules, new.rules, old.rules);
        add(&self.metrics.limiter_groups, new.groups, old.groups);
        add(&self.metrics.limiter_counters, new.counters, old.counters);
        add(&self.metrics.limiter_leases, new.leases, old.leases);
        add(&self.metrics.timers, stats.timers, self.counted.timers);
        self.counted = stats;
    }
}

/// Loads a shard's engine from everything durable.
pub async fn load_engine<J: Journal, T: Table>(
    store: &ShardStore<J, T>,
    shard: ShardId,
) -> Result<Engine, OpenError> {
    let range = record::key::residents();
    let mut from = range.start;
    let mut loading = Loading::new(limina_engine::Options::default());
    loop {
        let read = store::Read::Scan { from: from.clone(), to: range.end.clone(), limit: LOAD_PAGE };
        let page = match store.read(vec![read]).await.pop() {
            Some(Ok(store::Answer::Page(page))) => page,
            Some(Err(error)) => {
                let source = StoreError::Unavailable(error.to_string());
                return Err(OpenError::Store { shard: shard.0, source });
            }
            _ => unreachable!("one scan has one page as its answer"),
        };
        let is_last = page.len() < LOAD_PAGE;
        if let Some((last, _)) = page.last() {
            from = [last, &[0][..]].concat().into();
        }
        for (key, value) in page {
            loading.load(key, &value).map_err(|source| OpenError::Record { shard: shard.0, source })?;
        }
        if is_last {
            return Ok(loading.finish());
        }
    }
}

fn batch(writes: &Writes) -> Batch {
    Batch::new(writes.iter().map(|write| Image {
        key: write.key,
        value: write.value,
        is_first: write.is_first,
    }))
}

/// A shared store that cannot be reached is asked again: that says nothing about the records. When it is away, whoever waits
/// is told so, and this is dropped.
async fn fetch<J: Journal, T: Table>(
    store: &ShardStore<J, T>,
    reads: Vec<Read>,
    is_shared: bool,
) -> Vec<(Read, ReadResult)> {
    let asked = reads.iter().map(|read| match read.clone() {
        Read::Get(key) => store::Read::Get(key),
        Read::LastAtOrBefore { from, at } => store::Read::LastAtOrBefore { from, at },
        Read::Scan { from, to, limit } => store::Read::Scan { from, to, limit },
    });
    let asked: Vec<store::Read> = asked.collect();
    let answers = loop {
        let answers = store.read(asked.clone()).await;
        let unreachable = answers
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .find(|error| is_shared && matches!(&***error, StoreError::Unavailable(_)));
        let Some(error) = unreachable else { break answers };
        tracing::warn!(
            error = &**error as &dyn Error,
            "the store could not be reached for a read; trying again"
        );
        tokio::time::sleep(READ_AGAIN).await;
    };
    let answers = answers.into_iter().map(|answer| match answer {
        Ok(store::Answer::Value(value)) => ReadResult::Value(value),
        Ok(store::Answer::Last(last)) => ReadResult::Last(last),
        Ok(store::Answer::Page(page)) => ReadResult::Page(page),
        Err(error) => {
            tracing::error!(error = &*error as &dyn Error, "a stored record could not be read");
            ReadResult::Unreadable
        }
    });
    reads.into_iter().zip(answers).collect()
}

fn loss_of(error: &AppendError) -> Loss {
    tracing::warn!(error = error as &dyn Error, "an append failed");
    match error {
        AppendError::Fenced | AppendError::NotDone(_) => Loss::NotDone,
        AppendError::Full => Loss::Full,
        AppendError::Unknown(_) => Loss::Unknown,
    }
}

/// Waits for what is being done, if anything is, and takes its result.
async fn doing<R>(slot: &mut InFlight<R>) -> R {
    match slot {
        Some(future) => {
            let result = future.as_mut().await;
            *slot = None;
            result
        }
        None => std::future::pending().await,
    }
}

/// How many came, unless nothing more can come.
async fn some(count: impl Future<Output = usize>) -> Option<usize> {
    Some(count.await).filter(|count| *count > 0)
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
