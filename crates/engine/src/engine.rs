//! The state machine of one shard.

use crate::{
    Command, Effect, Fetched, Job, Millis, Missing, Name, Outcome, Page, Position, Read, Request, Time,
    idempotency, ledger, limiter,
    namespace::{Changes, Keys, Namespace, Stop, Turn, View},
    outcome::NamespaceInfo,
    reads::{self, Reader},
    recent::{Recent, Writes},
    record::{
        self,
        key::{self, NamespaceId, Resident},
    },
    sweep::{self, Sweeping},
    timers::{Timer, TimerKey, Timers},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use bytes::Bytes;
use core::fmt;
use hashbrown::HashMap;

/// How long something that was due waits if a record that it needs could not be read.
const POSTPONED: Millis = Millis(1000);

/// Bounds of the engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many counters a change of rules sums up at a time, before others have their turn.
    pub build_slice: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { build_slice: 512 }
    }
}

/// One shard's decisions. Requests are applied one after another, each at one instant.
#[derive(Debug)]
pub struct Engine {
    options: Options,
    meta: record::ShardMeta,
    namespaces: BTreeMap<Name, Namespace>,
    names: HashMap<NamespaceId, Name>,
    timers: Timers,
    sweeps: BTreeMap<u64, Sweeping>,
    changes: Changes,
    changed_namespaces: Vec<Name>,
    ledger_limits: usize,
    limiter_sizes: limiter::Sizes,
    /// Namespaces with a change of rules under way.
    building: BTreeSet<NamespaceId>,
    next_wait: u64,
    completions: Vec<(WaitId, Outcome)>,
    /// Memory to be freed bit by bit.
    garbage: Vec<limiter::Garbage>,
    /// The writes of the last sealed batch, which may not be durable yet.
    sealed: Recent<Arc<Writes>>,
}

/// The name under which a request is answered that could not be answered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId(pub u64);

/// What became of a request.
#[derive(Debug)]
pub enum Applied {
    /// It is decided.
    Done {
        /// What.
        outcome: Outcome,
        /// It may be told before the writes sealed after it are durable.
        is_relaxed: bool,
    },
    /// It will be among the completions ([`Engine::take_completions`]) after a later step.
    Waiting(WaitId),
}

/// A batch's result. `writes` must be durable before any outcome decided since the last seal, or any of `effects`, is
/// told to anyone; except for outcomes that are relaxed.
#[derive(Debug, Default)]
pub struct Sealed {
    /// After-images, each key once.
    pub writes: Arc<Writes>,
    /// What is to be told, in order.
    pub effects: Vec<Effect>,
}

/// Something that the engine does without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// A timer that has run out. These come before any request at the same time.
    Timer(TimerKey),
    /// A slice of a sweep. These come between other work, whenever.
    Sweep(u64),
    /// A slice of a change of rules.
    Build(NamespaceId),
    /// Freeing some memory.
    Free,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Namespaces.
    pub namespaces: usize,
    /// Ledger limits.
    pub ledger_limits: usize,
    /// What the limiter holds.
    pub limiter: limiter::Sizes,
    /// Timers that wait.
    pub timers: usize,
    /// Sweeps that are not done yet.
    pub sweeps: usize,
}

impl Stats {
    /// Several engines together.
    pub fn sum(engines: impl IntoIterator<Item = Stats>) -> Stats {
        engines.into_iter().fold(Stats::default(), |mut sum, stats| {
            sum.namespaces += stats.namespaces;
            sum.ledger_limits += stats.ledger_limits;
            sum.limiter.change(limiter::Sizes::default(), stats.limiter);
            sum.timers += stats.timers;
            sum.sweeps += stats.sweeps;
            sum
        })
    }
}

/// A stored record that the engine cannot take in: damage, or another version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// The record's key.
    pub key: Bytes,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored record under key ")?;
        self.key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(" is damaged or of another version")
    }
}

impl core::error::Error for BadRecord {}

