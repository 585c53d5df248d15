//! Progress reports of subcommands that may take long.

use std::{
    io::Write,
    time::{Duration, Instant},
};

/// The shortest time between two reports.
const INTERVAL: Duration = Duration::from_secs(5);

/// Reports progress from time to time.
pub(crate) struct Progress {
    last: Instant,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { last: Instant::now() }
    }

    /// Prints a report to standard error, unless the last one is recent. A short command prints none.
    pub(crate) fn report(&mut self, words: impl FnOnce() -> String) {
        if self.last.elapsed() >= INTERVAL {
            self.last = Instant::now();
            say(&words());
        }
    }
}

/// Prints a line to standard error. `eprintln!` would panic if standard error is closed.
pub(crate) fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "limina: {words}");
}
