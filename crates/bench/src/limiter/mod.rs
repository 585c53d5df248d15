//! The limiter: what is measured, on which system, and how many checks a request contains.

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
    frame::{
        self, Bench, Common, Connections, Family, Kind as _, Measure, Row, Rows, Start, System, contend,
        positive, warm_up_and_measure, with_warm_up,
    },
    http::Http,
    load::{Contender, Load},
    measure::{Measured, Rounds},
    namespaces::{ManyNamespaces, NAMESPACES},
    summary::{Bar, Comparison, Role},
};
pub(crate) use crates::program as rival_crates;

use changes::Changes;
use clap::ValueEnum;
use engine::EngineWork;
use std::time::Duration;
use workload::{Case, Checks, Client};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common<Kind>,
    /// Checks in one request of a batch
    #[arg(long, default_value_t = 256, value_parser = positive)]
    batch: usize,
    #[command(flatten)]
    connections: Connections,
    /// Clients to choose from, where --groups does not apply
    #[arg(long, default_value_t = 10_000, value_parser = positive)]
    clients: usize,
    /// Numbers of rules to measure with
    #[arg(long, default_value = "10,1000,100000", value_delimiter = ',', value_parser = positive)]
    rules: Vec<usize>,
    /// Numbers of rules that apply to each check
    #[arg(long, default_value = "1,4,16", value_delimiter = ',', value_parser = positive)]
    matching: Vec<usize>,
    /// Numbers of groups of one rule to measure with
    #[arg(long, default_value = "1000,5000000", value_delimiter = ',', value_parser = positive)]
    groups: Vec<usize>,
    /// Counters that exist while rules are changed
    #[arg(long, default_value_t = 5_000_000, value_parser = positive)]
    counters: usize,
}

/// What is measured, and how many checks a request contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
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
    /// Limina over HTTP, one check a request, in 64 namespaces in turn
    HttpNamespaces,
    /// The same in batches
    HttpBatchNamespaces,
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

/// The sections of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Engine,
    Crates,
    Contenders,
    Scale,
    Changes,
}

impl Kind {
    fn is_batched(self) -> bool {
        matches!(
            self,
            Kind::InProcessBatch
                | Kind::HttpBatch
                | Kind::HttpBatchNamespaces
                | Kind::EchoBatch
                | Kind::RedisBatch
        )
    }

    fn has_many_namespaces(self) -> bool {
        matches!(self, Kind::HttpNamespaces | Kind::HttpBatchNamespaces)
    }
}

impl frame::Kind for Kind {
    fn system(self) -> System {
        match self {
            Kind::InProcess | Kind::InProcessBatch => System::InProcess,
            Kind::Http | Kind::HttpBatch => System::Http,
            Kind::Echo | Kind::EchoBatch => System::Echo,
            Kind::Redis | Kind::RedisBatch => System::Redis,
            Kind::EngineWindows
            | Kind::EngineRules
            | Kind::EngineGroups
            | Kind::EngineCounters
            | Kind::Limitador
            | Kind::Governor
            | Kind::HttpNamespaces
            | Kind::HttpBatchNamespaces
            | Kind::Rules
            | Kind::Groups
            | Kind::Changes => System::Other,
        }
    }

    fn rival(self) -> Option<&'static str> {
        match self {
            Kind::Redis | Kind::RedisBatch => Some("redis"),
            Kind::Limitador => Some("limitador"),
            Kind::Governor => Some("governor"),
            _ => None,
        }
    }

    fn baseline(self) -> Option<Kind> {
        Some(if self.is_batched() { Kind::HttpBatch } else { Kind::Http })
    }

    fn work(self) -> &'static str {
        if self.is_batched() { "relaxed checks in batches" } else { "check, relaxed" }
    }

    fn contender(self) -> (&'static str, Role) {
        match self {
            Kind::HttpNamespaces | Kind::HttpBatchNamespaces => ("Limina, 64 namespaces", Role::Bound),
            _ => self.system().contender(),
        }
    }

    type Section = Section;

    fn section(self) -> Section {
        match self {
            Kind::EngineWindows | Kind::EngineRules | Kind::EngineGroups | Kind::EngineCounters => {
                Section::Engine
            }
            Kind::Limitador | Kind::Governor => Section::Crates,
            Kind::Rules | Kind::Groups => Section::Scale,
            Kind::Changes => Section::Changes,
            _ => Section::Contenders,
        }
    }

    /// Rules and groups take long to set up, so they have their rounds after one set-up.
    fn is_measured_once(self) -> bool {
        matches!(self, Kind::Rules | Kind::Groups)
    }
}

