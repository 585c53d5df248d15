//! What a scenario is, its bounds, and how it is run.

use crate::{
    Failed,
    honest::Samples,
    machine::StolenTime,
    server::{Limits, Server},
    stage::{Stage, Timing},
    tally::Counts,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    future::Future,
    path::PathBuf,
    pin::Pin,
    time::{Duration, Instant},
};

/// The memory budget that the server gets.
const BUDGET_MIB: u64 = 1024;
/// The resident memory that the server may have besides its budget: its code, its threads, the allocator's free pages.
const BESIDES_BUDGET: u64 = 256 << 20;
/// The longest time for which a single request of a neighbour may delay the honest client, at the 99th percentile.
const MAX_DELAY: Duration = Duration::from_millis(50);
/// While there are many hostile clients, an accepted request may wait for the target of 250 ms. The rest is for the hostile
/// clients themselves, which run on the same machine.
const MAX_CROWD_DELAY: Duration = Duration::from_millis(500);
/// The longest time until the honest client is served as before.
pub(crate) const MAX_RECOVERY: Duration = Duration::from_secs(1);
/// Latencies say nothing about the server while other virtual machines take more than this share of the processors.
const MAX_STOLEN: f64 = 0.01;
/// How often a scenario is played until it is judged on a machine of which nothing was taken.
const MAX_PLAYS: usize = 3;

/// How scenarios are run.
pub struct Settings {
    server: PathBuf,
    timing: Timing,
    /// Sizes and numbers are divided by this.
    divisor: usize,
    /// Whether latencies and memory are judged. At a tiny size they say nothing.
    judges_figures: bool,
}

impl Settings {
    /// Everything at its full size, against this server.
    pub fn full(server: PathBuf) -> Settings {
        Settings { server, timing: Timing::FULL, divisor: 1, judges_figures: true }
    }

    /// Everything at a thousandth of its size. This shows that the scenarios work, and that the server does not fail.
    pub fn tiny(server: PathBuf) -> Settings {
        Settings { server, timing: Timing::TINY, divisor: 1000, judges_figures: false }
    }
}

/// A scenario.
pub struct Scenario {
    /// The name by which it is selected.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    pub(crate) kind: Kind,
    pub(crate) limits: Limits,
    pub(crate) play: Play,
}

pub(crate) type Playing<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + Send + 'a>>;
pub(crate) type Play = fn(&Stage) -> Playing<'_>;

/// Decides which bounds a scenario has.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Clients make the server hold bytes. The honest client's checks may be refused; its heartbeats may not.
    Memory,
    /// Single requests are expensive. The honest client is not refused.
    Work,
    /// There are more requests than the server can answer. Any request may be refused, and quickly.
    Overload,
    /// There is no honest client. The scenario itself judges.
    Alone,
}

impl Scenario {
    pub(crate) fn new(name: &'static str, kind: Kind, summary: &'static str, play: Play) -> Scenario {
        let limits = Limits { memory_mib: Some(BUDGET_MIB), ..Limits::default() };
        Scenario { name, summary, kind, limits, play }
    }

    /// The same scenario with other demands on the process.
    pub(crate) fn with_limits(self, limits: Limits) -> Scenario {
        Scenario { limits, ..self }
    }

    /// Plays the scenario against a new server. If it only was too slow, and others took processors of the machine meanwhile, it is
    /// played again. Anything else that a scenario finds is final.
    pub fn run(&self, settings: &Settings) -> Outcome {
        eprintln!("limina-hostile: {}: {}", self.name, self.summary);
        let mut plays = 1;
        loop {
            let outcome = self.play_once(settings);
            for missed in outcome.missed() {
                eprintln!("limina-hostile: {}: MISSED: {missed}", self.name);
            }
            if !outcome.is_inconclusive() || plays == MAX_PLAYS {
                return outcome;
            }
            let percent = 100.0 * outcome.stolen;
            eprintln!("limina-hostile: {}: others took {percent:.0} % of the machine; again", self.name);
            plays += 1;
        }
    }

    fn play_once(&self, settings: &Settings) -> Outcome {
        let mut outcome = Outcome { name: self.name, ..Outcome::default() };
        let stolen = StolenTime::start();
        if let Err(error) = self.play_into(&mut outcome, settings) {
            outcome.missed.push(error.to_string());
        }
        outcome.stolen = stolen.share();
        outcome
    }

