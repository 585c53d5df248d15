//! Shard time: close to the wall clock, but it never goes back and never jumps.

use limina_engine::Time;

/// Turns readings of the machine's two clocks into shard time.
///
/// Shard time starts at the later of the last persisted shard time and the wall clock. If another process handed the
/// shard over, it starts at the time of that process. It advances with the monotonic clock, and is slewed towards the
/// wall clock by at most 5 %. A step of the wall clock is reported, but not followed.
#[derive(Debug)]
pub struct ShardClock {
    /// Shard time, in microseconds, at the last reading.
    time: u64,
    monotonic: u64,
    /// Microseconds by which the wall clock was ahead at the last reading.
    ahead: i64,
    /// Microseconds since one was last added or left out, less than [`SLEW`].
    unslewed: u64,
}

/// While shard time catches up with the wall clock, one in this many microseconds is added or left out: 5 %.
const SLEW: u64 = 20;

/// If the wall clock moves by this much against the monotonic clock between two readings, it was stepped.
const STEP: u64 = 1_000_000;

/// How far behind the wall clock an overloaded shard may hold shard time.
const MOST_BEHIND: i64 = 1_000_000;

/// Both clocks, read at the same moment, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Since any fixed moment.
    pub monotonic: u64,
    /// Since the Unix epoch.
    pub wall: u64,
}

impl ShardClock {
    /// Starts at the later of the persisted time and the wall clock.
    pub fn start(persisted: Time, reading: Reading) -> ShardClock {
        ShardClock::at(reading.wall.max(persisted.0.saturating_mul(1000)), reading)
    }

    /// Continues from the time that another process had a moment ago, however far the wall clock here is from it. So
    /// the remaining time of leases and locks stays the same, give or take 5 %.
    pub fn go_on(from: Time, reading: Reading) -> ShardClock {
        ShardClock::at(from.0.saturating_mul(1000), reading)
    }

    fn at(time: u64, reading: Reading) -> ShardClock {
        let ahead = difference(reading.wall, time);
        ShardClock { time, monotonic: reading.monotonic, ahead, unslewed: 0 }
    }

    /// Shard time at this reading. The second value is the size of a step of the wall clock, in milliseconds, if
    /// there was one since the last reading.
    pub fn advance(&mut self, reading: Reading) -> (Time, Option<i64>) {
        let elapsed = reading.monotonic.saturating_sub(self.monotonic);
        self.monotonic = self.monotonic.max(reading.monotonic);
        let straight = self.time.saturating_add(elapsed);
        let ahead = difference(reading.wall, straight);
        let step = ahead.abs_diff(self.ahead) > STEP;
        let step = step.then(|| ahead.saturating_sub(self.ahead) / 1000);
        let since = self.unslewed.saturating_add(elapsed);
        self.unslewed = since % SLEW;
        let slew = ahead.unsigned_abs().min(since / SLEW);
        self.time = if ahead >= 0 { straight.saturating_add(slew) } else { straight - slew };
        self.ahead = difference(reading.wall, self.time);
        (self.time(), step)
    }

    /// Holds shard time at the end of this millisecond, because the shard has come no further. It catches up with the
    /// wall clock as usual. If it would be more than a second behind, the call has no effect.
    pub fn hold(&mut self, at: Time) {
        let held = at.0.saturating_mul(1000).saturating_add(999);
        let ahead = self.ahead.saturating_add(difference(self.time, held));
        if held < self.time && ahead <= MOST_BEHIND {
            (self.time, self.ahead) = (held, ahead);
        }
    }

    /// Shard time at the last reading.
    pub fn time(&self) -> Time {
        Time(self.time / 1000)
    }
}

fn difference(a: u64, b: u64) -> i64 {
    if a >= b {
        i64::try_from(a - b).unwrap_or(i64::MAX)
    } else {
        i64::try_from(b - a).map_or(i64::MIN, |d| -d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn at(monotonic: u64, wall: u64) -> Reading {
        Reading { monotonic, wall }
    }

    #[test]
    fn starts_at_the_later_of_persisted_and_wall() {
        assert_eq!(ShardClock::start(Time(5_000), at(0, 9 * S)).time(), Time(9_000));
        assert_eq!(ShardClock::start(Time(12_000), at(0, 9 * S)).time(), Time(12_000));
    }

    /// The wall clock of the next owner is an hour ahead, or an hour behind.
    #[test]
    fn continues_from_the_time_of_another_process() {
        for (wall, after_a_minute) in [(3_700 * S, 163_000), (50 * S, 157_000)] {
            let mut clock = ShardClock::go_on(Time(100_000), at(7 * S, wall));
            assert_eq!(clock.time(), Time(100_000));
            assert_eq!(clock.advance(at(67 * S, wall + 60 * S)), (Time(after_a_minute), None));
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_is_reported_and_not_followed() {
        let mut clock = ShardClock::start(Time(0), at(0, 100 * S));
        assert_eq!(clock.advance(at(S, 101 * S)), (Time(101_000), None));
        // A step of an hour forward: in one second, shard time advances by at most 5 % more.
        assert_eq!(clock.advance(at(2 * S, 3_702 * S)), (Time(102_050), Some(3_600_000)));
        // A step back: shard time never goes back, and advances by at most 5 % less.
        let (time, step) = clock.advance(at(3 * S, 50 * S));
        assert_eq!((time, step.is_some_and(|ms| ms < -3_600_000)), (Time(103_000), true));
    }

    #[test]
    fn is_held_back_but_not_far_behind_the_wall_clock() {
        let mut clock = ShardClock::start(Time(0), at(0, 100 * S));
        clock.advance(at(S, 101 * S));
        clock.hold(Time(100_600));
        assert_eq!(clock.time(), Time(100_600));
        clock.hold(Time(100_700));
        assert_eq!(clock.time(), Time(100_600), "it is not put forward");
        // No step is reported, and after a second 5 % of the lag has been made up.
        assert_eq!(clock.advance(at(2 * S, 102 * S)), (Time(101_650), None));
        clock.hold(Time(100_900));
        assert_eq!(clock.time(), Time(101_650), "that would be more than a second");
    }

    /// A busy shard reads its clock every few microseconds.
    #[test]
    fn catches_up_however_often_it_is_read() {
        let mut clock = ShardClock::go_on(Time(99_000), at(0, 100 * S));
        for micros in (0..=10 * S).step_by(7) {
            clock.advance(at(micros, 100 * S + micros));
        }
        // 5 % of ten seconds.
        assert_eq!(clock.time(), Time(109_499));
    }

    #[test]
    fn catches_up_slowly_and_never_goes_back() {
        let mut clock = ShardClock::start(Time(110_000), at(0, 100 * S));
        let mut last = clock.time();
        for second in 1..=300 {
            let (time, step) = clock.advance(at(second * S, (100 + second) * S));
            assert!(time >= last && step.is_none());
            last = time;
        }
        // At 5 %, a difference of ten seconds takes 200 seconds to disappear.
        assert_eq!(last, Time(400_000));
    }
}
