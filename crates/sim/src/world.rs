//! One simulated machine: a shard over a store in memory, clients, a clock, and everything that can go wrong.

use crate::{
    followers::{Counts, Follower},
    model::{self, Fate, Judge, Unheard},
    random::Random,
    workload::Workload,
};
use limina_engine::{
    Answer, Command, Engine, Millis, Name, Options as EngineOptions, Outcome, Page, Read, Request, Time,
    events,
    ledger::{self, Reply as LedgerReply},
    limiter, record,
    selection::Query,
};
use limina_shard::{
    Failure, Loss, Opening, Options as ShardOptions, Output, Reply, Shard, ShardClock, clock::Reading,
};
use limina_store::{
    self as store, AppendError, Batch, Image, Room, Seq, ShardId, ShardStore, ShardStoreOptions, StoreError,
    memory::{AppendFault, Memory, MemoryOptions, Remains},
};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

const SHARD: ShardId = ShardId(0);
/// More than any healthy run needs.
const MOST_EVENTS: u64 = 1_000_000;
/// How many follow a stream.
const FOLLOWERS: usize = 2;
const DAY: u64 = 24 * 60 * 60 * 1000;

/// How a run is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many requests clients send.
    pub requests: u64,
    /// Print every step.
    pub verbose: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { requests: 400, verbose: false }
    }
}

/// What happened in a run that went well.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Requests sent, retries included.
    pub requests: u64,
    /// Answers, all of them as the model had it.
    pub answered: u64,
    /// Writes whose outcome was not known to the client.
    pub unknown: u64,
    /// Of these batches, how many had happened.
    pub unknown_happened: u64,
    /// Times that the power went.
    pub crashes: u64,
    /// Times that an append failed and the shard opened again.
    pub losses: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Steps of the wall clock.
    pub clock_steps: u64,
    /// Requests that had to wait for locks.
    pub waits: u64,
    /// Planned stops.
    pub stops: u64,
    /// Times that shard time lagged, because more was due than could be done.
    pub lags: u64,
    /// What those who follow streams did.
    pub followers: Counts,
    /// Answers that said that a stored record could not be read.
    pub unreadable: u64,
    /// The most states that were possible at a time, as far as the answers told.
    pub states: u64,
    /// Runs that ended early because more was possible than the model could follow.
    pub lost_track: u64,
    /// A checksum over everything stored in the end.
    pub digest: u32,
}

impl Report {
    /// Several runs together.
    pub fn add(&mut self, run: &Report) {
        self.requests += run.requests;
        self.answered += run.answered;
        self.unknown += run.unknown;
        self.unknown_happened += run.unknown_happened;
        self.crashes += run.crashes;
        self.losses += run.losses;
        self.checkpoints += run.checkpoints;
        self.clock_steps += run.clock_steps;
        self.waits += run.waits;
        self.stops += run.stops;
        self.lags += run.lags;
        self.followers.add(&run.followers);
        self.unreadable += run.unreadable;
        self.states = self.states.max(run.states);
        self.lost_track += run.lost_track;
        self.digest ^= run.digest;
    }
}

/// Runs a seed. The error says what was wrong, at which step.
pub fn run(seed: u64, options: &Options) -> Result<Report, String> {
    World::new(seed, options).run().map_err(|problem| format!("seed {seed}: {problem}"))
}

