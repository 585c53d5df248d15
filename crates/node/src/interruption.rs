//! Notices that the process stood still: it was stopped, its processors were busy with other programs, or its machine was suspended.
//!
//! Meanwhile nobody could send a heartbeat, although clients tried. So every shard treats it as an interruption before it executes
//! anything else.

use crate::{clock::Clocks, cluster::TenureGuard};
use limina_shard::clock::Reading;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The process counts as standing still if it has shown no life for longer than this, in microseconds.
const LONGEST_SILENCE: u64 = 1_000_000;
/// How often the process shows that it lives, if no shard has anything to do.
const SHOW_LIFE_EVERY: Duration = Duration::from_millis(250);
/// A shard with something to do shows that the process lives if nothing else has for this long, in microseconds. So a task that is
/// late, while shards are served, is no interruption.
const LIFE_IS_RECENT: u64 = 100_000;

/// Counts interruptions of the process. A clone counts the same ones.
#[derive(Clone)]
pub(crate) struct InterruptionDetector(Arc<Shared>);

struct Shared {
    tenure_guard: TenureGuard,
    /// The last sign of life: both clocks, in microseconds. Written only while `writing` is locked, after `count`.
    monotonic: AtomicU64,
    wall: AtomicU64,
    count: AtomicU64,
    writing: Mutex<()>,
}

impl InterruptionDetector {
    fn new(clocks: Clocks, tenure_guard: TenureGuard) -> InterruptionDetector {
        let Reading { monotonic, wall } = clocks.read();
        InterruptionDetector(Arc::new(Shared {
            tenure_guard,
            monotonic: AtomicU64::new(monotonic),
            wall: AtomicU64::new(wall),
            count: AtomicU64::new(0),
            writing: Mutex::new(()),
        }))
    }

    /// Also starts a task that shows life regularly. It ends soon after the last clone is dropped.
    pub(crate) fn start(clocks: Clocks, tenure_guard: TenureGuard) -> InterruptionDetector {
        let detector = InterruptionDetector::new(clocks.clone(), tenure_guard);
        let shared = Arc::downgrade(&detector.0);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SHOW_LIFE_EVERY).await;
                let Some(shared) = shared.upgrade() else { return };
                InterruptionDetector(shared).show_life(clocks.read());
            }
        });
        detector
    }

    /// How many interruptions there were before `now`, which was read a moment ago. It is also a sign of life.
    pub(crate) fn count(&self, now: Reading) -> u64 {
        let (since_monotonic, since_wall) = self.silence(now);
        if since_monotonic.max(since_wall) > LIFE_IS_RECENT {
            self.show_life(now);
        }
        // A thread that sees the sign of life after an interruption also sees that the interruption was counted.
        self.0.count.load(Ordering::Acquire)
    }

    /// The silence until now was work of this process.
    pub(crate) fn excuse(&self, now: Reading) {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.set_last(now);
    }

    fn show_life(&self, now: Reading) {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (since_monotonic, since_wall) = self.silence(now);
        if since_monotonic.max(since_wall) > LONGEST_SILENCE {
            let is_suspended = since_monotonic <= LONGEST_SILENCE;
            if is_suspended {
                // The monotonic clock stood still too, so it does not tell how much of the tenure is left.
                self.0.tenure_guard.handle_suspension();
            }
            self.0.count.fetch_add(1, Ordering::Release);
            let paused_ms = since_monotonic.max(since_wall) / 1000;
            match is_suspended {
                false => tracing::warn!(
                    paused_ms,
                    "the process stood still; every lock, lease and open decision has its full ttl from now on"
                ),
                true => tracing::warn!(
                    paused_ms,
                    "the machine was suspended, or its wall clock was set forward; every lock, lease and open decision has its full ttl from now on"
                ),
            }
        }
        self.set_last(now);
    }

    /// `writing` must be locked. Does nothing if another thread, which has read the clocks later, was faster.
    fn set_last(&self, now: Reading) {
        if now.monotonic >= self.0.monotonic.load(Ordering::Relaxed) {
            self.0.monotonic.store(now.monotonic, Ordering::Release);
            self.0.wall.store(now.wall, Ordering::Release);
        }
    }

    /// Microseconds since the last sign of life, by each of the clocks.
    fn silence(&self, now: Reading) -> (u64, u64) {
        let since = |last: &AtomicU64, now: u64| now.saturating_sub(last.load(Ordering::Acquire));
        (since(&self.0.monotonic, now.monotonic), since(&self.0.wall, now.wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings in milliseconds after the start, and how many interruptions there were before the last one.
    #[track_caller]
    fn check(readings: &[(u64, u64)], expect: u64) {
        let clocks = Clocks::new();
        let start = clocks.read();
        let detector = InterruptionDetector::new(clocks.clone(), TenureGuard::alone(clocks));
        let mut found = 0;
        for (monotonic, wall) in readings {
            let now =
                Reading { monotonic: start.monotonic + monotonic * 1000, wall: start.wall + wall * 1000 };
            found = detector.count(now);
        }
        assert_eq!(found, expect, "{readings:?}");
    }

    #[test]
    fn a_silence_of_more_than_a_second_is_an_interruption() {
        check(&[(900, 900), (1_800, 1_800), (2_700, 2_700)], 0);
        check(&[(900, 900), (10_900, 10_900)], 1);
        check(&[(10_000, 10_000), (10_050, 10_050), (30_000, 30_000)], 2);
        // The machine was suspended: its monotonic clock stood still.
        check(&[(50, 50), (60, 9_060)], 1);
        // The wall clock was set back, and then the process stood still.
        check(&[(900, 0), (1_000, 100)], 0);
        check(&[(900, 0), (5_000, 0)], 1);
        // Threads show life in another order than that in which they have read the clocks.
        check(&[(2_700, 2_700), (200, 200), (2_900, 2_900)], 1);
    }

    /// Extending millions of holders may take long. That must not count as another interruption, which would extend them again.
    #[test]
    fn work_of_the_process_is_no_interruption() {
        let clocks = Clocks::new();
        let detector = InterruptionDetector::new(clocks.clone(), TenureGuard::alone(clocks.clone()));
        let Reading { monotonic, wall } = clocks.read();
        let after = |ms: u64| Reading { monotonic: monotonic + ms * 1000, wall: wall + ms * 1000 };
        assert_eq!(detector.count(after(10_000)), 1);
        detector.excuse(after(12_000));
        assert_eq!(detector.count(after(12_500)), 1);
        assert_eq!(detector.count(after(14_000)), 2);
    }

    /// After a suspension nothing is certain until the tenure is renewed. A node on a store of its own has no tenure to lose.
    #[test]
    fn a_suspension_makes_the_tenure_uncertain() {
        for (is_alone, expect) in [(true, true), (false, false)] {
            let clocks = Clocks::new();
            let guard = match is_alone {
                true => TenureGuard::alone(clocks.clone()),
                false => TenureGuard::shared(clocks.clone()),
            };
            guard.renewed(clocks.monotonic(), if is_alone { Duration::MAX } else { Duration::from_secs(60) });
            let detector = InterruptionDetector::new(clocks.clone(), guard.clone());
            let now = clocks.read();
            assert!(guard.is_sure(0));
            assert_eq!(detector.count(Reading { wall: now.wall + 9_000_000, ..now }), 1);
            assert_eq!(guard.is_sure(0), expect);
        }
    }
}
