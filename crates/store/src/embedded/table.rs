//! The table as the rest of the store uses it: an open database that is replaced after a failure.
//!
//! After a failed write (no space, a failing disk) fjall stops flushing and compacting for good, and leaves incomplete
//! files behind. Such a database is never written to again. A thread closes it and reopens its files while the store is
//! in use, see `reopening.rs`. No record is lost: the overlays and the journal keep every record until a checkpoint has
//! succeeded, and a checkpoint can be repeated.

use super::{
    damage, directory, fjall_files,
    inventory::Keeper,
    open_table::{OpenTable, Point, Points, TableOpener, WORKERS, in_full, panic_text},
    reopening::Reopener,
};
use crate::{Records, Seq, ShardId, StoreError};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Up to this many look-ups run directly on the calling thread, which saves the way to another thread and back. Filters
/// and indexes are in memory, but the thread may have to wait for the disk for a block that is not cached. The number
/// is an estimate; the break-even was not measured.
const MAX_INLINE_LOOK_UPS: usize = 128;
/// How long a look-up waits for a table that is being reopened, counted from when it was closed. Reopening normally
/// takes milliseconds. If it takes longer, a client should get an error instead of waiting.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// If a table could not be reopened for this long, this process is unlikely to succeed.
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);

/// The table's use of memory and file descriptors.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableOptions {
    /// Memory for the block cache, in bytes.
    pub(super) cache_bytes: u64,
    /// The number of table files that stay open between look-ups.
    pub(super) cached_files: usize,
}

/// The table of all shards.
pub(super) struct FjallTable {
    shared: Arc<Shared>,
    /// `None` if the table is only read.
    reopener: Option<Reopener>,
}

/// The state that the table shares with the thread that reopens it.
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) state: watch::Sender<State>,
    /// Identifies the data directory.
    pub(super) directory_id: u64,
    /// The end of the last successful checkpoint of each shard. A reopened table must contain at least this.
    contained: Mutex<BTreeMap<ShardId, Seq>>,
    /// Set once the store is open. A table that is only read has none.
    keeper: OnceLock<Keeper>,
}

