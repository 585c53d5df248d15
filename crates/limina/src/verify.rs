//! `limina verify`: reads a data directory at rest, all of it, and says what is wrong.

use crate::progress::Progress;
use limina_engine::{Engine, Stats};
use limina_node::load_engine;
use limina_store::{
    ShardId, ShardStore, ShardStoreOptions,
    embedded::{Finding, ReadOnlyStore},
};
use std::{
    error::Error,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What `verify` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The data directory; no server may be using it
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Checks the directory. Damage is an error, too.
pub(crate) fn verify(args: VerifyArgs) -> Result<(), Box<dyn Error>> {
    let mut told = Told { problems: 0, progress: Progress::new() };
    let at_rest = ReadOnlyStore::check(&args.directory, &mut |finding| told.tell(finding))?;
    if let Some(at_rest) = at_rest {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(load_shards(at_rest, &args.directory, &mut told));
    }
    match told.problems {
        0 => {
            say(&format!("{} is sound", args.directory.display()));
            Ok(())
        }
        1 => Err(format!("{} is damaged: 1 problem", args.directory.display()).into()),
        many => Err(format!("{} is damaged: {many} problems", args.directory.display()).into()),
    }
}

/// Loads every shard as a server would at its start: table, journal, and what both hold as an engine's records.
async fn load_shards(at_rest: ReadOnlyStore, directory: &Path, told: &mut Told) {
    let at_rest = Arc::new(at_rest);
    let mut loaded = Vec::new();
    for shard in (0..at_rest.shards()).map(ShardId) {
        match load(&at_rest, shard).await {
            Ok(engine) => {
                loaded.push(engine.stats());
            }
            Err(error) => {
                told.problem(&format!(
                    "shard {} in {}: {}",
                    shard.0,
                    directory.display(),
                    crate::chain(&*error)
                ));
            }
        }
        told.progress.tell(|| format!("{} shards are loaded", loaded.len()));
    }
    let shards = loaded.len();
    let Stats { namespaces, sizes, .. } = Stats::sum(loaded);
    say(&format!(
        "checked: {shards} shards load: {namespaces} namespaces, {} ledger limits, {} rules, {} counters, \
         {} leases, {} locks",
        sizes.ledger_limits,
        sizes.limiter.rules,
        sizes.limiter.counters,
        sizes.limiter.leases,
        sizes.locks.held,
    ));
}

async fn load(at_rest: &Arc<ReadOnlyStore>, shard: ShardId) -> Result<Engine, Box<dyn Error>> {
    let store =
        ShardStore::open(at_rest.clone(), at_rest.clone(), shard, ShardStoreOptions::default()).await?;
    Ok(load_engine(&store, shard).await?)
}

/// What was said so far.
struct Told {
    problems: u64,
    progress: Progress,
}

impl Told {
    fn tell(&mut self, finding: Finding) {
        match finding {
            Finding::Checked(words) => say(&format!("checked: {words}")),
            Finding::Note(words) => say(&format!("note: {words}")),
            Finding::Problem(error) => self.problem(&crate::chain(&error)),
            Finding::Progress(words) => self.progress.tell(|| words),
        }
    }

    fn problem(&mut self, words: &str) {
        self.problems += 1;
        say(&format!("problem: {words}"));
    }
}

/// Where nobody reads on, the exit status still tells.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
