//! The table as the rest of the store uses it: an open database that is replaced when it has failed.
//!
//! After a failed write (no space, a failing disk) fjall stops flushing and compacting for good, and files that it had
//! begun stay behind. Such a database is never written to again. A thread closes it and opens its files anew, see
//! `reopening.rs`, while the store is in use. Nothing is missing then: the overlays and the journal keep every record until
//! a checkpoint has succeeded, and a checkpoint can be repeated.

use super::{
    damage, directory, fjall_files,
    open_table::{OpenTable, Opening, WORKERS, panic_text},
    reopening::Reopener,
};
use crate::{Epoch, Records, Seq, ShardId, StoreError, Table};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// So many look-ups are made at once, on the thread that asks, which saves every single request the way to another thread
/// and back. Filters and indexes are in memory; a block that is not may make the thread wait for the disk. The number is a
/// guess: where the two cost the same was not measured.
const FEW: usize = 128;
/// How long a look-up waits for a table that is being opened again, counted from when it was closed. Normally it takes
/// milliseconds; where it takes longer, clients are better told than kept.
const PATIENCE: Duration = Duration::from_secs(5);
/// A table that could not be opened again for so long will hardly be by this process.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// How the table is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableOptions {
    /// How much of it is kept in memory.
    pub(super) cache_bytes: u64,
    /// How many of its files stay open between two look-ups.
    pub(super) cached_files: usize,
}

/// The table of all shards.
pub(super) struct FjallTable {
    shared: Arc<Shared>,
    /// None where the table is only looked at.
    reopener: Option<Reopener>,
}

/// What the table shares with the thread that opens it again.
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) state: watch::Sender<State>,
    /// How far the checkpoints reached that have succeeded. A table that is opened again must contain as much.
    contained: Mutex<BTreeMap<ShardId, Seq>>,
}

/// What there is of the table at the moment.
#[derive(Clone)]
pub(super) enum State {
    Open(Arc<OpenTable>),
    /// It is being opened again.
    Closed(Closed),
}

#[derive(Clone)]
pub(super) struct Closed {
    pub(super) since: Instant,
    /// Why it is not open yet.
    pub(super) reason: String,
}

impl FjallTable {
    /// Opens the table, or creates it if it need not exist.
    pub(super) fn open(
        directory: &Path,
        options: TableOptions,
        must_exist: bool,
    ) -> Result<Self, StoreError> {
        let torn = damage::check_before_opening(directory)?;
        let opening = Opening {
            files: directory.to_path_buf(),
            directory: directory.to_path_buf(),
            cache_bytes: options.cache_bytes,
            cached_files: options.cached_files,
            must_exist,
            workers: WORKERS,
        };
        let table = opening.run(torn)?;
        match must_exist {
            true => table.check_created()?,
            false => {
                table.mark_created()?;
                // fjall syncs a keyspace's directory, but not the one in which its name stands.
                directory::sync(&directory.join("keyspaces"))?;
            }
        }
        let shared = Shared::new(directory, table)?;
        let reopener = Reopener::start(shared.clone(), Opening { must_exist: true, ..opening })?;
        Ok(FjallTable { shared, reopener: Some(reopener) })
    }

    /// Opens a copy of the table, for reading only: nothing is flushed or compacted. Errors name the original's files.
    pub(super) fn open_copy(copy: &Path, original: &Path, options: TableOptions) -> Result<Self, StoreError> {
        let opening = Opening {
            files: copy.to_path_buf(),
            directory: original.to_path_buf(),
            cache_bytes: options.cache_bytes,
            cached_files: options.cached_files,
            must_exist: true,
            workers: 0,
        };
        let table = opening.run(Vec::new())?;
        table.check_created()?;
        Ok(FjallTable { shared: Shared::new(original, table)?, reopener: None })
    }

