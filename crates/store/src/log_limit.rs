//! Keeps a failure that repeats from filling the log: one line a second for each cause.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The time between two lines with the same cause.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most causes that are remembered. Beyond that, the one that was logged longest ago is forgotten.
const MAX_CAUSES: usize = 64;

/// Decides for one message of the log which of its occurrences are logged. It belongs to the process, like the log.
#[derive(Debug)]
pub struct LogLimit(Mutex<BTreeMap<String, Logged>>);

#[derive(Debug)]
struct Logged {
    at: Instant,
    /// Occurrences since then.
    since: u64,
}

impl LogLimit {
    /// Nothing was logged yet.
    #[expect(clippy::new_without_default, reason = "each message has a static of its own")]
    pub const fn new() -> LogLimit {
        LogLimit(Mutex::new(BTreeMap::new()))
    }

    /// Notes that the message occurs with this error. If it is to be logged, returns how often it has occurred since it was logged with the
    /// same cause. Errors that differ in numbers alone are the same cause.
    pub fn times(&self, error: &dyn Error) -> Option<u64> {
        self.times_for(&cause(error))
    }

    /// The same for a cause that is not an error.
    pub fn times_for(&self, cause: &str) -> Option<u64> {
        self.times_at(cause, Instant::now())
    }

    fn times_at(&self, cause: &str, now: Instant) -> Option<u64> {
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(logged) = causes.get_mut(cause) {
            logged.since += 1;
            if now.saturating_duration_since(logged.at) < INTERVAL {
                return None;
            }
            logged.at = now;
            return Some(std::mem::take(&mut logged.since));
        }
        if causes.len() >= MAX_CAUSES
            && let Some(oldest) =
                causes.iter().min_by_key(|(_, logged)| logged.at).map(|(cause, _)| cause.clone())
        {
            causes.remove(&oldest);
        }
        causes.insert(cause.to_owned(), Logged { at: now, since: 0 });
        Some(1)
    }
}

/// The texts of the error and of its sources, without digits.
fn cause(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text.retain(|character| !character.is_ascii_digit());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreError;

    #[test]
    fn each_cause_is_logged_once_a_second() {
        let (limit, begin) = (LogLimit::new(), Instant::now());
        let mut logged = Vec::new();
        for ms in 0..2_500 {
            let now = begin + Duration::from_millis(ms);
            logged.extend(limit.times_at("a", now).map(|times| (ms, "a", times)));
            if ms % 10 == 5 {
                logged.extend(limit.times_at("b", now).map(|times| (ms, "b", times)));
            }
        }
        let expected = [
            (0, "a", 1),
            (5, "b", 1),
            (1_000, "a", 1_000),
            (1_005, "b", 100),
            (2_000, "a", 1_000),
            (2_005, "b", 100),
        ];
        assert_eq!(logged, expected);
    }

    #[test]
    fn causes_are_bounded_and_do_not_differ_by_numbers() {
        let limit = LogLimit::new();
        let error = |text: &str| StoreError::Unusable(text.to_owned());
        assert_eq!(limit.times(&error("append 7 of shard 1 does not follow 5")), Some(1));
        assert_eq!(limit.times(&error("append 18 of shard 2 does not follow 3")), None);
        assert_eq!(limit.times(&error("another")), Some(1));
        for name in 'a'..='z' {
            for other in 'a'..='z' {
                assert_eq!(limit.times(&error(&format!("{name}{other}"))), Some(1));
            }
        }
        assert_eq!(limit.0.lock().unwrap().len(), MAX_CAUSES);
    }
}
