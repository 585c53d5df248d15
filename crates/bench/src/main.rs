//! Measures Limina: `cargo run --release -p limina-bench -- ledger …`, `limiter …`, `envoy …`, `locks …`,
//! `events …`, `decisions …`, `cluster …` or `overload …`.
//!
//! Compare figures only within one run: machines differ, and the same machine differs from minute to minute. So in one
//! run every contender does the same work, one after the other.
//!
//! `frame` runs the measurements and prints the table that all families share. A family is a folder. Read its
//! `workload.rs` first, which defines the work and what a client must be able to do. `in_process.rs`, `http.rs`,
//! `redis.rs` and so on implement that for one system each.

mod cluster;
mod decisions;
mod echo;
mod envoy;
mod events;
mod frame;
mod http;
mod in_process;
mod ledger;
mod limiter;
mod load;
mod locks;
mod machine;
mod measure;
mod overload;
mod postgres;
mod process;
mod redis;
mod serve;

use clap::Parser;
use std::{error::Error, process::ExitCode};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An error that ends the program. It is printed; no code distinguishes its causes.
type Failed = Box<dyn Error + Send + Sync>;

/// Measures Limina and other systems that do the same work
#[derive(Parser)]
#[command(name = "limina-bench", version)]
enum Cli {
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
    /// Limina as a server, used if there is no `limina` next to this program
    #[command(hide = true)]
    Serve(serve::Options),
    /// A server that only parses and answers
    #[command(hide = true)]
    Echo,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let cli = Cli::parse();
    let run = async {
        match cli {
            Cli::Ledger(options) => ledger::run(options).await,
            Cli::Limiter(options) => limiter::run(options).await,
            Cli::Envoy(options) => envoy::run(options).await,
            Cli::Locks(options) => locks::run(options).await,
            Cli::Events(options) => events::run(options).await,
            Cli::Decisions(options) => decisions::run(options).await,
            Cli::Cluster(options) => cluster::run(options).await,
            Cli::Overload(options) => overload::run(options).await,
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
