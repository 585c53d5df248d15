//! The benchmark at a tiny size, so that it cannot rot. Nothing here depends on how fast anything is.

use std::process::{Command, Output};

const BENCH: &str = env!("CARGO_BIN_EXE_limina-bench");

fn ledger(args: &[&str]) -> Output {
    let mut command = Command::new(BENCH);
    // Its own server, since a `limina` beside it may be of another day.
    command.args(["ledger", "--limina", BENCH, "--data", env!("CARGO_TARGET_TMPDIR")]).args(args);
    command.output().expect("the benchmark runs")
}

/// The cells of a table's row, by the words that it begins with; each table has one of them at most.
fn rows<'a>(output: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let cells = output.lines().map(|line| line.split('|').map(str::trim).skip(1).collect::<Vec<_>>());
    cells.filter(|cells| cells.first() == Some(&name)).collect()
}

#[test]
fn every_contender_but_the_rivals_does_the_work() {
    let output = ledger(&[
        "--seconds=0.2",
        "--connections=3",
        "--batch=7",
        "--batch-connections=2",
        "--limits=10",
        "--changes=2",
        "--fill=30",
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for name in ["in-process", "in-process-batch", "http", "http-batch", "echo"] {
        let rows = rows(&text, name);
        assert_eq!(rows.len(), if name == "echo" { 1 } else { 2 }, "{name} in:\n{text}");
        assert!(rows[0][2].parse::<u64>().unwrap() > 0, "{name} did nothing:\n{text}");
        assert_eq!(rows[0][8], "0", "{name} was refused something:\n{text}");
        assert!(rows.get(1).is_none_or(|filled| filled[1] == "30"), "{name} in:\n{text}");
    }
    for name in ["latest", "as of a random operation"] {
        assert!(rows(&text, name)[0][1].parse::<u64>().unwrap() > 0, "{name} in:\n{text}");
    }
}

#[test]
fn what_cannot_be_measured_is_said() {
    #[track_caller]
    fn check(args: &[&str], expect: &str) {
        let output = ledger(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expect), "{text}");
    }
    check(&["--only=redis"], "a rival must be named by --rivals");
    check(&["--changes=3", "--limits=2"], "more limits than there are");
    check(&["--seconds=-1"], "--seconds");
}
