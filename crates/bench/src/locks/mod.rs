//! Locks: held and released, waited for, and extended, by Limina and by Redis.

pub(crate) mod echo;
mod http;
mod in_process;
mod redis;
mod report;
pub(crate) mod workload;

use crate::{
    Failed,
    http::Http,
    in_process::InProcess,
    load::{Contender, Load, Until, drive},
    machine,
    measure::Measured,
    options::{Place, chosen, name_of, positive, seconds},
    redis::{Redis, Sync},
    report::{Others, conditions},
};
use clap::ValueEnum;
use report::{Report, Row};
use std::{path::Path, time::Duration};
use workload::{Client, Contended, Coveted, Heartbeats, Pairs, hold};

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each is measured, in seconds, after a fifth of that to warm up
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// How often everything is measured, one after the other; the median counts
    #[arg(long, default_value_t = 1, value_parser = positive)]
    rounds: usize,
    /// Connections (in-process: tasks) that have each their own locks
    #[arg(long, default_value_t = 64, value_parser = positive)]
    connections: usize,
    /// Connections (in-process: tasks) that all want one lock
    #[arg(long, default_value_t = 100, value_parser = positive)]
    contended_connections: usize,
    /// Connections that send heartbeats at a pace
    #[arg(long, default_value_t = 512, value_parser = positive)]
    paced_connections: usize,
    /// How long a client of Redis sleeps, on average and in seconds, before it asks again for a lock that it was refused
    #[arg(long, default_value = "0.005", value_parser = seconds)]
    poll: Duration,
    /// Locks that are held while heartbeats are sent
    #[arg(long, default_value_t = 20_000, value_parser = positive)]
    locks: usize,
    /// Heartbeats a second, where they are sent at a pace
    #[arg(long, default_value_t = 20_000, value_parser = positive)]
    pace: usize,
    /// Rivals to measure as well; `cargo xtask rivals` installs them
    #[arg(long, value_delimiter = ',')]
    rivals: Vec<Rival>,
    /// Only these
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rival {
    Redis,
}

/// A contender, and what it has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Limina without a front end; each client holds and releases a lock of its own
    InProcess,
    /// The same over HTTP
    Http,
    /// An HTTP server that does nothing
    Echo,
    /// The same by Redis
    Redis,
    /// Limina without a front end; all clients want one lock
    InProcessContended,
    /// The same over HTTP
    HttpContended,
    /// The same by Redis, where clients ask again and again
    RedisContended,
    /// Limina without a front end; many locks are held and extended, as fast as it goes
    InProcessHeartbeats,
    /// The same over HTTP
    HttpHeartbeats,
    /// The same by Redis
    RedisHeartbeats,
    /// Limina over HTTP; so many heartbeats a second
    HttpPaced,
    /// The same by Redis
    RedisPaced,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Pairs,
    Contended,
    Heartbeats,
    Paced,
}

/// Who does it.
enum By {
    InProcess,
    Http,
    Echo,
    Redis,
}

impl Kind {
    fn task(self) -> Task {
        match self {
            Kind::InProcess | Kind::Http | Kind::Echo | Kind::Redis => Task::Pairs,
            Kind::InProcessContended | Kind::HttpContended | Kind::RedisContended => Task::Contended,
            Kind::InProcessHeartbeats | Kind::HttpHeartbeats | Kind::RedisHeartbeats => Task::Heartbeats,
            Kind::HttpPaced | Kind::RedisPaced => Task::Paced,
        }
    }

    fn by(self) -> By {
        match self {
            Kind::InProcess | Kind::InProcessContended | Kind::InProcessHeartbeats => By::InProcess,
            Kind::Http | Kind::HttpContended | Kind::HttpHeartbeats | Kind::HttpPaced => By::Http,
            Kind::Echo => By::Echo,
            Kind::Redis | Kind::RedisContended | Kind::RedisHeartbeats | Kind::RedisPaced => By::Redis,
        }
    }

