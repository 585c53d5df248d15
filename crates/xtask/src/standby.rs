//! The fail-over of PostgreSQL itself: a synchronous standby is promoted under load, round after round.

use std::process::Command;

use crate::{Outcome, packages};

const TEST: &str = "standby::whichever_server_is_lost_nothing_acknowledged_is_lost";

/// Every kind of loss, with a standby that is waited for and with one that is not.
const ROUNDS: u64 = 6;

/// `--rounds N`.
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
    test.args(["--ignored", "--exact", "--nocapture", TEST]).env("STANDBY_ROUNDS", rounds.to_string());
    crate::run(test)
}
