//! The thread that closes a table that has failed, and opens it again.
//!
//! That is done in two steps. First the table is opened for reading: this removes the files that the failed table left
//! behind, and needs no free space. Then it is opened for writing, which brings fjall's threads back. Where the table fails
//! again soon, there is a pause between the two: on a full disk compaction would otherwise take the last free space again
//! and again, from the journal too.
//!
//! After a failed sync the kernel may show what the disk does not have. So before each step, what the newly opened table
//! relies on is made durable. While that fails, the table that is still open goes on to be read.

use super::{
    damage, directory, fjall_files,
    open_table::{OpenTable, Opening, WORKERS, in_full},
    table::{Closed, Shared, State},
};
use crate::StoreError;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How often the table is looked at. fjall does not tell when its threads have failed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often to see whether the last look-up in a failed table has ended.
const CLOSE_EVERY: Duration = Duration::from_millis(2);
/// How long to wait before opening is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// A table that fails sooner than this after it was opened has failed again.
const LASTS: Duration = Duration::from_secs(30);
/// How long a table that has failed is only read, before it is opened for writing: at least, and at most if it fails again
/// and again.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(4)];

/// The handle of the thread. Dropping it ends the thread.
pub(super) struct Reopener {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

/// How the thread is woken.
#[derive(Default)]
struct Signal {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    is_look: bool,
    is_end: bool,
}

impl Reopener {
    /// Begins to look after the table, which is opened again as `opening` says.
    pub(super) fn start(shared: Arc<Shared>, opening: Opening) -> Result<Reopener, StoreError> {
        let signal = Arc::new(Signal::default());
        let run = Run { shared, opening, signal: signal.clone() };
        let thread = std::thread::Builder::new().name("limina-table".to_string()).spawn(move || run.run());
        let thread = thread.map_err(|error| StoreError::io("starting", "the table's thread", error))?;
        Ok(Reopener { signal, thread: Some(thread) })
    }

    /// Has the table looked at now.
    pub(super) fn wake(&self) {
        self.signal.lock().is_look = true;
        self.signal.changed.notify_one();
    }
}

impl Drop for Reopener {
    fn drop(&mut self) {
        self.signal.lock().is_end = true;
        self.signal.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a look is wanted, at most so long. Says whether the thread is to end.
    fn is_end_after_look(&self, longest: Duration) -> bool {
        let idle = |wanted: &mut Wanted| !wanted.is_look && !wanted.is_end;
        let waited = self.changed.wait_timeout_while(self.lock(), longest, idle);
        let mut wanted = waited.unwrap_or_else(PoisonError::into_inner).0;
        wanted.is_look = false;
        wanted.is_end
    }

    /// Waits so long. Says whether the thread is to end.
    fn is_end_after(&self, pause: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), pause, |wanted| !wanted.is_end);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_end
    }
}

/// What the thread itself holds.
struct Run {
    shared: Arc<Shared>,
    opening: Opening,
    signal: Arc<Signal>,
}

impl Run {
    fn run(self) {
        let [least, most] = PAUSES;
        let mut pause = least;
        let mut opened = Instant::now();
        loop {
            let Ok(table) = self.shared.current() else { return };
            let Some(reason) = table.failure().map(str::to_string) else {
                drop(table);
                match self.signal.is_end_after_look(LOOK_EVERY) {
                    true => return,
                    false => continue,
                }
            };
            tracing::error!(%reason, "the table failed; it is opened again");
            pause = if opened.elapsed() > LASTS { least } else { (2 * pause).min(most) };
            if self.is_end_before(pause, || self.sync_all()) {
                return;
            }
            self.replace(table, &reason, 0);
            if self.signal.is_end_after(pause) || self.is_end_before(pause, || self.write_logs_again()) {
                return;
            }
            let Ok(table) = self.shared.current() else { return };
            self.replace(table, &reason, WORKERS);
            opened = Instant::now();
        }
    }

    /// Tries until it succeeds. Says whether the thread is to end.
    fn is_end_before(&self, pause: Duration, succeeds: impl Fn() -> Result<(), StoreError>) -> bool {
        let mut told = String::new();
        while let Err(error) = succeeds() {
            let words = in_full(&error);
            if words != told {
                tracing::error!(error = %words, "the table cannot be written to yet; it is only read");
                told = words;
            }
            if self.signal.is_end_after(pause) {
                return true;
            }
        }
        false
    }

    /// Makes durable which version of a keyspace is current. Opening removes the files of all others.
    fn sync_names(&self) -> Result<(), StoreError> {
        fjall_files::keyspaces(&self.shared.directory).iter().try_for_each(|keyspace| {
            directory::sync(&keyspace.join("tables"))?;
            directory::sync(keyspace)
        })
    }

    /// Sees whether the disk takes what opening does: fjall also cuts its logs and syncs them.
    fn sync_all(&self) -> Result<(), StoreError> {
        self.sync_names()?;
        fjall_files::logs(&self.shared.directory).iter().try_for_each(|log| directory::sync(log))
    }

    /// Makes fjall's own logs durable, to which it will append, by writing their bytes once more. Nobody else writes to
    /// them, since the open table is only read.
    fn write_logs_again(&self) -> Result<(), StoreError> {
        let directory = &self.shared.directory;
        fjall_files::logs(directory).iter().try_for_each(|log| fjall_files::write_log_again(log))?;
        directory::sync(directory)
    }

    /// Closes the table and opens it again; without workers, only to be read. Returns early only where the thread is to
    /// end, and then leaves the table closed.
    fn replace(&self, table: Arc<OpenTable>, reason: &str, workers: usize) {
        let since = Instant::now();
        let closed = |reason: String| State::Closed(Closed { since, reason });
        drop(self.shared.state.send_replace(closed(reason.to_string())));
        // fjall locks the directory, so the new table can only be opened when the old one is gone, look-ups included.
        while Arc::strong_count(&table) > 1 {
            if self.signal.is_end_after(CLOSE_EVERY) {
                return;
            }
        }
        // Dropping ends fjall's threads. It panics where one of them has panicked, but lets go of everything.
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(table)));
        let mut told = String::new();
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
                    if words != told {
                        tracing::error!(error = %words, "the table cannot be opened again; trying");
                        told.clone_from(&words);
                        self.shared.state.send_replace(closed(words));
                    }
                }
            }
            if self.signal.is_end_after(TRY_AGAIN) {
                return;
            }
        }
    }

    fn open(&self, workers: usize) -> Result<OpenTable, StoreError> {
        self.sync_names()?;
        let torn = damage::check_before_opening(&self.shared.directory)?;
        let table = Opening { workers, ..self.opening.clone() }.run(torn)?;
        table.guarded(OpenTable::check_created)?;
        self.shared.check_contained(&table)?;
        Ok(table)
    }
}
