//! The frame of every family. It chooses what to measure, starts each system, measures it round by round, and prints
//! each table as soon as everything in it is measured.
//!
//! A family adds: the work, and how each client is asked to do it (`workload.rs`, `in_process.rs`, `http.rs`, …); what it
//! measures besides; and the words of its report.

mod options;
mod report;
mod rows;
mod screen;

pub(crate) use options::{Common, Connections, Place, chosen, name_of, positive, seconds};
pub(crate) use report::{
    LATENCIES, Others, Table, conditions, latencies, mib, optional, others_in_words, spread, write_table,
};
pub(crate) use rows::{Row, Rows};
pub(crate) use screen::{Plan, Screen};

use crate::{
    Failed,
    http::{self, Http},
    in_process::{self, InProcess},
    load::{Contender, Load, Until, Work, drive},
    measure::Measured,
    redis::{self, Redis},
    summary::{Comparison, ECHO, Role},
};
use clap::ValueEnum;
use std::{future::Future, path::Path, pin::Pin, time::Duration};

/// Measurements that are planned and have not begun.
pub(crate) trait Bench {
    fn plan(&self) -> Plan;

    /// Measures, and prints each table as soon as it is complete.
    fn run(self: Box<Self>, screen: &Screen) -> Running<'_>;
}

/// Measurements that have begun.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<Figures, Failed>> + 'a>>;

/// What a summary shows of a family.
pub(crate) struct Figures {
    pub(crate) comparisons: Vec<Comparison>,
    /// Processors that other programs and virtual machines took meanwhile, if it is known.
    pub(crate) others: Option<f64>,
}

/// A system that the frame can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// Limina without a front end, in this process.
    InProcess,
    /// Limina as a server.
    Http,
    /// An HTTP server that only parses and answers.
    Echo,
    Redis,
    /// Anything else: the family measures it by [`Family::measure_other`].
    Other,
}

impl System {
    pub(crate) fn contender(self) -> (&'static str, Role) {
        match self {
            System::InProcess => ("Limina in process", Role::Bound),
            System::Http => ("Limina", Role::Limina),
            System::Echo => (ECHO, Role::Bound),
            System::Redis => ("Redis", Role::Rival),
            System::Other => ("other", Role::Rival),
        }
    }
}

/// What can be measured: a value of `--only`, and the name of a row.
pub(crate) trait Kind: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    /// The default of `--seconds`.
    const SECONDS: &'static str = "5";

    fn system(self) -> System;

    /// The value of `--rivals` without which this is not measured.
    fn rival(self) -> Option<&'static str> {
        (self.system() == System::Redis).then_some("redis")
    }

    /// Limina over HTTP with the same work. The table shows each rate as a multiple of this one's.
    fn baseline(self) -> Option<Self>;

    /// The words of the summary for the work. It is the same for all kinds with one baseline.
    fn work(self) -> &'static str;

    /// The words of the summary for the system that does the work, and how the summary shows it. A kind of
    /// [`System::Other`] that has a row says this itself.
    fn contender(self) -> (&'static str, Role) {
        self.system().contender()
    }

    /// The sections of the report; `()` if there is only one.
    type Section: Copy + PartialEq;

    /// The section that shows this.
    fn section(self) -> Self::Section;

    /// Whether this is measured only once, after the rounds of all others.
    fn is_measured_once(self) -> bool {
        false
    }

    fn name(self) -> String {
        name_of(&self)
    }
}

/// How a family has its work done by clients of type `T`.
pub(crate) trait Measure<K, T> {
    /// Prepares the contender, warms it up and measures it.
    async fn measure<C: Contender<Client = T>>(&mut self, kind: K, contender: &C)
    -> Result<Measured, Failed>;

    /// Measures more of a contender whose row is complete. The family keeps the result for its report.
    async fn measure_more<C: Contender<Client = T>>(&mut self, _: &Row<K>, _: &C) -> Result<(), Failed> {
        Ok(())
    }
}

/// A family of requests, with the options of one run and what was measured besides the rows.
pub(crate) trait Family<K: Kind>:
    Measure<K, in_process::Caller> + Measure<K, http::Connection> + Measure<K, redis::Connection>
{
    /// The name of the subcommand.
    const NAME: &'static str;
    /// What the table counts, in the plural.
    const UNIT: &'static str;
    const REDIS: redis::Setup;

    fn common(&self) -> &Common<K>;

    fn load(&self, kind: K) -> Load;

    /// Measures a kind of [`System::Other`]. The result is a row, or none if the family keeps it for its report.
    async fn measure_other(&mut self, kind: K, _: Start<'_>) -> Result<Option<Row<K>>, Failed> {
        Err(format!("{} is not measured by this family", kind.name()).into())
    }

    /// Operations that were refused, besides those of the rows.
    fn refused(&self) -> u64 {
        0
    }

    /// The time for which a kind is measured in one round.
    fn planned(&self, _: K) -> Duration {
        with_warm_up(self.common().seconds)
    }

    /// A section of the report. It is printed when everything in it is measured.
    fn report(&self, section: K::Section, rows: &Rows<K>) -> Result<String, std::fmt::Error>;

    /// What the summary shows besides the rows.
    fn more_comparisons(&self) -> Vec<Comparison> {
        Vec::new()
    }
}

