//! The engine alone, on one processor: decisions and after-images, without a store.
//!
//! The measured time is the processor time of the thread, because nothing here ever waits. It includes deciding the
//! requests, dropping the answers, sealing, and work that falls due. It does not include making the requests, which happens
//! some thousand at a time before each batch: clients would do that.

use super::{
    in_process,
    workload::{Case, PER_SECONDS},
};
use crate::{
    Failed,
    in_process::{key_values, name, unexpected},
    load::Random,
    machine,
    measure::Rated,
};
use clap::ValueEnum;
use limina_engine::{
    Applied, Command, Engine, Fetched, Job, KeyValues, Millis, Name, Options, Outcome, Request, Time,
    limiter::{self, Change, CounterChange, Limit, NewRule, RuleChange, Window},
};
use std::time::Duration;

/// Requests that are decided before the engine is sealed.
const BATCH: usize = 4096;
/// An arbitrary instant; windows are aligned to the epoch.
const START: u64 = 1_800_000_000_000;

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineWork {
    /// Checks by rules with a fixed window
    Fixed,
    /// Checks by rules with a sliding window
    Sliding,
    /// Checks by rules with a bucket
    Bucket,
    /// Checks by rules with a fixed window and a limit of 0
    Refused,
    /// Counters of a rule without a window: 1 is added, then subtracted
    Counters,
}

/// The result of one case.
pub(crate) struct Figure {
    pub(crate) what: EngineWork,
    pub(crate) case: Case,
    pub(crate) rate: f64,
    /// Groups in memory.
    pub(crate) groups: usize,
    pub(crate) resident: Option<u64>,
}

impl Rated for Figure {
    fn rate(&self) -> f64 {
        self.rate
    }
}

pub(crate) fn measure(what: EngineWork, case: Case, time: Duration) -> Result<Figure, Failed> {
    let mut driver = Driver::new()?;
    let rules: Vec<NewRule> = (0..case.rules).map(|number| rule(what, case, number)).collect();
    for rules in rules.chunks(BATCH) {
        let commands = rules
            .iter()
            .map(|rule| RuleChange::new(Change::CreateRule(rule.clone())).map(limiter::Command::Change));
        driver.run(commands.collect::<Result<_, _>>()?)?;
    }
    // Create every group before the measurement.
    for from in (0..case.subjects).step_by(BATCH) {
        let subjects = from..(from + BATCH).min(case.subjects);
        driver.run(subjects.map(|subject| take(key_values(case.key_values(subject)))).collect())?;
    }
    let mut random = Random::new(case.subjects);
    driver.repeat(what, case, &mut random, time / 5)?;
    let (decided, refused, took) = driver.repeat(what, case, &mut random, time)?;
    let expected = if what == EngineWork::Refused { decided } else { 0 };
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

fn rule(what: EngineWork, case: Case, number: usize) -> NewRule {
    let fixed = in_process::rule(case, number);
    let per = Millis(PER_SECONDS * 1000);
    match what {
        EngineWork::Fixed => fixed,
        // One second, so that old entries leave the window during the measurement.
        EngineWork::Sliding => NewRule { window: Some(Window::Sliding { per: Millis(1000) }), ..fixed },
        EngineWork::Bucket => NewRule { window: Some(Window::Bucket { per, burst: None }), ..fixed },
        EngineWork::Refused => NewRule { limit: Limit::AtMost(0), ..fixed },
        EngineWork::Counters => NewRule { window: None, ..fixed },
    }
}

fn take(key_values: KeyValues) -> limiter::Command {
    limiter::Command::Check(in_process::check(key_values))
}

/// Does what a shard does with its engine, except for the store.
struct Driver {
    engine: Engine,
    nothing: Fetched,
    namespace: Name,
    /// The measured time, from which the engine's clock is derived.
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

    /// Decides requests for this time. Returns how many were decided, how many of them were refused, and the measured time.
    fn repeat(
        &mut self,
        what: EngineWork,
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
                let give_back = limiter::Command::MoveCounter(
                    CounterChange::new(key_values.clone(), -1).expect("a valid change"),
                );
                commands.push(take(key_values));
                commands.extend((what == EngineWork::Counters).then_some(give_back));
            }
            decided += commands.len() as u64;
            refused += self.run(commands)?;
        }
        Ok((decided, refused, self.counted - begin))
    }

    /// Decides one batch, and returns how many were refused.
    fn run(&mut self, commands: Vec<limiter::Command>) -> Result<u64, Failed> {
        let namespace = &self.namespace;
        let job = |command| {
            let command = Command::Limiter(command);
            Job::new(Request::new(namespace.clone(), command))
        };
        let mut jobs: Vec<Job> = commands.into_iter().map(job).collect();
        let begin = machine::thread_cpu_time();
        let now = Time(START + self.counted.as_millis() as u64);
        self.run_due(now)?;
        let mut refused = 0;
        for job in &mut jobs {
            match self.engine.apply(now, job, &self.nothing) {
                Ok(Applied::Done { outcome: Outcome::Limiter(Ok(_)), .. }) => {}
                Ok(Applied::Done {
                    outcome: Outcome::Limiter(Err(limiter::Refusal::LimitReached(_))),
                    ..
                }) => {
                    refused += 1;
                }
                other => return Err(unexpected(other)),
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
