//! Several nodes on one PostgreSQL: the work of all families, local and forwarded, and shards that move. For comparison, the
//! same work in SQL on the same server.

mod moves;
mod nodes;
mod report;

use crate::{
    Failed, events,
    frame::{
        self, Connections, Figures, Others, Phase, Place, Plan, Running, Screen, chosen, conditions, name_of,
        others_in_words, positive, seconds, warm_up_and_measure, with_warm_up,
    },
    http::Connection,
    ledger,
    limiter::{
        self,
        workload::{Case, Checks},
    },
    load::{Contender, Load, Until, Work, drive},
    locks, machine,
    measure::Measured,
    postgres::{Database, start_server, stop_server},
};
use clap::ValueEnum;
use events::workload::{Keys, Submissions};
use ledger::workload::Operations;
use limina_pg_server::PgServer;
use locks::workload::Pairs;
use nodes::{Nodes, Route, Spread};
use report::{Latency, Report, Row};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// Measurements of the part `latency`.
const LATENCIES: usize = 8;
/// Roughly the time to move the shards of one node, and to fill them before.
const MOVE: Duration = Duration::from_secs(4);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Duration of each measurement in seconds; a fifth of it is added for warm-up
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Nodes, at least two
    #[arg(long, default_value_t = 3, value_parser = positive)]
    nodes: usize,
    /// Holds, commits or checks in one request of a batch
    #[arg(long, default_value_t = 1000, value_parser = positive)]
    batch: usize,
    #[command(flatten)]
    connections: Connections,
    /// Ledger limits, or clients that a rule limits, in each shard
    #[arg(long, default_value_t = 100, value_parser = positive)]
    each: usize,
    /// Records in memory of each shard that moves
    #[arg(long, default_value = "1000,10000,100000", value_delimiter = ',', value_parser = positive)]
    records: Vec<usize>,
    /// Seconds until a silent node is considered dead
    #[arg(long, default_value = "5", value_parser = seconds)]
    tenure: Duration,
    /// Measure only these
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    #[command(flatten)]
    place: Place,
}

/// A part of the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Holds and commits, one a request
    Ledger,
    /// The same in batches
    LedgerBatch,
    /// The same in SQL, one a transaction
    SqlLedger,
    /// Checks of a relaxed rule with a window, which do not wait for the database
    Checks,
    /// Checks of durable counters, one a request
    Counters,
    /// The same in batches
    CountersBatch,
    /// The same in SQL, one a transaction
    SqlCounters,
    /// Locks held and released
    Locks,
    /// Events submitted
    Events,
    /// Requests to the node that owns the shard and to another node
    Latency,
    /// Shards whose node is stopped or killed
    Moves,
}

/// The work that nodes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Ledger,
    Checks,
    Counters,
    Locks,
    Events,
}

/// The sections of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Work,
    Latency,
    Moves,
}

impl Part {
    fn name(self) -> String {
        name_of(&self)
    }

    fn section(self) -> Section {
        match self {
            Part::Latency => Section::Latency,
            Part::Moves => Section::Moves,
            _ => Section::Work,
        }
    }
}

pub(crate) fn bench(options: Options) -> Result<Box<dyn frame::Bench>, Failed> {
    let parts = chosen(&options.only, |_: Part| true)?;
    if options.nodes < 2 {
        return Err("there must be at least two nodes".into());
    }
    Ok(Box::new(Planned { options, parts }))
}

/// The parts that are measured, one after another.
struct Planned {
    options: Options,
    parts: Vec<Part>,
}

impl frame::Bench for Planned {
    fn plan(&self) -> Plan {
        self.parts.iter().map(|part| self.options.planned(*part)).collect()
    }

    fn run(self: Box<Self>, screen: &Screen) -> Running<'_> {
        Box::pin(run(self.options, self.parts, screen))
    }
}

impl Options {
    /// The time for which a part is measured.
    fn planned(&self, part: Part) -> Duration {
        let once = with_warm_up(self.seconds);
        match part {
            Part::Latency => once * LATENCIES as u32,
            Part::Moves => MOVE * (2 * self.records.len()) as u32,
            _ => once,
        }
    }
}