/// What is to happen. A generation older than the world's is of a shard that is gone.
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
    Wake {
        generation: u64,
    },
    Checkpoint,
    Misfortune,
    /// There is room again.
    Relief,
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
    followers: Vec<Follower>,
    /// The monotonic clock, in milliseconds.
    now: u64,
    /// How far the wall clock is ahead of it.
    wall_ahead: i64,
    clock: ShardClock,
    generation: u64,
    events: BTreeMap<(u64, u64), Event>,
    event_count: u64,
    waiting: u64,
    /// How many counters a change of rules looks at in one go.
    build_slice: usize,
    /// Decisions that were told before others that came first; by their place in the order.
    early: BTreeMap<u64, (Time, Request, Fate)>,
    /// How many decisions of this shard the judge has heard of.
    judged: u64,
    /// Keys of changes of rules that are not answered yet, which may take their time.
    keys_in_use: Vec<(Name, Name)>,
    /// The last append that may have been made, until it is known.
    in_doubt: Option<Seq>,
    /// What the last request was answered.
    last_answer: Option<Outcome>,
    /// More was possible than the model could follow; the run ends here.
    is_lost_track: bool,
    faults: bool,
    /// A planned stop is under way.
    is_stopping: bool,
    /// Table reads fail, and no outcome is ever unknown: the model could not tell what an unknown batch had read.
    read_faults: bool,
    /// Another owner took the shard and we have not taken it back.
    is_fenced: bool,
    /// The process has begun anew and does not know what time it was.
    is_restarted: bool,
    wake_at: Option<u64>,
    /// When everything that ends by itself has ended.
    rests_at: Option<u64>,
    report: Report,
}

impl World {
    fn new(seed: u64, options: &Options) -> World {
        let mut random = Random::new(seed);
        let segment_bytes = *random.pick(&[16 << 10, 64 << 10, 256 << 10]);
        let memory_options = MemoryOptions {
            shards: 2,
            segment_bytes,
            reserve_bytes: 2 * segment_bytes,
            seed: random.number(),
        };
        let memory = Arc::new(Memory::new(&memory_options).expect("an empty store opens"));
        let read_faults = random.one_in(4);
        let workload = Workload::new(&mut random, read_faults);
        let streams = workload.streams().into_iter();
        let followers = streams.flat_map(|(namespace, stream)| {
            (0..FOLLOWERS).map(move |_| Follower::new(namespace.clone(), stream.clone()))
        });
        World {
            followers: followers.collect(),
            workload,
            options: options.clone(),
            memory,
            memory_options,
            store: None,
            shard: Shard::new(shard_options(&mut random)),
            judge: Judge::default(),
            now: 0,
            wall_ahead: 1_700_000_000_000 + random.below(DAY) as i64,
            clock: ShardClock::start(Time(0), Reading { monotonic: 0, wall: 0 }),
            generation: 0,
            events: BTreeMap::new(),
            event_count: 0,
            waiting: 0,
            build_slice: 1 + random.below(4) as usize,
            early: BTreeMap::new(),
            judged: 0,
            keys_in_use: Vec::new(),
            in_doubt: None,
            last_answer: None,
            is_lost_track: false,
            faults: !random.one_in(8),
            is_stopping: false,
            read_faults,
            is_fenced: false,
            is_restarted: true,
            wake_at: None,
            rests_at: None,
            report: Report::default(),
            random,
        }
    }

    fn run(mut self) -> Result<Report, String> {
        self.after(0, Event::Open { generation: 0 });
        self.after(1, Event::Arrive);
        self.run_until_quiet()?;
        if self.is_lost_track {
            self.report.lost_track = 1;
            return Ok(self.report);
        }
        if self.waiting > 0 {
            return Err(format!("{} requests were never answered", self.waiting));
        }
        self.faults = false;
        self.audit()?;
        self.report.digest = self.digest()?;
        Ok(self.report)
    }

    fn run_until_quiet(&mut self) -> Result<(), String> {
        while !self.is_lost_track
            && !self.is_at_rest()
            && let Some(((time, _), event)) = self.events.pop_first()
        {
            if self.event_count > MOST_EVENTS {
                return Err("it does not come to rest".into());
            }
            self.now = self.now.max(time);
            self.happen(event)?;
            self.drain()?;
        }
        Ok(())
    }

