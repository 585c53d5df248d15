//! Locks, leases and decisions that wait for one another, compared with a naive model: one list of all waiting requests in the
//! order of arrival, which is searched from the beginning after every step.

use bytes::Bytes;
use limina_engine::{
    Applied, Command, Engine, Fetched, Job, KeyValues, Millis, Missing, Name, Options, Outcome, Read,
    ReadResult, Request, Time, WaitId,
    decisions::{self, Decide, PartCheck, Parts},
    key_values::Value,
    limiter::{self, Change, Limit, NewLease, NewRule, RuleChange, RulePatch},
    locks::{self, Acquire, Lock, Mode},
    selection::Selection,
};
use limina_sim::random::Random;
use std::collections::BTreeMap;

const DAY: Millis = Millis(86_400_000);
/// Each queue has this limit at first; all queues together have the second one.
const LIMITS: (u64, u64) = (2, 3);

/// What a request wants: so many slots in queues, and locks.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    kind: Kind,
    id: String,
    slots: Vec<(i64, u64)>,
    locks: Vec<(i64, bool)>,
    wait: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lease,
    Lock,
    Decision,
}

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Granted,
    Refused,
    /// The same request has taken its place.
    Replaced,
    Waits,
}

#[derive(Debug, Default)]
struct Model {
    limits: (u64, u64),
    holders: Vec<Wanted>,
    /// In the order of arrival, each with the number of the step that is answered, and when its wait ends.
    waiters: Vec<(Wanted, usize, u64)>,
    told: Vec<(usize, Told)>,
}

impl Model {
    /// What the request takes from each group. `None` is the group of all queues.
    fn groups(wanted: &Wanted) -> BTreeMap<Option<i64>, u64> {
        let mut groups = BTreeMap::new();
        // What takes nothing waits for nothing.
        for (queue, hits) in wanted.slots.iter().filter(|(_, hits)| *hits > 0) {
            *groups.entry(Some(*queue)).or_default() += hits;
            *groups.entry(None).or_default() += hits;
        }
        groups
    }

    fn limit(&self, group: Option<i64>) -> u64 {
        if group.is_some() { self.limits.0 } else { self.limits.1 }
    }

    fn is_possible(&self, wanted: &Wanted) -> bool {
        Model::groups(wanted).iter().all(|(group, hits)| *hits <= self.limit(*group))
    }

    /// Whether the request can have all of it, if only the first `earlier` of the waiting requests came before it.
    fn is_free(&self, wanted: &Wanted, earlier: usize) -> bool {
        let earlier = || self.waiters[..earlier].iter().map(|(waiter, ..)| waiter);
        let is_locked = |lock: &(i64, bool)| {
            let conflicts = |other: &Wanted| {
                other.locks.iter().any(|(key, shared)| *key == lock.0 && !(*shared && lock.1))
            };
            self.holders.iter().chain(earlier()).any(conflicts)
        };
        let is_full = |(group, hits): (&Option<i64>, &u64)| {
            let used: u64 = self
                .holders
                .iter()
                .map(|holder| Model::groups(holder).get(group).copied().unwrap_or(0))
                .sum();
            used + hits > self.limit(*group)
                || earlier().any(|waiter| Model::groups(waiter).contains_key(group))
        };
        !wanted.locks.iter().any(is_locked) && !Model::groups(wanted).iter().any(is_full)
    }

    fn ask(&mut self, step: usize, now: u64, wanted: Wanted) -> Told {
        if let Some(place) = self.waiters.iter().position(|(waiter, ..)| waiter.id == wanted.id) {
            let (_, earlier, _) = self.waiters[place];
            self.told.push((earlier, Told::Replaced));
            if wanted.wait == 0 {
                self.waiters.remove(place);
                self.grant();
                return Told::Refused;
            }
            self.waiters[place] = (wanted.clone(), step, now + wanted.wait);
            return Told::Waits;
        }
        if self.is_free(&wanted, self.waiters.len()) {
            self.holders.push(wanted);
            return Told::Granted;
        }
        if wanted.wait == 0 || !self.is_possible(&wanted) {
            return Told::Refused;
        }
        let until = now + wanted.wait;
        self.waiters.push((wanted, step, until));
        Told::Waits
    }

    /// The request stops waiting, or what it holds is free again.
    fn end(&mut self, id: &str, may_hold: bool) {
        if may_hold {
            self.holders.retain(|holder| holder.id != id);
        }
        if let Some(place) = self.waiters.iter().position(|(waiter, ..)| waiter.id == id) {
            let (_, step, _) = self.waiters.remove(place);
            self.told.push((step, Told::Refused));
        }
        self.grant();
    }

    fn pass(&mut self, now: u64) {
        loop {
            let due = (0..self.waiters.len()).filter(|place| self.waiters[*place].2 <= now);
            let Some(place) = due.min_by_key(|place| (self.waiters[*place].2, *place)) else { return };
            let (_, step, _) = self.waiters.remove(place);
            self.told.push((step, Told::Refused));
            self.grant();
        }
    }

