//! What a developer runs after each change: minutes less than everything, and nothing to install.

use crate::{
    program::{self, Outcome, describe},
    test, test_binaries,
};
use std::{process::Command, time::Instant};

pub(crate) fn run() -> Outcome {
    let begin = Instant::now();
    test::check_text()?;
    let environment = test::build_environment()?;
    test_binaries::run_self_contained(&environment)?;
    let mut lint = Command::new(env!("CARGO"));
    lint.args(["check", "--tests"]).args(test_binaries::WHAT);
    lint.envs(environment);
    println!("xtask: {}, which is the lint of everything else", describe(&lint));
    program::run(lint)?;
    println!("xtask: ended after {}", test::took(begin));
    Ok(())
}
