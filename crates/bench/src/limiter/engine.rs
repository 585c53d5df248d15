//! The engine alone, on one processor: decisions and after-images, without a store.
//!
//! Requests are made beforehand, some thousand at a time, and that is not counted: who asks, makes them. What is counted
//! is to decide them, to drop the answers, to seal, and what falls due meanwhile: the thread's processor time, since
//! nothing here ever waits.

use super::workload::{LIMIT, PER_SECONDS, client_name};
use crate::{Failed, in_process::name, load::Random, machine, measure::Rated};
use clap::ValueEnum;
use limina_engine::{
    Applied, Command, Engine, Fetched, Job, KeyValues, Millis, Name, Options, Outcome, Request, Time,
    key_values::Value,
    limiter::{self, Change, Check, Limit, NewRule, Take, Window},
    selection::{Selection, Test},
};
use std::time::Duration;

/// So many requests are decided before the engine is sealed.
const BATCH: usize = 4096;
/// Some instant; windows are aligned to the epoch.
const START: u64 = 1_800_000_000_000;

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Checks by rules with a fixed window
    Fixed,
    /// Checks by rules with a sliding window
    Sliding,
    /// Checks by rules with a bucket
    Bucket,
    /// Checks by rules with a fixed window that let nothing pass
    Refused,
    /// Counters of a rule without a window: 1 is taken, then given back
    Counters,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) what: What,
    /// All rules.
    pub(crate) rules: usize,
    /// How many apply to each check.
    pub(crate) matching: usize,
    /// Of how many rules checks are asked that they apply to.
    pub(crate) asked: usize,
    /// Distinct key-values for which checks are asked.
    pub(crate) subjects: usize,
}

/// What it came to.
pub(crate) struct Figure {
    pub(crate) case: Case,
    pub(crate) rate: f64,
    /// Groups that count something.
    pub(crate) groups: usize,
    pub(crate) resident: Option<u64>,
}

impl Rated for Figure {
    fn rate(&self) -> f64 {
        self.rate
    }
}

impl Case {
    /// One rule, which groups by client.
    pub(crate) fn simple(what: What, clients: usize) -> Case {
        Case { what, rules: 1, matching: 1, asked: 1, subjects: clients }
    }

    fn is_simple(&self) -> bool {
        self.rules == 1
    }
}

pub(crate) fn measure(case: Case, time: Duration) -> Result<Figure, Failed> {
    let mut driver = Driver::new()?;
    let rules: Vec<NewRule> = (0..case.rules).map(|number| rule(case, number)).collect();
    for rules in rules.chunks(BATCH) {
        let commands = rules.iter().map(|rule| limiter::Command::Change(Change::CreateRule(rule.clone())));
        driver.run(commands.collect())?;
    }
    // Every group is there before anything is measured.
    for from in (0..case.subjects).step_by(BATCH) {
        let subjects = from..(from + BATCH).min(case.subjects);
        driver.run(subjects.map(|subject| take(key_values(case, subject))).collect())?;
    }
    let mut random = Random::new(case.subjects);
    driver.repeat(case, &mut random, time / 5)?;
    let (decided, refused, took) = driver.repeat(case, &mut random, time)?;
    let expected = if case.what == What::Refused { decided } else { 0 };
    if refused != expected {
        return Err(format!("{refused} of {decided} were refused").into());
    }
    Ok(Figure {
        case,
        rate: decided as f64 / took.as_secs_f64(),
        groups: driver.engine.stats().sizes.limiter.groups,
        resident: machine::resident_bytes(std::process::id()),
    })
}

/// Rules that apply together have one API in common. Every other one selects it by its name, and the rest group by a key
/// that only its checks have. So all but `matching` of the rules do not apply to a check.
fn rule(case: Case, number: usize) -> NewRule {
    let api = number / case.matching;
    let (group_by, selection) = match number % 2 {
        _ if case.is_simple() => (vec!["client".into()], Selection::default()),
        0 => {
            let test = Test::Eq(Value::String(api_name(api).into()));
            (vec!["client".into()], Selection::new(vec![("api".into(), vec![test])]))
        }
        _ => (vec!["client".into(), feature_name(api).into()], Selection::default()),
    };
    let minute = Millis(PER_SECONDS * 1000);
    NewRule {
        name: name(&format!("rule-{number}")),
        group_by,
        selection,
        limit: Limit::AtMost(if case.what == What::Refused { 0 } else { LIMIT }),
        window: match case.what {
            What::Fixed | What::Refused => Some(Window::Fixed { per: minute }),
            // A second, so that within the measurement old entries leave.
            What::Sliding => Some(Window::Sliding { per: Millis(1000) }),
            What::Bucket => Some(Window::Bucket { per: minute, burst: None }),
            What::Counters => None,
        },
        shadow: false,
        durability: None,
        description: None,
    }
}

