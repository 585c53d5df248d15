//! More requests than a shard can do: how long the accepted ones take, how fast the others are refused, and how soon the
//! server is itself again.
//!
//! All requests go to one namespace, and so to one shard. Each is a batch of durable checks to which many rules apply: few
//! bytes and much work. So the shard is the bottleneck, and neither HTTP nor this program, which shares the processors with the
//! server.

mod clients;
mod report;

use crate::{
    Failed,
    frame::{
        Bench, Figures, Others, Place, Plan, Running, Screen, conditions, others_in_words, positive, seconds,
        with_warm_up,
    },
    http::{Connection, Http},
    load::Contender,
};
use clients::Clients;
use report::Report;
use std::time::{Duration, Instant};

/// The interval of the honest client's requests.
const HONEST_EVERY: Duration = Duration::from_millis(10);
/// Clients that send as fast as they are answered, to find out what the server can do. They are few, so that nothing is
/// refused: a refusal costs time, too.
const CAPACITY_CLIENTS: usize = 8;
/// The beginning of the overload is reported separately: a burst may fill the queue before anything is refused.
const ONSET: Duration = Duration::from_secs(2);
/// How long the honest client is watched after the load has ended.
const AFTERWARDS: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Duration of each measurement in seconds
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Offered load, as a multiple of the capacity
    #[arg(long, default_value_t = 5.0)]
    times: f64,
    /// Connections of the overload; each has at most one request in flight
    #[arg(long, default_value_t = 500, value_parser = positive)]
    connections: usize,
    /// Checks in one request
    #[arg(long, default_value_t = 60, value_parser = positive)]
    batch: usize,
    /// Rules that apply to each check
    #[arg(long, default_value_t = 16, value_parser = positive)]
    rules: usize,
    /// Fail if a bound is missed
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn bench(options: Options) -> Result<Box<dyn Bench>, Failed> {
    Ok(Box::new(Overload { options }))
}

struct Overload {
    options: Options,
}

impl Bench for Overload {
    fn plan(&self) -> Plan {
        self.options.planned().into_iter().collect()
    }

    fn run(self: Box<Self>, screen: &Screen) -> Running<'_> {
        Box::pin(run(self.options, screen))
    }
}

impl Options {
    /// The times of the three measurements.
    fn planned(&self) -> [Duration; 3] {
        let once = with_warm_up(self.seconds);
        [once, once, ONSET + self.seconds + AFTERWARDS]
    }
}

async fn run(options: Options, screen: &Screen) -> Result<Figures, Failed> {
    let program = options.place.program()?;
    screen.print(&conditions(&program, options.place.data())?)?;
    let directory = options.place.directory()?;
    let others = Others::watch();
    let server = Http::limina(&program, directory.path())?;
    create_rules(&mut server.connect().await?, options.rules).await?;
    let report = measure(&options, &server, screen).await?;
    server.stop().await?;
    let others = others.took();
    screen.print(&format!("\n{report}{}", others_in_words(others)))?;
    match report.missed() {
        missed if options.check && !missed.is_empty() => Err(format!("missed: {}", missed.join("; ")).into()),
        _ => Ok(Figures { comparisons: vec![report.comparison(options.batch)], others }),
    }
}

/// Creates rules without a window, whose checks are durable.
async fn create_rules(connection: &mut Connection, number: usize) -> Result<(), Failed> {
    for rule in 0..number {
        connection.json = format!(r#"{{"name":"rule {rule}","group_by":["client"],"limit":-1}}"#);
        connection.post_expecting("/limiter/rules", 201).await?;
    }
    Ok(())
}

async fn measure(options: &Options, server: &Http, screen: &Screen) -> Result<Report, Failed> {
    let [unloaded_time, capacity_time, overload_time] = options.planned();
    let request = clients::request(options.batch);
    let mut honest = Clients::connect(server, &request, 1).await?;
    let honest_rate = 1.0 / HONEST_EVERY.as_secs_f64();
    screen.begin("overload: the unloaded server".into(), unloaded_time);
    let now = Instant::now();
    honest.at_rate(honest_rate, now, now + options.seconds / 5).await?;
    let now = Instant::now();
    let (_, unloaded) = honest.at_rate(honest_rate, now, now + options.seconds).await?;
    screen.begin("overload: the capacity".into(), capacity_time);
    let mut clients = Clients::connect(server, &request, CAPACITY_CLIENTS).await?;
    clients.as_fast_as_answered(options.seconds / 5).await?;
    let capacity = clients.as_fast_as_answered(options.seconds).await?;
    drop(clients);
    let offered = capacity.accepted.rate() * options.times;
    let mut clients = Clients::connect(server, &request, options.connections).await?;
    screen.begin(format!("overload: {offered:.0} requests a second"), overload_time);
    let split = Instant::now() + ONSET;
    let end = split + options.seconds;
    let load = async {
        let tallies = clients.at_rate(offered, split, end).await?;
        Ok::<_, Failed>((tallies, Instant::now()))
    };
    let watch = honest.at_rate(honest_rate, split, end + AFTERWARDS);
    let (((onset, overload), load_ended), (_, honest)) = tokio::try_join!(load, watch)?;
    Ok(Report { times: options.times, offered, unloaded, capacity, onset, overload, honest, load_ended })
}
