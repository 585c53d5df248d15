//! An engine without shard and store, and the model beside it. A failing script is reduced to the shortest one that
//! still fails.

mod grant_checker;

use bytes::Bytes;
use grant_checker::GrantChecker;
use limina_engine::{
    Applied, Command, Due, Engine, Fetched, Idempotency, Job, Missing, Name, Options, Outcome, Read,
    ReadResult, Request, Time, WaitId, record,
};
use limina_sim::{
    model::{Bounds, Fate, Judge},
    random::Random,
};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    panic::{self, AssertUnwindSafe},
};

/// Longer than any request waits.
const ALL_WAITS: u64 = 600_000;

/// One line of a script.
#[derive(Debug, Clone)]
pub(crate) struct Step<W> {
    /// The time that passes before the step.
    pub(crate) wait: u64,
    /// The step.
    pub(crate) what: W,
}

/// What most steps do.
#[derive(Debug, Clone)]
pub(crate) enum StepKind {
    Ask(Box<Request>),
    /// The batch ends, and is stored.
    Seal,
    /// The engine is opened again from what was stored.
    Reopen,
    /// All waiting requests fail, as before a planned stop.
    EndWaits,
}

impl StepKind {
    pub(crate) fn ask(request: Request) -> StepKind {
        StepKind::Ask(Box::new(request))
    }
}

/// The time before a step: mostly none, often about a span after which something ends.
pub(crate) fn wait_about(random: &mut Random, span: u64) -> u64 {
    match random.below(12) {
        0..=6 => 0,
        7..=8 => 1,
        9 => span - 1 + random.below(3),
        10 => random.below(span + 1),
        _ => random.below(2 * span),
    }
}

/// A request. One in this many has one of a few idempotency keys, if it changes something.
pub(crate) fn request(random: &mut Random, command: Command, keyed_one_in: u64) -> Request {
    let is_keyed = command.is_write() && random.one_in(keyed_one_in);
    let idempotency = is_keyed.then(|| Idempotency {
        owner: None,
        key: Name::new(&format!("key{}", random.below(4))).unwrap(),
        fingerprint: [random.below(6) as u8 / 5; 16],
    });
    Request { idempotency, ..plain(command) }
}

/// A request without an idempotency key.
pub(crate) fn plain(command: Command) -> Request {
    Request::new(Name::new("n").unwrap(), command)
}

/// What is done at one step of a script.
pub(crate) type Act<W> = fn(&mut Bench, &W) -> Result<(), String>;

/// Plays the script of each seed, with slices of this many counters.
///
/// `LIMINA_CASES=100` plays a hundred times as many.
pub(crate) fn check<W: Clone>(
    seeds: u64,
    act: Act<W>,
    script: impl Fn(&mut Random) -> (usize, Vec<Step<W>>),
) {
    check_all(seeds, false, act, script);
}

/// The same in a namespace of decisions.
pub(crate) fn check_decisions<W: Clone>(
    seeds: u64,
    act: Act<W>,
    script: impl Fn(&mut Random) -> (usize, Vec<Step<W>>),
) {
    check_all(seeds, true, act, script);
}

fn check_all<W: Clone>(
    seeds: u64,
    is_decided: bool,
    act: Act<W>,
    script: impl Fn(&mut Random) -> (usize, Vec<Step<W>>),
) {
    let times = std::env::var("LIMINA_CASES").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(1);
    for seed in 0..seeds * times {
        let mut random = Random::new(seed);
        let (slice, steps) = script(&mut random);
        let bounds = if seed % 2 == 0 { Bounds::default() } else { Bounds::random(&mut random) };
        let bounds = if is_decided { bounds.without_limiter() } else { bounds };
        let setting = Setting { slice, bounds, is_decided };
        let Err(problem) = play(&setting, act, &steps, None) else { continue };
        let (steps, problem) = shorten(&setting, act, steps, problem);
        let mut told = String::new();
        let _again = play(&setting, act, &steps, Some(&mut told));
        panic!("seed {seed}, with {setting:?}:\n{told}\n{problem}");
    }
}

/// What is the same for a whole script.
#[derive(Debug)]
struct Setting {
    /// The number of counters that a slice counts.
    slice: usize,
    /// The quotas.
    bounds: Bounds,
    /// The script is about decisions.
    is_decided: bool,
}

/// Removes every step without which the script still fails.
fn shorten<W: Clone>(
    setting: &Setting,
    act: Act<W>,
    mut steps: Vec<Step<W>>,
    mut problem: String,
) -> (Vec<Step<W>>, String) {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let mut part = steps.len().div_ceil(2);
    loop {
        let mut from = 0;
        while from < steps.len() {
            let to = (from + part).min(steps.len());
            let mut fewer = steps.clone();
            let waited: u64 = fewer.drain(from..to).map(|step| step.wait).sum();
            // First try to let the next step happen at the same time; if the script does not fail then, try without the
            // wait.
            let mut later = fewer.clone();
            if let Some(step) = later.get_mut(from) {
                step.wait += waited;
            }
            let tried = [fewer, later].into_iter().find_map(|steps| {
                let problem = play(setting, act, &steps, None).err()?;
                Some((steps, problem))
            });
            match tried {
                Some(shorter) => (steps, problem) = shorter,
                None => from = to,
            }
        }
        if part == 1 {
            break;
        }
        part = part.div_ceil(2);
    }
    panic::set_hook(hook);
    (steps, problem)
}

