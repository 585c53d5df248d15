//! The limiter of the engine against the model, without shard and store: random commands at random times, with windows
//! of a few milliseconds, so that most of what happens is at an edge. A case that fails is cut down to the shortest
//! script that still fails.

use bytes::Bytes;
use limina_engine::{
    Answer, Applied, Command, Due, Engine, Fetched, Idempotency, Job, Missing, Name, Options, Outcome, Page,
    Read, Request, Time, WaitId,
    limiter::{self, Check, CounterId, CounterInfo, Decision, Refusal, Reply, Take},
    record,
    selection::Query,
};
use limina_sim::{
    model::{Fate, Judge},
    random::Random,
    workload::Limits,
};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    panic::{self, AssertUnwindSafe},
};

/// One line of a script.
#[derive(Debug, Clone)]
struct Step {
    /// How long before.
    wait: u64,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Ask(Request),
    /// A check, and where it is refused the same as a dry run just before it should pass, and when it should.
    Retry(Vec<Take>),
    /// The counters, in small parts.
    Walk(usize),
    /// The batch ends, and is stored.
    Seal,
    /// The engine is opened again from what was stored.
    Reopen,
}

#[test]
fn any_commands() {
    check(4_000, |random| {
        let spans = *random.pick(&[&[1, 7, 64][..], &[10, 100], &[100], &[50, 1_000]]);
        let limits = Limits::with_spans(random, spans);
        script(random, limits, 50)
    });
}

#[test]
fn long_scripts() {
    check(60, |random| {
        let limits = Limits::with_spans(random, &[100, 1_000]);
        script(random, limits, 500)
    });
}

/// Many entries in one sliding window, which may then count a little too long.
#[test]
fn crowded_windows() {
    check(20, |random| {
        let limits = Limits::crowded(random, &[640]);
        script(random, limits, 300)
    });
}

/// Plays the script of each seed.
///
/// `LIMINA_CASES=100` plays a hundred times as many.
fn check(seeds: u64, script: impl Fn(&mut Random) -> (usize, Vec<Step>)) {
    let times = std::env::var("LIMINA_CASES").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(1);
    for seed in 0..seeds * times {
        let (slice, steps) = script(&mut Random::new(seed));
        let Err(problem) = play(slice, &steps, None) else { continue };
        let (steps, problem) = shorten(slice, steps, problem);
        let mut told = String::new();
        let _again = play(slice, &steps, Some(&mut told));
        panic!("seed {seed}, with slices of {slice}:\n{told}\n{problem}");
    }
}

fn script(random: &mut Random, mut limits: Limits, length: usize) -> (usize, Vec<Step>) {
    let namespace = Name::new("n").unwrap();
    let ask =
        |command, idempotency| What::Ask(Request { namespace: namespace.clone(), idempotency, command });
    let mut steps: Vec<Step> =
        (0..2).map(|_| Step { wait: 0, what: ask(Command::Limiter(limits.rule(random)), None) }).collect();
    while steps.len() < length {
        let per = *random.pick(limits.spans());
        let wait = match random.below(12) {
            0..=4 => 0,
            5..=7 => 1,
            8 => random.below(4),
            9 => per - 1 + random.below(3),
            10 => random.below(per + 1),
            _ => random.below(4 * per),
        };
        let command = limits.command(random);
        let what = match (random.below(60), &command) {
            (0, _) => What::Walk(1 + random.below(3) as usize),
            (1..=3, _) => What::Seal,
            (4, _) => What::Reopen,
            (5, _) if random.one_in(4) => ask(Command::DeleteNamespace, None),
            (_, limiter::Command::Check(Check { entries, dry_run: false })) if random.one_in(3) => {
                What::Retry(entries.clone())
            }
            _ => {
                let is_keyed = command.is_write() && random.one_in(8);
                let key = is_keyed.then(|| Idempotency {
                    key: Name::new(&format!("key{}", random.below(4))).unwrap(),
                    fingerprint: [random.below(6) as u8 / 5; 16],
                });
                ask(Command::Limiter(command), key)
            }
        };
        steps.push(Step { wait, what });
    }
    (*random.pick(&[1, 2, 4_096]), steps)
}