/// Whether the table is open.
#[derive(Clone)]
pub(super) enum State {
    Open(Arc<OpenTable>),
    /// The table is being reopened.
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
        directory_id: u64,
    ) -> Result<Self, StoreError> {
        let torn = damage::check_before_opening(directory)?;
        let opener = TableOpener {
            files: directory.to_path_buf(),
            directory: directory.to_path_buf(),
            cache_bytes: options.cache_bytes,
            cached_files: options.cached_files,
            must_exist,
            workers: WORKERS,
        };
        let table = opener.open(torn)?;
        match must_exist {
            true => table.check_created(directory_id)?,
            false => {
                table.mark_created(directory_id)?;
                // fjall syncs the directory of a keyspace, but not the parent directory that contains its name.
                directory::sync(&directory.join("keyspaces"))?;
            }
        }
        let shared = Shared::new(directory, directory_id, table)?;
        let reopener = Reopener::start(shared.clone(), TableOpener { must_exist: true, ..opener })?;
        Ok(FjallTable { shared, reopener: Some(reopener) })
    }

    /// Opens a copy of the table for reading: nothing is flushed or compacted. Errors name the files of the original.
    pub(super) fn open_copy(
        copy: &Path,
        original: &Path,
        options: TableOptions,
        directory_id: Option<u64>,
    ) -> Result<Self, StoreError> {
        let opener = TableOpener {
            files: copy.to_path_buf(),
            directory: original.to_path_buf(),
            cache_bytes: options.cache_bytes,
            cached_files: options.cached_files,
            must_exist: true,
            workers: 0,
        };
        let table = opener.open(Vec::new())?;
        directory_id.map_or(Ok(()), |id| table.check_created(id))?;
        let shared = Shared::new(original, directory_id.unwrap_or_default(), table)?;
        Ok(FjallTable { shared, reopener: None })
    }

    /// Calls `each` for every record of every shard, in order. Stops at the first record that cannot be read.
    pub(super) fn each_record(
        &self,
        each: impl FnMut(ShardId, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.shared.current()?.catch_panics(|table| table.each_record(each))
    }

    /// Whether any shard has a record.
    pub(super) fn has_records(&self) -> Result<bool, StoreError> {
        self.shared.current()?.catch_panics(OpenTable::has_records)
    }

    /// The applied seq of every shard.
    pub(super) fn each_applied(&self) -> Result<Vec<(ShardId, Seq)>, StoreError> {
        self.shared.current()?.catch_panics(OpenTable::each_applied)
    }

    /// How far the records of the shard have come. Fails if they are older than the last checkpoint that was finished.
    pub(super) fn points(&self, shard: ShardId) -> Result<Option<Points>, StoreError> {
        self.shared.current()?.catch_panics(|table| {
            table.check_age(shard)?;
            table.points(shard)
        })
    }

    /// Describes where to look when the table is behind the journal: the applied seqs are mostly in fjall's own log.
    pub(super) fn describe_log(&self) -> String {
        let logs = fjall_files::logs(&self.shared.directory);
        let logs: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
        let table = self.shared.current();
        let torn: &[String] = table.as_ref().map_or(&[], |table| table.torn());
        let torn: String = torn.iter().map(|torn| format!("; {torn}")).collect();
        format!("the table's log is {}{torn}", logs.join(" and "))
    }

    /// From now on the keeper writes the inventory when the table has changed. Writes it once at once.
    pub(super) fn keep_inventory(&self, keeper: Keeper) -> Result<(), StoreError> {
        let keeper = self.shared.keeper.get_or_init(|| keeper);
        keeper.write(|| true)
    }

    /// Syncs everything. A failed table is left as it is, because the journal has what it lacks.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let close = move |table: &OpenTable| {
            table.close();
            if let Some(keeper) = shared.keeper.get()
                && table.failure().is_none()
                && let Err(error) = keeper.write(|| table.failure().is_none())
            {
                tracing::warn!(error = %in_full(&error), "the inventory of the table could not be written");
            }
            Ok(())
        };
        match self.shared.current() {
            Ok(table) => self.blocking(table, close).await,
            Err(_) => Ok(()),
        }
    }

    /// Calls `each` with whether the table is open, now and at every change. Returns the reason once the table has been
    /// closed for so long that only another process may be able to open it.
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
                    match tokio::time::timeout_at((since + GIVE_UP_AFTER).into(), states.changed()).await {
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

    /// Returns the open table. Waits for a limited time if it is being reopened.
    async fn wait_until_open(&self) -> Result<Arc<OpenTable>, StoreError> {
        let closed = match &*self.shared.state.borrow() {
            State::Open(table) => return Ok(table.clone()),
            State::Closed(closed) => closed.clone(),
        };
        let mut states = self.shared.state.subscribe();
        let open = states.wait_for(|state| matches!(state, State::Open(_)));
        // The value that `wait_for` returns locks the state, so it is dropped before the state is borrowed again.
        drop(tokio::time::timeout_at((closed.since + REOPEN_TIMEOUT).into(), open).await);
        self.shared.current()
    }

    /// Runs `count` look-ups: a few on this thread, many on another one.
    async fn look_up_with<T: Send + 'static>(
        &self,
        count: usize,
        look_up: impl FnOnce(&OpenTable) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let table = self.wait_until_open().await?;
        let found = match count <= MAX_INLINE_LOOK_UPS {
            true => table.catch_panics(look_up),
            false => self.blocking(table, move |table| table.catch_panics(look_up)).await,
        };
        self.wake_reopener_if_failed();
        found
    }

    /// Wakes the reopening thread if the table has failed, so that it need not wait for its next regular check.
    fn wake_reopener_if_failed(&self) {
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
    fn new(directory: &Path, directory_id: u64, table: OpenTable) -> Result<Arc<Shared>, StoreError> {
        let contained = table.catch_panics(OpenTable::each_applied)?.into_iter().collect();
        Ok(Arc::new(Shared {
            directory: directory.to_path_buf(),
            directory_id,
            state: watch::Sender::new(State::Open(Arc::new(table))),
            contained: Mutex::new(contained),
            keeper: OnceLock::new(),
        }))
    }

    /// The open table, or an error if it is being reopened.
    pub(super) fn current(&self) -> Result<Arc<OpenTable>, StoreError> {
        match &*self.state.borrow() {
            State::Open(table) => Ok(table.clone()),
            State::Closed(Closed { reason, .. }) => {
                Err(StoreError::Unavailable(format!("the table is being opened again: {reason}")))
            }
        }
    }

    /// Writes the inventory if the table has changed. Errors are ignored, because fjall may change the files meanwhile: the next call
    /// tries again, and an inventory that is older than the table does no harm.
    pub(super) fn refresh_inventory(&self, table: &OpenTable) {
        let Some(keeper) = self.keeper.get() else { return };
        if let Err(error) = keeper.refresh(|| table.failure().is_none()) {
            tracing::debug!(error = %in_full(&error), "the inventory of the table could not be written yet");
        }
    }

    /// Refuses a table that lacks the result of a successful checkpoint, because the journal may have dropped those
    /// appends.
    pub(super) fn check_checkpoints(&self, table: &OpenTable) -> Result<(), StoreError> {
        for (shard, upto) in self.contained().iter() {
            let applied = table.catch_panics(|table| table.applied(*shard))?;
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

/// As in [`Table`](crate::Table).
impl FjallTable {
    pub(super) async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        let table = self.wait_until_open().await?;
        self.blocking(table, move |table| table.catch_panics(|table| table.applied(shard))).await
    }

    pub(super) async fn get_many(
        &self,
        shard: ShardId,
        keys: Vec<Bytes>,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let count = keys.len();
        let get_all = move |table: &OpenTable| keys.iter().map(|key| table.get(shard, key)).collect();
        self.look_up_with(count, get_all).await
    }

    pub(super) async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if limit == 0 || from >= to {
            return Ok(Vec::new());
        }
        self.look_up_with(usize::MAX, move |table| table.scan(shard, &from, &to, limit)).await
    }

    pub(super) async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        let count = ranges.len();
        let find_all = move |table: &OpenTable| {
            ranges.iter().map(|(from, at)| table.last_at_or_before(shard, from, at)).collect()
        };
        self.look_up_with(count, find_all).await
    }

    pub(super) async fn checkpoint(
        &self,
        shard: ShardId,
        upto: Point,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        let table = self.wait_until_open().await?;
        let written = self.blocking(table, move |table| table.checkpoint(shard, upto, &records)).await;
        match written {
            Ok(()) => drop(self.shared.contained().insert(shard, upto.seq)),
            Err(_) => self.wake_reopener_if_failed(),
        }
        written
    }

    pub(super) async fn discard(&self, shard: ShardId, from: Bytes, to: Bytes) -> Result<(), StoreError> {
        let table = self.wait_until_open().await?;
        let discarded = self.blocking(table, move |table| table.discard(shard, &from, &to)).await;
        if discarded.is_err() {
            self.wake_reopener_if_failed();
        }
        discarded
    }
}
