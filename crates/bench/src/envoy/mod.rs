//! Envoy's rate limit service: `ShouldRateLimit` with one and with four descriptors, on many streams of one connection.
//!
//! envoyproxy/ratelimit itself is not started here. Its work for a request is a pipeline to Redis with `INCRBY` and `EXPIRE` for
//! each descriptor, so that pipeline, without any server in front of it, is what Limina is compared with.

mod grpc;

use crate::{
    Failed,
    frame::{
        self, Bench, Common, Connections, Family, Kind as _, Measure, Row, Rows, Start, System, contend,
        positive, warm_up_and_measure, with_warm_up, write_table,
    },
    http, in_process,
    limiter::workload::{Case, Checks, Client},
    load::{self, Contender, Load, Pace, Random},
    measure::Measured,
    redis,
    summary::Role,
};
use clap::ValueEnum;
use grpc::{Grpc, Stream};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common<Kind>,
    #[command(flatten)]
    connections: Connections,
    /// Values of each descriptor to choose from
    #[arg(long, default_value_t = 10_000, value_parser = positive)]
    clients: usize,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Limina over gRPC, one descriptor a request
    #[value(name = "grpc-1")]
    Grpc1,
    /// The same with four descriptors
    #[value(name = "grpc-4")]
    Grpc4,
    /// As grpc-1, at half the rate that it has just reached
    #[value(name = "half-1")]
    Half1,
    /// As grpc-4, at half the rate that it has just reached
    #[value(name = "half-4")]
    Half4,
    /// Limina over HTTP, `POST /check`, on as many connections
    Check,
    /// What envoyproxy/ratelimit asks of Redis for one descriptor
    #[value(name = "redis-1")]
    Redis1,
    /// The same for four descriptors
    #[value(name = "redis-4")]
    Redis4,
}

impl Kind {
    fn descriptors(self) -> usize {
        match self {
            Kind::Grpc1 | Kind::Half1 | Kind::Check | Kind::Redis1 => 1,
            Kind::Grpc4 | Kind::Half4 | Kind::Redis4 => 4,
        }
    }
}

impl frame::Kind for Kind {
    fn system(self) -> System {
        match self {
            Kind::Grpc1 | Kind::Grpc4 | Kind::Half1 | Kind::Half4 => System::Other,
            Kind::Check => System::Http,
            Kind::Redis1 | Kind::Redis4 => System::Redis,
        }
    }

    fn baseline(self) -> Option<Kind> {
        match self {
            Kind::Grpc1 | Kind::Check | Kind::Redis1 => Some(Kind::Grpc1),
            Kind::Grpc4 | Kind::Redis4 => Some(Kind::Grpc4),
            // Half of another rate: comparing it says nothing.
            Kind::Half1 | Kind::Half4 => None,
        }
    }

    fn work(self) -> &'static str {
        if self.descriptors() == 1 {
            "ShouldRateLimit, 1 descriptor"
        } else {
            "ShouldRateLimit, 4 descriptors"
        }
    }

    fn contender(self) -> (&'static str, Role) {
        match self {
            Kind::Grpc1 | Kind::Grpc4 | Kind::Half1 | Kind::Half4 => ("Limina, gRPC", Role::Limina),
            Kind::Check => ("Limina, POST /check", Role::Bound),
            Kind::Redis1 | Kind::Redis4 => ("Redis without a service", Role::Rival),
        }
    }

    type Section = ();

    fn section(self) {}
}

pub(crate) fn bench(options: Options) -> Result<Box<dyn Bench>, Failed> {
    frame::bench(Envoy { options })
}

struct Envoy {
    options: Options,
}

/// One request after another, each for values that are chosen at random.
struct Requests {
    descriptors: usize,
    clients: usize,
    random: Random,
    pace: Option<Pace>,
}

impl Envoy {
    /// `every` is the interval of a connection's requests. Without it each follows the answer before it.
    async fn measure_requests<C: Contender>(
        &self,
        kind: Kind,
        contender: &C,
        every: Option<Duration>,
    ) -> Result<Measured, Failed>
    where
        Requests: load::Work<C::Client>,
    {
        let requests = |_, connection| Requests {
            descriptors: kind.descriptors(),
            clients: self.options.clients,
            random: Random::new(connection),
            pace: every.map(|every| Pace::new(every, connection)),
        };
        warm_up_and_measure(contender, self.load(kind), self.options.common.seconds, requests).await
    }
}