fn play<W>(
    setting: &Setting,
    act: Act<W>,
    steps: &[Step<W>],
    told: Option<&mut String>,
) -> Result<(), String> {
    let mut bench = Bench::new(setting, told.is_some());
    let played = panic::catch_unwind(AssertUnwindSafe(|| bench.play(act, steps)));
    if let Some(told) = told {
        *told = std::mem::take(&mut bench.told);
    }
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("a panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
    })
}

/// An engine, what it has stored, and the model.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    options: Options,
    stored: BTreeMap<Bytes, Bytes>,
    /// Another engine, which follows what this one stores, as the next owner of a shard does. `None` if it could not.
    next_owner: Option<Engine>,
    /// Counts how often the engine was opened again.
    reopened: usize,
    judge: Judge,
    grant_checker: GrantChecker,
    now: Time,
    /// Requests that wait for an answer.
    pub(crate) waiting: BTreeMap<WaitId, Request>,
    tells: bool,
    told: String,
}

impl Bench {
    fn new(setting: &Setting, tells: bool) -> Bench {
        let quotas = setting.bounds.table();
        let options = Options { backfill_slice: setting.slice, quotas, ..Options::default() };
        Bench {
            engine: Engine::open(options.clone(), []).unwrap(),
            next_owner: Some(Engine::open(options.clone(), []).unwrap()),
            reopened: 0,
            options,
            stored: BTreeMap::new(),
            judge: Judge::new(
                setting.bounds.clone(),
                setting.is_decided.then(|| Name::new("n").expect("a valid name")),
            ),
            grant_checker: GrantChecker::default(),
            now: Time(1_000_000),
            waiting: BTreeMap::new(),
            tells,
            told: String::new(),
        }
    }

    fn play<W>(&mut self, act: Act<W>, steps: &[Step<W>]) -> Result<(), String> {
        for Step { wait, what } in steps {
            self.wait(*wait)?;
            act(self, what)?;
            // Sometimes execute a slice of background work.
            if let Some(due) = self.engine.next_backfill() {
                self.due(due)?;
            }
        }
        while let Some(due) = self.engine.next_backfill() {
            self.due(due)?;
        }
        self.wait(ALL_WAITS)?;
        if self.waiting.is_empty() { Ok(()) } else { Err(format!("never answered: {:?}", self.waiting)) }
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.tells {
            let _infallible = writeln!(self.told, "{} {}", self.now.0, text());
        }
    }

    /// Does a step.
    pub(crate) fn act(&mut self, what: &StepKind) -> Result<(), String> {
        match what {
            StepKind::Ask(request) => {
                self.ask(request)?;
            }
            StepKind::Seal => self.seal(),
            StepKind::Reopen => self.reopen()?,
            StepKind::EndWaits => self.end_waits()?,
        }
        Ok(())
    }

    /// Lets time pass, and executes what is due at each instant.
    pub(crate) fn wait(&mut self, span: u64) -> Result<(), String> {
        self.now.0 += span;
        while let Some(due) = self.engine.due(self.now, 1).pop() {
            self.due(due)?;
        }
        self.judge.nothing_is_due(self.now)
    }

    fn due(&mut self, due: Due) -> Result<(), String> {
        let mut fetched = Fetched::default();
        while let Err(Missing(reads)) = self.engine.apply_due(self.now, due, &fetched) {
            self.fetch(reads, &mut fetched);
        }
        self.complete()
    }

    fn complete(&mut self) -> Result<(), String> {
        self.check_usage()?;
        for (id, outcome) in self.engine.take_completions() {
            let request = self.waiting.remove(&id).ok_or("an answer for nobody")?;
            self.judge(&request, outcome)?;
        }
        Ok(())
    }

    /// The sizes that the engine counts incrementally must equal a complete recount.
    fn check_usage(&self) -> Result<(), String> {
        let mut sum = 0;
        for name in self.engine.namespaces() {
            let (usage, recount) = (self.engine.usage(name), self.engine.recount(name));
            if usage != recount {
                return Err(format!("the usage of {name} is {recount:?}, not {usage:?}"));
            }
            sum += usage.map_or(0, |usage| usage.resident_bytes);
        }
        match self.engine.resident_bytes() {
            total if total == sum => Ok(()),
            total => Err(format!("all namespaces take {sum} bytes, not {total}")),
        }
    }

