//! One simulated machine: a shard over a store in memory, clients, a clock, and everything that can go wrong.

mod audit;
mod faults;
mod following;
mod judging;
mod opening;

use crate::{
    followers::{Counts, Followers},
    model::{Bounds, Fate, Judge, is_batch, waits_in_a_queue},
    random::Random,
    workload::Workload,
};
use limina_engine::{Engine, Millis, Outcome, Read, Request, Time};
use limina_shard::{Loss, Options as ShardOptions, Output, Shard, ShardClock, clock::Reading};
use limina_store::{
    Batch, FreeSpace, RecordRef, Seq, ShardId, ShardStore,
    memory::{Memory, MemoryOptions},
};
use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

const SHARD: ShardId = ShardId(0);
/// More events than any correct run needs.
const MOST_EVENTS: u64 = 1_000_000;
const DAY: u64 = 24 * 60 * 60 * 1000;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of requests that clients send.
    pub requests: u64,
    /// Print every step.
    pub verbose: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { requests: 400, verbose: false }
    }
}

/// What happened in a successful run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Requests sent, including retries.
    pub requests: u64,
    /// Answers. All of them agreed with the model.
    pub answered: u64,
    /// Writes whose outcome the client did not learn.
    pub unknown: u64,
    /// How many of the batches with an unknown outcome had happened.
    pub unknown_happened: u64,
    /// Losses of power.
    pub crashes: u64,
    /// Failed appends after which the shard was opened again.
    pub losses: u64,
    /// Successful checkpoints.
    pub checkpoints: u64,
    /// Openings after which clients were served only later.
    pub held_back: u64,
    /// Times that the process stood still while the shard was open.
    pub interruptions: u64,
    /// Steps of the wall clock.
    pub clock_steps: u64,
    /// Requests that had to wait for locks or slots.
    pub waits: u64,
    /// Slices of batches that were not the last one.
    pub slices: u64,
    /// Batches that continued behind the items that an earlier attempt had done.
    pub continued: u64,
    /// Planned stops.
    pub stops: u64,
    /// Planned stops after which another process went on without a pause.
    pub hand_overs: u64,
    /// Times that shard time lagged, because more timers were due than one round could execute.
    pub lags: u64,
    /// What the followers of streams did.
    pub followers: Counts,
    /// Answers that said that a stored record could not be read.
    pub unreadable: u64,
    /// A checksum over everything stored in the end.
    pub digest: u32,
}

impl Report {
    /// Adds the report of another run.
    pub fn add(&mut self, run: &Report) {
        self.requests += run.requests;
        self.answered += run.answered;
        self.unknown += run.unknown;
        self.unknown_happened += run.unknown_happened;
        self.crashes += run.crashes;
        self.losses += run.losses;
        self.checkpoints += run.checkpoints;
        self.held_back += run.held_back;
        self.interruptions += run.interruptions;
        self.clock_steps += run.clock_steps;
        self.waits += run.waits;
        self.slices += run.slices;
        self.continued += run.continued;
        self.stops += run.stops;
        self.hand_overs += run.hand_overs;
        self.lags += run.lags;
        self.followers.add(&run.followers);
        self.unreadable += run.unreadable;
        self.digest ^= run.digest;
    }
}

/// Runs a seed. The error says what was wrong, and at which step.
pub fn run(seed: u64, options: &Options) -> Result<Report, String> {
    run_with(Random::new(seed), options).map_err(|problem| format!("seed {seed}: {problem}"))
}

/// Runs with these random numbers.
pub fn run_with(random: Random, options: &Options) -> Result<Report, String> {
    World::new(random, options).run()
}

/// A scheduled event. It is ignored if its generation is not the present one, because its shard no longer exists.
enum Event {
    Arrive,
    Fetch {
        generation: u64,
        reads: Vec<Read>,
    },
    Append {
        generation: u64,
        writes: Batch,
    },
    Persisted {
        generation: u64,
        result: Result<(), Loss>,
    },
    Open {
        generation: u64,
    },
    /// Clients can reach the process from now on.
    Serve,
    /// The process stands still, and then goes on.
    StandStill,
    Wake {
        generation: u64,
    },
    Checkpoint,
    Misfortune,
    /// There is space again.
    Relief,
}

