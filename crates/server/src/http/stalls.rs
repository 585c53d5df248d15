//! How long a client may take nothing of what is sent to it.

use limina_node::Budget;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a client may take nothing while memory is short.
pub(super) const IF_MEMORY_IS_SHORT: Duration = Duration::from_secs(5);

/// How long a client may take nothing: for a fixed time, and for [`IF_MEMORY_IS_SHORT`] while memory is short. Then what it does
/// not take is dropped, before other clients are refused.
#[derive(Clone)]
pub(super) struct Patience {
    pub(super) timeout: Duration,
    pub(super) memory: Budget,
}

/// Waits until a client has taken nothing for too long.
#[derive(Default)]
pub(super) struct StallTimer {
    /// The start of the wait for which the timer is set, and the timer.
    armed: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl StallTimer {
    /// Returns when the client has taken nothing since `since` for too long.
    pub(super) fn poll(
        &mut self,
        since: Instant,
        patience: &Patience,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        // Memory may become short at any time, so look again and again.
        let next = |now: Instant| (since + patience.timeout).min(now + IF_MEMORY_IS_SHORT);
        let (armed, timer) = self.armed.get_or_insert_with(|| (since, Box::pin(sleep_until(next(since)))));
        if *armed != since {
            *armed = since;
            timer.as_mut().reset(next(since));
        }
        loop {
            ready!(timer.as_mut().poll(context));
            let now = Instant::now();
            let waited = now - since;
            if waited >= patience.timeout || waited >= IF_MEMORY_IS_SHORT && patience.memory.is_short() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(next(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_node::{Metrics, memory::Kind};
    use std::future::poll_fn;

    /// How long a client may take nothing if memory becomes short after `short_after`.
    async fn check(timeout: u64, short_after: Option<u64>, expect: u64) {
        let memory = Budget::new(1 << 20, &Metrics::new());
        let patience = Patience { timeout: Duration::from_secs(timeout), memory: memory.clone() };
        let mut short = memory.account(Kind::State);
        let (begin, mut timer) = (Instant::now(), StallTimer::default());
        let stalled = async {
            poll_fn(|context| timer.poll(begin, &patience, context)).await;
            begin.elapsed().as_secs()
        };
        let becomes_short = async {
            if let Some(after) = short_after {
                tokio::time::sleep(Duration::from_secs(after)).await;
                short.set(1 << 20);
            }
        };
        let (waited, ()) = tokio::join!(stalled, becomes_short);
        assert_eq!(waited, expect, "timeout {timeout}, short after {short_after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_has_less_time_if_memory_is_short() {
        check(120, None, 120).await;
        check(120, Some(1), 5).await;
        check(120, Some(12), 15).await;
        check(3, Some(1), 3).await;
        check(7, None, 7).await;
    }
}