    /// The answer, unless it comes later.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Option<Outcome>, String> {
        let mut job = Job::new(request.clone());
        let mut fetched = Fetched::default();
        let applied = loop {
            match self.engine.apply(self.now, &mut job, &fetched) {
                Ok(Applied::Unfinished) => {}
                Ok(applied) => break applied,
                Err(Missing(reads)) => self.fetch(reads, &mut fetched),
            }
        };
        let answer = match applied {
            Applied::Unfinished => unreachable!("it is finished"),
            Applied::Waiting(id) => {
                self.decided(request, Fate::Waits)?;
                self.waiting.insert(id, request.clone());
                None
            }
            Applied::Done { outcome, .. } => {
                self.judge(request, outcome.clone())?;
                Some(outcome)
            }
        };
        self.complete()?;
        Ok(answer)
    }

    fn judge(&mut self, request: &Request, outcome: Outcome) -> Result<(), String> {
        if outcome == Outcome::Unreadable {
            return Err(format!("not expected: {outcome:?}"));
        }
        self.grant_checker.handle_answer(self.now, request, &outcome)?;
        self.decided(request, Fate::Answered(outcome))
    }

    /// Ends all waits, as before a planned stop.
    pub(crate) fn end_waits(&mut self) -> Result<(), String> {
        for id in self.engine.end_lock_waits() {
            let request = self.waiting.remove(&id).ok_or("nobody is given up")?;
            self.decided(&request, Fate::GivenUp)?;
        }
        Ok(())
    }

    /// Reports the decision to the model.
    pub(crate) fn decided(&mut self, request: &Request, fate: Fate) -> Result<(), String> {
        self.tell(|| format!("{} -> {fate:?}", describe(request)));
        let decided = self.judge.decided(self.now, request, &fate);
        decided
            .map(|_| ())
            .map_err(|expected| format!("{}\nanswer:   {fate:?}\nexpected: {expected}", describe(request)))
    }

    pub(crate) fn seal(&mut self) {
        let sealed = self.engine.seal();
        let bytes = Bytes::copy_from_slice;
        let images = sealed.writes.iter().map(|write| (bytes(write.key), write.value.map(bytes)));
        let residents = images.filter(|(key, _)| record::key::residents().contains(key));
        if let Some(mut next_owner) = self.next_owner.take()
            && next_owner.amend(residents).expect("every record is sound")
        {
            self.next_owner = Some(next_owner);
        }
        for write in sealed.writes.iter() {
            let key = Bytes::copy_from_slice(write.key);
            match write.value {
                Some(value) => self.stored.insert(key, Bytes::copy_from_slice(value)),
                None => self.stored.remove(&key),
            };
        }
        self.judge.sealed();
        self.judge.persisted();
    }

    /// Everything decided is stored before this, but windows may fall back to their state at a durable answer.
    pub(crate) fn reopen(&mut self) -> Result<(), String> {
        self.seal();
        self.tell(|| "reopen".into());
        let residents = self.stored.range(record::key::residents());
        let residents: Vec<(Bytes, Bytes)> =
            residents.map(|(key, value)| (key.clone(), value.clone())).collect();
        let open =
            || Engine::open(self.options.clone(), residents.clone()).map_err(|error| error.to_string());
        // Every second time, the engine that has followed the other one takes its place.
        self.reopened += 1;
        self.engine = match self.next_owner.take().filter(|_| self.reopened.is_multiple_of(2)) {
            Some(next_owner) => next_owner,
            None => open()?,
        };
        self.next_owner = Some(open()?);
        self.check_usage()?;
        self.engine.apply_grace_period(self.now);
        // Waiting requests are lost with the memory, and change nothing.
        self.waiting.clear();
        let mut asked = open()?;
        let ask = &mut |at, namespace: &Name, command| {
            let mut job = Job::new(Request::new(namespace.clone(), command));
            let mut fetched = Fetched::default();
            loop {
                match asked.apply(at, &mut job, &fetched) {
                    Ok(Applied::Done { outcome, .. }) => return Ok(outcome),
                    Ok(other) => return Err(format!("a read is {other:?}")),
                    Err(Missing(reads)) => self.fetch(reads, &mut fetched),
                }
            }
        };
        self.judge = self.judge.as_loaded(false, self.engine.time(), Some(self.now), ask)?;
        Ok(())
    }

    fn fetch(&self, reads: Vec<Read>, fetched: &mut Fetched) {
        for read in reads {
            let found = |from: &Bytes, to: &Bytes| self.stored.range(from.clone()..to.clone());
            let pair = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
            let answer = match &read {
                Read::Get(key) => ReadResult::Value(self.stored.get(key).cloned()),
                Read::LastAtOrBefore { from, at } => {
                    ReadResult::Last(self.stored.range(from.clone()..=at.clone()).next_back().map(pair))
                }
                Read::Scan { from, to, limit } => {
                    ReadResult::Page(found(from, to).take(*limit).map(pair).collect())
                }
            };
            fetched.insert(read, answer);
        }
    }
}

fn describe(request: &Request) -> String {
    let key = request.idempotency.as_ref().map(|key| format!(" under {} ({})", key.key, key.fingerprint[0]));
    format!("{:?}{}", request.command, key.unwrap_or_default())
}