    fn play_into(&self, outcome: &mut Outcome, settings: &Settings) -> Result<(), Failed> {
        raise_open_files()?;
        let directory = tempfile::tempdir()?;
        let (program, limits) = (settings.server.clone(), self.limits);
        let start = Box::new(move || Server::start(&program, &directory, limits));
        let stage = Stage::new(start, settings.timing, settings.divisor, self.kind != Kind::Alone)?;
        // The hostile clients are to take no processor time from the server, as if they ran elsewhere. On Linux each thread has a
        // priority of its own.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .on_thread_start(|| {
                let _best_effort = rustix::process::nice(15);
            })
            .build()?;
        let played = runtime.block_on((self.play)(&stage));
        // Some clients live in tasks, which end with the runtime. Recovery begins when all of them have gone.
        drop(runtime);
        let ended = Instant::now();
        outcome.honest = stage.end();
        outcome.recovery = stage.recovery(ended);
        outcome.quiet = stage.quiet();
        outcome.counts = stage.tally().counts().clone();
        outcome.remarks = stage.remarks();
        let mut server = stage.server();
        outcome.peak = server.peak().ok();
        if let Some(status) = server.ended() {
            outcome.missed.push(format!("the server ended: {status}\n{}", server.log()));
        }
        if server.log().contains("panicked") {
            outcome.missed.push(format!("the server panicked:\n{}", server.log()));
        }
        played?;
        self.judge(outcome, settings.judges_figures);
        Ok(())
    }

    fn judge(&self, outcome: &mut Outcome, judges_figures: bool) {
        let mut missed = outcome.counts.faults.clone();
        let mut too_slow = outcome.counts.too_slow.clone();
        let honest = &outcome.honest;
        if let Some(failure) = honest.failures.first() {
            missed
                .push(format!("{} honest requests failed, the first with {failure}", honest.failures.len()));
        }
        if self.kind == Kind::Work && honest.refused > 0 {
            missed.push(format!("{} honest checks were refused", honest.refused));
        }
        if matches!(self.kind, Kind::Memory | Kind::Work) && honest.refused_heartbeats > 0 {
            missed.push(format!("{} honest heartbeats were refused", honest.refused_heartbeats));
        }
        if judges_figures {
            missed.extend(self.judge_memory(outcome));
            too_slow.extend(self.judge_times(outcome));
        }
        outcome.missed.extend(missed);
        outcome.too_slow = too_slow;
    }

    fn judge_memory(&self, outcome: &Outcome) -> Option<String> {
        let mib = self.limits.memory_mib.or(self.limits.address_space_mib);
        if let (Some(mib), Some(peak)) = (mib, outcome.peak)
            && peak > (mib << 20) + BESIDES_BUDGET
        {
            let (peak, bound) = (peak >> 20, mib + (BESIDES_BUDGET >> 20));
            return Some(format!("{peak} MiB were resident, and {bound} MiB are the bound"));
        }
        None
    }

    fn judge_times(&self, outcome: &Outcome) -> Vec<String> {
        let mut missed = Vec::new();
        if self.kind == Kind::Alone {
            return missed;
        }
        let delay = if self.kind == Kind::Work { MAX_DELAY } else { MAX_CROWD_DELAY };
        let (p99, bound) = (outcome.honest.quantile(0.99), outcome.quiet.quantile(0.99) + delay);
        if p99 > bound {
            missed.push(format!("p99 of the honest client was {p99:.0?}, and {bound:.0?} is the bound"));
        }
        match outcome.recovery {
            Some(recovery) if recovery <= MAX_RECOVERY => {}
            Some(recovery) => missed.push(format!("recovery took {recovery:.1?}")),
            None => missed.push("the server did not recover".into()),
        }
        missed
    }
}

/// How a scenario went.
#[derive(Default)]
pub struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) peak: Option<u64>,
    /// The honest client before the hostilities.
    pub(crate) quiet: Samples,
    /// The honest client during the hostilities.
    pub(crate) honest: Samples,
    pub(crate) recovery: Option<Duration>,
    pub(crate) counts: Counts,
    pub(crate) remarks: Vec<String>,
    /// Bounds that were missed, and everything that never may happen.
    pub(crate) missed: Vec<String>,
    /// Bounds of time that were missed. On a machine of which others take a part they say little.
    pub(crate) too_slow: Vec<String>,
    /// The share of the machine's processors that other virtual machines took.
    pub(crate) stolen: f64,
}

impl Outcome {
    /// Whether every bound was kept.
    pub fn is_kept(&self) -> bool {
        self.missed().next().is_none()
    }

    /// Whether all that is wrong are times, while others took so much of the machine that times say nothing about the server.
    fn is_inconclusive(&self) -> bool {
        self.missed.is_empty() && !self.too_slow.is_empty() && self.stolen > MAX_STOLEN
    }

    /// The bounds that were missed.
    pub fn missed(&self) -> impl Iterator<Item = &String> {
        self.missed.iter().chain(&self.too_slow)
    }
}

/// Thousands of connections need as many files in this process, and in the server, which inherits the limit.
fn raise_open_files() -> Result<(), Failed> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_excuses_only_missed_times() {
        let missed = |missed: &[&str], too_slow: &[&str], stolen| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            Outcome { missed: texts(missed), too_slow: texts(too_slow), stolen, ..Outcome::default() }
        };
        let taken = 2.0 * MAX_STOLEN;
        assert!(missed(&[], &["slow"], taken).is_inconclusive());
        for final_outcome in [
            missed(&[], &[], taken),
            missed(&[], &["slow"], 0.0),
            missed(&["the server panicked"], &[], taken),
            missed(&["the server panicked"], &["slow"], taken),
        ] {
            assert!(!final_outcome.is_inconclusive());
        }
        assert!(!missed(&[], &["slow"], taken).is_kept());
    }
}
