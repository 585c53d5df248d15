//! Runs the test of a fail-over of PostgreSQL: under load, a synchronous standby is promoted, round after round.

use std::process::Command;

use crate::{
    packages,
    program::{self, Outcome},
};

const TEST: &str = "standby::nothing_acknowledged_is_lost_with_either_database_server";

/// Enough rounds for every kind of loss, with a standby that commits wait for and with one that they do not wait for.
const ROUNDS: u64 = 6;

/// Option: `--rounds N`.
pub(crate) fn run(args: &[String]) -> Outcome {
    let rounds = match args {
        [] => ROUNDS,
        [name, rounds] if name == "--rounds" => {
            rounds.parse().map_err(|_| format!("{name} takes a number"))?
        }
        _ => return Err("standby takes --rounds N".into()),
    };
    packages::install(&[packages::POSTGRES])?;
    let mut test = Command::new(env!("CARGO"));
    test.args(["test", "--package", "limina", "--test", "cluster", "--"]);
    test.args(["--exact", "--nocapture", TEST]).env("STANDBY_ROUNDS", rounds.to_string());
    program::run(test)
}
