//! The embedded table on a disk that fails while the store is in use.
//!
//! The table's library calls the C library directly, so each test runs in its own process with the faults preloaded:
//! the test starts itself again.

use crate::faults::Faults;
use bytes::Bytes;
use limina_store::{
    Answer, Journal, Read, Record, Seq, ShardId, ShardStore, ShardStoreOptions,
    embedded::{Embedded, EmbeddedOptions, Finding, ReadOnlyStore},
};
use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const SHARD: ShardId = ShardId(1);
/// Only something that hangs takes this long.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long the store waits until a table that has failed is open again. Only a very busy disk needs longer.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of records in a batch. A quarter of them replaces earlier ones.
const BATCH: u64 = 100;

type Shard = ShardStore<Embedded, Embedded>;

/// Runs a scenario in a process whose table fails. `scenario` gets the directory, and a way to set rules.
#[track_caller]
fn with_faults<F: Future<Output = ()>>(test: &str, scenario: impl FnOnce(Store) -> F) {
    if let (Some(home), Some(rules)) = (std::env::var_os("FAULTS_HOME"), std::env::var_os("FAULTS")) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let store = Store { home: home.into(), rules: rules.into() };
        return runtime.block_on(scenario(store));
    }
    let home = TempDir::new().expect("a temporary directory");
    let faults = Faults::compile(home.path());
    let mut command = Command::new(std::env::current_exe().expect("this test is a program"));
    let test = format!("table_faults::{test}");
    faults.preload(command.args(["--exact", &test, "--nocapture"]).env("FAULTS_HOME", home.path()));
    let output = command.output().expect("the test once more");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{}: {text}", output.status);
    assert!(text.contains("1 passed"), "no test is called {test}: {text}");
}

/// The directory of a scenario's store.
struct Store {
    home: std::path::PathBuf,
    rules: std::path::PathBuf,
}

impl Store {
    fn data(&self) -> std::path::PathBuf {
        self.home.join("new/data")
    }

    async fn open(&self) -> (Arc<Embedded>, Shard) {
        let options =
            EmbeddedOptions { segment_bytes: 1 << 20, reserve_bytes: Some(0), ..EmbeddedOptions::default() };
        let store = Arc::new(Embedded::open(&self.data(), options).expect("open"));
        let shard = ShardStore::open(store.clone(), store.clone(), SHARD, ShardStoreOptions::default());
        let shard = shard.await.expect("the shard");
        (store, shard)
    }

    fn set(&self, rules: &str) {
        let draft = self.rules.with_extension("new");
        std::fs::write(&draft, rules).expect("the rules");
        std::fs::rename(&draft, &self.rules).expect("the rules");
    }
}