    /// Every record of every shard, in order. Ends at the first one that cannot be read.
    pub(super) fn each_record(
        &self,
        each: impl FnMut(ShardId, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.shared.current()?.guarded(|table| table.each_record(each))
    }

    /// Every shard's applied seq.
    pub(super) fn each_applied(&self) -> Result<Vec<(ShardId, Seq)>, StoreError> {
        self.shared.current()?.guarded(OpenTable::each_applied)
    }

    /// [`Table::applied`], at once.
    pub(super) fn applied_now(&self, shard: ShardId) -> Result<Seq, StoreError> {
        self.shared.current()?.guarded(|table| table.applied(shard))
    }

    /// Where to look when the table is behind: how far each shard is stands mostly in fjall's own log.
    pub(super) fn where_it_lost(&self) -> String {
        let logs = fjall_files::logs(&self.shared.directory);
        let logs: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
        let table = self.shared.current();
        let torn: &[String] = table.as_ref().map_or(&[], |table| table.torn());
        let torn: String = torn.iter().map(|torn| format!("; {torn}")).collect();
        format!("the table's log is {}{torn}", logs.join(" and "))
    }

    /// Makes everything durable. A table that has failed is left as it is: what it lacks is in the journal.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        match self.shared.current() {
            Ok(table) => self.blocking(table, OpenTable::close).await,
            Err(_) => Ok(()),
        }
    }

    /// Tells `each` whether the table is open, now and at every change. Returns when it has been closed for so long that
    /// only another process may be able to open it, with the reason.
    pub(super) async fn watch(&self, mut each: impl FnMut(bool)) -> StoreError {
        let mut states = self.shared.state.subscribe();
        loop {
            let closed = match &*states.borrow_and_update() {
                State::Open(_) => None,
                State::Closed(closed) => Some(closed.clone()),
            };
            each(closed.is_none());
            let changed = match closed {
                None => states.changed().await,
                Some(Closed { since, reason }) => {
                    match tokio::time::timeout_at((since + LOST_AFTER).into(), states.changed()).await {
                        Ok(changed) => changed,
                        Err(_) => {
                            let words = format!("the table failed and cannot be opened again: {reason}");
                            return StoreError::Unavailable(words);
                        }
                    }
                }
            };
            if changed.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The open table. One that is being opened again is waited for, but not for long.
    async fn opened(&self) -> Result<Arc<OpenTable>, StoreError> {
        let closed = match &*self.shared.state.borrow() {
            State::Open(table) => return Ok(table.clone()),
            State::Closed(closed) => closed.clone(),
        };
        let mut states = self.shared.state.subscribe();
        let open = states.wait_for(|state| matches!(state, State::Open(_)));
        let _timed_out = tokio::time::timeout_at((closed.since + PATIENCE).into(), open).await;
        self.shared.current()
    }

    /// Answers so many questions: a few at once, more on another thread.
    async fn looked_up<T: Send + 'static>(
        &self,
        count: usize,
        look_up: impl FnOnce(&OpenTable) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let table = self.opened().await?;
        let found = match count <= FEW {
            true => table.guarded(look_up),
            false => self.blocking(table, move |table| table.guarded(look_up)).await,
        };
        self.look_after();
        found
    }

    /// A failed table is replaced at once, and not when it is next looked at.
    fn look_after(&self) {
        if let State::Open(table) = &*self.shared.state.borrow()
            && table.has_failed()
            && let Some(reopener) = &self.reopener
        {
            reopener.wake();
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        table: Arc<OpenTable>,
        act: impl FnOnce(&OpenTable) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match tokio::task::spawn_blocking(move || act(&table)).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Err(damage::explain(&self.shared.directory, panic_text(&*panic))),
                Err(_) => Err(StoreError::Unavailable("the runtime is being shut down".to_string())),
            },
        }
    }
}

impl Shared {
    fn new(directory: &Path, table: OpenTable) -> Result<Arc<Shared>, StoreError> {
        let contained = table.guarded(OpenTable::each_applied)?.into_iter().collect();
        Ok(Arc::new(Shared {
            directory: directory.to_path_buf(),
            state: watch::Sender::new(State::Open(Arc::new(table))),
            contained: Mutex::new(contained),
        }))
    }

    /// The open table, if it is.
    pub(super) fn current(&self) -> Result<Arc<OpenTable>, StoreError> {
        match &*self.state.borrow() {
            State::Open(table) => Ok(table.clone()),
            State::Closed(Closed { reason, .. }) => {
                Err(StoreError::Unavailable(format!("the table is being opened again: {reason}")))
            }
        }
    }

    /// Refuses a table that lacks what a successful checkpoint has put there: the journal may have let go of it.
    pub(super) fn check_contained(&self, table: &OpenTable) -> Result<(), StoreError> {
        for (shard, upto) in self.contained().iter() {
            let applied = table.guarded(|table| table.applied(*shard))?;
            if applied < *upto {
                return Err(StoreError::Unusable(format!(
                    "the table has lost data: it holds shard {} up to append {}, and held it up to {}",
                    shard.0, applied.0, upto.0
                )));
            }
        }
        Ok(())
    }

    fn contained(&self) -> MutexGuard<'_, BTreeMap<ShardId, Seq>> {
        self.contained.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table for FjallTable {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        let table = self.opened().await?;
        self.blocking(table, move |table| table.guarded(|table| table.applied(shard))).await
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        let count = keys.len();
        let get_all = move |table: &OpenTable| keys.iter().map(|key| table.get(shard, key)).collect();
        self.looked_up(count, get_all).await
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if limit == 0 || from >= to {
            return Ok(Vec::new());
        }
        self.looked_up(usize::MAX, move |table| table.scan(shard, &from, &to, limit)).await
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        let count = ranges.len();
        let find_all = move |table: &OpenTable| {
            ranges.iter().map(|(from, at)| table.last_at_or_before(shard, from, at)).collect()
        };
        self.looked_up(count, find_all).await
    }

    async fn checkpoint(
        &self,
        shard: ShardId,
        _epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        let table = self.opened().await?;
        let written = self.blocking(table, move |table| table.checkpoint(shard, upto, &records)).await;
        match written {
            Ok(()) => drop(self.shared.contained().insert(shard, upto)),
            Err(_) => self.look_after(),
        }
        written
    }
}