    fn rival(self) -> Option<Rival> {
        match self.by() {
            By::Redis => Some(Rival::Redis),
            By::InProcess | By::Http | By::Echo => None,
        }
    }

    fn name(self) -> String {
        name_of(&self)
    }
}

impl Options {
    fn kinds(&self) -> Result<Vec<Kind>, Failed> {
        if self.locks < self.connections.max(self.paced_connections) {
            return Err("there must be a lock for each connection".into());
        }
        chosen(&self.only, |kind: Kind| kind.rival().is_none_or(|rival| self.rivals.contains(&rival)))
    }

    fn load(&self, task: Task) -> Load {
        let connections = match task {
            Task::Contended => self.contended_connections,
            Task::Pairs | Task::Heartbeats => self.connections,
            Task::Paced => self.paced_connections,
        };
        Load { connections, batch: 1 }
    }
}

pub(crate) async fn run(options: Options) -> Result<(), Failed> {
    let kinds = options.kinds()?;
    let program = options.place.program()?;
    print!("{}", conditions(&program, options.place.data())?);
    let mut report = Report::new(options.locks, options.poll);
    let others = Others::watch();
    for round in 1..=options.rounds {
        for &kind in &kinds {
            eprintln!("measuring {}, round {round} …", kind.name());
            let row = measure_kind(&options, kind, &program);
            report.add(row.await.map_err(|error| format!("{}: {error}", kind.name()))?);
        }
    }
    others.print(Duration::ZERO);
    println!("\n{report}");
    match report.refused() {
        0 => Ok(()),
        refused => Err(format!("{refused} times a lock was not there, and should have been").into()),
    }
}

async fn measure_kind(options: &Options, kind: Kind, program: &Path) -> Result<Row, Failed> {
    let directory = options.place.directory()?;
    let directory = directory.path();
    match kind.by() {
        By::InProcess => measure(options, kind, InProcess::start(directory).await?).await,
        By::Http => measure(options, kind, Http::limina(program, directory)?).await,
        By::Echo => measure(options, kind, Http::echo()?).await,
        By::Redis => {
            measure(options, kind, Redis::start(directory, Sync::Always, &redis::SCRIPTS).await?).await
        }
    }
}

async fn measure<C: Contender<Client: Client>>(
    options: &Options,
    kind: Kind,
    contender: C,
) -> Result<Row, Failed> {
    let load = options.load(kind.task());
    let measured = match kind.task() {
        Task::Pairs => twice(options, async |until| drive(&contender, load, until, Pairs::new).await).await?,
        Task::Contended => {
            let contend = async |until| {
                let coveted = Coveted::new();
                drive(&contender, load, until, |client| Contended::new(coveted.clone(), options.poll, client))
                    .await
            };
            twice(options, contend).await?
        }
        Task::Heartbeats | Task::Paced => {
            let held = hold(&contender, options.locks, load.connections).await?;
            // So few leave nothing behind that would disturb.
            if options.locks >= 10_000 {
                machine::settle(contender.process().unwrap_or_else(std::process::id)).await;
            }
            let every = Duration::from_secs_f64(load.connections as f64 / options.pace as f64);
            let beats = |client: usize| match kind.task() {
                Task::Paced => Heartbeats::paced(held[client].clone(), every, client),
                _ => Heartbeats::new(held[client].clone()),
            };
            twice(options, async |until| drive(&contender, load, until, beats).await).await?
        }
    };
    let resident = machine::resident_bytes(contender.process().unwrap_or_else(std::process::id));
    contender.stop().await?;
    Ok(Row { kind, load, measured, resident })
}

/// First to warm up, then to measure.
async fn twice(
    options: &Options,
    drive: impl AsyncFn(Until) -> Result<Measured, Failed>,
) -> Result<Measured, Failed> {
    drive(Until::Time(options.seconds / 5)).await?;
    drive(Until::Time(options.seconds)).await
}
