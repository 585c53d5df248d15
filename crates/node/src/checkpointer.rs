//! Brings the table up to date behind the journal, one shard at a time, in the background.

use crate::{Budget, Metrics, memory::Kind, stores::Stores};
use limina_store::{FreeSpace, Journal, ShardStore, Table};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How often the checkpointer looks for shards that are due.
const PERIOD: Duration = Duration::from_millis(100);
/// How long to wait after a checkpoint that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The overlays of all shards together may take this part of the memory budget: an eighth. Then the largest are checkpointed.
const OVERLAYS_SHARE: usize = 8;

pub(crate) struct Checkpointer<J, T> {
    pub(crate) journal: Arc<J>,
    pub(crate) stores: Stores<J, T>,
    pub(crate) metrics: Metrics,
    pub(crate) journal_bytes: u64,
    pub(crate) memory: Budget,
}

impl<J: Journal, T: Table> Checkpointer<J, T> {
    pub(crate) async fn run(self, mut stopping: watch::Receiver<bool>) {
        let mut failed: Option<Instant> = None;
        let mut overlays = self.memory.account(Kind::Overlay);
        while !*stopping.borrow() {
            // The sender is gone if the node was dropped.
            if let Ok(Err(_)) = tokio::time::timeout(PERIOD, stopping.changed()).await {
                return;
            }
            overlays.set(self.report());
            if failed.is_some_and(|at| at.elapsed() < RETRY_PAUSE) {
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

    /// The shards whose overlay is large, those whose oldest append keeps a large journal from shrinking, and those whose
    /// overlays together take too much of the memory budget.
    fn due(&self) -> Vec<Arc<ShardStore<J, T>>> {
        let stats = self.journal.stats();
        let is_tight =
            stats.live_bytes > self.journal_bytes || self.journal.free_space() == FreeSpace::Reserve;
        let is_pinning = |shard| is_tight && stats.pinning.iter().any(|(pinning, _)| *pinning == shard);
        // Each backlog is read once. It grows while shards append, and sorting by values that change panics.
        let stores = self.stores.all().into_iter();
        let mut stores: Vec<_> = stores.map(|(shard, store)| (store.backlog(), shard, store)).collect();
        stores.sort_by_key(|(backlog, ..)| std::cmp::Reverse(backlog.bytes));
        let mut excess = self.excess(stores.iter().map(|(backlog, ..)| backlog.bytes).sum());
        let due = stores.into_iter().filter(|(backlog, shard, _)| {
            let is_heavy = excess > 0;
            excess = excess.saturating_sub(backlog.bytes);
            backlog.due || is_pinning(*shard) || is_heavy
        });
        due.map(|(_, _, store)| store).collect()
    }

    /// The bytes by which all overlays together should shrink: to half of their share, once they exceed it.
    fn excess(&self, bytes: usize) -> usize {
        let share = self.memory.limit().map_or(usize::MAX, |limit| limit as usize / OVERLAYS_SHARE);
        if bytes > share { bytes - share / 2 } else { 0 }
    }

    /// Publishes the sizes of journal and overlays. Returns the bytes of all overlays.
    fn report(&self) -> usize {
        let metrics = &self.metrics.store;
        let stats = self.journal.stats();
        metrics.journal_bytes.set(stats.live_bytes as i64);
        metrics.journal_segments.set(stats.segments as i64);
        metrics.other_database.set(i64::from(stats.is_other_database));
        metrics.journal_syncs.inc_by(stats.syncs.saturating_sub(metrics.journal_syncs.get()));
        let stores = self.stores.all();
        let is_full = self.journal.free_space() == FreeSpace::Reserve
            || stores.values().any(|store| store.free_space() == FreeSpace::Reserve);
        metrics.storage_full.set(i64::from(is_full));
        let backlogs = stores.values().map(|store| store.backlog());
        let (bytes, records) =
            backlogs.fold((0, 0), |(b, r), backlog| (b + backlog.bytes, r + backlog.records));
        metrics.backlog_bytes.set(bytes as i64);
        metrics.backlog_records.set(records as i64);
        bytes
    }
}