/// What is needed to start a system.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// The program of Limina's server.
    pub(crate) program: &'a Path,
    /// An empty directory for the data.
    pub(crate) directory: &'a Path,
}

/// Plans everything that the options choose.
pub(crate) fn bench<K: Kind, F: Family<K> + 'static>(family: F) -> Result<Box<dyn Bench>, Failed> {
    let (kinds, rounds) = (family.common().kinds()?, family.common().rounds);
    let (once, repeated): (Vec<K>, Vec<K>) = kinds.into_iter().partition(|kind| kind.is_measured_once());
    let repeated = (1..=rounds).flat_map(|round| repeated.iter().map(move |&kind| (kind, round)));
    let planned = repeated.chain(once.into_iter().map(|kind| (kind, 1))).collect();
    Ok(Box::new(PlannedFamily { family, planned }))
}

/// A family, and what is measured: kinds with the number of the round.
struct PlannedFamily<K, F> {
    family: F,
    planned: Vec<(K, usize)>,
}

impl<K: Kind, F: Family<K> + 'static> Bench for PlannedFamily<K, F> {
    fn plan(&self) -> Plan {
        self.planned.iter().map(|&(kind, _)| self.family.planned(kind)).collect()
    }

    fn run(self: Box<Self>, screen: &Screen) -> Running<'_> {
        Box::pin(run(self.family, self.planned, screen))
    }
}

async fn run<K: Kind, F: Family<K>>(
    mut family: F,
    planned: Vec<(K, usize)>,
    screen: &Screen,
) -> Result<Figures, Failed> {
    let program = family.common().place.program()?;
    screen.print(&conditions(&program, family.common().place.data())?)?;
    let mut rows = Rows::default();
    let others = Others::watch();
    for (place, &(kind, round)) in planned.iter().enumerate() {
        screen.begin(format!("{} {}, round {round}", F::NAME, kind.name()), family.planned(kind));
        let directory = family.common().place.directory()?;
        let start = Start { program: &program, directory: directory.path() };
        let row = measure_kind(&mut family, kind, start).await;
        rows.extend(row.map_err(|error| format!("{}: {error}", kind.name()))?);
        if planned[place + 1..].iter().all(|(later, _)| later.section() != kind.section()) {
            screen.print(&format!("\n{}", family.report(kind.section(), &rows)?))?;
        }
    }
    let others = others.took();
    screen.print(&others_in_words(others))?;
    match rows.refused() + family.refused() {
        0 => {}
        refused => {
            return Err(format!("{refused} {} were refused, and none should have been", F::UNIT).into());
        }
    }
    let comparisons = rows.comparisons().chain(family.more_comparisons()).collect();
    Ok(Figures { comparisons, others })
}

async fn measure_kind<K: Kind, F: Family<K>>(
    family: &mut F,
    kind: K,
    start: Start<'_>,
) -> Result<Option<Row<K>>, Failed> {
    let row = match kind.system() {
        System::InProcess => contend(family, kind, InProcess::start(start.directory).await?).await?,
        System::Http => contend(family, kind, Http::limina(start.program, start.directory)?).await?,
        System::Echo => contend(family, kind, Http::echo()?).await?,
        System::Redis => contend(family, kind, Redis::start(start.directory, F::REDIS).await?).await?,
        System::Other => return family.measure_other(kind, start).await,
    };
    Ok(Some(row))
}

/// Measures a contender and stops it.
pub(crate) async fn contend<K: Kind, C: Contender, F: Family<K> + Measure<K, C::Client>>(
    family: &mut F,
    kind: K,
    contender: C,
) -> Result<Row<K>, Failed> {
    let measured = Measure::<K, C::Client>::measure(family, kind, &contender).await?;
    let row = Row { kind, load: family.load(kind), measured, resident: contender.resident_bytes() };
    Measure::<K, C::Client>::measure_more(family, &row, &contender).await?;
    contender.stop().await?;
    Ok(row)
}

/// The two runs of each measurement, whose names keep the ids of their operations apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Measured,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::WarmUp => "warm",
            Phase::Measured => "measured",
        }
    }
}

/// Runs the work for a fifth of the time to warm up, then measures it for the whole time. `work` makes the work of a
/// client, by the client's number.
pub(crate) async fn warm_up_and_measure<C: Contender, W: Work<C::Client>>(
    contender: &C,
    load: Load,
    time: Duration,
    work: impl Fn(Phase, usize) -> W,
) -> Result<Measured, Failed> {
    drive(contender, load, Until::Time(time / 5), |client| work(Phase::WarmUp, client)).await?;
    drive(contender, load, Until::Time(time), |client| work(Phase::Measured, client)).await
}

/// How long [`warm_up_and_measure`] takes.
pub(crate) fn with_warm_up(time: Duration) -> Duration {
    time + time / 5
}

#[cfg(test)]
mod tests;