    /// Whether only timers are left, and long enough has passed for all that ends by itself. Windows that never empty
    /// are looked after for ever.
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
            // Whoever comes now is turned away, and comes again.
            Event::Arrive if self.is_stopping => self.after(10, Event::Arrive),
            Event::Arrive => {
                for _ in 0..1 + self.random.below(8) {
                    let request = self.workload.request(&mut self.random);
                    self.send(request);
                }
                self.come_and_go();
                if self.random.one_in(6) {
                    let delay = self.random.below(60);
                    self.after(delay, Event::Checkpoint);
                }
                if self.faults && self.random.one_in(10) {
                    let delay = self.random.below(60);
                    self.after(delay, Event::Misfortune);
                }
                if self.report.requests < self.options.requests {
                    // Now and then nothing comes for a day, so that kept replies expire.
                    let pause = if self.random.one_in(60) { DAY / 3 } else { self.random.below(40) };
                    self.after(pause, Event::Arrive);
                } else {
                    self.after(1_000, Event::Relief);
                }
            }
            Event::Fetch { generation, reads } if generation == self.generation => {
                // A read fails only while nothing is due: what is due would be put off, which the model does not do.
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
                    self.shard.handle_persisted();
                }
                Err(loss) => self.lose(loss)?,
            },
            Event::Open { generation } if generation == self.generation => self.open()?,
            // One that was put off for an earlier one is nobody's.
            Event::Wake { generation } if generation == self.generation && self.wake_at == Some(self.now) => {
                self.wake_at = None;
            }
            Event::Checkpoint => {
                self.checkpoint();
            }
            Event::Misfortune => {
                self.misfortune()?;
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
        let key = key_of_change(&request);
        if self.shard.handle_request(request.clone(), request).is_ok() {
            self.waiting += 1;
            self.keys_in_use.extend(key);
        }
    }

    /// Some of those who follow go away, and others come back.
    fn come_and_go(&mut self) {
        for index in 0..self.followers.len() {
            match self.random.below(8) {
                0 => self.followers[index].leave(),
                1..=3 => self.come_back(index),
                _ => {}
            }
        }
    }

    fn come_back(&mut self, index: usize) {
        let follower = &mut self.followers[index];
        let question = follower.come_back(&mut self.random);
        let namespace = follower.address().0.clone();
        if let Some(question) = question {
            self.submit(Request { namespace, idempotency: None, command: Command::Events(question) });
        }
    }

    /// Those who asked for this go on with the answer, and all who are there compare what they have with it.
    fn tell_followers(&mut self, request: &Request, result: &Result<Outcome, Failure>) -> Result<(), String> {
        let Command::Events(question) = &request.command else { return Ok(()) };
        let answer = match result {
            Ok(Outcome::Events(answer)) => Some(answer),
            _ => None,
        };
        let mut asked = Vec::new();
        for follower in &mut self.followers {
            let (namespace, stream) = follower.address();
            if *namespace != request.namespace {
                continue;
            }
            if let (events::Command::Incubating(name), Some(Ok(events::Reply::Incubating(frame)))) =
                (question, answer)
                && name == stream
            {
                follower.compare(frame, &mut self.report.followers)?;
            }
            asked.extend(follower.answered(question, answer, &mut self.report.followers)?);
        }
        for question in asked {
            let (namespace, command) = (request.namespace.clone(), Command::Events(question));
            self.submit(Request { namespace, idempotency: None, command });
        }
        Ok(())
    }

    fn misfortune(&mut self) -> Result<(), String> {
        let choice =
            if self.read_faults { *self.random.pick(&[2, 5, 6, 8, 9, 10]) } else { self.random.below(11) };
        match choice {
            0 | 1 => self.crash()?,
            2 => self.fault(AppendFault::NotDone),
            3 => self.fault(AppendFault::UnknownButHappened),
            4 => self.fault(AppendFault::UnknownAndDidNotHappen),
            5 => {
                self.say(|| "another owner takes the shard".into());
                self.memory.fence(SHARD);
                self.is_fenced = true;
            }
            6 => {
                let records = self.random.below(20) as usize;
                self.say(|| format!("the next checkpoint fails after {records} records"));
                self.memory.fail_checkpoint(records);
            }
            7 => {
                let (pass, fail) = (self.random.below(2), 1 + self.random.below(3));
                self.say(|| format!("after {pass} syncs {fail} fail"));
                if let Some(disk) = self.memory.disk() {
                    disk.fail_syncs(pass, fail);
                }
            }
            8 => {
                self.report.clock_steps += 1;
                let step = self.random.below(4 * DAY) as i64 - 2 * DAY as i64;
                self.say(|| format!("the wall clock steps by {step} ms"));
                self.wall_ahead += step;
            }
            9 => {
                let used = self.memory.disk().map_or(0, |disk| disk.used());
                let limit = self
                    .random
                    .one_in(2)
                    .then(|| used + self.random.below(4 * self.memory_options.segment_bytes));
                self.say(|| format!("space is limited to {limit:?} bytes, {used} are used"));
                self.memory.limit_space(limit);
            }
            _ => self.begin_stop(),
        }
        Ok(())
    }

    fn reading(&self) -> Reading {
        let wall = u64::try_from(self.now as i64 + self.wall_ahead).unwrap_or(0);
        Reading { monotonic: self.now * 1000, wall: wall * 1000 }
    }

    fn check_fence(&self, succeeded: bool) -> Result<(), String> {
        if self.is_fenced && succeeded { Err("a deposed owner wrote or confirmed".into()) } else { Ok(()) }
    }

    fn fault(&mut self, fault: AppendFault) {
        self.say(|| format!("the next append fails: {fault:?}"));
        self.memory.fail_append(fault);
    }

    fn append(&mut self, writes: Batch) -> Result<(), String> {
        let store = self.store.as_ref().ok_or("an append without a store")?;
        let seq = store.seq().next();
        self.in_doubt = Some(seq);
        let result = ready(store.append(seq, writes))?.map_err(|error| match error {
            AppendError::Fenced | AppendError::NotDone(_) => Loss::NotDone,
            AppendError::Full => Loss::Full,
            AppendError::Unknown(_) => Loss::Unknown,
        });
        self.say(|| format!("append {}: {result:?}", seq.0));
        self.check_fence(result.is_ok())?;
        let delay = self.random.below(30);
        self.after(delay, Event::Persisted { generation: self.generation, result });
        Ok(())
    }

    /// An append or confirm failed: the shard drops its memory and opens again.
    fn lose(&mut self, loss: Loss) -> Result<(), String> {
        self.report.losses += 1;
        self.abandon(loss)?;
        let delay = self.random.below(100);
        self.after(delay, Event::Open { generation: self.generation });
        Ok(())
    }

    /// The power goes. What was on its way is answered to nobody, but may have happened.
    fn crash(&mut self) -> Result<(), String> {
        self.report.crashes += 1;
        self.abandon(Loss::Unknown)?;
        self.shard.reject_waiting(Failure::Unavailable);
        self.drain()?;
        let remains = if self.random.one_in(2) {
            let seed = self.random.number();
            self.memory.crash(seed)
        } else {
            self.memory.kill()
        };
        self.restart(remains)
    }

    /// A planned stop begins: nothing more comes in, and what was taken is answered.
    fn begin_stop(&mut self) {
        if self.shard.engine().is_some() {
            self.say(|| "the shard is to be closed".into());
            self.shard.handle_closing();
            self.is_stopping = true;
        }
    }

    /// Everything is answered and stored: the process ends, and begins again later. Only a change of rules that could not
    /// be done for lack of room is dropped.
    fn stop(&mut self) -> Result<(), String> {
        self.report.stops += 1;
        self.abandon(Loss::NotDone)?;
        let remains = self.memory.kill();
        self.restart(remains)
    }

    fn restart(&mut self, remains: Remains) -> Result<(), String> {
        self.is_stopping = false;
        let options = shard_options(&mut self.random);
        self.shard = Shard::new(options);
        self.is_restarted = true;
        self.store = None;
        self.memory_options.seed = self.random.number();
        remains.disk.limit_space(None);
        remains.disk.fail_syncs(0, 0);
        let opened = Memory::open(remains, &self.memory_options);
        self.memory =
            Arc::new(opened.map_err(|error| format!("the store does not open after a crash: {error}"))?);
        let down = if self.random.one_in(10) { DAY } else { self.random.below(10_000) };
        self.say(|| format!("nobody is there for {down} ms"));
        self.after(down, Event::Open { generation: self.generation });
        Ok(())
    }

    fn abandon(&mut self, loss: Loss) -> Result<(), String> {
        self.say(|| format!("the shard drops its memory: {loss:?}"));
        self.generation += 1;
        self.wake_at = None;
        if loss != Loss::Unknown {
            self.in_doubt = None;
        }
        self.shard.handle_lost(loss);
        self.drain()?;
        if let Some((order, _)) = self.early.first_key_value() {
            return Err(format!("of {order} decisions only {} were told of", self.judged));
        }
        self.judged = 0;
        self.followers.iter_mut().for_each(Follower::shard_lost);
        Ok(())
    }

    fn open(&mut self) -> Result<(), String> {
        let opened = match &self.store {
            Some(store) => ready(store.retake())?,
            None => {
                let (soft_bytes, hard_bytes) = (16 << 10, usize::MAX);
                let options = ShardStoreOptions { soft_bytes, hard_bytes };
                let opening = ShardStore::open(self.memory.clone(), self.memory.clone(), SHARD, options);
                ready(opening)?.map(|store| self.store = Some(store))
            }
        };
        let engine = opened.map_err(|error: StoreError| error.to_string()).and_then(|()| self.load());
        match engine {
            Ok(engine) => {
                self.is_fenced = false;
                let doubt_happened = self.settle_doubt()?;
                self.say(|| "the shard is open".into());
                let known =
                    if self.is_restarted { engine.time() } else { engine.time().max(self.clock.time()) };
                self.is_restarted = false;
                self.clock = ShardClock::start(known, self.reading());
                let ready = self.clock.time();
                self.is_lost_track |= self.judge.reopened(doubt_happened, engine.time(), ready).is_err();
                self.shard.handle_opened(engine, ready, Opening::Interrupted);
                self.look_around();
            }
            Err(error) if self.faults => {
                self.say(|| format!("opening fails: {error}"));
                // The disk may be full or failing; it gets better in time.
                self.memory.limit_space(None);
                self.after(50, Event::Open { generation: self.generation });
            }
            Err(error) => return Err(format!("the shard does not open: {error}")),
        }
        Ok(())
    }

    /// What the store holds now tells whether the last append had happened.
    fn settle_doubt(&mut self) -> Result<bool, String> {
        let Some(seq) = self.in_doubt.take() else { return Ok(false) };
        let stored = self.store.as_ref().map_or(Seq::ZERO, ShardStore::seq);
        if stored > seq {
            return Err(format!("append {} was the last, but the store has {}", seq.0, stored.0));
        }
        if stored == seq {
            self.report.unknown_happened += 1;
            self.say(|| format!("append {} had happened", seq.0));
        }
        Ok(stored == seq)
    }

    /// Asks for what a lost memory may have taken along, so that not too much stays possible.
    fn look_around(&mut self) {
        for namespace in self.judge.namespaces() {
            for command in self.workload.looks().into_iter().take(4) {
                self.submit(Request { namespace: namespace.clone(), idempotency: None, command });
            }
        }
    }

    fn load(&self) -> Result<Engine, String> {
        let range = record::key::residents();
        let page = self.scan(range.start, range.end)?;
        Engine::open(EngineOptions { build_slice: self.build_slice }, page).map_err(|error| error.to_string())
    }

    fn scan(
        &self,
        from: bytes::Bytes,
        to: bytes::Bytes,
    ) -> Result<Vec<(bytes::Bytes, bytes::Bytes)>, String> {
        let store = self.store.as_ref().ok_or("no store")?;
        match ready(store.read(vec![store::Read::Scan { from, to, limit: usize::MAX >> 1 }]))?.pop() {
            Some(Ok(store::Answer::Page(page))) => Ok(page),
            Some(Err(error)) => Err(error.to_string()),
            _ => Err("a scan without a page".into()),
        }
    }

    fn fetch(&self, reads: Vec<Read>) -> Result<Vec<(Read, Answer)>, String> {
        let store = self.store.as_ref().ok_or("a fetch without a store")?;
        let asked = reads.iter().cloned().map(|read| match read {
            Read::Get(key) => store::Read::Get(key),
            Read::LastAtOrBefore { from, at } => store::Read::LastAtOrBefore { from, at },
            Read::Scan { from, to, limit } => store::Read::Scan { from, to, limit },
        });
        let answers = ready(store.read(asked.collect()))?.into_iter().map(|answer| match answer {
            Ok(store::Answer::Value(value)) => Answer::Value(value),
            Ok(store::Answer::Last(last)) => Answer::Last(last),
            Ok(store::Answer::Page(page)) => Answer::Page(page),
            Err(_) => Answer::Unreadable,
        });
        Ok(reads.iter().cloned().zip(answers).collect())
    }

    fn checkpoint(&mut self) {
        let Some(store) = &self.store else { return };
        let result = ready(store.checkpoint());
        if let Ok(Ok(Some(_))) = &result {
            self.report.checkpoints += 1;
        }
        self.say(|| format!("checkpoint: {result:?}"));
    }

    /// Does what the shard asks for.
    fn drain(&mut self) -> Result<(), String> {
        if let Some(store) = &self.store {
            self.shard.handle_room(store.room() == Room::Plenty);
        }
        let before = self.clock.time();
        let (time, _) = self.clock.advance(self.reading());
        if time < before {
            return Err(format!("shard time went back from {before:?} to {time:?}"));
        }
        while let Some(output) = self.shard.poll(time) {
            let generation = self.generation;
            match output {
                Output::Fetch(reads) => {
                    let delay = self.random.below(10);
                    self.after(delay, Event::Fetch { generation, reads });
                }
                Output::Append { writes, .. } => {
                    let writes = Batch::new(writes.iter().map(|write| Image {
                        key: write.key,
                        value: write.value,
                        is_first: write.is_first,
                    }));
                    let delay = self.random.below(10);
                    self.after(delay, Event::Append { generation, writes });
                }
                Output::Confirm => {
                    let store = self.store.as_ref().ok_or("a confirm without a store")?;
                    let result = ready(store.confirm())?.map_err(|_| Loss::NotDone);
                    self.check_fence(result.is_ok())?;
                    let delay = self.random.below(10);
                    self.after(delay, Event::Persisted { generation, result });
                }
                Output::Reply(reply) => self.check_reply(reply)?,
                Output::Waits { request, since, order } => {
                    self.report.waits += u64::from(is_about_locks(&request));
                    self.note(order, since, request, Fate::Waits)?;
                }
                Output::Effect(effect) => {
                    self.say(|| format!("{effect:?}"));
                    for follower in &mut self.followers {
                        follower.hear(&effect, &mut self.report.followers)?;
                    }
                }
            }
        }
        if let Some(time) = self.shard.take_lag() {
            self.report.lags += 1;
            self.clock.hold(time);
        }
        if self.shard.is_starved() && self.wake_at.is_none() {
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
            return if self.shard.hasten() { self.drain() } else { self.stop() };
        }
        Ok(())
    }

    fn check_reply(&mut self, reply: Reply<Request>) -> Result<(), String> {
        let Reply { ticket: request, decided_at, order, result } = reply;
        self.waiting -= 1;
        self.tell_followers(&request, &result)?;
        if let Some(key) = key_of_change(&request)
            && let Some(place) = self.keys_in_use.iter().position(|other| *other == key)
        {
            self.keys_in_use.swap_remove(place);
        }
        let may_be_key_in_use = request.idempotency.as_ref().is_some_and(|idempotency| {
            self.keys_in_use.contains(&(request.namespace.clone(), idempotency.key.clone()))
        });
        if result == Ok(Outcome::IdempotencyKeyInUse) && !may_be_key_in_use && !is_about_locks(&request) {
            return Err(format!("nothing is under way under the key of {request:?}"));
        }
        let unheard =
            Unheard { may_be_nothing: may_be_key_in_use || (self.read_faults && may_read(&request)) };
        let fate = match result {
            Ok(outcome) => {
                self.report.answered += 1;
                self.report.unreadable += u64::from(has_unreadable(&outcome));
                self.last_answer = Some(outcome.clone());
                Fate::Answered(outcome)
            }
            Err(Failure::OutcomeUnknown) => {
                self.report.unknown += 1;
                Fate::InDoubt(unheard)
            }
            Err(Failure::Closing) => Fate::GivenUp,
            Err(Failure::StorageFull | Failure::Unavailable) => Fate::NotDone(unheard),
        };
        match (decided_at, &fate) {
            (Some(at), _) => self.note(order, at, request, fate),
            (None, Fate::NotDone(_)) => {
                self.say(|| format!("not decided: {request:?}"));
                Ok(())
            }
            (None, _) => Err("an outcome that was not decided".into()),
        }
    }

    fn note(&mut self, order: u64, at: Time, request: Request, fate: Fate) -> Result<(), String> {
        self.say(|| format!("{order}: {request:?} -> {fate:?}"));
        if self.early.insert(order, (at, request, fate)).is_some() || order <= self.judged {
            return Err(format!("two decisions have the place {order}"));
        }
        self.judge_in_order()
    }

    /// A relaxed answer is told at once; it is judged when all is known that was decided before it.
    fn judge_in_order(&mut self) -> Result<(), String> {
        while let Some((at, request, fate)) = self.early.remove(&(self.judged + 1)) {
            self.judged += 1;
            let decided = self.judge.decided(at, &request, fate.clone());
            self.report.states = self.report.states.max(self.judge.states() as u64);
            decided.map_err(|expected| difference(at, &request, &fate, &expected))?;
        }
        Ok(())
    }

    /// Reads everything through the shard; each answer is held against the model like any other.
    fn audit(&mut self) -> Result<(), String> {
        let all = 100_000;
        let namespace = Name::new("n0").expect("a valid name");
        let page = || Page { after: None, limit: all };
        self.ask(&namespace, Command::ListNamespaces(page()))?;
        for namespace in self.judge.namespaces() {
            let list = |command| Command::Ledger(command);
            let limits = self.ask(&namespace, list(ledger::Command::ListLimits(page())))?;
            for only_held in [false, true] {
                self.ask(&namespace, list(ledger::Command::ListOperations { only_held, page: page() }))?;
            }
            let Outcome::Ledger(Ok(LedgerReply::Limits { items, .. })) = limits else {
                return Err(format!("a list of limits is {limits:?}"));
            };
            for limit_name in items.into_iter().map(|limit| limit.value.limit_name) {
                let page = Page { after: None, limit: all };
                self.ask(&namespace, list(ledger::Command::ListEntries { limit_name, page }))?;
            }
            for look in self.workload.looks() {
                self.ask(&namespace, look)?;
            }
            self.walk_counters(&namespace)?;
        }
        (0..self.followers.len()).try_for_each(|index| self.audit_follower(index))
    }

    /// Whoever follows a stream has in the end what the stream has.
    fn audit_follower(&mut self, index: usize) -> Result<(), String> {
        // A fault from before may still cost the first try.
        for _ in 0..3 {
            self.come_back(index);
            self.drain()?;
            self.run_until_quiet()?;
        }
        let (namespace, stream) = self.followers[index].address();
        let (namespace, command) = (namespace.clone(), events::Command::Incubating(stream.clone()));
        let frame = match self.ask(&namespace, Command::Events(command))? {
            Outcome::Events(Ok(events::Reply::Incubating(frame))) => Some(frame),
            Outcome::Events(Err(events::Refusal::StreamNotFound { .. })) => None,
            other => return Err(format!("what incubates is {other:?}")),
        };
        let follower = &self.followers[index];
        if follower.is_at(frame.as_ref()) {
            Ok(())
        } else {
            Err(format!("{frame:?} is not what there is for {follower:?}"))
        }
    }

    /// In small parts, the counters must be the same as in one, each once.
    fn walk_counters(&mut self, namespace: &Name) -> Result<(), String> {
        let mut walked = Vec::new();
        let mut after = None;
        for limit in (1..4).cycle() {
            let page = Page { after, limit };
            let listed = self.counters(namespace, page)?;
            walked.extend(listed.items);
            after = listed.next;
            if after.is_none() {
                break;
            }
        }
        let mut all = self.counters(namespace, Page { after: None, limit: 100_000 })?.items;
        for counters in [&mut walked, &mut all] {
            counters.sort_by(|a, b| a.key_values.cmp(&b.key_values));
        }
        if walked == all {
            Ok(())
        } else {
            Err(format!("in parts the counters are {walked:?}, but at once {all:?}"))
        }
    }

    fn counters(
        &mut self,
        namespace: &Name,
        page: Page<limiter::CounterId>,
    ) -> Result<limina_engine::Listed<limiter::CounterInfo, limiter::CounterId>, String> {
        let command = limiter::Command::ListCounters { query: Query::default(), page };
        match self.ask(namespace, Command::Limiter(command))? {
            Outcome::Limiter(Ok(limiter::Reply::Counters(listed))) => Ok(listed),
            other => Err(format!("a list of counters is {other:?}")),
        }
    }

    fn ask(&mut self, namespace: &Name, command: Command) -> Result<Outcome, String> {
        let request = Request { namespace: namespace.clone(), idempotency: None, command };
        self.last_answer = None;
        // A fault from before may still cost the first try.
        for _ in 0..3 {
            self.send(request.clone());
            self.drain()?;
            self.run_until_quiet()?;
            if let Some(answer) = self.last_answer.take() {
                return Ok(answer);
            }
        }
        Err("the audit was not answered".into())
    }

    fn digest(&self) -> Result<u32, String> {
        let all = self.scan(bytes::Bytes::new(), bytes::Bytes::from_static(&[0xff; 8]))?;
        Ok(all
            .iter()
            .fold(0, |crc, (key, value)| crc32c::crc32c_append(crc32c::crc32c_append(crc, key), value)))
    }
}