impl Options {
    fn load(&self, kind: Kind) -> Load {
        self.connections.load(kind.is_batched().then_some(self.batch))
    }

    /// The cases of the engine that are measured for a kind; empty for kinds that do not measure the engine alone.
    fn engine_cases(&self, kind: Kind) -> Vec<(EngineWork, Case)> {
        let groups = self.groups.first().copied().unwrap_or(1);
        let with_groups = |what| self.groups.iter().map(move |&groups| (what, Case::simple(groups)));
        match kind {
            Kind::EngineWindows => {
                let kinds = [EngineWork::Fixed, EngineWork::Sliding, EngineWork::Bucket, EngineWork::Refused];
                kinds.map(|what| (what, Case::simple(groups))).to_vec()
            }
            Kind::EngineRules => {
                let cases = self.matching.iter().flat_map(|&matching| self.cases_of_rules(matching));
                cases.map(|case| (EngineWork::Fixed, case)).collect()
            }
            Kind::EngineGroups => with_groups(EngineWork::Fixed).collect(),
            Kind::EngineCounters => with_groups(EngineWork::Counters).collect(),
            _ => Vec::new(),
        }
    }

    /// The cases that are compared with each other for a kind; empty for all kinds but rules and groups.
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

    /// The numbers of clients with which a rival that is a crate is measured; empty for other kinds.
    fn crate_cases(&self, kind: Kind) -> Vec<usize> {
        match kind {
            Kind::Limitador | Kind::Governor => self.groups.clone(),
            _ => Vec::new(),
        }
    }

    /// Cases with the same number of groups for every number of rules, and so many groups that every rule applies to some
    /// check.
    fn cases_of_rules(&self, matching: usize) -> Vec<Case> {
        let whole = |rules: usize| rules.div_ceil(matching) * matching;
        let subjects = self.rules.iter().copied().max().unwrap_or(1);
        let fewest = whole(self.rules.iter().copied().min().unwrap_or(1));
        let mut cases = Vec::new();
        for rules in self.rules.iter().map(|&rules| whole(rules)) {
            let case = |asked| Case { rules, matching, asked, subjects };
            // First only checks to which the same few rules apply, then checks to which all rules apply in turn.
            cases.push(case(fewest));
            cases.extend((rules > fewest).then(|| case(rules)));
        }
        cases
    }
}

pub(crate) fn bench(options: Options) -> Result<Box<dyn Bench>, Failed> {
    frame::bench(Limiter {
        options,
        engine: Vec::new(),
        crates: Vec::new(),
        scale: Vec::new(),
        changes: Vec::new(),
    })
}

/// Roughly the time to create so many groups or counters.
fn filling(groups: usize) -> Duration {
    Duration::from_secs_f64(groups as f64 / 200_000.0)
}

/// One run, and what it measured besides the rows.
struct Limiter {
    options: Options,
    engine: Vec<(Kind, Rounds<engine::Figure>)>,
    crates: Vec<Rounds<crates::Figure>>,
    scale: Vec<scale::Figure>,
    /// One for each round.
    changes: Vec<Changes>,
}

impl<T: Client> Measure<Kind, T> for Limiter {
    async fn measure<C: Contender<Client = T>>(
        &mut self,
        kind: Kind,
        contender: &C,
    ) -> Result<Measured, Failed> {
        // Many namespaces have as many groups together as one has otherwise.
        let namespaces = if kind.has_many_namespaces() { NAMESPACES } else { 1 };
        let case = Case::simple((self.options.clients / namespaces).max(1));
        contender.connect().await?.create(case, 0).await?;
        let checks = |_, connection| Checks::new(case, connection);
        warm_up_and_measure(contender, self.load(kind), self.options.common.seconds, checks).await
    }
}

impl Family<Kind> for Limiter {
    const NAME: &'static str = "limiter";
    const UNIT: &'static str = "checks";
    const REDIS: crate::redis::Setup = redis::SETUP;

    fn common(&self) -> &Common<Kind> {
        &self.options.common
    }

    fn load(&self, kind: Kind) -> Load {
        self.options.load(kind)
    }

