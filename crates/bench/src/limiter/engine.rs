//! The engine alone, on one processor: decisions and after-images, without a store.
//!
//! Requests are made beforehand, some thousand at a time, and that is not counted: who asks, makes them. What is counted
//! is to decide them, to drop the answers, to seal, and what falls due meanwhile: the thread's processor time, since
//! nothing here ever waits.

use super::{
    in_process,
    workload::{Case, PER_SECONDS},
};
use crate::{
    Failed,
    in_process::{key_values, name},
    load::Random,
    machine,
    measure::Rated,
};
use clap::ValueEnum;
use limina_engine::{
    Applied, Command, Engine, Fetched, Job, KeyValues, Millis, Name, Options, Outcome, Request, Time,
    limiter::{self, Change, Limit, NewRule, RuleChange, Window},
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

/// What it came to.
pub(crate) struct Figure {
    pub(crate) what: What,
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

pub(crate) fn measure(what: What, case: Case, time: Duration) -> Result<Figure, Failed> {
    let mut driver = Driver::new()?;
    let rules: Vec<NewRule> = (0..case.rules).map(|number| rule(what, case, number)).collect();
    for rules in rules.chunks(BATCH) {
        let commands = rules
            .iter()
            .map(|rule| RuleChange::new(Change::CreateRule(rule.clone())).map(limiter::Command::Change));
        driver.run(commands.collect::<Result<_, _>>()?)?;
    }
    // Every group is there before anything is measured.
    for from in (0..case.subjects).step_by(BATCH) {
        let subjects = from..(from + BATCH).min(case.subjects);
        driver.run(subjects.map(|subject| take(key_values(case.key_values(subject)))).collect())?;
    }
    let mut random = Random::new(case.subjects);
    driver.repeat(what, case, &mut random, time / 5)?;
    let (decided, refused, took) = driver.repeat(what, case, &mut random, time)?;
    let expected = if what == What::Refused { decided } else { 0 };
    if refused != expected {
        return Err(format!("{refused} of {decided} were refused").into());
    }
    Ok(Figure {
        what,
        case,
        rate: decided as f64 / took.as_secs_f64(),
        groups: driver.engine.stats().sizes.limiter.groups,
        resident: machine::resident_bytes(std::process::id()),
    })
}

fn rule(what: What, case: Case, number: usize) -> NewRule {
    let fixed = in_process::rule(case, number);
    let per = Millis(PER_SECONDS * 1000);
    match what {
        What::Fixed => fixed,
        // A second, so that within the measurement old entries leave.
        What::Sliding => NewRule { window: Some(Window::Sliding { per: Millis(1000) }), ..fixed },
        What::Bucket => NewRule { window: Some(Window::Bucket { per, burst: None }), ..fixed },
        What::Refused => NewRule { limit: Limit::AtMost(0), ..fixed },
        What::Counters => NewRule { window: None, ..fixed },
    }
}

fn take(key_values: KeyValues) -> limiter::Command {
    limiter::Command::Check(in_process::check(key_values))
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
        what: What,
        case: Case,
        random: &mut Random,
        time: Duration,
    ) -> Result<(u64, u64, Duration), Failed> {
        let (mut decided, mut refused) = (0, 0);
        let begin = self.counted;
        while self.counted - begin < time {
            let mut commands = Vec::with_capacity(BATCH);
            while commands.len() < BATCH {
                let key_values = key_values(case.key_values(random.below(case.subjects)));
                let give_back = limiter::Command::MoveCounter { key_values: key_values.clone(), by: -1 };
                commands.push(take(key_values));
                commands.extend((what == What::Counters).then_some(give_back));
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
