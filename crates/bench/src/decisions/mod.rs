//! Decisions: parts that are reserved together and settled later, beside the same by separate calls.

mod http;
mod in_process;
mod redis;
mod workload;

use crate::{
    Failed,
    frame::{
        self, Bench, Common, Connections, Family, Measure, Phase, Rows, System, positive,
        warm_up_and_measure, write_table,
    },
    load::{Contender, Load, Random},
    measure::Measured,
    summary::Role,
};
use clap::ValueEnum;
use std::fmt::{self, Write};
use workload::{Client, Flows, Parts, create};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common<Kind>,
    /// Decisions in one request of a batch
    #[arg(long, default_value_t = 100, value_parser = positive)]
    batch: usize,
    #[command(flatten)]
    connections: Connections,
    /// Tenants to choose from; each has budgets, windows and slots of its own
    #[arg(long, default_value_t = 1_000, value_parser = positive)]
    tenants: usize,
}

/// A contender, and how its decisions are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Limina without a front end, decisions with 3 parts
    InProcess,
    /// Limina over HTTP, decisions with 1 part
    #[value(name = "http-1")]
    Http1,
    /// Decisions with 3 parts
    #[value(name = "http-3")]
    Http3,
    /// Decisions with 8 parts
    #[value(name = "http-8")]
    Http8,
    /// Limina over HTTP in batches, decisions with 1 part
    #[value(name = "http-batch-1")]
    HttpBatch1,
    /// Batches of decisions with 3 parts
    #[value(name = "http-batch-3")]
    HttpBatch3,
    /// Batches of decisions with 8 parts
    #[value(name = "http-batch-8")]
    HttpBatch8,
    /// 1 part by separate calls over HTTP: hold, commit
    #[value(name = "separate-1")]
    Separate1,
    /// 3 parts by separate calls: check, lease, hold, commit, release
    #[value(name = "separate-3")]
    Separate3,
    /// 8 parts by separate calls: 2 checks, 2 leases, lock, hold, commit, 3 releases
    #[value(name = "separate-8")]
    Separate8,
    /// Redis with a sync before each answer, scripts that do the work of 3 parts
    #[value(name = "redis-3")]
    Redis3,
    /// The same in pipelined batches
    #[value(name = "redis-batch-3")]
    RedisBatch3,
}

impl Kind {
    fn parts(self) -> Parts {
        match self {
            Kind::Http1 | Kind::HttpBatch1 | Kind::Separate1 => Parts::One,
            Kind::InProcess
            | Kind::Http3
            | Kind::HttpBatch3
            | Kind::Separate3
            | Kind::Redis3
            | Kind::RedisBatch3 => Parts::Three,
            Kind::Http8 | Kind::HttpBatch8 | Kind::Separate8 => Parts::Eight,
        }
    }

    fn is_separate(self) -> bool {
        matches!(self, Kind::Separate1 | Kind::Separate3 | Kind::Separate8)
    }

    fn is_batched(self) -> bool {
        matches!(self, Kind::HttpBatch1 | Kind::HttpBatch3 | Kind::HttpBatch8 | Kind::RedisBatch3)
    }
}

impl frame::Kind for Kind {
    fn system(self) -> System {
        match self {
            Kind::InProcess => System::InProcess,
            Kind::Redis3 | Kind::RedisBatch3 => System::Redis,
            _ => System::Http,
        }
    }

    fn baseline(self) -> Option<Kind> {
        Some(match (self.is_batched(), self.parts()) {
            (false, Parts::One) => Kind::Http1,
            (false, Parts::Three) => Kind::Http3,
            (false, Parts::Eight) => Kind::Http8,
            (true, Parts::One) => Kind::HttpBatch1,
            (true, Parts::Three) => Kind::HttpBatch3,
            (true, Parts::Eight) => Kind::HttpBatch8,
        })
    }

    fn work(self) -> &'static str {
        match (self.is_batched(), self.parts()) {
            (false, Parts::One) => "decision, 1 part",
            (false, Parts::Three) => "decision, 3 parts",
            (false, Parts::Eight) => "decision, 8 parts",
            (true, Parts::One) => "decisions in batches, 1 part",
            (true, Parts::Three) => "decisions in batches, 3 parts",
            (true, Parts::Eight) => "decisions in batches, 8 parts",
        }
    }

    fn contender(self) -> (&'static str, Role) {
        match self.is_separate() {
            true => ("separate calls", Role::Rival),
            false => self.system().contender(),
        }
    }

    type Section = ();

    fn section(self) {}
}

pub(crate) fn bench(options: Options) -> Result<Box<dyn Bench>, Failed> {
    frame::bench(Decisions { options })
}

/// One run.
struct Decisions {
    options: Options,
}

impl<T: Client> Measure<Kind, T> for Decisions {
    async fn measure<C: Contender<Client = T>>(
        &mut self,
        kind: Kind,
        contender: &C,
    ) -> Result<Measured, Failed> {
        let tenants = self.options.tenants;
        create(contender, tenants).await?;
        let flows = |phase: Phase, client| Flows {
            parts: kind.parts(),
            is_separate: kind.is_separate(),
            tenants,
            phase: phase.name(),
            client,
            made: 0,
            random: Random::new(client),
        };
        warm_up_and_measure(contender, self.load(kind), self.options.common.seconds, flows).await
    }
}

impl Family<Kind> for Decisions {
    const NAME: &'static str = "decisions";
    const UNIT: &'static str = "decisions";
    const REDIS: crate::redis::Setup = redis::SETUP;

    fn common(&self) -> &Common<Kind> {
        &self.options.common
    }

    fn load(&self, kind: Kind) -> Load {
        self.options.connections.load(kind.is_batched().then_some(self.options.batch))
    }

    fn report(&self, (): (), rows: &Rows<Kind>) -> Result<String, fmt::Error> {
        let mut text = String::new();
        write_table(&mut text, &rows.table(Decisions::UNIT))?;
        writeln!(
            text,
            "Each decision is made and then committed with other amounts; a latency is that of both. 1 part: a hold. 3 parts: a \
             hold, a window and a slot. 8 parts: three holds, two windows, two slots and a lock."
        )?;
        for (parts, together, separate) in [
            (1, Kind::Http1, Kind::Separate1),
            (3, Kind::Http3, Kind::Separate3),
            (8, Kind::Http8, Kind::Separate8),
        ] {
            if let Some(ratio) = rows.ratio(together, separate) {
                writeln!(
                    text,
                    "With {parts} parts, one decision is {ratio:.2} times as fast as separate calls."
                )?;
            }
        }
        Ok(text)
    }
}
