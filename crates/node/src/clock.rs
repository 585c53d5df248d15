//! Reads the clocks of the machine, so that no other file of this crate does.

use limina_shard::clock::Reading;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Reads the monotonic clock and the wall clock at the same moment. The monotonic clock is tokio's, so that tests can pause it.
#[derive(Debug, Clone)]
pub(crate) struct Clocks {
    start: Instant,
}

impl Clocks {
    pub(crate) fn new() -> Clocks {
        Clocks { start: Instant::now() }
    }

    pub(crate) fn read(&self) -> Reading {
        Reading {
            monotonic: self.monotonic(),
            // A clock before 1970 reads as 1970.
            wall: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros),
        }
    }

    /// Microseconds since [`Clocks::new`].
    pub(crate) fn monotonic(&self) -> u64 {
        micros(self.start.elapsed())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