async fn run(options: Options, parts: Vec<Part>, screen: &Screen) -> Result<Figures, Failed> {
    let program = options.place.program()?;
    screen.print(&conditions(&program, options.place.data())?)?;
    let directory = options.place.directory()?;
    let others = Others::watch();
    let server = start_server(directory.path())?;
    let store = server.url(&server.new_database()?);
    let nodes = Nodes::start(&program, store, options.tenure, options.nodes)?;
    let mut bench = Bench { server, nodes, owners: Vec::new(), options };
    let mut report = Report::default();
    for (place, &part) in parts.iter().enumerate() {
        screen.begin(format!("cluster {}", part.name()), bench.options.planned(part));
        bench.measure(part, &mut report).await.map_err(|error| format!("{}: {error}", part.name()))?;
        if parts[place + 1..].iter().all(|later| later.section() != part.section()) {
            screen.print(&format!("\n{}", report.write(part.section())?))?;
        }
    }
    let Bench { server, nodes, .. } = bench;
    nodes.stop().await?;
    stop_server(server)?;
    let others = others.took();
    screen.print(&others_in_words(others))?;
    match report.refused() {
        0 => Ok(Figures { comparisons: report.comparisons(), others }),
        refused => Err(format!("{refused} requests were refused, and none should have been").into()),
    }
}

/// The nodes and the server that they share.
struct Bench {
    options: Options,
    server: Arc<PgServer>,
    nodes: Nodes,
    /// The number of the node that owns each shard.
    owners: Vec<usize>,
}

/// Requests of one measurement.
struct Requests<'a> {
    /// The prefix of the namespaces' names, which no other measurement uses.
    purpose: &'a str,
    route: Route,
    load: Load,
}

impl Bench {
    async fn measure(&mut self, part: Part, report: &mut Report) -> Result<(), Failed> {
        self.owners = self.nodes.owners().await?;
        let (single, batch) = (self.load(None), self.load(Some(self.options.batch)));
        let row = match part {
            Part::Ledger => self.measure_family(part, Family::Ledger, single).await?,
            Part::LedgerBatch => self.measure_family(part, Family::Ledger, batch).await?,
            Part::SqlLedger => self.measure_sql_ledger(single).await?,
            Part::Checks => self.measure_family(part, Family::Checks, single).await?,
            Part::Counters => self.measure_family(part, Family::Counters, single).await?,
            Part::CountersBatch => self.measure_family(part, Family::Counters, batch).await?,
            Part::SqlCounters => self.measure_sql_counters(single).await?,
            Part::Locks => self.measure_family(part, Family::Locks, single).await?,
            Part::Events => self.measure_family(part, Family::Events, single).await?,
            Part::Latency => {
                report.latencies = self.measure_latencies().await?;
                return Ok(());
            }
            Part::Moves => {
                report.moves = moves::measure(&mut self.nodes, &self.options.records).await?;
                return Ok(());
            }
        };
        report.rows.push(row);
        Ok(())
    }

    fn load(&self, batch: Option<usize>) -> Load {
        self.options.connections.load(batch)
    }

    /// Processor time that PostgreSQL has taken so far.
    fn database_time(&self) -> Result<Duration, Failed> {
        Ok(machine::family_cpu_time(self.server.pid()?))
    }

    /// Measures requests for all shards, sent to all nodes.
    async fn measure_family(&self, part: Part, family: Family, load: Load) -> Result<Row, Failed> {
        let purpose = part.name();
        let (measured, database) =
            self.request(family, Requests { purpose: &purpose, route: Route::Any, load }).await?;
        Ok(Row { part, load, measured, database })
    }

    /// Measures a request that waits for the database and one that does not, sent to the owner and to another node, with one
    /// client and with many.
    async fn measure_latencies(&self) -> Result<Vec<Latency>, Failed> {
        let mut latencies = Vec::new();
        for (family, request) in [(Family::Checks, "check, relaxed"), (Family::Ledger, "hold or commit")] {
            for connections in [1, self.load(None).connections] {
                for (route, sent_to) in [(Route::Local, "the owner"), (Route::Forwarded, "another node")] {
                    let purpose = format!("latency-{}", latencies.len());
                    let load = Load { connections, batch: 1 };
                    let (measured, _) =
                        self.request(family, Requests { purpose: &purpose, route, load }).await?;
                    latencies.push(Latency { request, sent_to, connections, measured });
                }
            }
        }
        Ok(latencies)
    }

