//! The benchmark at a tiny size, so that it cannot rot. Nothing here depends on how fast anything is.

use std::{
    fs,
    process::{Command, Output},
};

const BENCH: &str = env!("CARGO_BIN_EXE_limina-bench");

fn bench(family: &str, args: &[&str]) -> Output {
    let mut command = Command::new(BENCH);
    // Its own server, since a `limina` beside it may be of another day.
    command.args([family, "--limina", BENCH, "--data", env!("CARGO_TARGET_TMPDIR")]).args(args);
    command.output().expect("the benchmark runs")
}

/// What it prints, if all goes well.
#[track_caller]
fn printed(family: &str, args: &[&str]) -> String {
    let output = bench(family, args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The cells of a table's row, by the words that it begins with; each table has one of them at most.
fn rows<'a>(output: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let cells = output.lines().map(|line| line.split('|').map(str::trim).skip(1).collect::<Vec<_>>());
    cells.filter(|cells| cells.first() == Some(&name)).collect()
}

/// The ways to Limina, for families that have them all.
const LIMINA: [&str; 6] =
    ["in-process", "in-process-batch", "http", "http-batch", "http-namespaces", "http-batch-namespaces"];

#[test]
fn every_contender_but_the_rivals_does_the_work_of_the_ledger() {
    let text = printed(
        "ledger",
        &[
            "--seconds=0.2",
            "--connections=3",
            "--batch=7",
            "--batch-connections=2",
            "--limits=10",
            "--changes=2",
            "--fill=30",
        ],
    );
    for name in LIMINA.into_iter().chain(["echo"]) {
        let rows = rows(&text, name);
        assert_eq!(rows.len(), if name == "echo" { 1 } else { 2 }, "{name} in:\n{text}");
        assert!(rows[0][2].parse::<u64>().unwrap() > 0, "{name} did nothing:\n{text}");
        assert_eq!(rows[0][9], "0", "{name} was refused something:\n{text}");
        assert!(rows.get(1).is_none_or(|filled| filled[1] == "30"), "{name} in:\n{text}");
    }
    for name in ["latest", "as of an operation that held in it", "as of any operation"] {
        assert!(rows(&text, name)[0][1].parse::<u64>().unwrap() > 0, "{name} in:\n{text}");
    }
}

#[test]
fn every_contender_but_the_rivals_does_the_work_of_envoy() {
    let text = printed("envoy", &["--seconds=0.1", "--connections=3", "--clients=10"]);
    for name in ["grpc-1", "grpc-4", "check"] {
        let rows = rows(&text, name);
        assert!(rows[0][2].parse::<u64>().unwrap() > 0, "{name} did nothing:\n{text}");
    }
}

#[test]
fn every_contender_but_the_rivals_does_the_work_of_the_limiter() {
    let text = printed(
        "limiter",
        &[
            "--seconds=0.1",
            "--rounds=2",
            "--connections=3",
            "--batch=7",
            "--batch-connections=2",
            "--clients=10",
            "--rules=3,40",
            "--matching=1,4",
            "--groups=5,20",
            "--counters=300",
        ],
    );
    #[track_caller]
    fn check(text: &str, name: &str, count: usize, column: usize) {
        let rows = rows(text, name);
        assert_eq!(rows.len(), count, "{name} in:\n{text}");
        for row in rows {
            assert!(row[column].parse::<u64>().unwrap() > 0, "{name} did nothing:\n{text}");
        }
    }
    for name in LIMINA.into_iter().chain(["echo", "echo-batch"]) {
        check(&text, name, 1, 2);
    }
    // One rule; two numbers of rules, the larger with all or few asked for, of which 1 or 4 apply; two numbers of groups.
    check(&text, "fixed", 1 + 2 * 3 + 2, 5);
    check(&text, "counters", 2, 5);
    for name in ["sliding", "bucket", "refused"] {
        check(&text, name, 1, 5);
    }
    // Two numbers of rules of which 1 or 4 apply, and two numbers of groups.
    for way in ["in-process", "http", "http-batch"] {
        check(&text, &format!("rules, {way}"), 2 * 2, 4);
        check(&text, &format!("groups, {way}"), 2, 4);
    }
    for name in ["before", "create, a group for each", "another selection", "other groups", "delete", "after"]
    {
        // Once in each round.
        check(&text, name, 2 * 2, 3);
    }
}

#[test]
fn decisions_are_made_together_and_by_separate_calls() {
    let text = printed(
        "decisions",
        &["--seconds=0.1", "--connections=3", "--batch=7", "--batch-connections=2", "--tenants=10"],
    );
    let ways = ["http-1", "http-3", "http-8", "http-batch-1", "http-batch-3", "http-batch-8"];
    for name in ways.into_iter().chain(["in-process", "separate-1", "separate-3", "separate-8"]) {
        let rows = rows(&text, name);
        assert_eq!(rows.len(), 1, "{name} in:\n{text}");
        assert!(rows[0][2].parse::<u64>().unwrap() > 0, "{name} did nothing:\n{text}");
        assert_eq!(rows[0][9], "0", "{name} was refused something:\n{text}");
    }
}

#[test]
fn every_contender_but_the_rivals_does_the_work_of_locks() {
    let text = printed(
        "locks",
        &[
            "--seconds=0.1",
            "--rounds=2",
            "--connections=3",
            "--contended-connections=5",
            "--paced-connections=4",
            "--locks=20",
            "--pace=200",
        ],
    );
    for name in [
        "in-process",
        "http",
        "echo",
        "in-process-contended",
        "http-contended",
        "in-process-heartbeats",
        "http-heartbeats",
        "http-paced",
    ] {
        let rows = rows(&text, name);
        assert_eq!(rows.len(), 1, "{name} in:\n{text}");
        assert!(rows[0][2].parse::<u64>().unwrap() > 0, "{name} did nothing:\n{text}");
    }
}

#[test]
fn every_contender_but_the_rivals_does_the_work_of_events() {
    let text = printed(
        "events",
        &[
            "--seconds=0.2",
            "--connections=3",
            "--duration=0.1",
            "--subscribers=5",
            "--rates=50,100",
            "--due=100",
        ],
    );
    for name in ["in-process", "http", "in-process-hot", "http-hot"] {
        let rows = rows(&text, name);
        assert_eq!(rows.len(), 1, "{name} in:\n{text}");
        assert!(rows[0][2].parse::<u64>().unwrap() > 0, "{name} did nothing:\n{text}");
    }
    for rate in ["50", "100"] {
        let rows = rows(&text, rate);
        assert!(rows[0][3].parse::<u64>().unwrap() > 0, "nothing was delivered:\n{text}");
        assert_eq!(rows[0][4], "0", "something was not delivered:\n{text}");
    }
    assert!(rows(&text, "while they fall due")[0][1].parse::<u64>().unwrap() > 0, "in:\n{text}");
}

#[test]
fn several_nodes_and_sql_do_the_work_of_all_families() {
    let text = printed(
        "cluster",
        &[
            "--seconds=0.2",
            "--nodes=2",
            "--connections=3",
            "--batch=7",
            "--batch-connections=2",
            "--each=2",
            "--records=10",
            "--tenure=1",
        ],
    );
    for name in [
        "ledger",
        "ledger-batch",
        "sql-ledger",
        "checks",
        "counters",
        "counters-batch",
        "sql-counters",
        "locks",
        "events",
    ] {
        let rows = rows(&text, name);
        assert_eq!(rows.len(), 1, "{name} in:\n{text}");
        assert!(rows[0][2].parse::<u64>().unwrap() > 0, "{name} did nothing:\n{text}");
    }
    for name in ["check, relaxed", "hold or commit"] {
        let rows = rows(&text, name);
        let asked: Vec<_> = rows.iter().map(|row| (row[1], row[2])).collect();
        let expect = [("the owner", "1"), ("another node", "1"), ("the owner", "3"), ("another node", "3")];
        assert_eq!(asked, expect, "{name} in:\n{text}");
        assert!(rows.iter().all(|row| row[3].parse::<u64>().unwrap() > 0), "{name} did nothing:\n{text}");
    }
    for name in ["hand-over", "take-over"] {
        assert_eq!(rows(&text, name)[0][1..3], ["10", "32"], "{name} in:\n{text}");
    }
}

#[test]
fn overload_is_measured() {
    let text = printed("overload", &["--seconds=0.2", "--connections=20", "--batch=3", "--times=2"]);
    for name in ["unloaded", "at capacity, accepted", "overload, accepted", "honest client, accepted"] {
        assert!(rows(&text, name)[0][2].parse::<f64>().unwrap() > 0.0, "{name} in:\n{text}");
    }
    for bound in ["p99 of accepted requests", "p99 of refusals", "recovery"] {
        assert!(text.contains(bound), "{bound} in:\n{text}");
    }
}

#[test]
fn all_families_write_a_summary_with_charts() {
    let docs = format!("{}/docs", env!("CARGO_TARGET_TMPDIR"));
    let marks = ["<!-- `limina-bench all` writes everything from here -->\n", "<!-- to here -->\n"];
    fs::create_dir_all(&docs).unwrap();
    fs::write(format!("{docs}/benchmarks.md"), format!("before\n{}old\n{}after\n", marks[0], marks[1]))
        .unwrap();
    let text = printed("all", &["--seconds=0.1", "--only=envoy", "--docs", &docs]);
    assert!(text.contains("# envoy\n") && text.contains("| grpc-1 "), "{text}");
    let read = |name: &str| fs::read_to_string(format!("{docs}/{name}")).unwrap();
    let page = read("benchmarks.md");
    let (before, rest) = page.split_once(marks[0]).unwrap();
    let (summary, after) = rest.split_once(marks[1]).unwrap();
    assert_eq!((before, after), ("before\n", "after\n"));
    assert!(!summary.contains("old") && summary.contains("(benchmarks/envoy.svg)"), "{summary}");
    assert!(rows(summary, "envoy")[0][3].starts_with("**"), "{summary}");
    assert!(read("benchmarks/envoy.svg").contains("ShouldRateLimit, 4 descriptors"));
}

#[test]
fn unusable_options_are_reported() {
    #[track_caller]
    fn check(family: &str, args: &[&str], expect: &str) {
        let output = bench(family, args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expect), "{text}");
    }
    check("ledger", &["--only=redis"], "a rival must be named by --rivals");
    check("ledger", &["--changes=3", "--limits=2"], "more limits than there are");
    check("ledger", &["--seconds=-1"], "--seconds");
    check("limiter", &["--only=governor"], "a rival must be named by --rivals");
    check("limiter", &["--groups=0"], "must be at least 1");
    check("locks", &["--only=redis-contended"], "a rival must be named by --rivals");
    check("locks", &["--locks=2"], "a lock for each connection");
    check("events", &["--only=redis"], "a rival must be named by --rivals");
    check("cluster", &["--nodes=1", "--only=moves"], "at least two nodes");
    check("all", &["--docs=nowhere"], "nowhere/benchmarks.md");
}
