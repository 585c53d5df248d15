//! The state machine of one shard.

mod desk;
mod loading;

pub use loading::{BadRecord, Loading};

use crate::{
    Command, Effect, Fetched, Job, Millis, Missing, Name, Outcome, Page, Read, Request, Time, events,
    idempotency, ledger, limiter, locks,
    namespace::{Families, Keys, Namespace, Stop, Turn, View, Waiting},
    outcome::NamespaceInfo,
    reads::{self, Reader},
    recent::Writes,
    record::{
        self,
        key::{self, NamespaceId},
    },
    sweep::{self, Sweeping},
    timers::{Timer, TimerKey},
};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use bytes::Bytes;
use core::ops::Range;
use desk::{Desk, Garbage};
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
        Options { build_slice: 1_024 }
    }
}

/// One shard's decisions. Requests are applied one after another, each at one instant.
#[derive(Debug)]
pub struct Engine {
    options: Options,
    meta: record::ShardMeta,
    /// The time that the last sealed batch has stored, or the opening has read.
    stored_time: Time,
    namespaces: BTreeMap<Name, Namespace>,
    names: HashMap<NamespaceId, Name>,
    sweeps: BTreeMap<u64, Sweeping>,
    next_wait: u64,
    desk: Desk,
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
    /// What they hold in memory.
    pub sizes: Sizes,
    /// Timers that wait.
    pub timers: usize,
    /// Sweeps that are not done yet.
    pub sweeps: usize,
}

/// How much the families hold in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Ledger limits.
    pub ledger_limits: usize,
    /// What the limiter holds.
    pub limiter: limiter::Sizes,
    /// What is locked and waited for.
    pub locks: locks::Sizes,
    /// Streams of events.
    pub events: events::Sizes,
}

impl Sizes {
    /// One namespace has become larger or smaller.
    fn change(&mut self, before: Sizes, after: Sizes) {
        self.ledger_limits = self.ledger_limits + after.ledger_limits - before.ledger_limits;
        self.limiter.change(before.limiter, after.limiter);
        self.locks.change(before.locks, after.locks);
        self.events.streams = self.events.streams + after.events.streams - before.events.streams;
    }
}

impl Stats {
    /// Several engines together.
    pub fn sum(engines: impl IntoIterator<Item = Stats>) -> Stats {
        engines.into_iter().fold(Stats::default(), |mut sum, stats| {
            sum.namespaces += stats.namespaces;
            sum.sizes.change(Sizes::default(), stats.sizes);
            sum.timers += stats.timers;
            sum.sweeps += stats.sweeps;
            sum
        })
    }
}

