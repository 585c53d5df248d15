//! Opens a shard, and loads its engine from its store.

use crate::OpenError;
use limina_engine::{Engine, Loading, record};
use limina_store::{FilteredKeys, Journal, ShardId, ShardStore, ShardStoreOptions, StoreError, Table};
use std::sync::Arc;

/// How many resident records are read at a time.
const PAGE: usize = 16_384;

/// Takes a shard, and loads its engine.
pub(crate) async fn open<J: Journal, T: Table>(
    journal: Arc<J>,
    table: Arc<T>,
    shard: ShardId,
    options: ShardStoreOptions,
    filtered: FilteredKeys,
) -> Result<(Arc<ShardStore<J, T>>, Engine), OpenError> {
    let store = ShardStore::open(journal, table, shard, options).await;
    let mut store = store.map_err(|source| OpenError::Store { shard: shard.0, source })?;
    store.filter_keys(filtered);
    let store = Arc::new(store);
    let engine = load_engine(&store, shard).await?;
    Ok((store, engine))
}

/// Builds the engine of a shard from all of its resident records. While a page of records is loaded, the store reads the
/// next one.
pub async fn load_engine<J: Journal, T: Table>(
    store: &ShardStore<J, T>,
    shard: ShardId,
) -> Result<Engine, OpenError> {
    let unreadable = |source: StoreError| OpenError::Store { shard: shard.0, source };
    let mut scan = store.begin_full_scan(record::key::residents());
    let mut loading = Loading::new(limina_engine::Options::default());
    let mut page = store.next_page(&mut scan, PAGE).await.map_err(unreadable)?;
    while !page.is_empty() {
        let load = async {
            let loaded = page.into_iter().try_for_each(|(key, value)| loading.load(key, &value));
            loaded.map_err(|source| OpenError::Record { shard: shard.0, source })
        };
        // The scan is polled first, so that it has begun when the page is loaded.
        let (next, loaded) = tokio::join!(biased; store.next_page(&mut scan, PAGE), load);
        loaded?;
        page = next.map_err(unreadable)?;
    }
    let engine = loading.finish();
    if let Some(by) = engine.jumped() {
        tracing::warn!(shard = shard.0, by, "the shard was restored from an older state: its positions jump");
    }
    Ok(engine)
}
