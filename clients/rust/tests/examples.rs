//! The examples run against the real server.

use crate::servers::Server;
use std::process::Command;

/// Runs an example, which cargo has built beside this test program.
fn run(example: &str, arguments: &[&str], server: &Server) -> String {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(example);
    let output = Command::new(&program)
        .args(arguments)
        .env("LIMINA_URL", &server.url)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_job_runs_under_its_lock() {
    let Some(server) = Server::start() else { return };
    let output = run("nightly_report", &[], &server);
    assert!(output.starts_with("running with fencing token") && output.ends_with("done\n"), "{output}");
}

#[test]
fn the_benchmark_measures_something() {
    let Some(server) = Server::start() else { return };
    let output = run("bench", &["0.1"], &server);
    assert!(output.contains("batching takes"), "{output}");
}