impl Engine {
    /// Nobody loses a lock or a lease because nobody was there to be asked: each lives for at least its whole ttl from
    /// now on. To be called before anything else, unless the shard was handed over without a pause.
    pub fn grace(&mut self, ready: Time) {
        for Namespace { id, families, .. } in self.namespaces.values_mut() {
            families.limiter.grace(ready, *id, &mut self.desk.timers);
            families.locks.grace(ready, *id, &mut self.desk.timers);
        }
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
            sizes: self.desk.sizes,
            timers: self.desk.timers.len(),
            sweeps: self.sweeps.len(),
        }
    }

    /// Runs a request, or says what must be fetched first; then it is to be run again with that, before anything
    /// that came after it. Everything due by `now` must have been applied before.
    pub fn apply(&mut self, now: Time, job: &mut Job, fetched: &Fetched) -> Result<Applied, Missing> {
        self.advance_time(now);
        match &job.request.command {
            Command::Ledger(_) | Command::Limiter(_) | Command::Locks(_) | Command::Events(_) => {
                self.apply_in_namespace(now, job, fetched)
            }
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
            building: &self.desk.changes.writes,
            sealed: &self.desk.sealed,
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
            Command::Ledger(command) => note(ledger::missing(&namespace.families.ledger, view, command)),
            Command::Events(command) => note(events::missing(&namespace.families.events, view, command)),
            // All of it is resident.
            Command::Limiter(_)
            | Command::Locks(_)
            | Command::DeleteNamespace
            | Command::ListNamespaces(_) => {}
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
        let idempotency = job.request.idempotency.as_ref();
        if !job.is_begun() && idempotency.is_some_and(|i| namespace.keys_in_use.contains(&i.key)) {
            return Ok(Applied::durable(Outcome::IdempotencyKeyInUse));
        }
        let waiting = Waiting { id: WaitId(self.next_wait), idempotency: idempotency.cloned() };
        let slice = self.options.build_slice;
        let applied = self
            .desk
            .step(namespace, now, fetched, |families, turn| decide(families, turn, job, &waiting, slice));
        if let Ok(Applied::Waiting(_)) = applied {
            self.next_wait += 1;
            namespace.keys_in_use.extend(waiting.idempotency.map(|idempotency| idempotency.key));
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
        let Namespace { id, head, mut families, .. } = namespace;
        self.names.remove(&id);
        self.meta.position_floor = self.meta.position_floor.max(head.position);
        self.desk.changes.remove(key::namespace(id));
        for range in key::all_of_namespace(id) {
            self.begin_sweep(range);
        }
        let desk = &mut self.desk;
        desk.sizes.change(families.sizes(), Sizes::default());
        desk.building.remove(&id);
        desk.timers.drop_namespace(id);
        let gone = families.end_waits().map(|wait| (wait, Outcome::NamespaceNotFound));
        desk.completions.extend(gone);
        desk.garbage.extend(families.limiter.into_garbage().map(Garbage::Limiter));
        for (stream, garbage) in families.events.into_garbage(id) {
            desk.garbage.push(Garbage::Events(garbage));
            desk.changes.effects.push(Effect::StreamDeleted { namespace: head.name.clone(), stream });
        }
        Outcome::NamespaceDeleted
    }

    fn begin_sweeps(&mut self) {
        for range in core::mem::take(&mut self.desk.changes.sweeps) {
            self.begin_sweep(range);
        }
    }

    fn begin_sweep(&mut self, range: Range<Bytes>) {
        let id = self.meta.next_sweep;
        self.meta.next_sweep += 1;
        let sweep = record::Sweep { from: range.start.to_vec(), to: range.end.to_vec() };
        self.desk.changes.put(&key::sweep(id), &sweep);
        self.sweeps.insert(id, Sweeping { from: range.start, to: range.end });
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
        self.desk.timers.next_due()
    }

    /// What has run out by `now`, in order, at most `limit`.
    pub fn due(&self, now: Time, limit: usize) -> Vec<Due> {
        self.desk.timers.due(now, limit).into_iter().map(Due::Timer).collect()
    }

    /// A slice of work that can be done whenever there is time for it.
    pub fn sweep(&self) -> Option<Due> {
        self.sweeps.keys().next().map(|id| Due::Sweep(*id))
    }

    /// A slice of a change of rules, for which somebody waits.
    pub fn build(&self) -> Option<Due> {
        self.desk.building.first().map(|namespace| Due::Build(*namespace))
    }

    /// A slice of memory to be freed.
    pub fn free(&self) -> Option<Due> {
        (!self.desk.garbage.is_empty()).then_some(Due::Free)
    }

    /// What must be fetched before what is due can be done, as far as that can be told now.
    pub fn missing_for_due(&self, due: Due, fetched: &Fetched) -> Vec<Read> {
        let reader = Reader::new(&self.desk.changes.writes, &self.desk.sealed, fetched);
        match due {
            Due::Timer(key) => {
                if let Some(Timer::LedgerExpiry { operation_id, .. }) = self.desk.timers.get(key) {
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
                self.desk.free_some();
                Ok(())
            }
        }
    }

    /// A slice of a change of rules, and the answers to what it completes.
    fn apply_build(&mut self, now: Time, id: NamespaceId, fetched: &Fetched) {
        // It may have been deleted since this was found to be due.
        let Some(namespace) = self.names.get(&id).and_then(|name| self.namespaces.get_mut(name)) else {
            return;
        };
        let slice = self.options.build_slice;
        self.desk.step(namespace, now, fetched, |families, turn| {
            limiter::work(&mut families.limiter, turn, slice);
        });
        self.begin_sweeps();
    }

    fn apply_timer(&mut self, now: Time, key: TimerKey, fetched: &Fetched) -> Result<(), Missing> {
        let Some(timer) = self.desk.timers.get(key).cloned() else { return Ok(()) };
        let name = self.names.get(&key.namespace).expect("a timer belongs to a namespace");
        let namespace = self.namespaces.get_mut(name).expect("a named namespace exists");
        let done =
            self.desk.step(namespace, now, fetched, |families, turn| run_out(families, turn, key, timer));
        self.begin_sweeps();
        done
    }

    fn apply_sweep(&mut self, id: u64, fetched: &Fetched) -> Result<(), Missing> {
        let Some(sweeping) = self.sweeps.get_mut(&id) else { return Ok(()) };
        let reader = Reader::new(&self.desk.changes.writes, &self.desk.sealed, fetched);
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
            self.desk.changes.remove(&key);
        }
        match scanned.more_after {
            Some(last) => sweeping.from = reads::successor(&last),
            None => {
                self.sweeps.remove(&id);
                self.desk.changes.remove(key::sweep(id));
            }
        }
        Ok(())
    }

    /// Lets the next seal write everything that no answer waited for, as before a planned stop. Says whether there is
    /// anything.
    pub fn hasten(&mut self) -> bool {
        let mut any = false;
        for namespace in self.namespaces.values_mut() {
            if namespace.families.limiter.hasten() {
                any = true;
                self.desk.mark_changed(namespace);
            }
        }
        // Reads have seen this time too, and the next opening must not begin before it.
        if self.meta.time > self.stored_time {
            self.desk.changes.put(&key::shard_meta(), &self.meta);
            any = true;
        }
        any
    }

    /// Gives up everything that waits until others let go of something, as before a planned stop. None of it has changed
    /// anything.
    pub fn end_lock_waits(&mut self) -> Vec<WaitId> {
        let mut ended = Vec::new();
        for Namespace { id, families, keys_in_use, .. } in self.namespaces.values_mut() {
            let before = families.sizes();
            for waiter in families.locks.end_waits() {
                self.desk.timers.cancel(waiter.timer_key(*id));
                if let Some(idempotency) = waiter.waiting.idempotency {
                    keys_in_use.remove(&idempotency.key);
                }
                ended.push(waiter.waiting.id);
            }
            self.desk.sizes.change(before, families.sizes());
        }
        ended
    }

    /// Whether the next seal has anything to write.
    pub fn has_changes(&self) -> bool {
        self.desk.has_changes()
    }

    /// Closes the batch: everything applied since the last seal. The batch before it must be durable by now.
    pub fn seal(&mut self) -> Sealed {
        let desk = &mut self.desk;
        for name in desk.changed.drain(..) {
            if let Some(namespace) = self.namespaces.get_mut(&name) {
                namespace.changed = false;
                let keys = Keys(namespace.id);
                namespace.families.ledger.flush(keys, &mut desk.changes);
                namespace.families.limiter.flush(keys, &mut desk.changes);
                namespace.families.events.flush(keys, &mut desk.changes);
                desk.changes.put(&keys.head(), &namespace.head);
            }
        }
        if !desk.changes.writes.is_empty() {
            desk.changes.put(&key::shard_meta(), &self.meta);
            self.stored_time = self.meta.time;
        }
        let (writes, effects) = desk.changes.take();
        desk.sealed = writes;
        Sealed { writes: desk.sealed.writes().clone(), effects }
    }

    /// What is answered by now of what had to wait, in order; like all outcomes, to be told when the batch is durable.
    /// Asking after each step tells where in the order of decisions these have their place.
    pub fn take_completions(&mut self) -> Vec<(WaitId, Outcome)> {
        core::mem::take(&mut self.desk.completions)
    }

    fn advance_time(&mut self, now: Time) {
        assert!(now >= self.meta.time, "shard time went back from {:?} to {now:?}", self.meta.time);
        self.meta.time = now;
    }
}

/// One request's turn at a namespace.
fn decide(
    families: &mut Families,
    turn: &mut Turn<'_>,
    job: &mut Job,
    waiting: &Waiting,
    slice: usize,
) -> Result<Applied, Missing> {
    if let Some(idempotency) = &waiting.idempotency
        && !job.is_begun()
    {
        match turn.view().read(|reader| idempotency::find(reader, turn.view(), idempotency)) {
            Ok(kept) => {
                if let Some(outcome) = kept.and_then(|kept| again(families, turn, kept)) {
                    return Ok(Applied::durable(outcome));
                }
            }
            Err(Stop::Missing(missing)) => return Err(missing),
            Err(Stop::Unreadable) => return Ok(Applied::durable(Outcome::Unreadable)),
        }
    }
    let before = turn.head.position;
    let applied = match &job.request.command {
        Command::Limiter(command) => {
            match limiter::apply(&mut families.limiter, turn, command, waiting, slice) {
                limiter::Applied::Done { result, is_relaxed } => {
                    Applied::Done { outcome: Outcome::Limiter(result), is_relaxed }
                }
                limiter::Applied::Refused => Applied::durable(Outcome::TooManyWait),
                limiter::Applied::Waits => Applied::Waiting(waiting.id),
            }
        }
        Command::Locks(command) => match locks::apply(&mut families.locks, turn, command, waiting) {
            locks::Applied::Done(result) => Applied::durable(Outcome::Locks(result)),
            locks::Applied::Refused => Applied::durable(Outcome::TooManyWait),
            locks::Applied::Waits => Applied::Waiting(waiting.id),
        },
        Command::Events(command) => match events::apply(&mut families.events, turn, command) {
            Ok(result) => Applied::durable(Outcome::Events(result)),
            Err(Stop::Missing(missing)) => return Err(missing),
            Err(Stop::Unreadable) => Applied::durable(Outcome::Unreadable),
        },
        Command::Ledger(_) | Command::DeleteNamespace | Command::ListNamespaces(_) => {
            let result = ledger::apply(&mut families.ledger, turn, job);
            // Of a batch, a part may be done.
            job.changed |= turn.head.position != before;
            match result {
                Ok(result) => Applied::durable(Outcome::Ledger(result)),
                Err(Stop::Missing(missing)) => return Err(missing),
                Err(Stop::Unreadable) => Applied::durable(Outcome::Unreadable),
            }
        }
    };
    job.changed |= turn.head.position != before;
    if let (Some(idempotency), Applied::Done { outcome, .. }) = (&waiting.idempotency, &applied)
        && job.changed
    {
        idempotency::keep(turn, idempotency, outcome);
    }
    Ok(applied)
}

/// A kept outcome that is told again; none if the request is to be decided afresh.
fn again(families: &Families, turn: &Turn<'_>, kept: Outcome) -> Option<Outcome> {
    match kept {
        Outcome::Limiter(Ok(reply)) => {
            limiter::again(&families.limiter, turn, &reply).map(|reply| Outcome::Limiter(Ok(reply)))
        }
        Outcome::Locks(Ok(reply)) => {
            locks::again(&families.locks, turn, &reply).map(|reply| Outcome::Locks(Ok(reply)))
        }
        other => Some(other),
    }
}

/// A timer's turn at its namespace. It stays set if it must be run again with more at hand.
fn run_out(families: &mut Families, turn: &mut Turn<'_>, key: TimerKey, timer: Timer) -> Result<(), Missing> {
    let now = turn.now;
    match timer {
        Timer::LedgerExpiry { operation_id, held_at, due } => {
            // It counts as done when it was due. Nothing later was decided in between, unless it was put off.
            turn.now = if key.due == due { due } else { now };
            match ledger::expire(&mut families.ledger, turn, &operation_id, due, held_at) {
                Ok(()) => {}
                Err(Stop::Missing(missing)) => return Err(missing),
                Err(Stop::Unreadable) => {
                    turn.timers.postpone(key, now.after(POSTPONED));
                    turn.effect(Effect::DuePostponed { namespace: turn.head.name.clone() });
                    return Ok(());
                }
            }
        }
        Timer::LeaseExpiry { id } => {
            turn.now = key.due;
            limiter::expire_lease(&mut families.limiter, turn, &id);
        }
        Timer::WriteWindows => families.limiter.write_windows(turn),
        Timer::DropIdleWindows => families.limiter.drop_idle_windows(turn),
        Timer::DropReplies => idempotency::drop_oldest(turn),
        // What is granted in its place is granted now, however late that is.
        Timer::LockExpiry { token } => locks::expire(&mut families.locks, turn, token),
        Timer::EventKey { stream, key } => events::run_out(&mut families.events, turn, stream, key),
        Timer::LockWait { wait } => locks::end_wait(&mut families.locks, turn, wait),
    }
    turn.timers.cancel(key);
    Ok(())
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

    /// What takes back the request, if whoever asked is gone before the answer. Most need not be: their answer can be
    /// asked for again, and nothing waits for them.
    pub fn taken_back_by(&self) -> Option<Request> {
        let Command::Locks(locks::Command::Acquire(wanted)) = &self.command else { return None };
        let command = Command::Locks(locks::Command::Abandon(wanted.id.clone()));
        Some(Request { namespace: self.namespace.clone(), idempotency: None, command })
    }

    /// Whether it only takes back what an earlier request asked for.
    pub fn takes_back(&self) -> bool {
        matches!(self.command, Command::Locks(locks::Command::Abandon(_)))
    }

    /// Whether it removes more than it writes, so that a full disk is no reason to refuse it.
    pub fn makes_room(&self) -> bool {
        use limiter::{Change, Command as Limiter};
        use locks::Command as Locks;
        match &self.command {
            Command::DeleteNamespace => true,
            // A kept reply would take more than they free.
            Command::Limiter(_) | Command::Locks(_) if self.idempotency.is_some() => false,
            Command::Limiter(command) => match command {
                // Its holder lives: nobody must lose a lease for lack of room. It overwrites its own record.
                Limiter::ExtendLease(_) | Limiter::ReleaseLease(_) => true,
                Limiter::MoveCounter { by, .. } => *by < 0,
                Limiter::Change(change) => {
                    matches!(change, Change::DeleteRule(_) | Change::DeleteOverride { .. })
                }
                _ => false,
            },
            Command::Locks(command) => match command {
                Locks::Heartbeat { .. } | Locks::Release { .. } | Locks::Abandon(_) => true,
                Locks::Acquire(_) | Locks::Get(_) | Locks::List { .. } => false,
            },
            Command::Events(command) => matches!(command, events::Command::Delete(_)),
            Command::Ledger(_) | Command::ListNamespaces(_) => false,
        }
    }
}
