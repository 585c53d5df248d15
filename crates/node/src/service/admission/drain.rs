//! How long a shard takes for what waits in its queue, and how long its appends take, learned from how long they took before.

use std::time::Duration;

/// The part that a new measurement has in the average.
const NEW_PART: f64 = 0.25;

/// How many times longer than expected a round may count. Now and then a round takes very long, because other work keeps the processors
/// busy or the table is slow for a moment. One such round must not make a busy shard refuse requests that it would answer in time.
const MOST_LONGER: f64 = 4.0;

/// The part of a longer time that is added to the shortest one. So the shortest time of about so many appends counts.
const LONGER_PART: u32 = 32;

/// The time that the shard needs for one unit of weight, including everything that holds it up: other shards on the same
/// processors, look-ups, the disk. 0 until it is measured.
#[derive(Debug, Default)]
pub(super) struct DrainTime {
    seconds: f64,
}

impl DrainTime {
    /// The shard needed this time for a full round of this weight.
    pub(super) fn measured(&mut self, time: Duration, weight: usize) {
        let measured = time.as_secs_f64() / weight as f64;
        let most = if self.seconds > 0.0 { self.seconds * MOST_LONGER } else { measured };
        self.blend(measured.min(most));
    }

    /// The shard needed this time for a round that was not full. Part of the time does not depend on the weight, so in a full
    /// round each unit takes no longer than this. Without such measurements, a shard that was slow once would be thought slow
    /// for ever: the few requests that may then wait never fill a round.
    pub(super) fn at_most(&mut self, time: Duration, weight: usize) {
        let at_most = time.as_secs_f64() / weight as f64;
        if at_most < self.seconds {
            self.blend(at_most);
        }
    }

    /// The time for this weight.
    pub(super) fn of(&self, weight: usize) -> Duration {
        Duration::try_from_secs_f64(self.seconds * weight as f64).unwrap_or(Duration::MAX)
    }

    fn blend(&mut self, seconds: f64) {
        self.seconds += (seconds - self.seconds) * NEW_PART;
    }
}

/// About the shortest time that appends took lately. Longer ones say more about processors that are busy than about the store.
#[derive(Debug, Default)]
pub(super) struct AppendTime(Duration);

impl AppendTime {
    pub(super) fn measured(&mut self, time: Duration) {
        self.0 = match time.checked_sub(self.0) {
            Some(longer) => self.0 + longer / LONGER_PART,
            None => time,
        };
    }

    pub(super) fn get(&self) -> Duration {
        self.0
    }
}
