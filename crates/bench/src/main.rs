//! Measures Limina: `cargo run --profile dist -p limina-bench -- ledger …`, `limiter …`, `envoy …`, `locks …`,
//! `events …`, `decisions …`, `cluster …`, `overload …`, or `all …`, which also writes the summary of `docs/benchmarks.md`.
//!
//! Compare figures only within one run: machines differ, and the same machine differs from minute to minute. So in one
//! run every contender does the same work, one after the other.
//!
//! `frame` runs the measurements and prints the table that all families share. A family is a folder. Read its
//! `workload.rs` first, which defines the work and what a client must be able to do. `in_process.rs`, `http.rs`,
//! `redis.rs` and so on implement that for one system each.

mod all;
mod cluster;
mod decisions;
mod echo;
mod envoy;
mod events;
mod failed;
mod frame;
mod http;
mod in_process;
mod ledger;
mod limiter;
mod load;
mod locks;
mod machine;
mod measure;
mod namespaces;
mod overload;
mod postgres;
mod process;
mod redis;
mod serve;
mod summary;

use clap::{Parser, Subcommand};
use failed::Failed;
use frame::{Bench, Screen};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Limina and other systems that do the same work
#[derive(Parser)]
#[command(name = "limina-bench", version)]
enum Cli {
    #[command(flatten)]
    Family(Family),
    /// All families; writes the summary and the charts of docs/benchmarks.md
    All(all::Options),
    /// Limina as a server, used if there is no `limina` next to this program
    #[command(hide = true)]
    Serve(serve::Options),
    /// A server that only parses and answers
    #[command(hide = true)]
    Echo,
}

#[derive(Subcommand)]
enum Family {
    /// Holds and commits
    Ledger(ledger::Options),
    /// Checks
    Limiter(limiter::Options),
    /// Envoy's rate limit service
    Envoy(envoy::Options),
    /// Locks that are acquired, waited for, and extended
    Locks(locks::Options),
    /// Events that are submitted and delivered to followers
    Events(events::Options),
    /// Decisions over several families, settled later, beside separate calls
    Decisions(decisions::Options),
    /// Ledger, limiter, locks and events with several nodes on PostgreSQL, and shards that move to another node
    Cluster(cluster::Options),
    /// More requests than the server can do
    Overload(overload::Options),
}

impl Family {
    /// Plans what the options choose.
    fn bench(self) -> Result<Box<dyn Bench>, Failed> {
        match self {
            Family::Ledger(options) => ledger::bench(options),
            Family::Limiter(options) => limiter::bench(options),
            Family::Envoy(options) => envoy::bench(options),
            Family::Locks(options) => locks::bench(options),
            Family::Events(options) => events::bench(options),
            Family::Decisions(options) => decisions::bench(options),
            Family::Cluster(options) => cluster::bench(options),
            Family::Overload(options) => overload::bench(options),
        }
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let cli = Cli::parse();
    let run = async {
        match cli {
            Cli::Family(family) => {
                let bench = family.bench()?;
                let screen = Screen::new(bench.plan());
                bench.run(&screen).await.map(drop)
            }
            Cli::All(options) => all::run(options).await,
            Cli::Serve(options) => serve::run(options).await,
            Cli::Echo => echo::run().await,
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(Failed::from).and_then(|runtime| runtime.block_on(run)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limina-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
