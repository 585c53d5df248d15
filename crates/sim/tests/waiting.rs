//! Locks, leases and decisions that wait for one another, compared with a naive model: one list of all waiting requests in the
//! order of arrival, which is searched from the beginning after every step.

use bytes::Bytes;
use limina_engine::{
    Applied, Command, Engine, Fetched, Job, KeyValues, Millis, Missing, Name, Options, Outcome, Read,
    ReadResult, Request, Time, WaitId,
    decisions::{self, Decide, DecideRequest, PartCheck, Parts},
    key_values::Value,
    limiter::{
        self, Change, Limit, NewLease, NewOverride, NewRule, OverridePatch, RuleChange, RulePatch, Window,
    },
    locks::{self, Acquire, Lock, LockRequest, Mode},
    selection::Selection,
};
use limina_sim::random::Random;
use std::{collections::BTreeMap, fmt::Arguments};

const DAY: Millis = Millis(86_400_000);
/// The span of a window.
const SPAN: u64 = 50;

/// What a request wants: what its checks take, and locks.
#[derive(Debug, Clone, PartialEq)]
struct RequestSpec {
    kind: Kind,
    id: String,
    checks: Vec<CheckSpec>,
    locks: Vec<(i64, bool)>,
    wait: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lease,
    Lock,
    Decision,
}

/// What one check is about.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CheckSpec {
    queue: Option<i64>,
    /// Whether an override applies to it, if it is about the queue [`OVERRIDDEN`].
    is_special: bool,
    rate: Option<i64>,
    hits: u64,
}

/// The queue of which some checks are under an override.
const OVERRIDDEN: i64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// All checks together.
    All,
    Queue(i64),
    /// The override.
    Special,
    /// A window.
    Rate(i64),
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    all: u64,
    queue: u64,
    special: u64,
    rate: u64,
}

const LIMITS: Limits = Limits { all: 5, queue: 2, special: 2, rate: 3 };

impl CheckSpec {
    /// The groups in which the check counts, and whether the limit of each applies to it.
    fn groups(&self) -> Vec<(Group, bool)> {
        let mut groups = vec![(Group::All, true)];
        if let Some(queue) = self.queue {
            let is_overridden = self.is_special && queue == OVERRIDDEN;
            groups.push((Group::Queue(queue), !is_overridden));
            groups.extend(is_overridden.then_some((Group::Special, true)));
        }
        groups.extend(self.rate.map(|rate| (Group::Rate(rate), true)));
        groups
    }
}

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    Granted,
    Refused,
    /// The same request has taken its place.
    Replaced,
    Waits,
}

/// The things that block a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Obstacles {
    /// A lock, or a limit without a window.
    is_blocked: bool,
    /// A window.
    is_limited: bool,
}

#[derive(Debug)]
struct Model {
    limits: Limits,
    now: u64,
    holders: Vec<RequestSpec>,
    /// What windows have let pass: when, which, and how much.
    passed: Vec<(u64, Group, u64)>,
    /// In the order of arrival, each with the number of the step that is answered, and when its wait ends.
    waiters: Vec<(RequestSpec, usize, u64)>,
    told: Vec<(usize, Ending)>,
}

impl Model {
    fn new(now: u64) -> Model {
        let (holders, passed, waiters, told) = Default::default();
        Model { limits: LIMITS, now, holders, passed, waiters, told }
    }

    fn limit(&self, group: Group) -> u64 {
        match group {
            Group::All => self.limits.all,
            Group::Queue(_) => self.limits.queue,
            Group::Special => self.limits.special,
            Group::Rate(_) => self.limits.rate,
        }
    }

    /// What a request counts for in a group.
    fn counted(wanted: &RequestSpec, group: Group) -> u64 {
        let counts = |wish: &&CheckSpec| wish.groups().iter().any(|(other, _)| *other == group);
        wanted.checks.iter().filter(counts).map(|wish| wish.hits).sum()
    }

