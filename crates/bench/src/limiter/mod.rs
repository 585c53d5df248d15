//! The limiter: checks, by Limina and by others.

mod changes;
mod crates;
pub(crate) mod echo;
mod engine;
pub(crate) mod http;
mod in_process;
pub(crate) mod postgres;
mod redis;
mod report;
mod scale;
pub(crate) mod workload;

use crate::{
    Failed,
    http::Http,
    in_process::InProcess,
    load::{Contender, Load, Until, drive},
    measure::Measured,
    options::{Connections, Place, chosen, name_of, positive, seconds},
    redis::{Redis, Sync},
    report::{Others, conditions},
};
use clap::ValueEnum;
use engine::What;
use report::{Report, Row};
use std::{path::Path, time::Duration};
use workload::{Case, Checks, Client};

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each is measured, in seconds, after a fifth of that to warm up
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// How often everything is measured, one after the other; the median counts
    #[arg(long, default_value_t = 1, value_parser = positive)]
    rounds: usize,
    /// Checks in one request of a batch
    #[arg(long, default_value_t = 256, value_parser = positive)]
    batch: usize,
    #[command(flatten)]
    connections: Connections,
    /// Clients to choose from, where no other number of groups is said
    #[arg(long, default_value_t = 10_000, value_parser = positive)]
    clients: usize,
    /// So many rules
    #[arg(long, default_value = "10,1000,100000", value_delimiter = ',', value_parser = positive)]
    rules: Vec<usize>,
    /// So many of them apply to each check
    #[arg(long, default_value = "1,4,16", value_delimiter = ',', value_parser = positive)]
    matching: Vec<usize>,
    /// So many groups of one rule
    #[arg(long, default_value = "1000,5000000", value_delimiter = ',', value_parser = positive)]
    groups: Vec<usize>,
    /// Counters that there are while rules are changed
    #[arg(long, default_value_t = 5_000_000, value_parser = positive)]
    counters: usize,
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
    Limitador,
    Governor,
}

/// What is measured, and how it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The engine alone with one rule, for each kind of window
    EngineWindows,
    /// The engine alone with many rules
    EngineRules,
    /// The engine alone with many groups of one rule
    EngineGroups,
    /// The engine alone with many counters of one rule
    EngineCounters,
    /// The crate `limitador`, in memory
    Limitador,
    /// The crate `governor`
    Governor,
    /// Limina without a front end, one check a request
    InProcess,
    /// The same in batches
    InProcessBatch,
    /// Limina over HTTP, one check a request
    Http,
    /// The same in batches
    HttpBatch,
    /// An HTTP server that does nothing
    Echo,
    /// The same in batches
    EchoBatch,
    /// Redis, one check a request
    Redis,
    /// The same in pipelined batches
    RedisBatch,
    /// Limina, in process and over HTTP, with many rules
    Rules,
    /// Limina, in process and over HTTP, with many groups of one rule
    Groups,
    /// Checks while rules are changed
    Changes,
}

impl Kind {
    fn is_batched(self) -> bool {
        matches!(self, Kind::InProcessBatch | Kind::HttpBatch | Kind::EchoBatch | Kind::RedisBatch)
    }

    fn rival(self) -> Option<Rival> {
        match self {
            Kind::Redis | Kind::RedisBatch => Some(Rival::Redis),
            Kind::Limitador => Some(Rival::Limitador),
            Kind::Governor => Some(Rival::Governor),
            Kind::EngineWindows
            | Kind::EngineRules
            | Kind::EngineGroups
            | Kind::EngineCounters
            | Kind::InProcess
            | Kind::InProcessBatch
            | Kind::Http
            | Kind::HttpBatch
            | Kind::Echo
            | Kind::EchoBatch
            | Kind::Rules
            | Kind::Groups
            | Kind::Changes => None,
        }
    }

    fn name(self) -> String {
        name_of(&self)
    }
}

impl Options {
    fn kinds(&self) -> Result<Vec<Kind>, Failed> {
        chosen(&self.only, |kind: Kind| kind.rival().is_none_or(|rival| self.rivals.contains(&rival)))
    }

    fn load(&self, is_batched: bool) -> Load {
        self.connections.load(is_batched.then_some(self.batch))
    }

    /// What of the engine is measured for a kind; empty for others.
    fn engine_cases(&self, kind: Kind) -> Vec<(What, Case)> {
        let groups = self.groups.first().copied().unwrap_or(1);
        let with_groups = |what| self.groups.iter().map(move |&groups| (what, Case::simple(groups)));
        match kind {
            Kind::EngineWindows => {
                let kinds = [What::Fixed, What::Sliding, What::Bucket, What::Refused];
                kinds.map(|what| (what, Case::simple(groups))).to_vec()
            }
            Kind::EngineRules => {
                let cases = self.matching.iter().flat_map(|&matching| self.cases_of_rules(matching));
                cases.map(|case| (What::Fixed, case)).collect()
            }
            Kind::EngineGroups => with_groups(What::Fixed).collect(),
            Kind::EngineCounters => with_groups(What::Counters).collect(),
            _ => Vec::new(),
        }
    }