impl Engine {
    /// Takes in the resident records, in key order ([`key::residents`] is their range).
    pub fn open(
        options: Options,
        residents: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> Result<Engine, BadRecord> {
        let meta = record::ShardMeta {
            time: Time(0),
            next_namespace: 0,
            position_floor: Position(0),
            next_sweep: 0,
        };
        let mut changes = Changes::default();
        // Nothing yet; the two are looked through together, by the same hash.
        let (sealed, _) = changes.take();
        let mut engine = Engine {
            options,
            meta,
            namespaces: BTreeMap::new(),
            names: HashMap::new(),
            timers: Timers::default(),
            sweeps: BTreeMap::new(),
            changes,
            changed_namespaces: Vec::new(),
            ledger_limits: 0,
            limiter_sizes: limiter::Sizes::default(),
            building: BTreeSet::new(),
            next_wait: 0,
            completions: Vec::new(),
            garbage: Vec::new(),
            sealed,
        };
        for (key, bytes) in residents {
            if engine.load(&key, &bytes).is_err() {
                return Err(BadRecord { key });
            }
        }
        let now = engine.meta.time;
        for namespace in engine.namespaces.values_mut() {
            namespace.limiter.finish_load(now, namespace.id, &mut engine.timers);
            engine.limiter_sizes.change(limiter::Sizes::default(), namespace.limiter.sizes());
        }
        Ok(engine)
    }

    /// Nobody loses a lease because nobody was there to be asked: each lives for at least its whole ttl from now on. To
    /// be called before anything else, unless the shard was handed over without a pause.
    pub fn grace(&mut self, ready: Time) {
        for namespace in self.namespaces.values_mut() {
            namespace.limiter.grace(ready, namespace.id, &mut self.timers);
        }
    }

    fn load(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), record::Malformed> {
        match key::parse_resident(key).ok_or(record::Malformed)? {
            Resident::ShardMeta => self.meta = record::decode(bytes)?,
            Resident::Sweep(id) => {
                let sweep: record::Sweep = record::decode(bytes)?;
                self.sweeps.insert(id, Sweeping { from: sweep.from.into(), to: sweep.to.into() });
            }
            Resident::Namespace(id) => {
                let head: record::NamespaceHead = record::decode(bytes)?;
                if let Some((first, _)) = head.replies {
                    let (key, timer) = idempotency::drop_timer(id, first);
                    self.timers.set(key, timer);
                }
                self.names.insert(id, head.name.clone());
                let mut namespace = Namespace::new(id, head.name.clone(), head.position);
                namespace.head.replies = head.replies;
                if self.namespaces.insert(head.name, namespace).is_some() {
                    return Err(record::Malformed);
                }
            }
            // What belongs to no namespace is left of a deleted one, and being swept.
            Resident::LedgerLimit(id, number) => {
                if let Some(namespace) = self.namespace_mut(id) {
                    namespace.ledger.load_limit(number, bytes)?;
                    self.ledger_limits += 1;
                }
            }
            Resident::LedgerBalance(id, number) => {
                if let Some(namespace) = self.namespace_mut(id) {
                    namespace.ledger.load_balance(number, bytes)?;
                }
            }
            Resident::LedgerExpiry(namespace, due, position) => {
                let operation_id: Name = record::decode(bytes)?;
                if self.names.contains_key(&namespace) {
                    let timer = Timer::LedgerExpiry { operation_id, due };
                    self.timers.set(TimerKey { due, namespace, position }, timer);
                }
            }
            Resident::LimiterRule(id, rule) => {
                if let Some(namespace) = self.namespace_mut(id) {
                    namespace.limiter.load_rule(rule, bytes)?;
                }
            }
            Resident::LimiterOverride(id, rule, _) => {
                if let Some(namespace) = self.namespace_mut(id) {
                    namespace.limiter.load_override(rule, bytes)?;
                }
            }
            Resident::LimiterWindow(id, place) => {
                if let Some(namespace) = self.namespace_mut(id) {
                    namespace.limiter.load_window(place, bytes)?;
                }
            }
            Resident::LimiterCounter(id, place) => {
                if let Some(namespace) = self.namespace_mut(id) {
                    namespace.limiter.load_counter(place, bytes)?;
                }
            }
            Resident::LimiterLease(id, _) => {
                if let Some(namespace) = self.namespace_mut(id) {
                    namespace.limiter.load_lease(bytes)?;
                }
            }
        }
        Ok(())
    }

    fn namespace_mut(&mut self, id: NamespaceId) -> Option<&mut Namespace> {
        self.namespaces.get_mut(self.names.get(&id)?)
    }

    /// The latest time that this shard has seen; no request may come earlier.
    pub fn time(&self) -> Time {
        self.meta.time
    }

    /// How much there is.
    pub fn stats(&self) -> Stats {
        Stats {
            namespaces: self.namespaces.len(),
            ledger_limits: self.ledger_limits,
            limiter: self.limiter_sizes,
            timers: self.timers.len(),
            sweeps: self.sweeps.len(),
        }
    }

    /// Runs a request, or says what must be fetched first; then it is to be run again with that, before anything
    /// that came after it. Everything due by `now` must have been applied before.
    pub fn apply(&mut self, now: Time, job: &mut Job, fetched: &Fetched) -> Result<Applied, Missing> {
        self.advance_time(now);
        match &job.request.command {
            Command::Ledger(_) | Command::Limiter(_) => self.apply_in_namespace(now, job, fetched),
            Command::DeleteNamespace => Ok(Applied::durable(self.delete_namespace(&job.request.namespace))),
            Command::ListNamespaces(page) => Ok(Applied::durable(self.list_namespaces(page))),
        }
    }

    /// What must be fetched before the request can run, as far as that can be told now. Asking saves rounds;
    /// [`Engine::apply`] has the last word.
    pub fn missing(&self, now: Time, job: &Job, fetched: &Fetched) -> Vec<Read> {
        // In a namespace that does not exist there is nothing to fetch.
        let Some(namespace) = self.namespaces.get(&job.request.namespace) else { return Vec::new() };
        let view = View {
            now,
            keys: Keys(namespace.id),
            position: namespace.head.position,
            building: &self.changes.writes,
            sealed: &self.sealed,
            fetched,
        };
        let mut missing = Vec::new();
        let mut note = |result: Result<(), Stop>| {
            if let Err(Stop::Missing(Missing(reads))) = result {
                missing.extend(reads);
            }
        };
        if let Some(idempotency) = &job.request.idempotency {
            note(view.read(|reader| idempotency::find(reader, view, idempotency)).map(|_| ()));
        }
        match &job.request.command {
            Command::Ledger(command) => note(ledger::missing(&namespace.ledger, view, command)),
            // All of it is resident.
            Command::Limiter(_) | Command::DeleteNamespace | Command::ListNamespaces(_) => {}
        }
        missing
    }

    fn apply_in_namespace(
        &mut self,
        now: Time,
        job: &mut Job,
        fetched: &Fetched,
    ) -> Result<Applied, Missing> {
        // A namespace comes into being with its first change. Until then a request runs against an empty one.
        let mut unborn = None;
        let name = job.request.namespace.clone();
        let namespace = match self.namespaces.get_mut(&name) {
            Some(namespace) => namespace,
            None => unborn.insert(Namespace::new(
                NamespaceId(self.meta.next_namespace),
                name.clone(),
                self.meta.position_floor,
            )),
        };
        let before = namespace.head.position;
        let (limits_before, sizes_before) = (namespace.ledger.len(), namespace.limiter.sizes());
        let mut turn = Turn {
            now,
            name: &name,
            keys: Keys(namespace.id),
            position: &mut namespace.head.position,
            timers: &mut self.timers,
            changes: &mut self.changes,
            sealed: &self.sealed,
            fetched,
        };

        let is_begun = job.changed || !job.batch_results.is_empty();
        let idempotency = job.request.idempotency.clone();
        if let Some(idempotency) = &idempotency
            && !is_begun
        {
            if namespace.keys_in_use.contains(&idempotency.key) {
                return Ok(Applied::durable(Outcome::IdempotencyKeyInUse));
            }
            match turn.view().read(|reader| idempotency::find(reader, turn.view(), idempotency)) {
                Ok(kept) => {
                    if let Some(outcome) = kept.and_then(|kept| again(&namespace.limiter, &turn, kept)) {
                        return Ok(Applied::durable(outcome));
                    }
                }
                Err(Stop::Missing(missing)) => return Err(missing),
                Err(Stop::Unreadable) => return Ok(Applied::durable(Outcome::Unreadable)),
            }
        }

        let applied = match &job.request.command {
            Command::Limiter(command) => {
                let wait = WaitId(self.next_wait);
                let slice = self.options.build_slice;
                let asked = limiter::Asked { idempotency: idempotency.as_ref(), wait, slice };
                match limiter::apply(&mut namespace.limiter, &mut turn, command, &asked) {
                    limiter::Applied::Done { result, is_relaxed } => {
                        Ok(Applied::Done { outcome: Outcome::Limiter(result), is_relaxed })
                    }
                    limiter::Applied::Refused => Ok(Applied::durable(Outcome::TooManyWait)),
                    limiter::Applied::Waits => {
                        self.next_wait += 1;
                        namespace.keys_in_use.extend(idempotency.as_ref().map(|i| i.key.clone()));
                        Ok(Applied::Waiting(wait))
                    }
                }
            }
            _ => ledger::apply(&mut namespace.ledger, &mut turn, job)
                .map(|result| Applied::durable(Outcome::Ledger(result))),
        };
        job.changed |= *turn.position != before;
        let applied = match applied {
            Ok(applied) => {
                if let (Some(idempotency), Applied::Done { outcome, .. }) = (&idempotency, &applied)
                    && job.changed
                {
                    idempotency::keep(&mut turn, &mut namespace.head.replies, idempotency, outcome);
                }
                Ok(applied)
            }
            Err(Stop::Missing(missing)) => Err(missing),
            Err(Stop::Unreadable) => Ok(Applied::durable(Outcome::Unreadable)),
        };
        self.ledger_limits += namespace.ledger.len() - limits_before;
        self.limiter_sizes.change(sizes_before, namespace.limiter.sizes());
        if namespace.limiter.is_building() {
            self.building.insert(namespace.id);
        }
        self.garbage.extend(namespace.limiter.take_garbage());
        // A window that no answer waits for is reason enough for a namespace to be.
        let is_born = sizes_before == limiter::Sizes::default() && namespace.limiter.sizes() != sizes_before;
        if (job.changed || is_born || namespace.limiter.has_to_write()) && !namespace.changed {
            namespace.changed = true;
            self.changed_namespaces.push(name.clone());
        }
        if let Some(born) = unborn
            && born.changed
        {
            self.meta.next_namespace += 1;
            self.names.insert(born.id, name.clone());
            self.namespaces.insert(name, born);
        }
        self.begin_sweeps();
        applied
    }

    fn delete_namespace(&mut self, name: &Name) -> Outcome {
        let Some(namespace) = self.namespaces.remove(name) else {
            return Outcome::NamespaceNotFound;
        };
        self.names.remove(&namespace.id);
        self.ledger_limits -= namespace.ledger.len();
        self.limiter_sizes.change(namespace.limiter.sizes(), limiter::Sizes::default());
        self.building.remove(&namespace.id);
        self.timers.drop_namespace(namespace.id);
        self.meta.position_floor = self.meta.position_floor.max(namespace.head.position);
        self.changes.writes.remove(&Keys(namespace.id).head());
        for range in key::all_of_namespace(namespace.id) {
            self.begin_sweep(record::Sweep { from: range.start.to_vec(), to: range.end.to_vec() });
        }
        let mut limiter = namespace.limiter;
        let gone = limiter.stop_building().map(|wait| (wait, Outcome::NamespaceNotFound));
        self.completions.extend(gone);
        self.garbage.extend(limiter.into_garbage());
        Outcome::NamespaceDeleted
    }

    fn begin_sweeps(&mut self) {
        for range in core::mem::take(&mut self.changes.sweeps) {
            self.begin_sweep(record::Sweep { from: range.start.to_vec(), to: range.end.to_vec() });
        }
    }

    fn begin_sweep(&mut self, sweep: record::Sweep) {
        let id = self.meta.next_sweep;
        self.meta.next_sweep += 1;
        self.changes.put(&key::sweep(id), &sweep);
        self.sweeps.insert(id, Sweeping { from: sweep.from.into(), to: sweep.to.into() });
    }

    fn list_namespaces(&self, page: &Page<Name>) -> Outcome {
        use core::ops::Bound::{Excluded, Unbounded};
        let range = (page.after.as_ref().map_or(Unbounded, Excluded), Unbounded);
        let info = |(name, namespace): (&Name, &Namespace)| NamespaceInfo {
            name: name.clone(),
            position: namespace.head.position,
        };
        Outcome::Namespaces(self.namespaces.range::<Name, _>(range).take(page.limit).map(info).collect())
    }

    /// When the next timer runs out.
    pub fn next_due(&self) -> Option<Time> {
        self.timers.next_due()
    }

    /// What has run out by `now`, in order, at most `limit`.
    pub fn due(&self, now: Time, limit: usize) -> Vec<Due> {
        self.timers.due(now, limit).into_iter().map(Due::Timer).collect()
    }

    /// A slice of work that can be done whenever there is time for it.
    pub fn sweep(&self) -> Option<Due> {
        self.sweeps.keys().next().map(|id| Due::Sweep(*id))
    }

    /// A slice of a change of rules, for which somebody waits.
    pub fn build(&self) -> Option<Due> {
        self.building.first().map(|namespace| Due::Build(*namespace))
    }

    /// A slice of memory to be freed.
    pub fn free(&self) -> Option<Due> {
        (!self.garbage.is_empty()).then_some(Due::Free)
    }

    /// What must be fetched before what is due can be done, as far as that can be told now.
    pub fn missing_for_due(&self, due: Due, fetched: &Fetched) -> Vec<Read> {
        let reader = Reader::new(&self.changes.writes, &self.sealed, fetched);
        match due {
            Due::Timer(key) => {
                if let Some(Timer::LedgerExpiry { operation_id, .. }) = self.timers.get(key) {
                    reader.want(Keys(key.namespace).operation(operation_id));
                }
            }
            Due::Sweep(id) => {
                if let Some(sweeping) = self.sweeps.get(&id) {
                    let _noted = reader.scan(sweeping.from.clone(), sweeping.to.clone(), sweep::SLICE);
                }
            }
            Due::Build(_) | Due::Free => {}
        }
        reader.into_missing().0
    }

    /// Does what is due, or says what must be fetched first. What is no longer there is no longer due.
    pub fn apply_due(&mut self, now: Time, due: Due, fetched: &Fetched) -> Result<(), Missing> {
        self.advance_time(now);
        match due {
            Due::Timer(key) => self.apply_timer(now, key, fetched),
            Due::Sweep(id) => self.apply_sweep(id, fetched),
            Due::Build(id) => {
                self.apply_build(now, id, fetched);
                Ok(())
            }
            Due::Free => {
                if self.garbage.last_mut().is_some_and(limiter::Garbage::free_some) {
                    self.garbage.pop();
                }
                Ok(())
            }
        }
    }

    /// A slice of a change of rules, and the answers to what it completes.
    fn apply_build(&mut self, now: Time, id: NamespaceId, fetched: &Fetched) {
        // It may have been deleted since this was found to be due.
        let Some(name) = self.names.get(&id).cloned() else { return };
        let namespace = self.namespaces.get_mut(&name).expect("a named namespace exists");
        let sizes_before = namespace.limiter.sizes();
        let mut turn = Turn {
            now,
            name: &name,
            keys: Keys(namespace.id),
            position: &mut namespace.head.position,
            timers: &mut self.timers,
            changes: &mut self.changes,
            sealed: &self.sealed,
            fetched,
        };
        let completed = limiter::work(&mut namespace.limiter, &mut turn, self.options.build_slice);
        let is_changed = !completed.is_empty();
        for completed in completed {
            let is_done = completed.result.is_ok();
            let outcome = Outcome::Limiter(completed.result);
            if let Some(idempotency) = &completed.waiting.idempotency {
                namespace.keys_in_use.remove(&idempotency.key);
                if is_done {
                    idempotency::keep(&mut turn, &mut namespace.head.replies, idempotency, &outcome);
                }
            }
            self.completions.push((completed.waiting.id, outcome));
        }
        if is_changed && !namespace.changed {
            namespace.changed = true;
            self.changed_namespaces.push(name.clone());
        }
        self.limiter_sizes.change(sizes_before, namespace.limiter.sizes());
        if !namespace.limiter.is_building() {
            self.building.remove(&id);
        }
        self.garbage.extend(namespace.limiter.take_garbage());
        self.begin_sweeps();
    }

    fn apply_timer(&mut self, now: Time, key: TimerKey, fetched: &Fetched) -> Result<(), Missing> {
        let Some(timer) = self.timers.get(key).cloned() else { return Ok(()) };
        let name = self.names.get(&key.namespace).expect("a timer belongs to a namespace").clone();
        let namespace = self.namespaces.get_mut(&name).expect("a named namespace exists");
        let sizes_before = namespace.limiter.sizes();
        let mut turn = Turn {
            now,
            name: &name,
            keys: Keys(namespace.id),
            position: &mut namespace.head.position,
            timers: &mut self.timers,
            changes: &mut self.changes,
            sealed: &self.sealed,
            fetched,
        };
        match timer {
            Timer::LedgerExpiry { operation_id, due } => {
                // It counts as done when it was due. Nothing later was decided in between, unless it was put off.
                turn.now = if key.due == due { due } else { now };
                match ledger::expire(&mut namespace.ledger, &mut turn, &operation_id, due, key.position) {
                    Ok(()) => self.timers.cancel(key),
                    Err(Stop::Missing(missing)) => return Err(missing),
                    Err(Stop::Unreadable) => {
                        self.timers.postpone(key, now.after(POSTPONED));
                        self.changes.effects.push(Effect::DuePostponed { namespace: name });
                        return Ok(());
                    }
                }
            }
            Timer::LeaseExpiry { id } => {
                turn.now = key.due;
                turn.timers.cancel(key);
                limiter::expire_lease(&mut namespace.limiter, &mut turn, &id);
            }
            Timer::WriteWindows => {
                turn.timers.cancel(key);
                namespace.limiter.write_windows(&mut turn);
            }
            Timer::DropIdleWindows => {
                turn.timers.cancel(key);
                namespace.limiter.drop_idle_windows(&mut turn);
                self.limiter_sizes.change(sizes_before, namespace.limiter.sizes());
                // What it removed is written; the namespace itself is as it was.
                return Ok(());
            }
            Timer::DropReplies => {
                self.timers.cancel(key);
                let Some(replies) = namespace.head.replies else { return Ok(()) };
                let (period, rest) = idempotency::drop_oldest(replies);
                namespace.head.replies = rest;
                if let Some((first, _)) = rest {
                    let (key, timer) = idempotency::drop_timer(key.namespace, first);
                    self.timers.set(key, timer);
                }
                self.begin_sweep(idempotency::dropped_range(key.namespace, period));
            }
        }
        let namespace = self.namespaces.get_mut(&name).expect("a named namespace exists");
        self.limiter_sizes.change(sizes_before, namespace.limiter.sizes());
        if !namespace.changed {
            namespace.changed = true;
            self.changed_namespaces.push(name);
        }
        Ok(())
    }

    fn apply_sweep(&mut self, id: u64, fetched: &Fetched) -> Result<(), Missing> {
        let Some(sweeping) = self.sweeps.get_mut(&id) else { return Ok(()) };
        let reader = Reader::new(&self.changes.writes, &self.sealed, fetched);
        let scanned = match reader.scan(sweeping.from.clone(), sweeping.to.clone(), sweep::SLICE) {
            Ok(scanned) => scanned,
            Err(reads::Absent::NotFetched) => return Err(reader.into_missing()),
            // It stays pending; a later opening tries again.
            Err(reads::Absent::Unreadable) => {
                self.sweeps.remove(&id);
                return Ok(());
            }
        };
        for (key, _) in scanned.records {
            self.changes.writes.remove(&key);
        }
        match scanned.more_after {
            Some(last) => sweeping.from = reads::successor(&last),
            None => {
                self.sweeps.remove(&id);
                self.changes.writes.remove(&key::sweep(id));
            }
        }
        Ok(())
    }

    /// Lets the next seal write everything that no answer waited for, as before a planned stop. Says whether there is
    /// anything.
    pub fn hasten(&mut self) -> bool {
        let mut any = false;
        for (name, namespace) in &mut self.namespaces {
            if namespace.limiter.hasten() {
                any = true;
                if !namespace.changed {
                    namespace.changed = true;
                    self.changed_namespaces.push(name.clone());
                }
            }
        }
        any
    }

    /// Whether the next seal has anything to write.
    pub fn has_changes(&self) -> bool {
        !self.changed_namespaces.is_empty() || !self.changes.writes.is_empty()
    }

    /// Closes the batch: everything applied since the last seal. The batch before it must be durable by now.
    pub fn seal(&mut self) -> Sealed {
        for name in self.changed_namespaces.drain(..) {
            if let Some(namespace) = self.namespaces.get_mut(&name) {
                namespace.changed = false;
                let keys = Keys(namespace.id);
                namespace.ledger.flush(keys, &mut self.changes);
                namespace.limiter.flush(keys, &mut self.changes);
                self.changes.put(&keys.head(), &namespace.head);
            }
        }
        if !self.changes.writes.is_empty() {
            self.changes.put(&key::shard_meta(), &self.meta);
        }
        let (writes, effects) = self.changes.take();
        self.sealed = writes;
        Sealed { writes: self.sealed.writes().clone(), effects }
    }

    /// What is answered by now of what had to wait, in order; like all outcomes, to be told when the batch is durable.
    /// Asking after each step tells where in the order of decisions these have their place.
    pub fn take_completions(&mut self) -> Vec<(WaitId, Outcome)> {
        core::mem::take(&mut self.completions)
    }

    fn advance_time(&mut self, now: Time) {
        assert!(now >= self.meta.time, "shard time went back from {:?} to {now:?}", self.meta.time);
        self.meta.time = now;
    }
}

/// A kept outcome that is told again; none if the request is to be decided afresh.
fn again(limiter: &limiter::Limiter, turn: &Turn<'_>, kept: Outcome) -> Option<Outcome> {
    match kept {
        Outcome::Limiter(Ok(reply)) => {
            limiter::again(limiter, turn, &reply).map(|reply| Outcome::Limiter(Ok(reply)))
        }
        other => Some(other),
    }
}

impl Applied {
    fn durable(outcome: Outcome) -> Applied {
        Applied::Done { outcome, is_relaxed: false }
    }
}

impl Request {
    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        self.command.is_write()
    }

    /// Whether it removes more than it writes, so that a full disk is no reason to refuse it.
    pub fn makes_room(&self) -> bool {
        use limiter::{Change, Command as Limiter};
        match &self.command {
            Command::DeleteNamespace => true,
            // A kept reply would take more than they free.
            Command::Limiter(_) if self.idempotency.is_some() => false,
            Command::Limiter(command) => match command {
                // Its holder lives: nobody must lose a lease for lack of room. It overwrites its own record.
                Limiter::ExtendLease(_) | Limiter::ReleaseLease(_) => true,
                Limiter::MoveCounter { by, .. } => *by < 0,
                Limiter::Change(change) => {
                    matches!(change, Change::DeleteRule(_) | Change::DeleteOverride { .. })
                }
                _ => false,
            },
            Command::Ledger(_) | Command::ListNamespaces(_) => false,
        }
    }
}
