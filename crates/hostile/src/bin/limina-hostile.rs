//! `limina-hostile`: plays hostile scenarios to `limina`. `cargo xtask hostile` builds and runs it.

use clap::Parser;
use limina_hostile::{Failed, Outcome, Scenario, Settings};
use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Plays hostile clients to a server, and watches its memory and an honest client's latency
#[derive(Parser)]
#[command(name = "limina-hostile", version)]
struct Cli {
    /// Names of scenarios; all of them if none is named
    scenarios: Vec<String>,
    /// Lists the scenarios
    #[arg(long)]
    list: bool,
    /// Repeats the scenarios until this many minutes have passed; without it each is played once
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// The server's program [default: `limina` in the folder of this program]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Plays everything at a thousandth of its size, to see that it works
    #[arg(long)]
    tiny: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("limina-hostile: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every bound was kept.
fn run(cli: Cli) -> Result<bool, Failed> {
    let scenarios = select(&cli.scenarios)?;
    if cli.list {
        for scenario in &scenarios {
            println!("{:20} {}", scenario.name, scenario.summary);
        }
        return Ok(true);
    }
    let server = match cli.server {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("limina"),
    };
    let settings = if cli.tiny { Settings::tiny(server) } else { Settings::full(server) };
    let until = Instant::now() + Duration::from_secs(60 * cli.minutes.unwrap_or(0));
    let mut is_kept = true;
    loop {
        let outcomes: Vec<Outcome> = scenarios.iter().map(|scenario| scenario.run(&settings)).collect();
        limina_hostile::print(&outcomes);
        is_kept &= outcomes.iter().all(Outcome::is_kept);
        if Instant::now() >= until {
            return Ok(is_kept);
        }
    }
}

fn select(names: &[String]) -> Result<Vec<Scenario>, Failed> {
    let mut all = limina_hostile::all();
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|scenario| scenario.name == **name)) {
        return Err(format!("there is no scenario {unknown}; --list lists them").into());
    }
    if !names.is_empty() {
        all.retain(|scenario| names.iter().any(|name| name == scenario.name));
    }
    Ok(all)
}
