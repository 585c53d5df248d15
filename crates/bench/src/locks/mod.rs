//! Locks: acquired and released, waited for, and extended.

pub(crate) mod echo;
mod http;
mod in_process;
mod redis;
pub(crate) mod workload;

use crate::{
    Failed,
    frame::{
        self, Bench, Common, Family, Measure, Phase, Rows, System, optional, positive, seconds,
        warm_up_and_measure, write_table,
    },
    load::{Contender, Load},
    measure::{Measured, Rated},
};
use clap::ValueEnum;
use std::{
    fmt::{self, Write},
    time::Duration,
};
use workload::{Client, Contended, Heartbeats, Pairs, SharedLock, acquire_all};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common<Kind>,
    /// Connections (in-process: tasks) that each have their own locks
    #[arg(long, default_value_t = 64, value_parser = positive)]
    connections: usize,
    /// Connections (in-process: tasks) that all want one lock
    #[arg(long, default_value_t = 100, value_parser = positive)]
    contended_connections: usize,
    /// Connections that send heartbeats at fixed times
    #[arg(long, default_value_t = 512, value_parser = positive)]
    paced_connections: usize,
    /// Average time that a client of Redis sleeps before it retries, in seconds
    #[arg(long, default_value = "0.005", value_parser = seconds)]
    poll: Duration,
    /// Locks that are held while heartbeats are sent
    #[arg(long, default_value_t = 20_000, value_parser = positive)]
    locks: usize,
    /// Heartbeats a second, if they are sent at fixed times
    #[arg(long, default_value_t = 20_000, value_parser = positive)]
    pace: usize,
}

/// A contender, and its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Limina without a front end; each client acquires and releases its own lock
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
    /// The same by Redis, where clients poll
    RedisContended,
    /// Limina without a front end; many locks are held and extended, as fast as possible
    InProcessHeartbeats,
    /// The same over HTTP
    HttpHeartbeats,
    /// The same by Redis
    RedisHeartbeats,
    /// Limina over HTTP; `--pace` heartbeats a second
    HttpPaced,
    /// The same by Redis
    RedisPaced,
}

/// The work of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Acquires and releases its own lock.
    Pairs,
    /// Acquires and releases the one lock that all clients want.
    Contended,
    /// Extends locks as fast as possible.
    Heartbeats,
    /// Extends locks at fixed times.
    Paced,
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
}

impl frame::Kind for Kind {
    fn system(self) -> System {
        match self {
            Kind::InProcess | Kind::InProcessContended | Kind::InProcessHeartbeats => System::InProcess,
            Kind::Http | Kind::HttpContended | Kind::HttpHeartbeats | Kind::HttpPaced => System::Http,
            Kind::Echo => System::Echo,
            Kind::Redis | Kind::RedisContended | Kind::RedisHeartbeats | Kind::RedisPaced => System::Redis,
        }
    }

    fn baseline(self) -> Option<Kind> {
        match self.task() {
            Task::Pairs => Some(Kind::Http),
            Task::Contended => Some(Kind::HttpContended),
            Task::Heartbeats => Some(Kind::HttpHeartbeats),
            // The options set this rate, so comparing it says nothing.
            Task::Paced => None,
        }
    }

    fn work(self) -> &'static str {
        match self.task() {
            Task::Pairs => "acquire and release",
            Task::Contended => "one lock that all clients want",
            Task::Heartbeats | Task::Paced => "heartbeat",
        }
    }

    type Section = ();

    fn section(self) {}
}

pub(crate) fn bench(options: Options) -> Result<Box<dyn Bench>, Failed> {
    if options.locks < options.connections.max(options.paced_connections) {
        return Err("there must be a lock for each connection".into());
    }
    frame::bench(Locks { options })
}

/// One run.
struct Locks {
    options: Options,
}

impl<T: Client> Measure<Kind, T> for Locks {
    async fn measure<C: Contender<Client = T>>(
        &mut self,
        kind: Kind,
        contender: &C,
    ) -> Result<Measured, Failed> {
        let Options { common, poll, locks, pace, .. } = &self.options;
        let (load, time) = (self.load(kind), common.seconds);
        match kind.task() {
            Task::Pairs => warm_up_and_measure(contender, load, time, |_, client| Pairs::new(client)).await,
            Task::Contended => {
                let [warm_up, measured] = [SharedLock::new(), SharedLock::new()];
                let contended = |phase, client| {
                    let lock = if phase == Phase::WarmUp { &warm_up } else { &measured };
                    Contended::new(lock.clone(), *poll, client)
                };
                warm_up_and_measure(contender, load, time, contended).await
            }
            task @ (Task::Heartbeats | Task::Paced) => {
                let held = acquire_all(contender, *locks, load.connections).await?;
                // Fewer leave no background work that would disturb the measurement.
                if *locks >= 10_000 {
                    contender.settle().await;
                }
                let every = Duration::from_secs_f64(load.connections as f64 / *pace as f64);
                let heartbeats = |_, client: usize| {
                    let every = (task == Task::Paced).then_some(every);
                    Heartbeats::new(held[client].clone(), every, client)
                };
                warm_up_and_measure(contender, load, time, heartbeats).await
            }
        }
    }
}

impl Family<Kind> for Locks {
    const NAME: &'static str = "locks";
    const UNIT: &'static str = "ops";
    const REDIS: crate::redis::Setup = redis::SETUP;

    fn common(&self) -> &Common<Kind> {
        &self.options.common
    }

    fn load(&self, kind: Kind) -> Load {
        let connections = match kind.task() {
            Task::Contended => self.options.contended_connections,
            Task::Pairs | Task::Heartbeats => self.options.connections,
            Task::Paced => self.options.paced_connections,
        };
        Load { connections, batch: 1 }
    }

    fn report(&self, (): (), rows: &Rows<Kind>) -> Result<String, fmt::Error> {
        let Options { poll, locks, .. } = &self.options;
        let mut text = String::new();
        write_table(&mut text, &rows.table(Locks::UNIT))?;
        writeln!(
            text,
            "An op is a pair of acquire and release, or a heartbeat while {locks} locks are held. A latency is that of an op; with \
             contention, the time from sending a release until the next holder receives its grant."
        )?;
        if rows.rate(Kind::RedisContended).is_some() {
            let poll = poll.as_secs_f64() * 1000.0;
            writeln!(
                text,
                "A client cannot wait for a lock in Redis. If it is refused, it retries after {poll} ms on average."
            )?;
        }
        if let Some(ratio) = rows.ratio(Kind::Http, Kind::Echo) {
            writeln!(text, "Limina over HTTP reaches {ratio:.2} of the rate of pairs of the echo server.")?;
        }
        if let Some(row) = rows.medians().find(|row| row.kind == Kind::HttpPaced) {
            let (server, _) = row.measured.processors();
            let server = optional(server, 2);
            writeln!(text, "At {:.0} heartbeats a second the server uses {server} of a core.", row.rate())?;
        }
        Ok(text)
    }
}
