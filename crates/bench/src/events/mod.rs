//! Events: submitted, and delivered to followers.

mod due;
mod fan_out;
mod http;
mod in_process;
mod redis;
mod report;
pub(crate) mod workload;

use crate::{
    Failed,
    frame::{
        self, Bench, Common, Family, Measure, Phase, Row, Rows, Start, System, positive, seconds,
        warm_up_and_measure, with_warm_up,
    },
    load::{Contender, Load},
    measure::Measured,
    summary::{Bar, Comparison, Role, grouped},
};
use clap::ValueEnum;
use std::time::Duration;
use workload::{Client, Keys, Submissions};

/// Roughly how many events are submitted and fall due in a second.
const DUE_A_SECOND: f64 = 5000.0;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common<Kind>,
    /// Connections (in-process: tasks) that submit
    #[arg(long, default_value_t = 64, value_parser = positive)]
    connections: usize,
    /// Seconds for which an event closes its key; then it is published
    #[arg(long, default_value = "1", value_parser = seconds)]
    duration: Duration,
    /// Followers of the stream
    #[arg(long, default_value_t = 1000, value_parser = positive)]
    subscribers: usize,
    /// Submissions a second while there are followers
    #[arg(long, default_value = "25,50,100,200,300", value_delimiter = ',', value_parser = positive)]
    rates: Vec<usize>,
    /// Events that fall due in the same second
    #[arg(long, default_value_t = 100_000, value_parser = positive)]
    due: usize,
}

/// The sections of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Submissions,
    FanOut,
    Due,
}

/// A contender and the keys of its events, or another measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Limina without a front end; all events have distinct keys
    InProcess,
    /// The same over HTTP
    Http,
    /// The same by Redis
    Redis,
    /// Limina without a front end; all clients submit the same event
    InProcessHot,
    /// The same over HTTP
    HttpHot,
    /// The same by Redis
    RedisHot,
    /// Many followers of one stream
    FanOut,
    /// Many events that fall due in the same second
    Due,
}

impl Kind {
    fn is_hot(self) -> bool {
        matches!(self, Kind::InProcessHot | Kind::HttpHot | Kind::RedisHot)
    }
}

impl frame::Kind for Kind {
    fn system(self) -> System {
        match self {
            Kind::InProcess | Kind::InProcessHot => System::InProcess,
            Kind::Http | Kind::HttpHot => System::Http,
            Kind::Redis | Kind::RedisHot => System::Redis,
            Kind::FanOut | Kind::Due => System::Other,
        }
    }

    fn baseline(self) -> Option<Kind> {
        Some(if self.is_hot() { Kind::HttpHot } else { Kind::Http })
    }

    fn work(self) -> &'static str {
        if self.is_hot() { "event that all clients submit" } else { "event with its own key" }
    }

    type Section = Section;

    fn section(self) -> Section {
        match self {
            Kind::FanOut => Section::FanOut,
            Kind::Due => Section::Due,
            _ => Section::Submissions,
        }
    }

    /// A median over rounds says little about these: one consists of steps, and the result of the other is a maximum.
    fn is_measured_once(self) -> bool {
        matches!(self, Kind::FanOut | Kind::Due)
    }
}

pub(crate) fn bench(options: Options) -> Result<Box<dyn Bench>, Failed> {
    frame::bench(Events { options, fan_out: Vec::new(), due: None })
}

/// One run, and what it measured besides the rows.
struct Events {
    options: Options,
    fan_out: Vec<fan_out::Step>,
    due: Option<due::Figure>,
}

impl<T: Client> Measure<Kind, T> for Events {
    async fn measure<C: Contender<Client = T>>(
        &mut self,
        kind: Kind,
        contender: &C,
    ) -> Result<Measured, Failed> {
        contender.connect().await?.put(self.options.duration).await?;
        let keys = |phase: Phase| if kind.is_hot() { Keys::Hot } else { Keys::Distinct(phase.name()) };
        let submissions = |phase, client| Submissions::new(keys(phase), client);
        warm_up_and_measure(contender, self.load(kind), self.options.common.seconds, submissions).await
    }
}

impl Family<Kind> for Events {
    const NAME: &'static str = "events";
    const UNIT: &'static str = "submissions";
    const REDIS: crate::redis::Setup = redis::SETUP;

    fn common(&self) -> &Common<Kind> {
        &self.options.common
    }

    fn load(&self, _: Kind) -> Load {
        Load { connections: self.options.connections, batch: 1 }
    }

    async fn measure_other(&mut self, kind: Kind, start: Start<'_>) -> Result<Option<Row<Kind>>, Failed> {
        match kind {
            Kind::FanOut => self.fan_out = fan_out::measure(&self.options, start).await?,
            _ => self.due = Some(due::measure(&self.options, start).await?),
        }
        Ok(None)
    }

    fn refused(&self) -> u64 {
        let steps = self.fan_out.iter().map(|step| &step.submissions);
        let due = self.due.iter().flat_map(|figure| [&figure.before, &figure.meanwhile]);
        steps.chain(due).map(|measured| measured.refused).sum()
    }

    fn planned(&self, kind: Kind) -> Duration {
        let seconds = self.options.common.seconds;
        match kind {
            Kind::FanOut => seconds * self.options.rates.len() as u32,
            // Most of it is the time to submit the events, and to wait until they are due.
            Kind::Due => seconds * 2 + Duration::from_secs_f64(self.options.due as f64 / DUE_A_SECOND),
            _ => with_warm_up(seconds),
        }
    }

    fn report(&self, section: Section, rows: &Rows<Kind>) -> Result<String, std::fmt::Error> {
        report::write(self, section, rows)
    }

    /// The fan-out at the highest rate.
    fn more_comparisons(&self) -> Vec<Comparison> {
        let highest = self.fan_out.iter().max_by_key(|step| step.asked);
        let comparison = |step: &fan_out::Step| Comparison {
            work: format!("delivery to {} followers", grouped(self.options.subscribers as u64)),
            load: format!("{} changes/s", step.asked),
            limina: Bar::new("Limina", Role::Limina, &step.deliveries),
            beside: Vec::new(),
        };
        highest.map(comparison).into_iter().collect()
    }
}
