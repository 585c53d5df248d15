//! The ledger: holds and commits.

pub(crate) mod echo;
mod http;
mod in_process;
pub(crate) mod postgres;
mod redis;
mod report;
mod values;
pub(crate) mod workload;

use crate::{
    Failed,
    frame::{
        self, Bench, Common, Connections, Family, Measure, Phase, Row, Start, System, contend, positive,
        warm_up_and_measure, with_warm_up,
    },
    http::Http,
    load::{Contender, Load, Until, drive},
    measure::Measured,
    namespaces::{ManyNamespaces, NAMESPACES},
    postgres::{Database, start_server},
    summary::Role,
};
use clap::ValueEnum;
use report::Filled;
use std::time::Duration;
use workload::{Client, Operations, Work, create};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common<Kind>,
    /// Holds or commits in one request of a batch
    #[arg(long, default_value_t = 1000, value_parser = positive)]
    batch: usize,
    #[command(flatten)]
    connections: Connections,
    /// Limits to choose from
    #[arg(long, default_value_t = 10_000, value_parser = positive)]
    limits: usize,
    /// Limits that one operation touches
    #[arg(long, default_value_t = 1, value_parser = positive)]
    changes: usize,
    /// Finish this many operations and measure again
    #[arg(long, default_value_t = 0, value_name = "OPERATIONS")]
    fill: u64,
}

/// A contender, and how many operations a request contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Limina without a front end, one hold or commit a request
    InProcess,
    /// The same in batches
    InProcessBatch,
    /// Limina over HTTP, one hold or commit a request
    Http,
    /// The same in batches
    HttpBatch,
    /// Limina over HTTP, one hold or commit a request, in 64 namespaces in turn
    HttpNamespaces,
    /// The same in batches
    HttpBatchNamespaces,
    /// An HTTP server that does nothing
    Echo,
    /// PostgreSQL, one hold or commit a transaction
    Postgres,
    /// The same in batches
    PostgresBatch,
    /// Redis, one hold or commit a request
    Redis,
    /// The same in pipelined batches
    RedisBatch,
}

impl Kind {
    fn is_batched(self) -> bool {
        match self {
            Kind::InProcessBatch
            | Kind::HttpBatch
            | Kind::HttpBatchNamespaces
            | Kind::PostgresBatch
            | Kind::RedisBatch => true,
            Kind::InProcess
            | Kind::Http
            | Kind::HttpNamespaces
            | Kind::Echo
            | Kind::Postgres
            | Kind::Redis => false,
        }
    }
}

impl frame::Kind for Kind {
    const SECONDS: &'static str = "10";

    fn system(self) -> System {
        match self {
            Kind::InProcess | Kind::InProcessBatch => System::InProcess,
            Kind::Http | Kind::HttpBatch => System::Http,
            Kind::Echo => System::Echo,
            Kind::HttpNamespaces | Kind::HttpBatchNamespaces | Kind::Postgres | Kind::PostgresBatch => {
                System::Other
            }
            Kind::Redis | Kind::RedisBatch => System::Redis,
        }
    }

    fn rival(self) -> Option<&'static str> {
        match self {
            Kind::Postgres | Kind::PostgresBatch => Some("postgres"),
            Kind::Redis | Kind::RedisBatch => Some("redis"),
            _ => None,
        }
    }

    fn baseline(self) -> Option<Kind> {
        Some(if self.is_batched() { Kind::HttpBatch } else { Kind::Http })
    }

    fn work(self) -> &'static str {
        if self.is_batched() { "holds and commits in batches" } else { "hold or commit" }
    }

    fn contender(self) -> (&'static str, Role) {
        match self {
            Kind::Postgres | Kind::PostgresBatch => ("PostgreSQL", Role::Rival),
            Kind::HttpNamespaces | Kind::HttpBatchNamespaces => ("Limina, 64 namespaces", Role::Bound),
            _ => self.system().contender(),
        }
    }

    type Section = ();

    fn section(self) {}
}

