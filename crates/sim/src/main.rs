//! Runs seeds: `limina-sim --seeds 1000`, `limina-sim --seed 42 --verbose`.

use limina_sim::world::{self, Options, Report};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut seeds = 100;
    let mut from = 0;
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|text| text.parse::<u64>().ok());
        match (arg.as_str(), &mut from, &mut seeds) {
            ("--verbose", ..) => options.verbose = true,
            ("--seeds", _, seeds) => match number() {
                Some(n) => *seeds = n,
                None => return usage(),
            },
            ("--from", from, _) => match number() {
                Some(n) => *from = n,
                None => return usage(),
            },
            ("--requests", ..) => match number() {
                Some(n) => options.requests = n,
                None => return usage(),
            },
            ("--seed", from, seeds) => match number() {
                Some(n) => (*from, *seeds) = (n, 1),
                None => return usage(),
            },
            _ => return usage(),
        }
    }
    let mut total = Report::default();
    let mut failed = 0;
    for seed in from..from + seeds {
        match run_twice(seed, &options) {
            Ok(report) => total.add(&report),
            Err(problem) => {
                failed += 1;
                println!(
                    "{problem}\nreplay: cargo xtask sim --seed {seed} --requests {} --verbose",
                    options.requests
                );
            }
        }
    }
    println!("{total:?}");
    println!("{} passed, {failed} failed", seeds - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A run must depend on nothing but its seed.
fn run_twice(seed: u64, options: &Options) -> Result<Report, String> {
    let report = world::run(seed, options)?;
    let again = world::run(seed, &Options { verbose: false, ..options.clone() })?;
    if report == again {
        Ok(report)
    } else {
        Err(format!("seed {seed}: two runs differ: {report:?}, {again:?}"))
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: limina-sim [--seeds N] [--from SEED] [--seed SEED] [--requests N] [--verbose]");
    ExitCode::FAILURE
}
