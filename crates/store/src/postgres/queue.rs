//! A queue for a few tasks, each of which takes as many items as fit into one statement.
//!
//! The tasks take turns. Most of what a statement costs, in this process and in the server, it costs however many items it carries.
//! So while a statement is under way, the items that arrive wait and share the next one. But if the server takes long, another
//! task sends the next statement beside it: with a slow disk, both share the server's next sync, and a connection that hangs
//! delays the others only a little. Before a task takes items, it lets the tasks run that are ready to add theirs.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, task::yield_now, time::timeout};

/// How long a statement may be under way before another one is sent beside it.
const TURN: Duration = Duration::from_millis(5);

/// How often a task lets others run before it takes items, as long as there are more items each time.
const MAX_YIELDS: usize = 4;

pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    arrived: Notify,
    turn: tokio::sync::Mutex<()>,
}

/// The right to send the next statement.
pub(super) struct Turn<'a>(tokio::sync::MutexGuard<'a, ()>);

impl Turn<'_> {
    /// Runs a statement. The next task has its turn when the statement is answered, or has been under way for [`TURN`].
    pub(super) async fn run<R>(self, statement: impl Future<Output = R>) -> R {
        let mut statement = pin!(statement);
        match timeout(TURN, &mut statement).await {
            Ok(answer) => answer,
            Err(_) => {
                drop(self.0);
                statement.await
            }
        }
    }
}

struct State<T> {
    waiting: VecDeque<T>,
    is_closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State { waiting: VecDeque::new(), is_closed: false };
        Queue { state: Mutex::new(state), arrived: Notify::new(), turn: tokio::sync::Mutex::default() }
    }
}

impl<T> Queue<T> {
    /// Returns the item if the queue is closed.
    pub(super) fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(item);
        }
        state.waiting.push_back(item);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for its turn and for an item, and takes all items for which `fits` returns true, in order. Returns `None` when the
    /// queue is closed and empty.
    pub(super) async fn group(&self, mut fits: impl FnMut(&T) -> bool) -> Option<(Vec<T>, Turn<'_>)> {
        let turn = Turn(self.turn.lock().await);
        loop {
            let arrived = self.arrived.notified();
            self.gather().await;
            if let Some(group) = self.take(&mut fits) {
                return Some((group, turn)).filter(|(group, _)| !group.is_empty());
            }
            arrived.await;
        }
    }

    /// Lets the tasks that are ready to run add their items first. When a statement is answered, the shards that waited for it are
    /// woken, and so are those whose requests have arrived: without this, the next statement would be sent before they had run.
    async fn gather(&self) {
        let mut gathered = 0;
        for _ in 0..MAX_YIELDS {
            let waiting = self.lock().waiting.len();
            if waiting == gathered {
                return;
            }
            gathered = waiting;
            yield_now().await;
        }
    }

    /// The items that fit. `None` if the caller must wait.
    fn take(&self, fits: &mut impl FnMut(&T) -> bool) -> Option<Vec<T>> {
        let mut state = self.lock();
        if state.waiting.is_empty() && !state.is_closed {
            return None;
        }
        let (mut group, mut rest) = (Vec::new(), VecDeque::new());
        for item in state.waiting.drain(..) {
            match fits(&item) {
                true => group.push(item),
                false => rest.push_back(item),
            }
        }
        state.waiting = rest;
        if !state.waiting.is_empty() {
            self.arrived.notify_one();
        }
        Some(group)
    }

    /// Removes the items for which `is_it` returns true. Returns whether there were any.
    pub(super) fn remove(&self, mut is_it: impl FnMut(&T) -> bool) -> bool {
        let mut state = self.lock();
        let before = state.waiting.len();
        state.waiting.retain(|item| !is_it(item));
        state.waiting.len() < before
    }

    /// Accepts no more items. Those in the queue are still processed.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// All tasks run on one worker, so the order in which they run is known.
    #[tokio::test]
    async fn items_of_tasks_that_are_ready_share_a_statement() {
        let queue: Arc<Queue<u32>> = Arc::default();
        let pushes = (0..5).map(|item| {
            let queue = queue.clone();
            tokio::spawn(async move {
                // The second half needs two turns to have its item.
                if item > 2 {
                    yield_now().await;
                }
                queue.push(item).expect("it is open");
            })
        });
        let pushes: Vec<_> = pushes.collect();
        let (mut group, turn) = queue.group(|_| true).await.expect("it is open");
        group.sort_unstable();
        assert_eq!(group, [0, 1, 2, 3, 4]);
        drop(turn);
        for push in pushes {
            push.await.expect("it does not panic");
        }
    }

    /// A task that adds an item in each of its turns does not delay a statement for ever.
    #[tokio::test]
    async fn a_statement_does_not_wait_for_an_endless_stream_of_items() {
        let queue: Arc<Queue<u32>> = Arc::default();
        let endless = tokio::spawn({
            let queue = queue.clone();
            async move {
                while queue.push(0).is_ok() {
                    yield_now().await;
                }
            }
        });
        let (group, _turn) = queue.group(|_| true).await.expect("it is open");
        assert!((1..=MAX_YIELDS + 1).contains(&group.len()), "{group:?}");
        queue.close();
        endless.await.expect("it does not panic");
    }
}