    /// Sends the requests of a family to the nodes. Returns the processor time of PostgreSQL as well.
    async fn request(&self, family: Family, requests: Requests<'_>) -> Result<(Measured, Duration), Failed> {
        let each = self.options.each;
        let case = Case::simple(each);
        match family {
            Family::Ledger => {
                let work = ledger::workload::Work::new(each, 1);
                self.prepare(requests.purpose, |mut connection| {
                    let limits = work.limits.clone();
                    async move { ledger::workload::Client::create(&mut connection, &limits).await }
                })
                .await?;
                self.drive(requests, |phase, client| Operations::new(work.clone(), phase.name(), client))
                    .await
            }
            Family::Checks => {
                self.prepare(requests.purpose, move |mut connection| async move {
                    limiter::workload::Client::create(&mut connection, case, 0).await
                })
                .await?;
                self.drive(requests, |_, client| Checks::new(case, client)).await
            }
            Family::Counters => {
                self.prepare(requests.purpose, |mut connection| async move {
                    limiter::http::create_counters(&mut connection).await
                })
                .await?;
                self.drive(requests, |_, client| Checks::new(case, client)).await
            }
            Family::Locks => self.drive(requests, |_, client| Pairs::new(client)).await,
            Family::Events => {
                self.prepare(requests.purpose, |mut connection| async move {
                    events::workload::Client::put(&mut connection, Duration::from_secs(1)).await
                })
                .await?;
                self.drive(requests, |phase, client| Submissions::new(Keys::Distinct(phase.name()), client))
                    .await
            }
        }
    }

    /// Prepares each namespace with a connection of its own.
    async fn prepare<F>(&self, purpose: &str, make: impl Fn(Connection) -> F) -> Result<(), Failed>
    where
        F: Future<Output = Result<(), Failed>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for namespace in self.nodes.namespaces(purpose, self.owners.len()).await? {
            let mut connection = self.nodes.connect().await?.connection;
            connection.enter(&namespace);
            tasks.spawn(make(connection));
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Warms up and measures. `work` makes the work of a client, by the client's number.
    async fn drive<W: Work<Connection>>(
        &self,
        requests: Requests<'_>,
        work: impl Fn(Phase, usize) -> W,
    ) -> Result<(Measured, Duration), Failed> {
        let namespaces = self.nodes.namespaces(requests.purpose, self.owners.len()).await?;
        let namespaces = requests.route.choose(&namespaces, &self.owners, self.nodes.count());
        let drive = async |phase, time| {
            let work = |client| Spread::new(namespaces.clone(), client, work(phase, client));
            drive(&self.nodes, requests.load, Until::Time(time), work).await
        };
        drive(Phase::WarmUp, self.options.seconds / 5).await?;
        let before = self.database_time()?;
        let measured = drive(Phase::Measured, self.options.seconds).await?;
        Ok((measured, self.database_time()?.saturating_sub(before)))
    }

    async fn measure_sql_ledger(&self, load: Load) -> Result<Row, Failed> {
        let contender = Database::<ledger::postgres::Session>::create(self.server.clone()).await?;
        let work = ledger::workload::Work::new(self.options.each * self.owners.len(), 1);
        ledger::workload::create(&contender, &work).await?;
        let operations = |phase: Phase, client| Operations::new(work.clone(), phase.name(), client);
        self.drive_sql(Part::SqlLedger, contender, load, operations).await
    }

    async fn measure_sql_counters(&self, load: Load) -> Result<Row, Failed> {
        let contender = Database::<limiter::postgres::Session>::create(self.server.clone()).await?;
        let case = Case::simple(self.options.each * self.owners.len());
        limiter::workload::Client::create(&mut contender.connect().await?, case, 0).await?;
        self.drive_sql(Part::SqlCounters, contender, load, |_, client| Checks::new(case, client)).await
    }

    async fn drive_sql<C: Contender, W: Work<C::Client>>(
        &self,
        part: Part,
        contender: C,
        load: Load,
        work: impl Fn(Phase, usize) -> W,
    ) -> Result<Row, Failed> {
        let mut measured = warm_up_and_measure(&contender, load, self.options.seconds, work).await?;
        contender.stop().await?;
        let database = measured.server_cpu.take().unwrap_or_default();
        Ok(Row { part, load, measured, database })
    }
}
