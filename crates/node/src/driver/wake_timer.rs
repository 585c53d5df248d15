//! A timer that a task keeps for all of its turns.
//!
//! The runtime keeps all timers in one list, under a lock. A shard's task has two turns for each request. A new timer in each turn
//! would take that lock twice: when it is created and when it is dropped.

use std::{pin::Pin, time::Duration};
use tokio::time::{Instant, Sleep, sleep_until};

/// The runtime's timers are no finer than this.
const RESOLUTION: Duration = Duration::from_millis(1);

/// Wakes the task at the time for which it is set, to the millisecond. If it is set again for a later time, it also wakes the task at the
/// earlier one: moving the timer would cost more than an unneeded turn.
#[derive(Default)]
pub(super) struct WakeTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    is_set: bool,
}

impl WakeTimer {
    /// Adds a time at which the task must run. `None` adds nothing, and keeps what is set.
    pub(super) fn set(&mut self, at: Option<Instant>) {
        let Some(at) = at else { return };
        match &mut self.sleep {
            Some(sleep) if self.is_set && sleep.deadline() <= at + RESOLUTION => {}
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(sleep_until(at))),
        }
        self.is_set = true;
    }

    /// Waits for the time that is set, and unsets it. Without one, this waits forever.
    pub(super) async fn expired(&mut self) {
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

    /// How long it takes until the timer expires, in seconds. None if it does not expire within a minute.
    async fn waited(wake_timer: &mut WakeTimer) -> Option<u64> {
        let begin = Instant::now();
        timeout(Duration::from_secs(60), wake_timer.expired()).await.ok().map(|()| begin.elapsed().as_secs())
    }

    fn after(seconds: u64) -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(seconds))
    }

    #[tokio::test(start_paused = true)]
    async fn expires_once_for_each_time_that_was_set() {
        let mut wake_timer = WakeTimer::default();
        assert_eq!(waited(&mut wake_timer).await, None, "it was not set");
        wake_timer.set(after(5));
        assert_eq!(waited(&mut wake_timer).await, Some(5));
        assert_eq!(waited(&mut wake_timer).await, None, "it has expired");
        wake_timer.set(after(7));
        assert_eq!(waited(&mut wake_timer).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn can_be_set_earlier_but_not_later() {
        let mut wake_timer = WakeTimer::default();
        wake_timer.set(after(20));
        wake_timer.set(after(10));
        assert_eq!(waited(&mut wake_timer).await, Some(10), "the earlier time counts");
        wake_timer.set(after(10));
        wake_timer.set(after(20));
        assert_eq!(waited(&mut wake_timer).await, Some(10), "it expires early");
        wake_timer.set(after(10));
        assert_eq!(waited(&mut wake_timer).await, Some(10), "and is set again");
    }

    /// A branch of a `select!` is dropped and polled anew in each turn.
    #[tokio::test(start_paused = true)]
    async fn stays_set_while_no_task_waits() {
        let mut wake_timer = WakeTimer::default();
        wake_timer.set(after(10));
        assert!(timeout(Duration::from_secs(3), wake_timer.expired()).await.is_err());
        wake_timer.set(after(50));
        assert_eq!(waited(&mut wake_timer).await, Some(7));
    }
}
