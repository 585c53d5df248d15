//! Word of how far something is that may take long.

use std::{
    io::Write,
    time::{Duration, Instant},
};

/// Word of progress comes no more often than this.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells now and then.
pub(crate) struct Progress {
    last: Instant,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { last: Instant::now() }
    }

    /// To standard error, and only where it takes long.
    pub(crate) fn tell(&mut self, words: impl FnOnce() -> String) {
        if self.last.elapsed() >= PATIENCE {
            self.last = Instant::now();
            say(&words());
        }
    }
}

/// To standard error. Not by `eprintln!`, which panics where that is closed.
pub(crate) fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "limina: {words}");
}