/// A decision of the shard, which the judge has not received yet.
struct ShardDecision {
    at: Time,
    request: Request,
    fate: Fate,
    /// A client has the answer already.
    is_told: bool,
}

struct World {
    random: Random,
    workload: Workload,
    options: Options,
    memory: Arc<Memory>,
    memory_options: MemoryOptions,
    store: Option<ShardStore<Memory, Memory>>,
    shard: Shard<Request>,
    judge: Judge,
    followers: Followers,
    /// The monotonic clock, in milliseconds.
    now: u64,
    /// Milliseconds by which the wall clock is ahead of the monotonic clock.
    wall_ahead: i64,
    clock: ShardClock,
    generation: u64,
    events: BTreeMap<(u64, u64), Event>,
    event_count: u64,
    waiting: u64,
    /// The quotas of every namespace.
    bounds: Bounds,
    /// The number of counters that a rule change counts in one slice.
    build_slice: usize,
    /// The work of one slice of a batch.
    slice_work: usize,
    /// The batches that have done a slice since the shard was opened, and are not done.
    begun: Vec<Request>,
    /// The batches that have no answer.
    open_batches: Vec<Request>,
    /// Decisions that became known before earlier ones, by their order.
    early: BTreeMap<u64, ShardDecision>,
    /// The number of this shard's decisions that the judge has received.
    judged: u64,
    /// Answers that are decided and wait for the disk, by the order of their decisions.
    undurable: BTreeMap<u64, Outcome>,
    /// The number of decisions in the append under way, and in all that are durable.
    sealed: u64,
    persisted: u64,
    /// The order of a decision that failed as not done.
    denied: Option<u64>,
    /// The last append, while it is not known whether it happened.
    in_doubt: Option<Seq>,
    /// The outcome of the last request.
    last_answer: Option<Outcome>,
    faults: bool,
    /// A planned stop is under way.
    is_stopping: bool,
    /// Table reads fail.
    read_faults: bool,
    /// Another owner took the shard, and this one has not taken it back yet.
    is_fenced: bool,
    /// The process has restarted and does not know the previous shard time.
    is_restarted: bool,
    /// The last process handed the shard over, so the next opening follows without a pause.
    is_handed: bool,
    /// Shard time at the last planned stop, until the shard opens again.
    stopped_at: Option<Time>,
    /// Clients cannot reach the process yet.
    awaits_serving: bool,
    wake_at: Option<u64>,
    /// When everything that expires has expired.
    rests_at: Option<u64>,
    report: Report,
}

impl World {
    fn new(mut random: Random, options: &Options) -> World {
        let segment_bytes = *random.pick(&[16 << 10, 64 << 10, 256 << 10]);
        let memory_options = MemoryOptions {
            shards: 2,
            segment_bytes,
            reserve_bytes: 2 * segment_bytes,
            seed: random.number(),
        };
        let memory = Arc::new(Memory::new(&memory_options).expect("an empty store opens"));
        let read_faults = random.one_in(4);
        let workload = Workload::new(&mut random);
        let bounds = if random.one_in(2) { Bounds::random(&mut random) } else { Bounds::default() };
        let bounds = if workload.decides_checks() { bounds.without_limiter() } else { bounds };
        World {
            followers: Followers::new(workload.streams()),
            judge: Judge::new(bounds.clone(), workload.decided().cloned()),
            workload,
            options: options.clone(),
            memory,
            memory_options,
            store: None,
            shard: Shard::new(shard_options(&mut random)),
            bounds,
            now: 0,
            wall_ahead: 1_700_000_000_000 + random.below(DAY) as i64,
            clock: ShardClock::start(Time(0), Reading { monotonic: 0, wall: 0 }),
            generation: 0,
            events: BTreeMap::new(),
            event_count: 0,
            waiting: 0,
            build_slice: 1 + random.below(4) as usize,
            slice_work: *random.pick(&[1, 10, 30, 100, 4_096]),
            begun: Vec::new(),
            open_batches: Vec::new(),
            early: BTreeMap::new(),
            judged: 0,
            undurable: BTreeMap::new(),
            sealed: 0,
            persisted: 0,
            denied: None,
            in_doubt: None,
            last_answer: None,
            faults: !random.one_in(8),
            is_stopping: false,
            read_faults,
            is_fenced: false,
            is_restarted: true,
            is_handed: false,
            stopped_at: None,
            awaits_serving: false,
            wake_at: None,
            rests_at: None,
            report: Report::default(),
            random,
        }
    }

