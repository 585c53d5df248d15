//! A short pause before a write, in which other tasks add to it.
//!
//! A task that adds a message wakes the connection's task, which the runtime then runs next. So each message would be written
//! alone, although many tasks may be ready to add theirs: after an append, for example, all shards that it has made durable
//! answer. A write costs more than everything else about a message, on both sides. So the connection's task first lets the worker
//! run what is ready, and look for what has arrived. If nothing else is ready, the pause is one look at the sockets.

use futures_util::task::AtomicWaker;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};
use tokio::task::yield_now;

/// The pause of one connection.
#[derive(Default)]
pub(super) struct Gathering {
    end: Arc<End>,
    has_begun: bool,
}

/// The task may be woken several times during the pause, so the end of the pause needs a mark of its own.
#[derive(Default)]
struct End {
    is_reached: AtomicBool,
    task: AtomicWaker,
}

impl Wake for End {
    fn wake(self: Arc<Self>) {
        self.is_reached.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl Gathering {
    /// Begins the pause, or returns when it has ended. The next call begins another one.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.end.task.register(context.waker());
        if !self.has_begun {
            self.has_begun = true;
            // The runtime keeps the waker until its worker polls the sockets. It does that when it has run out of tasks, or after some
            // dozens of them.
            let waker = Waker::from(self.end.clone());
            let _pending = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
        }
        if !self.end.is_reached.swap(false, Ordering::Acquire) {
            return Poll::Pending;
        }
        self.has_begun = false;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, sync::atomic::AtomicUsize};

    /// All tasks run on one worker. Each wakes the task that waits, which must not end the pause.
    #[tokio::test]
    async fn the_tasks_that_are_ready_run_during_the_pause() {
        const TASKS: usize = 10;
        let mut gathering = Gathering::default();
        for round in 1..=3 {
            let (waiting, added) = (Arc::new(AtomicWaker::new()), Arc::new(AtomicUsize::new(0)));
            for _ in 0..TASKS {
                let (waiting, added) = (waiting.clone(), added.clone());
                tokio::spawn(async move {
                    added.fetch_add(1, Ordering::Relaxed);
                    waiting.wake();
                });
            }
            poll_fn(|context| {
                waiting.register(context.waker());
                gathering.poll(context)
            })
            .await;
            assert_eq!(added.load(Ordering::Relaxed), TASKS, "in round {round}");
        }
    }

    #[tokio::test]
    async fn a_pause_in_which_nothing_happens_ends() {
        let mut gathering = Gathering::default();
        poll_fn(|context| gathering.poll(context)).await;
        poll_fn(|context| gathering.poll(context)).await;
    }
}
