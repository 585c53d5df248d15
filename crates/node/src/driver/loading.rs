//! Loads a shard's engine from its store.

use crate::OpenError;
use limina_engine::{Engine, Loading, record};
use limina_store::{Answer, Journal, Read, ShardId, ShardStore, StoreError, Table};

/// How many resident records are loaded at a time.
const PAGE: usize = 16_384;

/// Builds the engine of a shard from all of its resident records.
pub async fn load_engine<J: Journal, T: Table>(
    store: &ShardStore<J, T>,
    shard: ShardId,
) -> Result<Engine, OpenError> {
    let range = record::key::residents();
    let mut from = range.start;
    let mut loading = Loading::new(limina_engine::Options::default());
    loop {
        let read = Read::Scan { from: from.clone(), to: range.end.clone(), limit: PAGE };
        let page = match store.read(vec![read]).await.pop() {
            Some(Ok(Answer::Page(page))) => page,
            Some(Err(error)) => {
                let source = StoreError::Unavailable(error.to_string());
                return Err(OpenError::Store { shard: shard.0, source });
            }
            _ => unreachable!("a scan is answered with one page"),
        };
        let is_last = page.len() < PAGE;
        if let Some((last, _)) = page.last() {
            // The smallest key after the last one.
            from = [last, &[0][..]].concat().into();
        }
        for (key, value) in page {
            loading.load(key, &value).map_err(|source| OpenError::Record { shard: shard.0, source })?;
        }
        if is_last {
            return Ok(loading.finish());
        }
    }
}
