//! Brings the table up to date behind the journal, one shard at a time, in the background.

use crate::{Metrics, node::Stores};
use limina_store::{Journal, Room, ShardStore, Table};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How often the shards are looked at.
const PERIOD: Duration = Duration::from_millis(100);

pub(crate) struct Checkpointer<J, T> {
    pub(crate) journal: Arc<J>,
    pub(crate) stores: Stores<J, T>,
    pub(crate) metrics: Metrics,
    pub(crate) journal_bytes: u64,
}

impl<J: Journal, T: Table> Checkpointer<J, T> {
    pub(crate) async fn run(self, mut stopping: watch::Receiver<bool>) {
        let mut failed: Option<Instant> = None;
        while !*stopping.borrow() {
            let _timed_out = tokio::time::timeout(PERIOD, stopping.changed()).await;
            self.report();
            // After a failure there is no use in trying at once again.
            if failed.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
                continue;
            }
            failed = None;
            for store in self.due() {
                if *stopping.borrow() {
                    return;
                }
                let begin = Instant::now();
                match store.checkpoint().await {
                    Ok(_) => self.metrics.store.checkpoint_seconds.observe(begin.elapsed().as_secs_f64()),
                    Err(error) => {
                        self.metrics.store.checkpoint_failures.inc();
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            "a checkpoint failed; trying again"
                        );
                        failed = Some(Instant::now());
                    }
                }
            }
        }
    }

    /// The shards with much to take over, and those that keep a large journal from shrinking.
    fn due(&self) -> Vec<Arc<ShardStore<J, T>>> {
        let stats = self.journal.stats();
        let is_tight = stats.live_bytes > self.journal_bytes || self.journal.room() == Room::Reserve;
        let is_pinning = |shard| is_tight && stats.pinning.iter().any(|(pinning, _)| *pinning == shard);
        let stores = self.stores.all().into_iter();
        let due = stores.filter(|(shard, store)| store.backlog().due || is_pinning(*shard));
        due.map(|(_, store)| store).collect()
    }

    fn report(&self) {
        let metrics = &self.metrics.store;
        let stats = self.journal.stats();
        metrics.journal_bytes.set(stats.live_bytes as i64);
        metrics.journal_segments.set(stats.segments as i64);
        metrics.journal_syncs.inc_by(stats.syncs.saturating_sub(metrics.journal_syncs.get()));
        let stores = self.stores.all();
        let is_full = self.journal.room() == Room::Reserve
            || stores.values().any(|store| store.room() == Room::Reserve);
        metrics.storage_full.set(i64::from(is_full));
        let backlogs = stores.values().map(|store| store.backlog());
        let (bytes, records) =
            backlogs.fold((0, 0), |(b, r), backlog| (b + backlog.bytes, r + backlog.records));
        metrics.backlog_bytes.set(bytes as i64);
        metrics.backlog_records.set(records as i64);
    }
}
