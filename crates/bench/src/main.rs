//! Measures Limina: `cargo run --release -p limina-bench -- ledger …`, `limiter …`, `locks …`, `events …` or
//! `cluster …`.
//!
//! A figure of this program is worth something only beside the others of the same run: machines differ, and the same
//! machine differs from minute to minute. So one run has every contender do the same work, one after the other.
//!
//! Read a family's `workload.rs` first: it says what the work is, and what a contender has to be able to do. Each other
//! file of that folder is one contender, but for `report.rs`, which prints. What families share stands beside them.

mod cluster;
mod echo;
mod events;
mod http;
mod in_process;
mod ledger;
mod limiter;
mod load;
mod locks;
mod machine;
mod measure;
mod options;
mod postgres;
mod process;
mod redis;
mod report;
mod serve;

use clap::Parser;
use std::{error::Error, process::ExitCode};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Anything that ends a measurement; it is printed, and never told apart.
type Failed = Box<dyn Error + Send + Sync>;

/// Measures Limina, and the same work done by others, side by side.
#[derive(Parser)]
#[command(name = "limina-bench", version)]
enum Cli {
    /// Holds and commits
    Ledger(ledger::Options),
    /// Checks
    Limiter(limiter::Options),
    /// Locks held, waited for, and extended
    Locks(locks::Options),
    /// Events submitted, and told to those who follow
    Events(events::Options),
    /// All of these with several nodes on PostgreSQL, and what becomes of shards whose node is gone
    Cluster(cluster::Options),
    /// Limina as a server, for when there is no `limina` beside this program
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
            Cli::Locks(options) => locks::run(options).await,
            Cli::Events(options) => events::run(options).await,
            Cli::Cluster(options) => cluster::run(options).await,
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
