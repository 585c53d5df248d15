//! The thread that reopens a table after a failure.
//!
//! Reopening takes two steps. First the table is opened for reading: this removes the files that the failed table left
//! behind, and needs no free space. Then it is opened for writing, which starts fjall's threads again. If the table
//! fails again soon, the thread pauses between the two steps. Otherwise compaction on a full disk would take the last
//! free space again and again, also from the journal.
//!
//! After a failed sync the kernel may show data that the disk does not have. So before each step the thread syncs what
//! the newly opened table relies on. While that fails, the table that is still open continues to serve reads.

use super::{
    damage, directory, fjall_files,
    open_table::{OpenTable, TableOpener, WORKERS, in_full},
    table::{Closed, Shared, State},
};
use crate::StoreError;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How often the table is checked. fjall does not report when its threads have failed.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How often to check whether the last look-up in a failed table has ended.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Pause before the next attempt to open the table.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// A table that fails sooner than this after opening has failed again, so the next pause is longer.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// The shortest and the longest time for which a failed table is only read before it is opened for writing. The pause
/// doubles with each failure that follows soon.
const PAUSE_RANGE: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(4)];

/// The handle of the thread. Dropping it stops the thread.
pub(super) struct Reopener {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

/// How other threads wake this one.
#[derive(Default)]
struct Signal {
    requests: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Default)]
struct Requests {
    check: bool,
    stop: bool,
}

impl Reopener {
    /// Starts the thread. It reopens the table with `opener`.
    pub(super) fn start(shared: Arc<Shared>, opener: TableOpener) -> Result<Reopener, StoreError> {
        let signal = Arc::new(Signal::default());
        let run = ReopenThread { shared, opener, signal: signal.clone() };
        let thread = std::thread::Builder::new().name("limina-table".to_string()).spawn(move || run.run());
        let thread = thread.map_err(|error| StoreError::io("starting", "the table's thread", error))?;
        Ok(Reopener { signal, thread: Some(thread) })
    }

    /// Makes the thread check the table now.
    pub(super) fn wake(&self) {
        self.signal.lock().check = true;
        self.signal.changed.notify_one();
    }
}

impl Drop for Reopener {
    fn drop(&mut self) {
        self.signal.lock().stop = true;
        self.signal.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a check is requested, at most for `longest`. Returns true if the thread must stop.
    fn wait_for_check(&self, longest: Duration) -> bool {
        let idle = |requests: &mut Requests| !requests.check && !requests.stop;
        let waited = self.changed.wait_timeout_while(self.lock(), longest, idle);
        let mut requests = waited.unwrap_or_else(PoisonError::into_inner).0;
        requests.check = false;
        requests.stop
    }

    /// Waits for `pause`. Returns true if the thread must stop.
    fn wait(&self, pause: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), pause, |requests| !requests.stop);
        waited.unwrap_or_else(PoisonError::into_inner).0.stop
    }
}

/// The state of the thread.
struct ReopenThread {
    shared: Arc<Shared>,
    opener: TableOpener,
    signal: Arc<Signal>,
}

impl ReopenThread {
    fn run(self) {
        let [least, most] = PAUSE_RANGE;
        let mut pause = least;
        let mut opened = Instant::now();
        loop {
            let Ok(table) = self.shared.current() else { return };
            let Some(reason) = table.failure().map(str::to_string) else {
                self.shared.refresh_inventory(&table);
                drop(table);
                match self.signal.wait_for_check(CHECK_INTERVAL) {
                    true => return,
                    false => continue,
                }
            };
            tracing::error!(%reason, "the table failed; it is opened again");
            pause = if opened.elapsed() > STABLE_AFTER { least } else { (2 * pause).min(most) };
            if self.retry_until_ok(pause, || self.sync_all()) {
                return;
            }
            self.replace(table, &reason, 0);
            if self.signal.wait(pause) || self.retry_until_ok(pause, || self.rewrite_logs()) {
                return;
            }
            let Ok(table) = self.shared.current() else { return };
            self.replace(table, &reason, WORKERS);
            opened = Instant::now();
        }
    }

    /// Retries until the operation succeeds. Returns true if the thread must stop.
    fn retry_until_ok(&self, pause: Duration, succeeds: impl Fn() -> Result<(), StoreError>) -> bool {
        let mut logged = String::new();
        while let Err(error) = succeeds() {
            let words = in_full(&error);
            if words != logged {
                tracing::error!(error = %words, "the table cannot be written to yet; it is only read");
                logged = words;
            }
            if self.signal.wait(pause) {
                return true;
            }
        }
        false
    }

    /// Makes the name of each keyspace's current version durable, because opening removes the files of all other
    /// versions.
    fn sync_names(&self) -> Result<(), StoreError> {
        fjall_files::sync_names(&self.shared.directory)
    }

    /// Checks that the disk accepts what opening does: fjall also truncates its logs and syncs them.
    fn sync_all(&self) -> Result<(), StoreError> {
        self.sync_names()?;
        fjall_files::logs(&self.shared.directory).iter().try_for_each(|log| directory::sync(log))
    }

    /// Makes fjall's logs durable by writing their bytes again, because fjall will append to them. Nothing else writes
    /// to them meanwhile, since the open table is only read.
    fn rewrite_logs(&self) -> Result<(), StoreError> {
        let directory = &self.shared.directory;
        fjall_files::logs(directory).iter().try_for_each(|log| fjall_files::rewrite_log(log))?;
        directory::sync(directory)
    }

    /// Closes the table and reopens it; without workers, for reading only. If the thread must stop, it returns early
    /// and leaves the table closed.
    fn replace(&self, table: Arc<OpenTable>, reason: &str, workers: usize) {
        let since = Instant::now();
        let closed = |reason: String| State::Closed(Closed { since, reason });
        drop(self.shared.state.send_replace(closed(reason.to_string())));
        // fjall locks the directory. So the old table, including its running look-ups, must be gone before the new one
        // is opened.
        while Arc::strong_count(&table) > 1 {
            if self.signal.wait(CLOSE_POLL_INTERVAL) {
                return;
            }
        }
        // Dropping ends fjall's threads. It panics if one of them has panicked, but releases everything.
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(table)));
        let mut logged = String::new();
        loop {
            match self.open(workers) {
                Ok(table) => {
                    let elapsed_ms = since.elapsed().as_millis() as u64;
                    tracing::info!(elapsed_ms, is_writable = workers > 0, "the table is open again");
                    self.shared.state.send_replace(State::Open(Arc::new(table)));
                    return;
                }
                Err(error) => {
                    let words = in_full(&error);
                    if words != logged {
                        tracing::error!(error = %words, "the table cannot be opened again; trying");
                        logged.clone_from(&words);
                        self.shared.state.send_replace(closed(words));
                    }
                }
            }
            if self.signal.wait(OPEN_RETRY_INTERVAL) {
                return;
            }
        }
    }

    fn open(&self, workers: usize) -> Result<OpenTable, StoreError> {
        self.sync_names()?;
        let torn = damage::check_before_opening(&self.shared.directory)?;
        let table = TableOpener { workers, ..self.opener.clone() }.open(torn)?;
        table.catch_panics(|table| table.check_created(self.shared.directory_id))?;
        self.shared.check_checkpoints(&table)?;
        Ok(table)
    }
}