fn shard_options(random: &mut Random) -> ShardOptions {
    ShardOptions {
        max_queue: 10_000,
        max_batch: 1 + random.below(40) as usize,
        due_slice: *random.pick(&[1, 1, 2, 4, 10]),
        max_lag: Millis(*random.pick(&[0, 20, 250, 1_000])),
    }
}

/// The futures of a store in memory are ready at once.
pub(crate) fn ready<F: Future>(future: F) -> Result<F::Output, String> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err("a store in memory waits for nothing, but this did".into()),
    }
}

/// The key of a request that may be answered later than others that came after it. (Who waits for locks, and under which
/// keys, the model knows.)
fn key_of_change(request: &Request) -> Option<(Name, Name)> {
    let is_change = matches!(request.command, Command::Limiter(limiter::Command::Change(_)));
    let key = request.idempotency.as_ref().filter(|_| is_change)?;
    Some((request.namespace.clone(), key.key.clone()))
}

/// Whether it may need a stored record, which may be unreadable.
fn may_read(request: &Request) -> bool {
    request.idempotency.is_some()
        || match &request.command {
            Command::Ledger(_) => true,
            Command::Events(command) => matches!(command, events::Command::Changes { .. }),
            Command::Limiter(_)
            | Command::Locks(_)
            | Command::DeleteNamespace
            | Command::ListNamespaces(_) => false,
        }
}

fn is_about_locks(request: &Request) -> bool {
    matches!(request.command, Command::Locks(_))
}

/// Whether something could not be read, and was not done.
fn has_unreadable(outcome: &Outcome) -> bool {
    let Outcome::Ledger(Ok(LedgerReply::Batch(results))) = outcome else {
        return model::is_unreadable(outcome);
    };
    results.contains(&Err(ledger::Refusal::Unreadable))
}

fn difference(at: Time, request: &Request, fate: &Fate, expected: &str) -> String {
    let mut text = format!("at {} the answer differs from the model's\n", at.0);
    let _ = write!(text, "request:  {request:?}\nanswer:   {fate:?}\nexpected: {expected}");
    text
}