fn api_name(api: usize) -> String {
    format!("api-{api}")
}

fn feature_name(api: usize) -> String {
    format!("feature-{api}")
}

fn key_values(case: Case, subject: usize) -> KeyValues {
    let client = client_name(subject);
    let mut pairs = vec![("client".to_owned(), Value::String(client.as_str()))];
    let api = subject % (case.asked / case.matching);
    let api_name = api_name(api);
    if !case.is_simple() {
        pairs.push(("api".to_owned(), Value::String(&api_name)));
        pairs.push((feature_name(api), Value::Boolean(true)));
    }
    KeyValues::new(pairs).expect("valid key-values")
}

fn take(key_values: KeyValues) -> limiter::Command {
    let entries = vec![Take { key_values, hits: 1, limit: None }];
    limiter::Command::Check(Check { entries, dry_run: false })
}

/// Does what a shard does around its engine, but for the store.
struct Driver {
    engine: Engine,
    nothing: Fetched,
    namespace: Name,
    /// The time that was counted, which is also the engine's.
    counted: Duration,
}

impl Driver {
    fn new() -> Result<Driver, Failed> {
        Ok(Driver {
            engine: Engine::open(Options::default(), [])?,
            nothing: Fetched::default(),
            namespace: name("default"),
            counted: Duration::ZERO,
        })
    }

    /// Decides as many as there is time for; says how many, how many of them were refused, and how long it took.
    fn repeat(
        &mut self,
        case: Case,
        random: &mut Random,
        time: Duration,
    ) -> Result<(u64, u64, Duration), Failed> {
        let (mut decided, mut refused) = (0, 0);
        let begin = self.counted;
        while self.counted - begin < time {
            let mut commands = Vec::with_capacity(BATCH);
            while commands.len() < BATCH {
                let key_values = key_values(case, random.below(case.subjects));
                let give_back = limiter::Command::MoveCounter { key_values: key_values.clone(), by: -1 };
                commands.push(take(key_values));
                commands.extend((case.what == What::Counters).then_some(give_back));
            }
            decided += commands.len() as u64;
            refused += self.run(commands)?;
        }
        Ok((decided, refused, self.counted - begin))
    }

    /// One batch; says how many were refused.
    fn run(&mut self, commands: Vec<limiter::Command>) -> Result<u64, Failed> {
        let namespace = &self.namespace;
        let job = |command| {
            let command = Command::Limiter(command);
            Job::new(Request { namespace: namespace.clone(), idempotency: None, command })
        };
        let mut jobs: Vec<Job> = commands.into_iter().map(job).collect();
        let begin = machine::thread_cpu_time();
        let now = Time(START + self.counted.as_millis() as u64);
        self.run_due(now)?;
        let mut refused = 0;
        for job in &mut jobs {
            match self.engine.apply(now, job, &self.nothing) {
                Ok(Applied::Done { outcome: Outcome::Limiter(Ok(_)), .. }) => {}
                Ok(Applied::Done { outcome: Outcome::Limiter(Err(refusal)), .. })
                    if refusal.code() == "LimitReached" =>
                {
                    refused += 1;
                }
                other => return Err(format!("an unexpected outcome: {other:?}").into()),
            }
        }
        drop(self.engine.seal());
        self.counted += machine::thread_cpu_time() - begin;
        Ok(refused)
    }

    fn run_due(&mut self, now: Time) -> Result<(), Failed> {
        loop {
            let due = self.engine.due(now, 1024);
            if due.is_empty() {
                return Ok(());
            }
            for due in due {
                self.engine.apply_due(now, due, &self.nothing).map_err(|missing| format!("{missing:?}"))?;
            }
        }
    }
}
