//! Counts the requests that the tower layer let pass or refused without a decision, and says so in the log.

use crate::error::Error;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// How many requests the tower layers of a client passed or refused because they got no decision.
#[derive(Default)]
pub struct Undecided {
    passed: AtomicU64,
    refused: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    next_line: Option<Instant>,
    logged: u64,
}

impl Undecided {
    /// Requests that passed without a decision.
    pub fn passed(&self) -> u64 {
        self.passed.load(Relaxed)
    }

    /// Requests that were refused because there was no decision.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Counts a request. Writes a warning into the log, at most once a minute.
    pub(crate) fn count(&self, error: &Error, passed: bool) {
        if let Some(requests) = self.add(passed, Instant::now()) {
            let action = if passed { "passed" } else { "were refused" };
            tracing::warn!(
                "no decision from the limiter: {requests} requests {action} since the last such line; {error}"
            );
        }
    }

    /// Returns the number of requests for the log, if a line is due.
    fn add(&self, passed: bool, now: Instant) -> Option<u64> {
        let counter = if passed { &self.passed } else { &self.refused };
        counter.fetch_add(1, Relaxed);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.next_line.is_some_and(|next| now < next) {
            return None;
        }
        let total = self.passed() + self.refused();
        let new = total - log.logged;
        *log = Log { next_line: Some(now + BETWEEN_LINES), logged: total };
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_once_a_minute() {
        let undecided = Undecided::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let lines = [(true, 0), (true, 1), (false, 59), (true, 60), (true, 61)];
        let lines = lines.map(|(passed, seconds)| undecided.add(passed, at(seconds)));
        assert_eq!(lines, [Some(1), None, None, Some(3), None]);
        assert_eq!((undecided.passed(), undecided.refused()), (4, 1));
    }
}