    fn grant(&mut self) {
        let next = |model: &Model| {
            (0..model.waiters.len()).find(|place| {
                let waiter = &model.waiters[*place].0;
                !model.is_possible(waiter) || model.is_free(waiter, *place)
            })
        };
        while let Some(place) = next(self) {
            let (waiter, step, _) = self.waiters.remove(place);
            let told = if self.is_possible(&waiter) { Told::Granted } else { Told::Refused };
            self.told.push((step, told));
            if told == Told::Granted {
                self.holders.push(waiter);
            }
        }
    }
}

struct Bench {
    engine: Engine,
    now: Time,
    /// The steps whose requests wait.
    waiting: BTreeMap<WaitId, usize>,
    told: Vec<(usize, Told)>,
}

impl Bench {
    fn new() -> Bench {
        let engine = Engine::open(Options::default(), Vec::<(Bytes, Bytes)>::new()).unwrap();
        let mut bench = Bench { engine, now: Time(1_000_000), waiting: BTreeMap::new(), told: Vec::new() };
        bench.change(Change::CreateRule(rule("queues", &["q"], LIMITS.0)));
        bench.change(Change::CreateRule(rule("all", &[], LIMITS.1)));
        bench
    }

    fn change(&mut self, change: Change) {
        let change = RuleChange::new(change).unwrap();
        self.ask(usize::MAX, Command::Limiter(limiter::Command::Change(change)));
    }

    fn pass(&mut self, span: u64) {
        self.now.0 += span;
        while let Some(due) = self.engine.due(self.now, 1).pop() {
            self.engine.apply_due(self.now, due, &Fetched::default()).unwrap();
            self.complete();
        }
    }

    fn ask(&mut self, step: usize, command: Command) -> Told {
        let mut job = Job::new(Request::new(name("n"), command));
        let mut fetched = Fetched::default();
        let applied = loop {
            match self.engine.apply(self.now, &mut job, &fetched) {
                Ok(applied) => break applied,
                // Nothing is ever stored.
                Err(Missing(reads)) => reads.into_iter().for_each(|read| {
                    assert!(matches!(read, Read::Get(_)), "{read:?}");
                    fetched.insert(read, ReadResult::Value(None));
                }),
            }
        };
        let told = match applied {
            Applied::Done { outcome, .. } => told(&outcome),
            Applied::Waiting(id) => {
                self.waiting.insert(id, step);
                Told::Waits
            }
            Applied::Unfinished => unreachable!("no batch is sent"),
        };
        self.complete();
        told
    }

    fn complete(&mut self) {
        while let Some(due) = self.engine.next_backfill() {
            self.engine.apply_due(self.now, due, &Fetched::default()).unwrap();
        }
        for (id, outcome) in self.engine.take_completions() {
            let step = self.waiting.remove(&id).expect("it waited");
            self.told.push((step, told(&outcome)));
        }
        let namespace = name("n");
        assert_eq!(self.engine.usage(&namespace), self.engine.recount(&namespace), "the usage");
    }
}

fn told(outcome: &Outcome) -> Told {
    match outcome.code() {
        "Ok" => Told::Granted,
        "OperationWaits" => Told::Replaced,
        "LimitReached" | "Refused" | "LockHeld" | "LockWaitTimeout" => Told::Refused,
        other => panic!("{other}: {outcome:?}"),
    }
}

fn command(wanted: &Wanted, step: usize) -> Command {
    let id = name(&wanted.id);
    let wait = Millis(wanted.wait);
    let locks = wanted.locks.iter().map(|(key, shared)| Lock {
        key_values: one("lock", *key),
        mode: if *shared { Mode::Shared } else { Mode::Exclusive },
    });
    let locks: Vec<Lock> = locks.collect();
    match wanted.kind {
        Kind::Lease => {
            let (queue, hits) = wanted.slots[0];
            let lease = NewLease::new(id.clone(), id, one("q", queue), hits, DAY).unwrap();
            Command::Limiter(limiter::Command::TakeLease(lease.with_wait(wait).unwrap()))
        }
        Kind::Lock => {
            let acquire = Acquire::new(id.clone(), id, locks, DAY).unwrap();
            Command::Locks(locks::Command::Acquire(acquire.with_wait(wait).unwrap()))
        }
        Kind::Decision => {
            let checks = wanted.slots.iter().map(|(queue, hits)| PartCheck::new(one("q", *queue), *hits));
            let parts = Parts { checks: checks.collect(), locks, ..Parts::default() };
            let decide = Decide::new(id, parts).unwrap().with_ttl(DAY).unwrap();
            let decide = decide.with_wait(wait, name(&format!("w{step}"))).unwrap();
            Command::Decisions(decisions::Command::Decide(decide))
        }
    }
}

fn release(wanted: &Wanted) -> Command {
    let id = name(&wanted.id);
    match wanted.kind {
        Kind::Lease => Command::Limiter(limiter::Command::ReleaseLease { id: id.clone(), session: Some(id) }),
        Kind::Lock => Command::Locks(locks::Command::Release { id: id.clone(), session: Some(id) }),
        Kind::Decision => Command::Decisions(decisions::Command::Rollback(id)),
    }
}