    async fn measure_other(&mut self, kind: Kind, start: Start<'_>) -> Result<Option<Row<Kind>>, Failed> {
        let time = self.options.common.seconds;
        if kind.has_many_namespaces() {
            let server = Http::limina(start.program, start.directory)?;
            return contend(self, kind, ManyNamespaces::new(server)).await.map(Some);
        }
        // A kind has only cases of its own sort: two of these three lists are empty.
        for (what, case) in self.options.engine_cases(kind) {
            let measure = move || engine::measure(what, case, time);
            self.add_engine(kind, tokio::task::spawn_blocking(measure).await??);
        }
        for cases in self.options.compared_cases(kind) {
            let figures = scale::measure(&self.options, kind, &cases, start.program).await?;
            self.scale.extend(figures);
        }
        for clients in self.options.crate_cases(kind) {
            let measure = move || crates::measure(&kind.name(), clients, time);
            self.add_crate(tokio::task::spawn_blocking(measure).await??);
        }
        if kind == Kind::Changes {
            self.changes.push(changes::measure(start.directory, self.options.counters, time).await?);
        }
        Ok(None)
    }

    fn refused(&self) -> u64 {
        let phases = self.changes.iter().flat_map(|changes| &changes.phases);
        let phases = phases.flat_map(|phase| [&phase.relaxed, &phase.durable]);
        let fills = self.changes.iter().map(|changes| &changes.fill);
        let scale = self.scale.iter().flat_map(|figure| figure.rounds.all());
        phases.chain(fills).chain(scale).map(|measured| measured.refused).sum()
    }

    fn planned(&self, kind: Kind) -> Duration {
        let Options { common, counters, .. } = &self.options;
        let once = with_warm_up(common.seconds);
        let groups = |cases: &[Case]| cases.iter().map(|case| case.subjects * case.matching).sum();
        match kind {
            Kind::EngineWindows | Kind::EngineRules | Kind::EngineGroups | Kind::EngineCounters => {
                let cases: Vec<Case> =
                    self.options.engine_cases(kind).into_iter().map(|(_, case)| case).collect();
                // Preparing the requests takes about as long as deciding them.
                once * 2 * cases.len() as u32 + filling(groups(&cases))
            }
            Kind::Limitador | Kind::Governor => once * self.options.crate_cases(kind).len() as u32,
            Kind::Rules | Kind::Groups => {
                let cases: Vec<Case> = self.options.compared_cases(kind).into_iter().flatten().collect();
                // In process, over HTTP, and over HTTP in batches; the last two use the same server.
                once * (3 * common.rounds * cases.len()) as u32 + filling(groups(&cases)) * 2
            }
            Kind::Changes => filling(*counters) + common.seconds * 2 + changes::AFTER.min(common.seconds) * 5,
            _ => once,
        }
    }

    fn report(&self, section: Section, rows: &Rows<Kind>) -> Result<String, std::fmt::Error> {
        report::write(self, section, rows)
    }

    /// The engine beside crates that do the same in the process of their caller.
    fn more_comparisons(&self) -> Vec<Comparison> {
        let clients = self.options.groups[0];
        let crates = self.crates.iter().map(Rounds::median).filter(|figure| figure.clients == clients);
        let crates = crates.map(|figure| Bar::of_rate(&figure.name, Role::Rival, figure.rate));
        let comparison = |engine| Comparison {
            work: "check, called directly".into(),
            load: "1 core".into(),
            limina: Bar::of_rate("Limina's engine", Role::Limina, engine),
            beside: crates.collect(),
        };
        self.engine_rate_for(clients).map(comparison).into_iter().collect()
    }
}

impl Limiter {
    fn add_engine(&mut self, kind: Kind, figure: engine::Figure) {
        let is_same = |other: &engine::Figure| (other.what, other.case) == (figure.what, figure.case);
        let mut known = self.engine.iter_mut();
        match known.find(|(other, rounds)| *other == kind && is_same(rounds.median())) {
            Some((_, rounds)) => rounds.push(figure),
            None => self.engine.push((kind, Rounds::new(figure))),
        }
    }

    fn add_crate(&mut self, figure: crates::Figure) {
        let is_same = |other: &crates::Figure| other.name == figure.name && other.clients == figure.clients;
        match self.crates.iter_mut().find(|rounds| is_same(rounds.median())) {
            Some(rounds) => rounds.push(figure),
            None => self.crates.push(Rounds::new(figure)),
        }
    }
}
