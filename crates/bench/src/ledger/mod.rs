//! The ledger: holds and commits, by Limina and by others.

pub(crate) mod echo;
mod http;
mod in_process;
pub(crate) mod postgres;
mod redis;
mod report;
pub(crate) mod workload;

use crate::{
    Failed,
    http::Http,
    load::{Contender, Load, Random, Until, drive},
    machine,
    measure::Measured,
    options::{Connections, Place, chosen, name_of, positive, seconds},
    postgres::start_server,
    redis::{Redis, Sync},
    report::conditions,
};
use clap::ValueEnum;
use in_process::InProcess;
use postgres::Postgres;
use report::{Report, Row, Values};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use workload::{Client, Operations, Work, create, operation_id};

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each contender is measured, in seconds, after a fifth of that to warm up
    #[arg(long, default_value = "10", value_parser = seconds)]
    seconds: Duration,
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
    /// Rivals to measure as well; `cargo xtask rivals` installs them
    #[arg(long, value_delimiter = ',')]
    rivals: Vec<Rival>,
    /// Only these contenders
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Finish so many operations and measure again
    #[arg(long, default_value_t = 0, value_name = "OPERATIONS")]
    fill: u64,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rival {
    Postgres,
    Redis,
}

/// A contender, and how it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Limina without a front end, one hold or commit a request
    InProcess,
    /// The same in batches
    InProcessBatch,
    /// Limina over HTTP, one hold or commit a request
    Http,
    /// The same in batches
    HttpBatch,
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
            Kind::InProcessBatch | Kind::HttpBatch | Kind::PostgresBatch | Kind::RedisBatch => true,
            Kind::InProcess | Kind::Http | Kind::Echo | Kind::Postgres | Kind::Redis => false,
        }
    }

    fn rival(self) -> Option<Rival> {
        match self {
            Kind::Postgres | Kind::PostgresBatch => Some(Rival::Postgres),
            Kind::Redis | Kind::RedisBatch => Some(Rival::Redis),
            Kind::InProcess | Kind::InProcessBatch | Kind::Http | Kind::HttpBatch | Kind::Echo => None,
        }
    }

    fn name(self) -> String {
        name_of(&self)
    }
}

impl Options {
    fn kinds(&self) -> Result<Vec<Kind>, Failed> {
        if self.changes > self.limits {
            return Err("an operation cannot touch more limits than there are".into());
        }
        chosen(&self.only, |kind: Kind| kind.rival().is_none_or(|rival| self.rivals.contains(&rival)))
    }

    fn work(&self) -> Work {
        Work { limits: self.limits, changes: self.changes }
    }

    fn load(&self, is_batched: bool) -> Load {
        self.connections.load(is_batched.then_some(self.batch))
    }
}

pub(crate) async fn run(options: Options) -> Result<(), Failed> {
    let kinds = options.kinds()?;
    let program = options.place.program()?;
    print!("{}", conditions(&program, options.place.data())?);
    let mut report = Report::default();
    for kind in kinds {
        eprintln!("measuring {} …", kind.name());
        let directory = options.place.directory()?;
        let row = measure_kind(&options, kind, &program, directory.path());
        report.rows.push(row.await.map_err(|error| format!("{}: {error}", kind.name()))?);
    }
    println!("\n{report}");
    match report.refused() {
        0 => Ok(()),
        refused => Err(format!("{refused} holds or commits were refused, and none should have been").into()),
    }
}

async fn measure_kind(
    options: &Options,
    kind: Kind,
    program: &Path,
    directory: &Path,
) -> Result<Row, Failed> {
    match kind {
        Kind::InProcess | Kind::InProcessBatch => {
            let contender = InProcess::start(directory, options.limits).await?;
            measure(options, kind, contender, async |_| Ok(None)).await
        }
        Kind::Http => {
            let values = async |contender: &Http| measure_values(options, contender).await.map(Some);
            measure(options, kind, Http::limina(program, directory)?, values).await
        }
        Kind::HttpBatch => {
            measure(options, kind, Http::limina(program, directory)?, async |_| Ok(None)).await
        }
        Kind::Echo => measure(options, kind, Http::echo()?, async |_| Ok(None)).await,
        Kind::Postgres | Kind::PostgresBatch => {
            let contender = Postgres::on(start_server(directory)?).await?;
            measure(options, kind, contender, async |_| Ok(None)).await
        }
        Kind::Redis | Kind::RedisBatch => {
            measure(
                options,
                kind,
                Redis::start(directory, Sync::Always, &redis::SCRIPTS).await?,
                async |_| Ok(None),
            )
            .await
        }
    }
}

/// Measures while there is little in it and, if asked, again when there is much; `more` is what else is measured then.
async fn measure<C: Contender<Client: Client>>(
    options: &Options,
    kind: Kind,
    contender: C,
    more: impl AsyncFnOnce(&C) -> Result<Option<Values>, Failed>,
) -> Result<Row, Failed> {
    let (work, load) = (options.work(), options.load(kind.is_batched()));
    let time = options.seconds;
    let drive = async |load, phase, until| {
        drive(&contender, load, until, |client| Operations::new(work, phase, client)).await
    };
    create(&contender, work).await?;
    drive(load, "warm", Until::Time(time / 5)).await?;
    let resident = || machine::resident_bytes(contender.process().unwrap_or_else(std::process::id));
    let (empty, empty_resident) = (drive(load, "empty", Until::Time(time)).await?, resident());
    let mut filled = None;
    if options.fill > 0 && kind != Kind::Echo {
        let fill = drive(options.load(true), FILL, Until::Finished(options.fill)).await?;
        let again = drive(load, "full", Until::Time(time)).await?;
        let resident = resident();
        filled = Some(report::Filled { fill, again, resident, values: more(&contender).await? });
    }
    contender.stop().await?;
    Ok(Row { kind, load, empty, empty_resident, filled })
}

const FILL: &str = "fill";

/// How long one client waits for the values of a limit: now, and as of some operation of those that were filled in.
async fn measure_values(options: &Options, contender: &Http) -> Result<Values, Failed> {
    let load = options.load(true);
    let each = usize::try_from(options.fill.div_ceil(load.connections as u64))?;
    let held = |client| Operations::new(options.work(), FILL, client).first_limits(each);
    let held: Vec<Vec<u32>> = (0..load.connections).map(held).collect();
    let mut random = Random::new(0);
    let mut client = contender.connect().await?;
    let mut measure = async |moment: Moment| {
        let mut measured = Measured::new();
        let begin = Instant::now();
        while begin.elapsed() < options.seconds {
            let (connection, number) = (random.below(load.connections), random.below(each));
            let operation = operation_id(FILL, connection, number as u64);
            let any_limit = random.below(options.limits);
            let (limit, as_of) = match moment {
                Moment::Now => (any_limit, None),
                Moment::Operation => (any_limit, Some(operation.as_str())),
                Moment::OwnOperation => (held[connection][number] as usize, Some(operation.as_str())),
            };
            let asked = Instant::now();
            http::values(&mut client, limit, as_of).await?;
            measured.note(1, 0, asked.elapsed());
        }
        measured.elapsed = begin.elapsed();
        Ok::<_, Failed>(measured)
    };
    Ok(Values {
        latest: measure(Moment::Now).await?,
        as_of_own: measure(Moment::OwnOperation).await?,
        as_of_any: measure(Moment::Operation).await?,
    })
}

/// For when a limit's values are asked.
enum Moment {
    Now,
    /// As of some operation, whatever it held.
    Operation,
    /// As of an operation that held something in the limit.
    OwnOperation,
}