    fn run(mut self) -> Result<Report, String> {
        self.after(0, Event::Open { generation: 0 });
        self.run_until_quiet()?;
        let faults = std::mem::replace(&mut self.faults, false);
        for request in self.workload.setup(&mut self.random) {
            self.ask(&request.namespace, request.command)?;
        }
        self.faults = faults;
        self.after(1, Event::Arrive);
        self.run_until_quiet()?;
        if self.waiting > 0 {
            return Err(format!("{} requests were never answered", self.waiting));
        }
        self.faults = false;
        self.audit()?;
        self.report.followers = self.followers.counts.clone();
        self.report.digest = self.digest()?;
        Ok(self.report)
    }

    fn run_until_quiet(&mut self) -> Result<(), String> {
        while !self.is_at_rest()
            && let Some(((time, _), event)) = self.events.pop_first()
        {
            if self.event_count > MOST_EVENTS {
                return Err("it does not come to rest".into());
            }
            self.now = self.now.max(time);
            self.happen(event)?;
            self.drain()?;
            if self.pump_followers(false)? {
                self.drain()?;
            }
        }
        Ok(())
    }

    /// Whether only timers are left, and enough time has passed for everything that expires. Windows that never become
    /// empty have timers for ever.
    fn is_at_rest(&self) -> bool {
        self.waiting == 0
            && self.rests_at.is_some_and(|at| at <= self.now)
            && self.events.values().all(|event| matches!(event, Event::Wake { .. }))
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.event_count += 1;
        self.events.insert((self.now + delay, self.event_count), event);
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.options.verbose {
            println!("{:>9} {}", self.now, what());
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            // Clients that come now are rejected, and retry.
            Event::Arrive if self.is_stopping => self.after(10, Event::Arrive),
            Event::Arrive => {
                for _ in 0..1 + self.random.below(8) {
                    let request = self.workload.request(&mut self.random);
                    self.send(request);
                }
                self.followers.come_and_go(&mut self.random);
                if self.random.one_in(6) {
                    let delay = self.random.below(60);
                    self.after(delay, Event::Checkpoint);
                }
                if self.faults && self.random.one_in(10) {
                    let delay = self.random.below(60);
                    self.after(delay, Event::Misfortune);
                }
                if self.report.requests < self.options.requests {
                    // Sometimes nothing happens for a day, so that kept replies expire.
                    let pause = if self.random.one_in(60) { DAY / 3 } else { self.random.below(40) };
                    self.after(pause, Event::Arrive);
                } else {
                    self.after(1_000, Event::Relief);
                }
            }
            Event::Fetch { generation, reads } if generation == self.generation => {
                // A read fails only while nothing is due. Otherwise the due timer would be postponed, which the model
                // does not simulate.
                let due = self.shard.engine().and_then(Engine::next_due);
                let may_fail =
                    self.faults && self.read_faults && due.is_none_or(|due| due > self.clock.time());
                if may_fail && self.random.one_in(40) {
                    self.memory.fail_table_reads(1 + self.random.below(3));
                }
                let answers = self.fetch(reads)?;
                self.memory.fail_table_reads(0);
                self.shard.handle_fetched(answers);
            }
            Event::Append { generation, writes } if generation == self.generation => self.append(writes)?,
            Event::Persisted { generation, result } if generation == self.generation => match result {
                Ok(()) => {
                    self.in_doubt = None;
                    self.persisted = self.sealed;
                    self.judge.persisted();
                    self.shard.handle_persisted();
                }
                Err(loss) => self.lose(loss)?,
            },
            Event::Open { generation } if generation == self.generation => self.open()?,
            Event::Serve => self.serve(),
            Event::StandStill => self.stand_still()?,
            // A wake-up that was replaced by an earlier one is ignored.
            Event::Wake { generation } if generation == self.generation && self.wake_at == Some(self.now) => {
                self.wake_at = None;
            }
            Event::Checkpoint => {
                self.checkpoint();
            }
            Event::Misfortune => {
                self.inject_fault()?;
            }
            Event::Relief => {
                self.memory.limit_space(None);
                self.rests_at = Some(self.now + 3 * DAY);
            }
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, request: Request) {
        self.report.requests += 1;
        self.submit(request);
    }

    fn submit(&mut self, request: Request) {
        let batch = is_batch(&request).then(|| request.clone());
        self.shard.handle_request(request.clone(), request);
        self.waiting += 1;
        self.open_batches.extend(batch);
    }

    fn reading(&self) -> Reading {
        let wall = u64::try_from(self.now as i64 + self.wall_ahead).unwrap_or(0);
        Reading { monotonic: self.now * 1000, wall: wall * 1000 }
    }

    /// Carries out the shard's outputs.
    fn drain(&mut self) -> Result<(), String> {
        if let Some(store) = &self.store {
            self.shard.handle_space(store.free_space() == FreeSpace::Ample);
        }
        let before = self.clock.time();
        let (time, _) = self.clock.advance(self.reading());
        if time < before {
            return Err(format!("shard time went back from {before:?} to {time:?}"));
        }
        while let Some(output) = self.shard.poll(time) {
            let generation = self.generation;
            self.note_undurable()?;
            match output {
                Output::Fetch(reads) => {
                    let delay = self.random.below(10);
                    self.after(delay, Event::Fetch { generation, reads });
                }
                Output::Append { writes, .. } => {
                    self.note_sealed()?;
                    let writes = Batch::new(writes.iter().map(|write| RecordRef {
                        key: write.key,
                        value: write.value,
                        is_first: write.is_first,
                    }));
                    let delay = self.random.below(10);
                    self.after(delay, Event::Append { generation, writes });
                }
                Output::Confirm => {
                    self.note_sealed()?;
                    let store = self.store.as_ref().ok_or("a confirm without a store")?;
                    let result = ready(store.confirm())?.map_err(|_| Loss::NotDone);
                    self.check_fence(result.is_ok())?;
                    let delay = self.random.below(10);
                    self.after(delay, Event::Persisted { generation, result });
                }
                Output::Reply(reply) => self.check_reply(reply)?,
                Output::Waits { request, since, order } => {
                    self.report.waits += u64::from(waits_in_a_queue(&request));
                    self.note(order, since, *request, Fate::Waits)?;
                }
                Output::Slice { request, at, order, from, outcome } => {
                    self.note_slice(&request, from);
                    self.note(order, at, *request, Fate::Slice { from, outcome })?;
                }
                // A store in memory has nothing to gain.
                Output::Unfinished | Output::Discard(_) => {}
                Output::Effect(effect) => {
                    self.say(|| format!("{effect:?}"));
                    self.followers.handle_effect(&effect);
                }
            }
        }
        self.note_undurable()?;
        if let Some(time) = self.shard.take_lag() {
            self.report.lags += 1;
            self.clock.hold(time);
        }
        if self.shard.is_out_of_space() && self.wake_at.is_none() {
            self.wake_at = Some(self.now + 10_000);
            self.after(10_000, Event::Wake { generation: self.generation });
        }
        if let Some(at) = self.shard.next_wakeup() {
            let wake_at = self.now + at.0.saturating_sub(time.0).max(1);
            if self.wake_at.is_none_or(|wake| wake > wake_at) {
                self.wake_at = Some(wake_at);
                self.after(wake_at - self.now, Event::Wake { generation: self.generation });
            }
        }
        if self.is_stopping && self.shard.engine().is_some() && self.shard.is_idle() {
            return if self.shard.flush_relaxed() { self.drain() } else { self.stop() };
        }
        Ok(())
    }
}

fn shard_options(random: &mut Random) -> ShardOptions {
    ShardOptions {
        max_batch: 1 + random.below(40) as usize,
        max_batch_work: *random.pick(&[1, 30, 300, 16_384]),
        // A few hundred bytes end a batch in the middle of a round.
        max_batch_bytes: *random.pick(&[1, 300, 3_000, 64 << 20]),
        due_slice: *random.pick(&[1, 1, 2, 4, 10]),
        max_lag: Millis(*random.pick(&[0, 20, 250, 1_000])),
        reports_slices: true,
    }
}

/// The futures of a store in memory are ready at once.
pub(crate) fn ready<F: Future>(future: F) -> Result<F::Output, String> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err("a store in memory waits for nothing, but this did".into()),
    }
}
