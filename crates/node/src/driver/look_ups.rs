//! Look-ups of stored records that a round needs.

use limina_engine::{Read, ReadResult};
use limina_store::{self as store, Journal, ShardStore, StoreError, Table};
use prometheus_client::metrics::histogram::Histogram;
use std::{error::Error, pin::Pin, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long to wait before a shared store that could not be reached is read again.
const READ_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The answers to the look-ups of a round.
pub(super) type Found = Vec<(Read, ReadResult)>;

/// Reads records, and measures how long that takes.
pub(super) fn look_up<J: Journal, T: Table>(
    store: Arc<ShardStore<J, T>>,
    reads: Vec<Read>,
    is_shared: bool,
    seconds: Histogram,
) -> Pin<Box<dyn Future<Output = Found> + Send>> {
    Box::pin(async move {
        let begin = Instant::now();
        let answers = fetch(&store, reads, is_shared).await;
        seconds.observe(begin.elapsed().as_secs_f64());
        answers
    })
}

/// Reads records. If a shared store cannot be reached, the read is repeated, because that says nothing about the records.
/// When the store counts as away, the driver rejects the waiting requests and drops this future.
async fn fetch<J: Journal, T: Table>(
    store: &ShardStore<J, T>,
    reads: Vec<Read>,
    is_shared: bool,
) -> Vec<(Read, ReadResult)> {
    let store_reads = reads.iter().map(|read| match read.clone() {
        Read::Get(key) => store::Read::Get(key),
        Read::LastAtOrBefore { from, at } => store::Read::LastAtOrBefore { from, at },
        Read::Scan { from, to, limit } => store::Read::Scan { from, to, limit },
    });
    let store_reads: Vec<store::Read> = store_reads.collect();
    let answers = loop {
        let answers = store.read(store_reads.clone()).await;
        let unreachable = answers
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .find(|error| is_shared && matches!(&***error, StoreError::Unavailable(_)));
        let Some(error) = unreachable else { break answers };
        tracing::warn!(
            error = &**error as &dyn Error,
            "the store could not be reached for a read; trying again"
        );
        tokio::time::sleep(READ_RETRY_PAUSE).await;
    };
    let answers = answers.into_iter().map(|answer| match answer {
        Ok(store::Answer::Value(value)) => ReadResult::Value(value),
        Ok(store::Answer::Last(last)) => ReadResult::Last(last),
        Ok(store::Answer::Page(page)) => ReadResult::Page(page),
        Err(error) => {
            tracing::error!(error = &*error as &dyn Error, "a stored record could not be read");
            ReadResult::Unreadable
        }
    });
    reads.into_iter().zip(answers).collect()
}