/// The hang-up of the request of this step.
fn hang_up(wanted: &Wanted, step: usize) -> Command {
    let id = name(&wanted.id);
    match wanted.kind {
        Kind::Lease => Command::Limiter(limiter::Command::AbandonLease(id)),
        Kind::Lock => Command::Locks(locks::Command::Abandon(id)),
        Kind::Decision => Command::Decisions(decisions::Command::Abandon {
            operation_id: id,
            waiter: name(&format!("w{step}")),
        }),
    }
}

fn wanted(random: &mut Random, step: usize) -> Wanted {
    let kind = *random.pick(&[Kind::Lease, Kind::Lock, Kind::Decision, Kind::Decision]);
    let mut slots = Vec::new();
    if kind == Kind::Lease || (kind == Kind::Decision && !random.one_in(4)) {
        slots.push((random.below(3) as i64, 1 + random.below(2)));
    }
    if kind == Kind::Decision && random.one_in(3) {
        slots.push((random.below(3) as i64, random.below(3)));
    }
    let mut locks: Vec<(i64, bool)> = Vec::new();
    if kind != Kind::Lease {
        for key in 0..3 {
            if random.one_in(3) {
                locks.push((key, random.one_in(3)));
            }
        }
    }
    if slots.is_empty() && locks.is_empty() {
        locks.push((0, false));
    }
    slots.retain(|(_, hits)| *hits > 0 || kind == Kind::Decision);
    let wait = if random.one_in(3) { 0 } else { 1 + random.below(40) };
    Wanted { kind, id: format!("r{step}"), slots, locks, wait }
}

fn play(seed: u64) {
    let mut random = Random::new(seed);
    let mut bench = Bench::new();
    let mut model = Model { limits: LIMITS, ..Model::default() };
    let mut asked: Vec<(usize, Wanted)> = Vec::new();
    for step in 0..80 {
        let span = if random.one_in(3) { random.below(30) } else { 0 };
        bench.pass(span);
        model.pass(bench.now.0);
        let (answer, expected) = match random.below(20) {
            0..=9 => {
                let wanted = wanted(&mut random, step);
                asked.push((step, wanted.clone()));
                (bench.ask(step, command(&wanted, step)), model.ask(step, bench.now.0, wanted))
            }
            10..=15 if !model.holders.is_empty() => {
                let holder = random.pick(&model.holders).clone();
                let answer = bench.ask(step, release(&holder));
                model.end(&holder.id, true);
                (answer, Told::Granted)
            }
            16 | 17 if !model.waiters.is_empty() => {
                let (waiter, first, _) = random.pick(&model.waiters).clone();
                let command = match waiter.kind {
                    Kind::Decision if random.one_in(2) => release(&waiter),
                    _ => hang_up(&waiter, first),
                };
                let answer = bench.ask(step, command);
                model.end(&waiter.id, false);
                (answer, Told::Granted)
            }
            // The same decision again, while it waits or when it was refused.
            18 if asked.iter().any(|(_, wanted)| wanted.kind == Kind::Decision) => {
                let decisions: Vec<_> =
                    asked.iter().filter(|(_, wanted)| wanted.kind == Kind::Decision).collect();
                let (_, before) = *random.pick(&decisions);
                let again = Wanted { wait: random.below(2) * 25, ..before.clone() };
                match model.holders.iter().any(|holder| holder.id == again.id) {
                    true => (bench.ask(step, command(&again, step)), Told::Granted),
                    // An ended decision cannot be made again.
                    false if model.waiters.iter().all(|(waiter, ..)| waiter.id != again.id) => continue,
                    false => (bench.ask(step, command(&again, step)), model.ask(step, bench.now.0, again)),
                }
            }
            _ => {
                model.limits.0 = 1 + random.below(4);
                let patch = RulePatch { limit: Some(Limit::AtMost(model.limits.0)), ..RulePatch::default() };
                bench.change(Change::PatchRule { name: name("queues"), patch });
                model.grant();
                (Told::Granted, Told::Granted)
            }
        };
        bench.told.sort_unstable();
        model.told.sort_unstable();
        assert_eq!(answer, expected, "seed {seed}, step {step}: {asked:?}");
        assert_eq!(bench.told, model.told, "seed {seed}, step {step}: {asked:?}");
        assert_eq!(bench.waiting.len(), model.waiters.len(), "seed {seed}, step {step}");
        bench.told.clear();
        model.told.clear();
    }
}

#[test]
fn locks_leases_and_decisions_wait_in_one_order() {
    (0..600).for_each(play);
}

fn rule(text: &str, group_by: &[&str], limit: u64) -> NewRule {
    NewRule {
        name: name(text),
        group_by: group_by.iter().map(|key| (*key).into()).collect(),
        selection: Selection::default(),
        limit: Limit::AtMost(limit),
        window: None,
        shadow: false,
        durability: None,
        description: None,
    }
}

fn one(key: &str, value: i64) -> KeyValues {
    KeyValues::new(vec![(key, Value::<&str>::Integer(value))]).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}