/// Leaves out whatever can be left out without mending it.
fn shorten(slice: usize, mut steps: Vec<Step>, mut problem: String) -> (Vec<Step>, String) {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let mut part = steps.len().div_ceil(2);
    loop {
        let mut from = 0;
        while from < steps.len() {
            let to = (from + part).min(steps.len());
            let mut fewer = steps.clone();
            let waited: u64 = fewer.drain(from..to).map(|step| step.wait).sum();
            // What follows should come at the same time; if that is not what matters, then without the wait.
            let mut later = fewer.clone();
            if let Some(step) = later.get_mut(from) {
                step.wait += waited;
            }
            let tried = [fewer, later].into_iter().find_map(|steps| {
                let problem = play(slice, &steps, None).err()?;
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

fn play(slice: usize, steps: &[Step], told: Option<&mut String>) -> Result<(), String> {
    let mut bench = Bench::new(slice, told.is_some());
    let played = panic::catch_unwind(AssertUnwindSafe(|| bench.play(steps)));
    if let Some(told) = told {
        *told = std::mem::take(&mut bench.told);
    }
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("a panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
    })
}

/// An engine, what it has stored, and the model.
struct Bench {
    engine: Engine,
    options: Options,
    stored: BTreeMap<Bytes, Bytes>,
    judge: Judge,
    now: Time,
    waiting: BTreeMap<WaitId, Request>,
    tells: bool,
    told: String,
}

impl Bench {
    fn new(build_slice: usize, tells: bool) -> Bench {
        let options = Options { build_slice };
        Bench {
            engine: Engine::open(options.clone(), []).unwrap(),
            options,
            stored: BTreeMap::new(),
            judge: Judge::default(),
            now: Time(1_000_000),
            waiting: BTreeMap::new(),
            tells,
            told: String::new(),
        }
    }

    fn play(&mut self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            self.wait(step.wait)?;
            match &step.what {
                What::Ask(request) => {
                    self.ask(request)?;
                }
                What::Retry(entries) => self.retry(entries)?,
                What::Walk(limit) => self.walk(*limit)?,
                What::Seal => self.seal(),
                What::Reopen => self.reopen()?,
            }
            // Now and then a slice of what takes its time.
            if let Some(due) = self.engine.build() {
                self.due(due)?;
            }
        }
        while let Some(due) = self.engine.build() {
            self.due(due)?;
        }
        if self.waiting.is_empty() { Ok(()) } else { Err(format!("never answered: {:?}", self.waiting)) }
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.tells {
            let _infallible = writeln!(self.told, "{} {}", self.now.0, text());
        }
    }

    /// Lets time pass, and does what is due at each moment.
    fn wait(&mut self, span: u64) -> Result<(), String> {
        self.now.0 += span;
        while let Some(due) = self.engine.due(self.now, 1).pop() {
            self.due(due)?;
        }
        Ok(())
    }

    fn due(&mut self, due: Due) -> Result<(), String> {
        let mut fetched = Fetched::default();
        while let Err(Missing(reads)) = self.engine.apply_due(self.now, due, &fetched) {
            self.fetch(reads, &mut fetched);
        }
        self.complete()
    }

    fn complete(&mut self) -> Result<(), String> {
        for (id, outcome) in self.engine.take_completions() {
            let request = self.waiting.remove(&id).ok_or("an answer for nobody")?;
            self.judge(&request, outcome)?;
        }
        Ok(())
    }

    /// The answer, unless it comes later.
    fn ask(&mut self, request: &Request) -> Result<Option<Outcome>, String> {
        let mut job = Job::new(request.clone());
        let mut fetched = Fetched::default();
        let applied = loop {
            match self.engine.apply(self.now, &mut job, &fetched) {
                Ok(applied) => break applied,
                Err(Missing(reads)) => self.fetch(reads, &mut fetched),
            }
        };
        let answer = match applied {
            Applied::Waiting(id) => {
                self.tell(|| format!("{} -> later", describe(request)));
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
        self.tell(|| format!("{} -> {outcome:?}", describe(request)));
        let key = request.idempotency.as_ref().map(|idempotency| &idempotency.key);
        let is_in_use = self
            .waiting
            .values()
            .any(|other| other.idempotency.as_ref().is_some_and(|idempotency| Some(&idempotency.key) == key));
        if outcome == Outcome::Unreadable || (outcome == Outcome::IdempotencyKeyInUse && !is_in_use) {
            return Err(format!("not expected: {outcome:?}"));
        }
        self.judge
            .decided(self.now, request, Fate::Answered(outcome.clone()))
            .map_err(|expected| format!("{}\nanswer:   {outcome:?}\nexpected: {expected}", describe(request)))
    }

    fn limiter(&mut self, command: limiter::Command) -> Result<Result<Reply, Refusal>, String> {
        let namespace = Name::new("n").unwrap();
        let request = Request { namespace, idempotency: None, command: Command::Limiter(command) };
        match self.ask(&request)? {
            Some(Outcome::Limiter(answer)) => Ok(answer),
            other => Err(format!("{} -> {other:?}", describe(&request))),
        }
    }

    fn check(&mut self, entries: &[Take], dry_run: bool) -> Result<Decision, String> {
        match self.limiter(limiter::Command::Check(Check { entries: entries.to_vec(), dry_run }))? {
            Ok(Reply::Allowed(decision)) | Err(Refusal::LimitReached(decision)) => Ok(decision),
            other => Err(format!("a check is answered {other:?}")),
        }
    }

    /// What is promised about trying again is kept, whatever the model thinks.
    fn retry(&mut self, entries: &[Take]) -> Result<(), String> {
        let decision = self.check(entries, false)?;
        let refusing = decision.limits.iter().filter(|limit| limit.exceeded && !limit.shadow);
        let longest = refusing.clone().map(|limit| limit.per.map_or(0, |per| per.0)).max().unwrap_or(0);
        // Nobody knows when what is in use is given back; then nothing is promised, and a lease may end meanwhile.
        let is_in_use = refusing.clone().any(|limit| limit.per.is_none());
        match decision.retry_after {
            _ if decision.allowed || is_in_use || !self.waiting.is_empty() => Ok(()),
            // Where something is given back in the same check, nothing is promised either.
            None if entries.iter().any(|take| take.hits < 0) => Ok(()),
            Some(span) => {
                self.wait(span.0 - 1)?;
                if self.check(entries, true)?.allowed {
                    return Err(format!("after {} ms it should not pass yet", span.0 - 1));
                }
                self.wait(1)?;
                if !self.check(entries, true)?.allowed {
                    return Err(format!("after {} ms it should pass", span.0));
                }
                Ok(())
            }
            None => {
                self.wait(3 * longest)?;
                if self.check(entries, true)?.allowed { Err("it should never pass".into()) } else { Ok(()) }
            }
        }
    }

    /// In small parts, the counters must be the same as in one, each once.
    fn walk(&mut self, limit: usize) -> Result<(), String> {
        let mut walked = Vec::new();
        let mut after = None;
        loop {
            let (items, next) = self.counters(Page { after, limit })?;
            walked.extend(items);
            match next {
                Some(next) if after.is_none_or(|after| next > after) => after = Some(next),
                Some(next) => return Err(format!("after {after:?} follows {next:?}")),
                None => break,
            }
        }
        let mut all = self.counters(Page { after: None, limit: 100_000 })?.0;
        for counters in [&mut walked, &mut all] {
            counters.sort_by(|a, b| a.key_values.cmp(&b.key_values));
        }
        if walked == all { Ok(()) } else { Err(format!("in parts {walked:?}, but at once {all:?}")) }
    }

    fn counters(&mut self, page: Page<CounterId>) -> Result<(Vec<CounterInfo>, Option<CounterId>), String> {
        match self.limiter(limiter::Command::ListCounters { query: Query::default(), page })? {
            Ok(Reply::Counters(listed)) => Ok((listed.items, listed.next)),
            other => Err(format!("a list of counters is answered {other:?}")),
        }
    }

    fn seal(&mut self) {
        for write in self.engine.seal().writes.iter() {
            let key = Bytes::copy_from_slice(write.key);
            match write.value {
                Some(value) => self.stored.insert(key, Bytes::copy_from_slice(value)),
                None => self.stored.remove(&key),
            };
        }
        self.judge.persisted();
    }

    /// Everything decided is stored before, but windows may fall back to what they were at a durable answer.
    fn reopen(&mut self) -> Result<(), String> {
        self.seal();
        self.tell(|| "reopen".into());
        let residents = self.stored.range(record::key::residents());
        let residents: Vec<(Bytes, Bytes)> =
            residents.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.engine = Engine::open(self.options.clone(), residents).map_err(|error| error.to_string())?;
        self.engine.grace(self.now);
        // Changes that were not done are lost with the memory.
        self.waiting.clear();
        let reopened = self.judge.reopened(false, self.engine.time(), self.now);
        reopened.map_err(|_| "too much is possible for the model".to_string())
    }

    fn fetch(&self, reads: Vec<Read>, fetched: &mut Fetched) {
        for read in reads {
            let found = |from: &Bytes, to: &Bytes| self.stored.range(from.clone()..to.clone());
            let pair = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
            let answer = match &read {
                Read::Get(key) => Answer::Value(self.stored.get(key).cloned()),
                Read::LastAtOrBefore { from, at } => {
                    Answer::Last(self.stored.range(from.clone()..=at.clone()).next_back().map(pair))
                }
                Read::Scan { from, to, limit } => {
                    Answer::Page(found(from, to).take(*limit).map(pair).collect())
                }
            };
            fetched.insert(read, answer);
        }
    }
}

fn describe(request: &Request) -> String {
    let key = request.idempotency.as_ref().map(|key| format!(" under {} ({})", key.key, key.fingerprint[0]));
    match &request.command {
        Command::Limiter(command) => format!("{command:?}{}", key.unwrap_or_default()),
        other => format!("{other:?}{}", key.unwrap_or_default()),
    }
}
