//! Runs the fail-over test for longer than `cargo test` does: nodes are killed, paused and stopped under load.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::program::{self, Outcome};

const TEST: &str = "chaos::nothing_acknowledged_is_lost_under_random_faults";

/// Options: `--minutes N`, and `--seed S` to repeat a run.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (mut minutes, mut seed) = (1, now());
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().and_then(|value| value.parse().ok());
        let value = value.ok_or_else(|| format!("{name} takes a number"))?;
        match name.as_str() {
            "--minutes" => minutes = value,
            "--seed" => seed = value,
            _ => return Err(format!("chaos has no option {name}")),
        }
    }
    println!("xtask: chaos for {minutes} min with --seed {seed}");
    let mut test = Command::new(env!("CARGO"));
    test.args(["test", "--package", "limina", "--test", "cluster", "--", "--exact", "--nocapture", TEST]);
    test.env("CHAOS_MINUTES", minutes.to_string()).env("CHAOS_SEED", seed.to_string());
    program::run(test)
}

/// The time in seconds, which is a different seed each time.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
