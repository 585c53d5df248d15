//! Measures Limina: `cargo run --release -p limina-bench -- ledger …`.
//!
//! A figure of this program is worth something only beside the others of the same run: machines differ, and the same
//! machine differs from minute to minute.

mod in_process;
mod measure;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Limina, and the same work done by others, side by side.
#[derive(Parser)]
#[command(name = "limina-bench", version)]
enum Cli {
    /// Holds and commits.
    Ledger(in_process::Options),
}

fn main() -> Result<(), in_process::Failed> {
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match Cli::parse() {
        Cli::Ledger(options) => runtime.block_on(in_process::run(options)),
    }
}
