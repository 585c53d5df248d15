//! Events: submitted, and told to those who follow, by Limina and by Redis.

mod due;
mod fan_out;
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
    options::{Place, chosen, name_of, positive, seconds},
    redis::{Redis, Sync},
    report::{Others, conditions},
};
use clap::ValueEnum;
use report::{Report, Row};
use std::{path::Path, time::Duration};
use workload::{Client, Keys, Submissions};

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each is measured, in seconds, after a fifth of that to warm up
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// How often submissions are measured, one contender after the other; the median counts
    #[arg(long, default_value_t = 1, value_parser = positive)]
    rounds: usize,
    /// Connections (in-process: tasks) that submit
    #[arg(long, default_value_t = 64, value_parser = positive)]
    connections: usize,
    /// For how long an event closes its key, in seconds; it is published then
    #[arg(long, default_value = "1", value_parser = seconds)]
    duration: Duration,
    /// How many follow the stream
    #[arg(long, default_value_t = 1000, value_parser = positive)]
    subscribers: usize,
    /// Submissions a second while they do
    #[arg(long, default_value = "25,50,100,200,300", value_delimiter = ',', value_parser = positive)]
    rates: Vec<usize>,
    /// Events that fall due in the same second
    #[arg(long, default_value_t = 100_000, value_parser = positive)]
    due: usize,
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

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Limina without a front end; each event is another one
    InProcess,
    /// The same over HTTP
    Http,
    /// The same by Redis
    Redis,
    /// Limina without a front end; all submit the same event
    InProcessHot,
    /// The same over HTTP
    HttpHot,
    /// The same by Redis
    RedisHot,
    /// Many follow one stream
    FanOut,
    /// Many events fall due in the same second
    Due,
}

/// What is done.
enum Task {
    Submissions(By, Keys),
    FanOut,
    Due,
}

/// To whom events are submitted.
enum By {
    InProcess,
    Http,
    Redis,
}

impl Kind {
    fn task(self) -> Task {
        let distinct = Keys::Distinct("measured");
        match self {
            Kind::InProcess => Task::Submissions(By::InProcess, distinct),
            Kind::Http => Task::Submissions(By::Http, distinct),
            Kind::Redis => Task::Submissions(By::Redis, distinct),
            Kind::InProcessHot => Task::Submissions(By::InProcess, Keys::Hot),
            Kind::HttpHot => Task::Submissions(By::Http, Keys::Hot),
            Kind::RedisHot => Task::Submissions(By::Redis, Keys::Hot),
            Kind::FanOut => Task::FanOut,
            Kind::Due => Task::Due,
        }
    }

    fn rival(self) -> Option<Rival> {
        matches!(self.task(), Task::Submissions(By::Redis, _)).then_some(Rival::Redis)
    }

    fn name(self) -> String {
        name_of(&self)
    }
}

pub(crate) async fn run(options: Options) -> Result<(), Failed> {
    let is_allowed = |kind: Kind| kind.rival().is_none_or(|rival| options.rivals.contains(&rival));
    let kinds = chosen(&options.only, is_allowed)?;
    let program = options.place.program()?;
    print!("{}", conditions(&program, options.place.data())?);
    let mut report = Report::new(options.subscribers);
    let others = Others::watch();
    for round in 1..=options.rounds {
        for &kind in &kinds {
            // These say more by their steps, and by their largest latency, than by a median.
            if round > 1 && matches!(kind.task(), Task::FanOut | Task::Due) {
                continue;
            }
            eprintln!("measuring {}, round {round} …", kind.name());
            let measured = measure_kind(&options, kind, &program, &mut report);
            measured.await.map_err(|error| format!("{}: {error}", kind.name()))?;
        }
    }
    others.print(Duration::ZERO);
    println!("\n{report}");
    match report.refused() {
        0 => Ok(()),
        refused => Err(format!("{refused} events were refused, and none should have been").into()),
    }
}

async fn measure_kind(
    options: &Options,
    kind: Kind,
    program: &Path,
    report: &mut Report,
) -> Result<(), Failed> {
    let directory = options.place.directory()?;
    let directory = directory.path();
    match kind.task() {
        Task::Submissions(By::InProcess, keys) => {
            report.add(measure(options, kind, keys, InProcess::start(directory).await?).await?);
        }
        Task::Submissions(By::Http, keys) => {
            report.add(measure(options, kind, keys, Http::limina(program, directory)?).await?);
        }
        Task::Submissions(By::Redis, keys) => {
            let redis = Redis::start(directory, Sync::Always, &[redis::SUBMIT]).await?;
            report.add(measure(options, kind, keys, redis).await?);
        }
        Task::FanOut => report.fan_out = fan_out::measure(options, program).await?,
        Task::Due => report.due = Some(due::measure(options, program).await?),
    }
    Ok(())
}

async fn measure<C: Contender<Client: Client>>(
    options: &Options,
    kind: Kind,
    keys: Keys,
    contender: C,
) -> Result<Row, Failed> {
    let load = Load { connections: options.connections, batch: 1 };
    contender.connect().await?.put(options.duration).await?;
    let warm = match keys {
        Keys::Distinct(_) => Keys::Distinct("warm"),
        Keys::Hot => Keys::Hot,
    };
    drive(&contender, load, Until::Time(options.seconds / 5), |client| Submissions::new(warm, client))
        .await?;
    let submissions = |client| Submissions::new(keys, client);
    let measured = drive(&contender, load, Until::Time(options.seconds), submissions).await?;
    let resident = machine::resident_bytes(contender.process().unwrap_or_else(std::process::id));
    contender.stop().await?;
    Ok(Row { kind, load, measured, resident })
}