pub(crate) fn bench(options: Options) -> Result<Box<dyn Bench>, Failed> {
    if options.changes > options.limits {
        return Err("an operation cannot touch more limits than there are".into());
    }
    let work = Work::new(options.limits, options.changes);
    frame::bench(Ledger { options, work, filled: Vec::new() })
}

/// One run.
struct Ledger {
    options: Options,
    work: Work,
    /// One for each contender, if `--fill` is set.
    filled: Vec<Filled>,
}

/// The phase in which `--fill` operations are finished.
const FILL: &str = "fill";

impl<T: Client> Measure<Kind, T> for Ledger {
    async fn measure<C: Contender<Client = T>>(
        &mut self,
        kind: Kind,
        contender: &C,
    ) -> Result<Measured, Failed> {
        let work = self.work_of(kind);
        create(contender, &work).await?;
        let operations = |phase: Phase, client| Operations::new(work.clone(), phase.name(), client);
        warm_up_and_measure(contender, self.load(kind), self.options.common.seconds, operations).await
    }

    /// Finishes `--fill` operations and measures again.
    async fn measure_more<C: Contender<Client = T>>(
        &mut self,
        row: &Row<Kind>,
        contender: &C,
    ) -> Result<(), Failed> {
        if self.options.fill == 0 || row.kind == Kind::Echo {
            return Ok(());
        }
        let drive = async |load, phase, until| {
            let work = self.work_of(row.kind);
            drive(contender, load, until, |client| Operations::new(work.clone(), phase, client)).await
        };
        let fill = drive(self.batches(), FILL, Until::Finished(self.options.fill)).await?;
        let again = drive(row.load, "full", Until::Time(self.options.common.seconds)).await?;
        let resident = contender.resident_bytes();
        let values = match row.kind {
            Kind::Http => Some(values::measure(self, contender).await?),
            _ => None,
        };
        let (empty_rate, empty_resident) = (row.measured.rate(), row.resident);
        self.filled.push(Filled {
            kind: row.kind,
            empty_rate,
            empty_resident,
            fill,
            again,
            resident,
            values,
        });
        Ok(())
    }
}

impl Ledger {
    /// Many namespaces have as many limits together as one has otherwise.
    fn work_of(&self, kind: Kind) -> Work {
        let Options { limits, changes, .. } = self.options;
        match kind {
            Kind::HttpNamespaces | Kind::HttpBatchNamespaces => {
                Work::new((limits / NAMESPACES).max(changes), changes)
            }
            _ => self.work.clone(),
        }
    }

    fn batches(&self) -> Load {
        self.options.connections.load(Some(self.options.batch))
    }
}

impl Family<Kind> for Ledger {
    const NAME: &'static str = "ledger";
    const UNIT: &'static str = "ops";
    const REDIS: crate::redis::Setup = redis::SETUP;

    fn common(&self) -> &Common<Kind> {
        &self.options.common
    }

    fn load(&self, kind: Kind) -> Load {
        self.options.connections.load(kind.is_batched().then_some(self.options.batch))
    }

    async fn measure_other(&mut self, kind: Kind, start: Start<'_>) -> Result<Option<Row<Kind>>, Failed> {
        if matches!(kind, Kind::HttpNamespaces | Kind::HttpBatchNamespaces) {
            let server = Http::limina(start.program, start.directory)?;
            return contend(self, kind, ManyNamespaces::new(server)).await.map(Some);
        }
        let database = Database::<postgres::Session>::create(start_server(start.directory)?).await?;
        contend(self, kind, database).await.map(Some)
    }

    fn refused(&self) -> u64 {
        self.filled.iter().map(|filled| filled.fill.refused + filled.again.refused).sum()
    }

    fn planned(&self, kind: Kind) -> Duration {
        let seconds = self.options.common.seconds;
        let again = match kind {
            _ if self.options.fill == 0 => 0,
            Kind::Echo => 0,
            // Three reads of values as well.
            Kind::Http => 4,
            _ => 1,
        };
        with_warm_up(seconds) + seconds * again
    }

    fn report(&self, (): (), rows: &frame::Rows<Kind>) -> Result<String, std::fmt::Error> {
        report::write(rows, &self.filled)
    }
}