    /// What is compared with each other for a kind; empty for others.
    fn compared_cases(&self, kind: Kind) -> Vec<Vec<Case>> {
        match kind {
            Kind::Rules => {
                let is_all_asked = |case: &Case| case.asked == case.rules;
                let cases = |&matching| self.cases_of_rules(matching).into_iter().filter(is_all_asked);
                self.matching.iter().map(|matching| cases(matching).collect()).collect()
            }
            Kind::Groups => vec![self.groups.iter().map(|&groups| Case::simple(groups)).collect()],
            _ => Vec::new(),
        }
    }

    /// As many groups for any number of rules, and enough that every rule applies to some check.
    fn cases_of_rules(&self, matching: usize) -> Vec<Case> {
        let whole = |rules: usize| rules.div_ceil(matching) * matching;
        let subjects = self.rules.iter().copied().max().unwrap_or(1);
        let fewest = whole(self.rules.iter().copied().min().unwrap_or(1));
        let mut cases = Vec::new();
        for rules in self.rules.iter().map(|&rules| whole(rules)) {
            let case = |asked| Case { rules, matching, asked, subjects };
            // First only checks to which the same few rules apply; then such that all rules are needed.
            cases.push(case(fewest));
            cases.extend((rules > fewest).then(|| case(rules)));
        }
        cases
    }
}

pub(crate) async fn run(options: Options) -> Result<(), Failed> {
    let kinds = options.kinds()?;
    let program = options.place.program()?;
    print!("{}", conditions(&program, options.place.data())?);
    let mut report = Report::default();
    let others = Others::watch();
    let failed = |kind: Kind| move |error: Failed| format!("{}: {error}", kind.name());
    let (compared, rest): (Vec<Kind>, Vec<Kind>) =
        kinds.into_iter().partition(|kind| matches!(kind, Kind::Rules | Kind::Groups));
    for round in 1..=options.rounds {
        for &kind in &rest {
            eprintln!("measuring {}, round {round} …", kind.name());
            measure_kind(&options, kind, &program, &mut report).await.map_err(failed(kind))?;
        }
    }
    // These take long to set up, and have their rounds afterwards.
    for kind in compared {
        for cases in options.compared_cases(kind) {
            eprintln!("measuring {} …", kind.name());
            scale::measure(&options, kind, &cases, &program, &mut report).await.map_err(failed(kind))?;
        }
    }
    others.print(Duration::ZERO);
    println!("\n{report}");
    match report.refused() {
        0 => Ok(()),
        refused => Err(format!("{refused} checks were refused, and none should have been").into()),
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
    let measured = match kind {
        Kind::EngineWindows | Kind::EngineRules | Kind::EngineGroups | Kind::EngineCounters => {
            let time = options.seconds;
            for (what, case) in options.engine_cases(kind) {
                let measure = move || engine::measure(what, case, time);
                let figure = tokio::task::spawn_blocking(measure).await??;
                report.add_engine(kind, figure);
            }
            return Ok(());
        }
        Kind::Limitador | Kind::Governor => {
            let time = options.seconds;
            for clients in options.groups.clone() {
                let measure = move || crates::measure(&kind.name(), clients, time);
                report.add_crate(tokio::task::spawn_blocking(measure).await??);
            }
            return Ok(());
        }
        Kind::Rules | Kind::Groups => return Ok(()),
        Kind::Changes => {
            report.changes.push(changes::measure(&options.place, options.counters, options.seconds).await?);
            return Ok(());
        }
        Kind::InProcess | Kind::InProcessBatch => {
            measure(options, kind, InProcess::start(directory).await?).await?
        }
        Kind::Http | Kind::HttpBatch => measure(options, kind, Http::limina(program, directory)?).await?,
        Kind::Echo | Kind::EchoBatch => measure(options, kind, Http::echo()?).await?,
        Kind::Redis | Kind::RedisBatch => {
            let redis = Redis::start(directory, Sync::EverySecond, &[redis::CHECK]).await?;
            measure(options, kind, redis).await?
        }
    };
    report.add_row(Row { kind, load: options.load(kind.is_batched()), measured });
    Ok(())
}

async fn measure<C: Contender<Client: Client>>(
    options: &Options,
    kind: Kind,
    contender: C,
) -> Result<Measured, Failed> {
    let (load, case) = (options.load(kind.is_batched()), Case::simple(options.clients));
    contender.connect().await?.create(case, 0).await?;
    let checks = |connection| Checks::new(case, connection);
    drive(&contender, load, Until::Time(options.seconds / 5), checks).await?;
    let measured = drive(&contender, load, Until::Time(options.seconds), checks).await?;
    contender.stop().await?;
    Ok(measured)
}
