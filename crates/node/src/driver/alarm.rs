//! A timer that a task keeps for all of its turns.
//!
//! The runtime has all timers in one list, under a lock. A shard's task has two turns for a request. A new timer in each turn would take
//! that lock when it is made and again when it is dropped.

use std::{pin::Pin, time::Duration};
use tokio::time::{Instant, Sleep, sleep_until};

/// The runtime's timers are no finer than this.
const RESOLUTION: Duration = Duration::from_millis(1);

/// Rings about at the time for which it is set, or earlier: an earlier time stays set until it has come.
#[derive(Default)]
pub(super) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    is_set: bool,
}

impl Alarm {
    /// With `None`, no time is added. One that is set stays.
    pub(super) fn set(&mut self, at: Option<Instant>) {
        let Some(at) = at else { return };
        match &mut self.sleep {
            Some(sleep) if self.is_set && sleep.deadline() <= at + RESOLUTION => {}
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(sleep_until(at))),
        }
        self.is_set = true;
    }

    /// Returns when it rings. Then it is no longer set.
    pub(super) async fn rings(&mut self) {
        match &mut self.sleep {
            Some(sleep) if self.is_set => {
                sleep.as_mut().await;
                self.is_set = false;
            }
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    /// How long it takes until the alarm rings, in seconds. None if it does not ring within a minute.
    async fn waited(alarm: &mut Alarm) -> Option<u64> {
        let begin = Instant::now();
        timeout(Duration::from_secs(60), alarm.rings()).await.ok().map(|()| begin.elapsed().as_secs())
    }

    fn after(seconds: u64) -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(seconds))
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_once_for_each_time_that_was_set() {
        let mut alarm = Alarm::default();
        assert_eq!(waited(&mut alarm).await, None, "it was not set");
        alarm.set(after(5));
        assert_eq!(waited(&mut alarm).await, Some(5));
        assert_eq!(waited(&mut alarm).await, None, "it has rung");
        alarm.set(after(7));
        assert_eq!(waited(&mut alarm).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_put_forward_and_not_back() {
        let mut alarm = Alarm::default();
        alarm.set(after(20));
        alarm.set(after(10));
        assert_eq!(waited(&mut alarm).await, Some(10), "the earlier time counts");
        alarm.set(after(10));
        alarm.set(after(20));
        assert_eq!(waited(&mut alarm).await, Some(10), "it rings early");
        alarm.set(after(10));
        assert_eq!(waited(&mut alarm).await, Some(10), "and is set again");
    }

    /// A branch of a `select!` is dropped and polled anew in each turn.
    #[tokio::test(start_paused = true)]
    async fn it_stays_set_if_nobody_waits() {
        let mut alarm = Alarm::default();
        alarm.set(after(10));
        assert!(timeout(Duration::from_secs(3), alarm.rings()).await.is_err());
        alarm.set(after(50));
        assert_eq!(waited(&mut alarm).await, Some(7));
    }
}
