//! What a developer runs after each change: minutes less than everything, and nothing to install.

use crate::{
    program::{self, Outcome, describe, target_directory},
    test, test_binaries,
};
use std::{process::Command, time::Instant};

/// The crates whose tests run: those that need no server, no database and no disk that fails.
const TESTED: &[&str] = &[
    "limina-access",
    "limina-engine",
    "limina-envoy",
    "limina-node",
    "limina-shard",
    "limina-sim",
    "limina-stomp",
    "limina-wire",
];

pub(crate) fn run() -> Outcome {
    let begin = Instant::now();
    test::check_text()?;
    let target_directory = target_directory()?;
    let environment = test::build_environment(&target_directory)?;
    let packages: Vec<&str> = TESTED.iter().flat_map(|name| ["--package", name]).collect();
    let (jobs, _) = test_binaries::build(&environment, &packages)?;
    test_binaries::run(jobs, &target_directory, &environment)?;
    let mut lint = Command::new(env!("CARGO"));
    lint.args(["check", "--tests"]).args(test_binaries::WHAT);
    lint.envs(environment);
    println!("xtask: {}, which is the lint of everything else", describe(&lint));
    program::run(lint)?;
    println!("xtask: ended after {}", test::took(begin));
    Ok(())
}
