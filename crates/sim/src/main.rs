//! Runs seeds: `limina-sim --seeds 1000`, `limina-sim --seed 42 --verbose`, `limina-sim --ownership --seeds 1000`.

use limina_sim::{
    ownership,
    world::{self, Options, Report},
};
use std::{fmt::Debug, process::ExitCode};

fn main() -> ExitCode {
    let mut seeds = 100;
    let mut from = 0;
    let mut is_of_ownership = false;
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|text| text.parse::<u64>().ok());
        match (arg.as_str(), &mut from, &mut seeds) {
            ("--verbose", ..) => options.verbose = true,
            ("--ownership", ..) => is_of_ownership = true,
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
    let seeds = from..from + seeds;
    if is_of_ownership {
        let mut total = ownership::Report::default();
        let run = |seed, is_verbose| ownership::run(seed, is_verbose);
        let failed = run_all(seeds, options.verbose, run, |report| total.add(&report), "--ownership");
        tell(&total, failed)
    } else {
        let mut total = Report::default();
        let run = |seed, verbose| world::run(seed, &Options { verbose, ..options.clone() });
        let words = format!("--requests {}", options.requests);
        let failed = run_all(seeds, options.verbose, run, |report| total.add(&report), &words);
        tell(&total, failed)
    }
}

/// Runs each seed twice, because a run must depend on nothing but its seed. Returns the number of failed seeds.
fn run_all<R: Debug + PartialEq>(
    seeds: std::ops::Range<u64>,
    is_verbose: bool,
    run: impl Fn(u64, bool) -> Result<R, String>,
    mut add: impl FnMut(R),
    words: &str,
) -> u64 {
    let mut failed = 0;
    for seed in seeds {
        let both = run(seed, is_verbose).and_then(|first| Ok((first, run(seed, false)?)));
        let problem = match both {
            Ok((first, again)) if first == again => {
                add(first);
                continue;
            }
            Ok((first, again)) => format!("seed {seed}: two runs differ: {first:?}, {again:?}"),
            Err(problem) => problem,
        };
        failed += 1;
        println!("{problem}\nreplay: cargo xtask sim {words} --seed {seed} --verbose");
    }
    failed
}

fn tell(total: &impl Debug, failed: u64) -> ExitCode {
    println!("{total:?}");
    println!("{failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: limina-sim [--ownership] [--seeds N] [--from SEED] [--seed SEED] [--requests N] [--verbose]"
    );
    ExitCode::FAILURE
}