    fn used(&self, group: Group) -> u64 {
        let is_current = |at: u64| at / SPAN == self.now / SPAN;
        match group {
            Group::Rate(_) => self
                .passed
                .iter()
                .filter(|(at, other, _)| *other == group && is_current(*at))
                .map(|(_, _, hits)| hits)
                .sum(),
            _ => self.holders.iter().map(|holder| Model::counted(holder, group)).sum(),
        }
    }

    /// Whether the request waits in the queue of a group, if its locks are free. What takes nothing waits for nothing.
    fn stands_in(wanted: &RequestSpec, group: Group) -> bool {
        let takes = wanted.checks.iter().filter(|wish| wish.hits > 0);
        takes.flat_map(CheckSpec::groups).any(|(other, is_limit)| is_limit && other == group)
    }

    /// Asks the limits. The checks are asked in order, and each counts for those behind it, unless a window refuses it: then the
    /// request is refused whatever the others say, as soon as nothing blocks it.
    fn ask_limits(
        &self,
        wanted: &RequestSpec,
        used: impl Fn(Group) -> u64,
        is_behind: impl Fn(Group) -> bool,
    ) -> Obstacles {
        let mut sums: BTreeMap<Group, u64> = BTreeMap::new();
        let mut obstacles = Obstacles { is_blocked: false, is_limited: false };
        for wish in wanted.checks.iter().filter(|wish| wish.hits > 0) {
            let mut after = sums.clone();
            let mut is_limited = false;
            for (group, is_limit) in wish.groups() {
                let sum = after.entry(group).or_insert_with(|| used(group));
                *sum += wish.hits;
                let is_over = is_limit && *sum > self.limit(group);
                match group {
                    Group::Rate(_) => is_limited |= is_over,
                    _ => obstacles.is_blocked |= is_over || (is_limit && is_behind(group)),
                }
            }
            obstacles.is_limited |= is_limited;
            if !is_limited {
                sums = after;
            }
        }
        obstacles
    }

    /// Whether the limits would let the request pass if nothing were in use.
    fn is_possible(&self, wanted: &RequestSpec) -> bool {
        self.ask_limits(wanted, |_| 0, |_| false) == Obstacles { is_blocked: false, is_limited: false }
    }

    fn is_locked(&self, wanted: &RequestSpec, earlier: usize) -> bool {
        let is_locked = |lock: &(i64, bool)| {
            let conflicts = |other: &RequestSpec| {
                other.locks.iter().any(|(key, shared)| *key == lock.0 && !(*shared && lock.1))
            };
            let earlier = self.waiters[..earlier].iter().map(|(waiter, ..)| waiter);
            self.holders.iter().chain(earlier).any(conflicts)
        };
        wanted.locks.iter().any(is_locked)
    }

    /// The things that block a request if only the first `earlier` of the waiting requests came before it.
    fn obstacles(&self, wanted: &RequestSpec, earlier: usize) -> Obstacles {
        // A request that waits for a lock blocks nobody in the queues of slots.
        let is_behind = |group: Group| {
            let earlier = self.waiters[..earlier].iter().enumerate();
            let mut queued = earlier.filter(|(place, (waiter, ..))| !self.is_locked(waiter, *place));
            queued.any(|(_, (waiter, ..))| Model::stands_in(waiter, group))
        };
        let mut obstacles = self.ask_limits(wanted, |group| self.used(group), is_behind);
        obstacles.is_blocked |= self.is_locked(wanted, earlier);
        obstacles
    }

    fn hold(&mut self, wanted: RequestSpec) {
        for wish in &wanted.checks {
            self.passed.extend(wish.rate.map(|rate| (self.now, Group::Rate(rate), wish.hits)));
        }
        self.holders.push(wanted);
    }