fn key(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn value(number: u64, round: u64) -> Bytes {
    format!("value {number} of round {round} ").repeat(8).into()
}

/// The batch of a round: new records, and some that replace those of the previous round.
async fn append(shard: &Shard, round: u64) {
    let numbers = (round * BATCH).saturating_sub(BATCH / 4)..(round + 1) * BATCH;
    let record = |number| Record { key: key(number), value: Some(value(number, round)) };
    let batch: Vec<Record> = numbers.map(record).collect();
    shard.append(Seq(round + 1), batch).await.expect("the journal does not fail");
}

/// The value of a key after this many rounds.
fn expected(number: u64, rounds: u64) -> Bytes {
    let round = number / BATCH;
    let is_replaced = number % BATCH >= BATCH - BATCH / 4 && round + 1 < rounds;
    value(number, round + u64::from(is_replaced))
}

/// Reads everything. What is answered must be right. Returns a failure if there was one.
async fn read_all(shard: &Shard, rounds: u64) -> Result<(), String> {
    let all = rounds * BATCH;
    let gets = (0..all).map(|number| Read::Get(key(number)));
    let scan = Read::Scan { from: key(0), to: key(u64::MAX), limit: usize::MAX };
    let mut read = Ok(());
    for (number, answer) in (0..).zip(shard.read(gets.chain([scan]).collect()).await) {
        match answer {
            Ok(Answer::Value(found)) => assert_eq!(found, Some(expected(number, rounds)), "record {number}"),
            Ok(Answer::Page(page)) => assert_eq!(page.len() as u64, all, "a scan"),
            Ok(Answer::Last(_)) => unreachable!("nobody asked"),
            Err(error) => read = Err(format!("record {number}: {error}")),
        }
    }
    read
}

/// Reads everything, and repeats that if it fails. It may fail only if the table was closed for long. The table was open at
/// `last_open` or later.
async fn check(shard: &Shard, rounds: u64, last_open: &mut Instant) {
    let begun = Instant::now();
    loop {
        let asked = Instant::now();
        let Err(error) = read_all(shard, rounds).await else {
            *last_open = asked;
            return;
        };
        assert!(last_open.elapsed() >= REOPEN_TIMEOUT, "{error}");
        assert!(begun.elapsed() < DEADLINE, "look-ups fail for ever: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Checkpoints until one succeeds. That must happen without opening the store again.
async fn checkpoint(shard: &Shard) {
    let begun = Instant::now();
    while let Err(error) = shard.checkpoint().await {
        assert!(begun.elapsed() < DEADLINE, "checkpoints fail for ever: {error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// After a stop everything is there, and there is neither damage nor an abandoned file.
async fn check_at_rest(store: &Store, rounds: u64) {
    let mut findings = Vec::new();
    let read_only = ReadOnlyStore::check(&store.data(), &mut |finding| findings.push(finding));
    let wrong: Vec<&Finding> = findings
        .iter()
        .filter(|finding| !matches!(finding, Finding::Checked(_) | Finding::Progress(_)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    drop(read_only);
    let (_open, shard) = store.open().await;
    check(&shard, rounds, &mut Instant::now()).await;
}

/// `rules` make several checkpoints fail; then they are lifted.
fn fails_and_recovers(test: &str, rules: &'static str) {
    with_faults(test, |store| async move {
        let (open, shard) = store.open().await;
        for round in 0..4 {
            append(&shard, round).await;
            checkpoint(&shard).await;
        }
        store.set(rules);
        let (mut failures, mut last_open) = (0, Instant::now());
        for round in 4..24 {
            append(&shard, round).await;
            failures += u64::from(shard.checkpoint().await.is_err());
            check(&shard, round + 1, &mut last_open).await;
            // Compaction runs in another thread, and only a later checkpoint notices its failure.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(failures > 0, "the rules fail nothing: {rules}");
        store.set("");
        checkpoint(&shard).await;
        append(&shard, 24).await;
        checkpoint(&shard).await;
        check(&shard, 25, &mut last_open).await;
        drop(shard);
        open.close().await.expect("close");
        drop(open);
        check_at_rest(&store, 25).await;
    });
}

#[test]
fn ingestions_that_cannot_write() {
    fails_and_recovers("ingestions_that_cannot_write", "write EIO 1000 /tables/");
}

#[test]
fn ingestions_on_a_full_disk() {
    fails_and_recovers("ingestions_on_a_full_disk", "write SHORT 500 /tables/\nwrite ENOSPC 300 /tables/");
}

#[test]
fn compactions_on_a_full_disk() {
    fails_and_recovers("compactions_on_a_full_disk", "write ENOSPC 1000 /tables/ fjall:worker");
}

#[test]
fn syncs_of_tables_that_fail() {
    fails_and_recovers("syncs_of_tables_that_fail", "sync EIO 1000 /keyspaces/");
}

#[test]
fn the_tables_own_log_cannot_be_synced() {
    fails_and_recovers("the_tables_own_log_cannot_be_synced", "sync EIO 1000 .jnl");
}

#[test]
fn the_tables_own_log_is_torn() {
    fails_and_recovers("the_tables_own_log_is_torn", "write SHORT 500 .jnl\nwrite ENOSPC 500 .jnl");
}

/// A stop may be the first to notice that the table has failed. Nothing that was acknowledged needs the last sync.
#[test]
fn a_table_that_fails_while_it_is_closed() {
    with_faults("a_table_that_fails_while_it_is_closed", |store| async move {
        let (open, shard) = store.open().await;
        append(&shard, 0).await;
        checkpoint(&shard).await;
        append(&shard, 1).await;
        drop(shard);
        store.set("sync EIO 1000 .jnl");
        open.close().await.expect("close");
        drop(open);
        store.set("");
        check_at_rest(&store, 2).await;
    });
}

/// Everything below the table fails at times, including look-ups and opening.
#[test]
fn faults_of_every_kind_at_random() {
    with_faults("faults_of_every_kind_at_random", |store| async move {
        let rules: String = ["open", "read", "write", "sync", "truncate", "rename"]
            .iter()
            .flat_map(|call| [("EIO", 8), ("ENOSPC", 8)].map(|(error, often)| (call, error, often)))
            .map(|(call, error, often)| format!("{call} {error} {often} /table/\n"))
            .collect();
        let (open, shard) = store.open().await;
        let mut rounds = 0;
        for _ in 0..4 {
            store.set(&format!("{rules}write SHORT 200 /table/\n"));
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(2) {
                append(&shard, rounds).await;
                rounds += 1;
                // These may fail or not. Only the results of reads are checked.
                let _may_fail = shard.checkpoint().await;
                let _may_fail = read_all(&shard, rounds).await;
            }
            store.set("");
            let mut last_open = Instant::now();
            checkpoint(&shard).await;
            check(&shard, rounds, &mut last_open).await;
        }
        drop(shard);
        open.close().await.expect("close");
        drop(open);
        check_at_rest(&store, rounds).await;
    });
}

/// A new store survives a loss of power right after its first answer only if the names of its directories are durable.
#[test]
fn every_directory_that_is_made_is_synced_into_its_parent() {
    if let Some(home) = std::env::var_os("FAULTS_HOME") {
        return make_store(Path::new(&home));
    }
    let home = TempDir::new().expect("a temporary directory");
    let faults = Faults::compile(home.path());
    let mut command = Command::new(std::env::current_exe().expect("this test is a program"));
    let test = "table_faults::every_directory_that_is_made_is_synced_into_its_parent";
    faults.preload(command.args(["--exact", test]).env("FAULTS_HOME", home.path()));
    assert!(command.status().expect("this test once more").success());
    let log = faults.log();
    let lines: Vec<(&str, &Path)> = log
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(call, path)| (call, Path::new(path)))
        .collect();
    let made =
        |(at, (call, path)): (usize, &(&str, &Path))| (*call == "mkdir").then(|| (at, path.to_path_buf()));
    let made: Vec<_> = lines.iter().enumerate().filter_map(made).collect();
    assert!(made.iter().any(|(_, path)| path.ends_with("table/keyspaces/1")), "{log}");
    for (at, path) in made {
        let parent = path.parent().expect("it is in the temporary directory");
        let is_synced = lines[at..].iter().any(|(call, synced)| *call == "sync" && *synced == parent);
        assert!(is_synced, "{} was not synced after {}", parent.display(), path.display());
    }
}

/// What the test above does in the process whose calls are logged.
fn make_store(home: &Path) {
    let store = Embedded::open(&home.join("data"), EmbeddedOptions::default()).expect("open");
    assert_eq!(store.stats().appends, 0);
}
