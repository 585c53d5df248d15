//! `limina mark-restored`: says that a store was restored from an older copy. The next opening then moves all positions ahead.
//!
//! Nothing in the copy itself can show that it is old. Without the mark, the server would give out positions, fencing tokens and clocks
//! a second time that it gave out after the copy was made.

use crate::progress::say;
use limina_engine::{
    engine::POSITION_JUMP,
    record::{self, key},
};
use limina_store::{
    Batch, Journal, Record, Seq, ShardId, ShardStore, ShardStoreOptions, Table,
    embedded::{Embedded, EmbeddedOptions},
    postgres::{PostgresSnapshot, append_at_rest},
};
use std::{error::Error, path::Path, sync::Arc};
use tokio::runtime::Runtime;

/// The arguments of `mark-restored`.
#[derive(clap::Args, Debug)]
pub(crate) struct MarkRestoredArgs {
    /// The data directory, or the URL of the PostgreSQL database (postgres://user@host/database). No server may be using it
    #[arg(value_name = "DIR|URL")]
    store: String,
}

/// Marks every shard of the store.
pub(crate) fn mark_restored(args: MarkRestoredArgs) -> Result<(), Box<dyn Error>> {
    let store = &args.store;
    let is_database = ["postgres://", "postgresql://"].iter().any(|scheme| store.starts_with(scheme));
    let marking = async {
        match is_database {
            true => mark_database(store).await,
            false => mark_directory(Path::new(store)).await,
        }
    };
    let restores = Runtime::new()?.block_on(marking)?;
    let by = restores.saturating_mul(POSITION_JUMP);
    say(&format!("marked as restored: at the next start, fencing tokens, positions and clocks jump by {by}"));
    Ok(())
}

/// The record that makes a shard jump, so many times the usual distance, when it is opened.
pub(crate) fn mark(restores: u64) -> Record {
    let mut value = Vec::new();
    record::encode_into(&restores, &mut value);
    Record { key: key::restored(), value: Some(value.into()) }
}

async fn mark_directory(directory: &Path) -> Result<u64, Box<dyn Error>> {
    // Opening would make a directory that does not exist.
    if !directory.join("limina.meta").exists() {
        return Err(format!("{} is not a data directory of limina", directory.display()).into());
    }
    let store = Arc::new(Embedded::open(directory, EmbeddedOptions::default())?);
    let mut most = 0;
    for shard in (0..store.sharding().shards).map(ShardId) {
        let (stored, restores) = next_mark(&store, shard).await?;
        stored.append(stored.seq().next(), vec![mark(restores)]).await?;
        most = most.max(restores);
    }
    store.close().await?;
    Ok(most)
}

async fn mark_database(url: &str) -> Result<u64, Box<dyn Error>> {
    let snapshot = Arc::new(PostgresSnapshot::take(url).await?);
    let (mut appends, mut most): (Vec<(ShardId, Seq, Batch)>, u64) = (Vec::new(), 0);
    for shard in (0..snapshot.shards()).map(ShardId) {
        let (stored, restores) = next_mark(&snapshot, shard).await?;
        appends.push((shard, stored.seq().next(), vec![mark(restores)].into()));
        most = most.max(restores);
    }
    drop(snapshot);
    append_at_rest(url, appends).await?;
    Ok(most)
}

/// The shard, and how often its positions must jump. Another mark that no server has seen yet counts too.
async fn next_mark<S: Journal + Table>(
    store: &Arc<S>,
    shard: ShardId,
) -> Result<(ShardStore<S, S>, u64), Box<dyn Error>> {
    let stored = ShardStore::open(store.clone(), store.clone(), shard, ShardStoreOptions::default()).await?;
    let (from, to) = (key::restored(), key::residents().end);
    let earlier: u64 = match stored.scan(from, to, 1).await?.pop() {
        Some((_, value)) => {
            record::decode(&value).map_err(|_| format!("the mark of shard {} is damaged", shard.0))?
        }
        None => 0,
    };
    Ok((stored, earlier + 1))
}