    fn ask(&mut self, step: usize, wanted: RequestSpec) -> Ending {
        if let Some(place) = self.waiters.iter().position(|(waiter, ..)| waiter.id == wanted.id) {
            let (_, earlier, _) = self.waiters[place];
            self.told.push((earlier, Ending::Replaced));
            if wanted.wait == 0 {
                self.waiters.remove(place);
                self.grant();
                return Ending::Refused;
            }
            self.waiters[place] = (wanted.clone(), step, self.now + wanted.wait);
            return Ending::Waits;
        }
        match self.obstacles(&wanted, self.waiters.len()) {
            Obstacles { is_blocked: false, is_limited: false } => {
                self.hold(wanted);
                Ending::Granted
            }
            Obstacles { is_blocked: true, is_limited: false }
                if wanted.wait > 0 && self.is_possible(&wanted) =>
            {
                let until = self.now + wanted.wait;
                self.waiters.push((wanted, step, until));
                Ending::Waits
            }
            _ => Ending::Refused,
        }
    }

    /// The request stops waiting, or what it holds is free again.
    fn end(&mut self, id: &str, may_hold: bool) {
        if may_hold {
            self.holders.retain(|holder| holder.id != id);
        }
        if let Some(place) = self.waiters.iter().position(|(waiter, ..)| waiter.id == id) {
            let (_, step, _) = self.waiters.remove(place);
            self.told.push((step, Ending::Refused));
        }
        self.grant();
    }

    fn pass(&mut self, now: u64) {
        self.now = now;
        loop {
            let due = (0..self.waiters.len()).filter(|place| self.waiters[*place].2 <= now);
            let Some(place) = due.min_by_key(|place| (self.waiters[*place].2, *place)) else { return };
            let (_, step, _) = self.waiters.remove(place);
            self.told.push((step, Ending::Refused));
            self.grant();
        }
    }

    /// Answers the first request that nothing blocks any more, or that has become impossible, until there is none. At its turn, a
    /// window may refuse a request.
    fn grant(&mut self) {
        loop {
            let is_answered = |place: &usize| {
                let waiter = &self.waiters[*place].0;
                !self.is_possible(waiter) || !self.obstacles(waiter, *place).is_blocked
            };
            let Some(place) = (0..self.waiters.len()).find(is_answered) else { return };
            let waiter = &self.waiters[place].0;
            let is_granted = self.is_possible(waiter) && !self.obstacles(waiter, place).is_limited;
            let (waiter, step, _) = self.waiters.remove(place);
            self.told.push((step, if is_granted { Ending::Granted } else { Ending::Refused }));
            if is_granted {
                self.hold(waiter);
            }
        }
    }
}

struct Bench {
    engine: Engine,
    now: Time,
    /// The steps whose requests wait.
    waiting: BTreeMap<WaitId, usize>,
    told: Vec<(usize, Ending)>,
}