impl load::Work<Stream> for Requests {
    async fn step(&mut self, stream: &mut Stream, _: u64, measured: &mut Measured) -> Result<(), Failed> {
        let clients: Vec<usize> = (0..self.descriptors).map(|_| self.random.below(self.clients)).collect();
        let asked = match &mut self.pace {
            Some(pace) => pace.next().await,
            None => Instant::now(),
        };
        let is_allowed = stream.should_rate_limit(&clients).await?;
        measured.note(1, u64::from(!is_allowed), asked.elapsed());
        Ok(())
    }
}

impl load::Work<redis::Connection> for Requests {
    async fn step(
        &mut self,
        redis: &mut redis::Connection,
        _: u64,
        measured: &mut Measured,
    ) -> Result<(), Failed> {
        for place in 0..self.descriptors {
            let key = format!("edge_{}_client-{}_0", grpc::key(place), self.random.below(self.clients));
            redis.write(&["INCRBY", &key, "1"]);
            redis.write(&["EXPIRE", &key, "86400"]);
        }
        let asked = Instant::now();
        let failed = redis.exchange(2 * self.descriptors).await?;
        measured.note(1, failed, asked.elapsed());
        Ok(())
    }
}

impl Measure<Kind, Stream> for Envoy {
    async fn measure<C: Contender<Client = Stream>>(
        &mut self,
        kind: Kind,
        contender: &C,
    ) -> Result<Measured, Failed> {
        let full = self.measure_requests(kind, contender, None).await?;
        match kind {
            Kind::Half1 | Kind::Half4 => {
                let every = 2.0 * self.load(kind).connections as f64 / full.rate();
                self.measure_requests(kind, contender, Some(Duration::from_secs_f64(every))).await
            }
            _ => Ok(full),
        }
    }
}

impl Measure<Kind, redis::Connection> for Envoy {
    async fn measure<C: Contender<Client = redis::Connection>>(
        &mut self,
        kind: Kind,
        contender: &C,
    ) -> Result<Measured, Failed> {
        self.measure_requests(kind, contender, None).await
    }
}

impl Measure<Kind, http::Connection> for Envoy {
    async fn measure<C: Contender<Client = http::Connection>>(
        &mut self,
        kind: Kind,
        contender: &C,
    ) -> Result<Measured, Failed> {
        let case = Case::simple(self.options.clients);
        contender.connect().await?.create(case, 0).await?;
        let checks = |_, connection| Checks::new(case, connection);
        warm_up_and_measure(contender, self.load(kind), self.options.common.seconds, checks).await
    }
}

impl Measure<Kind, in_process::Caller> for Envoy {
    async fn measure<C: Contender<Client = in_process::Caller>>(
        &mut self,
        kind: Kind,
        _: &C,
    ) -> Result<Measured, Failed> {
        Err(format!("{} is not measured in this process", kind.name()).into())
    }
}

impl Family<Kind> for Envoy {
    const NAME: &'static str = "envoy";
    const UNIT: &'static str = "requests";
    /// Limits with a window do not wait for the disk in Limina either.
    const REDIS: redis::Setup = redis::Setup { sync: redis::Sync::EverySecond, scripts: &[] };

    fn common(&self) -> &Common<Kind> {
        &self.options.common
    }

    fn load(&self, _: Kind) -> Load {
        self.options.connections.load(None)
    }

    async fn measure_other(&mut self, kind: Kind, start: Start<'_>) -> Result<Option<Row<Kind>>, Failed> {
        let grpc = Grpc::start(start.program, start.directory).await?;
        contend(self, kind, grpc).await.map(Some)
    }

    fn planned(&self, kind: Kind) -> Duration {
        let once = with_warm_up(self.options.common.seconds);
        match kind {
            Kind::Half1 | Kind::Half4 => 2 * once,
            _ => once,
        }
    }

    fn report(&self, (): (), rows: &Rows<Kind>) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        write_table(&mut text, &rows.table(Self::UNIT))?;
        Ok(text)
    }
}
