//! `limina verify`: reads all of a data directory that no server uses, and prints what is wrong.

use crate::progress::Progress;
use limina_cli::words::counted;
use limina_engine::{Engine, Stats};
use limina_node::load_engine;
use limina_store::{
    ShardId, ShardStore, ShardStoreOptions, StoreError,
    embedded::{Finding, ReadOnlyStore},
};
use std::{
    error::Error,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The arguments of `verify`.
#[derive(clap::Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The data directory; no server may be using it
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Checks the directory. Returns an error if it is damaged.
pub(crate) fn verify(args: VerifyArgs) -> Result<(), Box<dyn Error>> {
    let mut report = Report { problems: 0, is_damaged: false, progress: Progress::new() };
    let at_rest = ReadOnlyStore::check(&args.directory, &mut |finding| report.finding(finding))?;
    if let Some(at_rest) = at_rest {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(load_shards(at_rest, &args.directory, &mut report));
    }
    let directory = args.directory.display();
    let state = if report.is_damaged { "is damaged" } else { "cannot be used as it is" };
    match report.problems {
        0 => {
            say(&format!("{directory} is sound"));
            Ok(())
        }
        1 => Err(format!("{directory} {state}: 1 problem").into()),
        many => Err(format!("{directory} {state}: {many} problems").into()),
    }
}

/// Loads every shard as a server does at its start: the table, the journal, and the engine's records in both.
async fn load_shards(at_rest: ReadOnlyStore, directory: &Path, report: &mut Report) {
    let at_rest = Arc::new(at_rest);
    let mut loaded = Vec::new();
    for shard in (0..at_rest.shards()).map(ShardId) {
        match load(&at_rest, shard).await {
            Ok(engine) => {
                loaded.push(engine.stats());
            }
            Err(error) => {
                report.is_damaged = true;
                report.problem(&format!(
                    "shard {} in {}: {}",
                    shard.0,
                    directory.display(),
                    crate::chain(&*error)
                ));
            }
        }
        report.progress.report(|| format!("{} shards are loaded", loaded.len()));
    }
    let shards = loaded.len();
    let Stats { namespaces, sizes, .. } = Stats::sum(loaded);
    say(&format!(
        "checked: {} {}: {}, {}, {}, {}, {}, {}",
        counted(shards, "shard"),
        if shards == 1 { "loads" } else { "load" },
        counted(namespaces, "namespace"),
        counted(sizes.ledger_limits, "ledger limit"),
        counted(sizes.limiter.rules, "rule"),
        counted(sizes.limiter.counters, "counter"),
        counted(sizes.limiter.leases, "lease"),
        counted(sizes.locks.held, "lock"),
    ));
}

async fn load(at_rest: &Arc<ReadOnlyStore>, shard: ShardId) -> Result<Engine, Box<dyn Error>> {
    let store =
        ShardStore::open(at_rest.clone(), at_rest.clone(), shard, ShardStoreOptions::default()).await?;
    Ok(load_engine(&store, shard).await?)
}

/// Prints findings, and counts problems.
struct Report {
    problems: u64,
    /// Whether a problem is damage. Otherwise every part is as some program has written it, but the parts do not belong together, or have
    /// another format.
    is_damaged: bool,
    progress: Progress,
}

impl Report {
    fn finding(&mut self, finding: Finding) {
        match finding {
            Finding::Checked(words) => say(&format!("checked: {words}")),
            Finding::Note(words) => say(&format!("note: {words}")),
            Finding::Problem(error) => {
                self.is_damaged |= !matches!(error, StoreError::Unusable(_));
                self.problem(&crate::chain(&error));
            }
            Finding::Progress(words) => self.progress.report(|| words),
        }
    }

    fn problem(&mut self, words: &str) {
        self.problems += 1;
        say(&format!("problem: {words}"));
    }
}

/// Prints a line. If standard output is closed, the exit status still shows the result.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