impl Bench {
    fn new() -> Bench {
        let engine = Engine::open(Options::default(), Vec::<(Bytes, Bytes)>::new()).unwrap();
        let mut bench = Bench { engine, now: Time(1_000_000), waiting: BTreeMap::new(), told: Vec::new() };
        let window = Some(Window::Fixed { per: Millis(SPAN) });
        bench.change(Change::CreateRule(rule("queues", &["q"], LIMITS.queue)));
        bench.change(Change::CreateRule(rule("all", &[], LIMITS.all)));
        bench.change(Change::CreateRule(NewRule { window, ..rule("rates", &["r"], LIMITS.rate) }));
        let special = NewOverride {
            name: name("special"),
            key_values: key_values(&[("q", OVERRIDDEN), ("m", 1)]),
            limit: Limit::AtMost(LIMITS.special),
            burst: None,
        };
        bench.change(Change::CreateOverride { rule: name("queues"), new: special });
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

    fn ask(&mut self, step: usize, command: Command) -> Ending {
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
            Applied::Done { outcome, .. } => ending_of(&outcome),
            Applied::Waiting(id) => {
                self.waiting.insert(id, step);
                Ending::Waits
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
            self.told.push((step, ending_of(&outcome)));
        }
        let namespace = name("n");
        assert_eq!(self.engine.usage(&namespace), self.engine.recount(&namespace), "the usage");
    }
}

fn ending_of(outcome: &Outcome) -> Ending {
    match outcome.code() {
        "Ok" => Ending::Granted,
        "OperationWaits" => Ending::Replaced,
        "LimitReached" | "Refused" | "LockHeld" | "LockWaitTimeout" => Ending::Refused,
        other => panic!("{other}: {outcome:?}"),
    }
}

fn command(wanted: &RequestSpec, step: usize) -> Command {
    let id = name(&wanted.id);
    let wait = Millis(wanted.wait);
    let locks = wanted.locks.iter().map(|(key, shared)| Lock {
        key_values: key_values(&[("lock", *key)]),
        mode: if *shared { Mode::Shared } else { Mode::Exclusive },
    });
    let locks: Vec<Lock> = locks.collect();
    match wanted.kind {
        Kind::Lease => {
            let wish = wanted.checks[0];
            let lease = NewLease::new(id.clone(), id, about(&wish), wish.hits, DAY).unwrap();
            Command::Limiter(limiter::Command::TakeLease(lease.with_wait(wait).unwrap()))
        }
        Kind::Lock => {
            let wanted = Acquire::new(locks, DAY).unwrap().with_wait(wait).unwrap();
            Command::Locks(locks::Command::Acquire(LockRequest { id: id.clone(), session: id, wanted }))
        }
        Kind::Decision => {
            let checks = wanted.checks.iter().map(|wish| PartCheck::new(about(wish), wish.hits));
            let parts = Parts { checks: checks.collect(), locks, ..Parts::default() };
            let decide = Decide::new(id, parts).unwrap().with_ttl(DAY).unwrap();
            let wanted = decide.with_wait(wait).unwrap().into();
            let waiter = (wait > Millis(0)).then(|| name(&format!("w{step}")));
            Command::Decisions(decisions::Command::Decide(DecideRequest { wanted, waiter }))
        }
    }
}

fn release(wanted: &RequestSpec) -> Command {
    let id = name(&wanted.id);
    match wanted.kind {
        Kind::Lease => Command::Limiter(limiter::Command::ReleaseLease { id: id.clone(), session: Some(id) }),
        Kind::Lock => Command::Locks(locks::Command::Release { id: id.clone(), session: Some(id) }),
        Kind::Decision => Command::Decisions(decisions::Command::Rollback(id)),
    }
}

/// The hang-up of the request of this step.
fn hang_up(wanted: &RequestSpec, step: usize) -> Command {
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

fn wish(random: &mut Random, least: u64) -> CheckSpec {
    let queue = (!random.one_in(4)).then(|| random.below(3) as i64);
    let rate = (queue.is_none() || random.one_in(3)).then(|| random.below(2) as i64);
    CheckSpec { queue, is_special: random.one_in(2), rate, hits: least + random.below(3 - least) }
}

fn wanted(random: &mut Random, step: usize) -> RequestSpec {
    let kind = *random.pick(&[Kind::Lease, Kind::Lock, Kind::Decision, Kind::Decision]);
    let checks = match kind {
        Kind::Lease => vec![wish(random, 1)],
        Kind::Lock => Vec::new(),
        Kind::Decision => (0..random.below(4)).map(|_| wish(random, 0)).collect(),
    };
    let mut locks: Vec<(i64, bool)> = Vec::new();
    if kind != Kind::Lease {
        for key in 0..3 {
            if random.one_in(3) {
                locks.push((key, random.one_in(3)));
            }
        }
    }
    if checks.is_empty() && locks.is_empty() {
        locks.push((0, false));
    }
    let wait = if random.one_in(3) { 0 } else { 1 + random.below(40) };
    RequestSpec { kind, id: format!("r{step}"), checks, locks, wait }
}

fn play(seed: u64) {
    let mut random = Random::new(seed);
    let mut bench = Bench::new();
    let mut model = Model::new(bench.now.0);
    let mut asked: Vec<(usize, RequestSpec)> = Vec::new();
    for step in 0..80 {
        let span = if random.one_in(3) { random.below(30) } else { 0 };
        bench.pass(span);
        model.pass(bench.now.0);
        let (answer, expected) = match random.below(20) {
            0..=9 => {
                let wanted = wanted(&mut random, step);
                asked.push((step, wanted.clone()));
                (bench.ask(step, command(&wanted, step)), model.ask(step, wanted))
            }
            10..=15 if !model.holders.is_empty() => {
                let holder = random.pick(&model.holders).clone();
                let answer = bench.ask(step, release(&holder));
                model.end(&holder.id, true);
                (answer, Ending::Granted)
            }
            16 | 17 if !model.waiters.is_empty() => {
                let (waiter, first, _) = random.pick(&model.waiters).clone();
                let command = match waiter.kind {
                    Kind::Decision if random.one_in(2) => release(&waiter),
                    _ => hang_up(&waiter, first),
                };
                let answer = bench.ask(step, command);
                model.end(&waiter.id, false);
                (answer, Ending::Granted)
            }
            // The same decision again, while it waits or when it was refused.
            18 if asked.iter().any(|(_, wanted)| wanted.kind == Kind::Decision) => {
                let decisions: Vec<_> =
                    asked.iter().filter(|(_, wanted)| wanted.kind == Kind::Decision).collect();
                let (_, before) = *random.pick(&decisions);
                let again = RequestSpec { wait: random.below(2) * 25, ..before.clone() };
                match model.holders.iter().any(|holder| holder.id == again.id) {
                    true => (bench.ask(step, command(&again, step)), Ending::Granted),
                    // An ended decision cannot be made again.
                    false if model.waiters.iter().all(|(waiter, ..)| waiter.id != again.id) => continue,
                    false => (bench.ask(step, command(&again, step)), model.ask(step, again)),
                }
            }
            _ => {
                let limit = 1 + random.below(4);
                let patch = RulePatch { limit: Some(Limit::AtMost(limit)), ..RulePatch::default() };
                bench.change(match random.below(4) {
                    0 => {
                        model.limits.special = limit;
                        let patch =
                            OverridePatch { limit: Some(Limit::AtMost(limit)), ..OverridePatch::default() };
                        Change::PatchOverride { rule: name("queues"), name: name("special"), patch }
                    }
                    1 => {
                        model.limits.rate = limit;
                        Change::PatchRule { name: name("rates"), patch }
                    }
                    _ => {
                        model.limits.queue = limit;
                        Change::PatchRule { name: name("queues"), patch }
                    }
                });
                model.grant();
                (Ending::Granted, Ending::Granted)
            }
        };
        assert_eq!(answer, expected, "seed {seed}, step {step}: {asked:?}");
        compare(&mut bench, &mut model, format_args!("seed {seed}, step {step}: {asked:?}"));
    }
    // Nobody waits for ever: as the holders leave, every request has its turn.
    while let Some(holder) = model.holders.first().cloned() {
        assert_eq!(bench.ask(usize::MAX, release(&holder)), Ending::Granted);
        model.end(&holder.id, true);
        compare(&mut bench, &mut model, format_args!("seed {seed}, at the end: {asked:?}"));
    }
    assert_eq!(bench.waiting.len(), 0, "seed {seed}: {asked:?}");
}

/// Compares which of the waiting requests were answered, and how.
fn compare(bench: &mut Bench, model: &mut Model, place: Arguments<'_>) {
    bench.told.sort_unstable();
    model.told.sort_unstable();
    assert_eq!(bench.told, model.told, "{place}");
    assert_eq!(bench.waiting.len(), model.waiters.len(), "{place}");
    bench.told.clear();
    model.told.clear();
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

fn about(wish: &CheckSpec) -> KeyValues {
    let queue = wish.queue.map(|queue| ("q", queue));
    let special = wish.is_special.then_some(("m", 1));
    let rate = wish.rate.map(|rate| ("r", rate));
    key_values(&[queue, special, rate].into_iter().flatten().collect::<Vec<_>>())
}

fn key_values(pairs: &[(&str, i64)]) -> KeyValues {
    let pairs = pairs.iter().map(|(key, value)| (*key, Value::<&str>::Integer(*value)));
    KeyValues::new(pairs.collect()).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}
