//! The channel to a shard's task: a [`Queue`] between the front ends and the task, and a clock.

use super::queue::{Cost, Overloaded, Queue, QueueOptions, Taken, Unanswered};
use limina_engine::{Name, Outcome, Request};
use limina_shard::Failure;
use std::{
    collections::{HashSet, VecDeque},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};

/// Takes the answer of one request to its caller. It is closed when the caller has gone.
pub(crate) type Ticket = oneshot::Sender<Result<Outcome, NotDecided>>;

/// A request on its way to its shard.
pub(crate) type Submission = (Ticket, Box<Request>);

/// Why a shard's task returns no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotDecided {
    /// The shard says why.
    Failed(Failure),
    /// The request waited for too long, and was not begun.
    Late(Overloaded),
}

/// Why a request did not enter a shard's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotQueued {
    Overloaded(Overloaded),
    /// The shard's task has ended, or takes no more requests.
    Closed,
}

/// The channel to a shard: front ends send, the shard's task receives.
pub(crate) fn shard_channel(options: QueueOptions) -> (ShardSender, ShardReceiver) {
    let channel = Arc::new(Channel(Mutex::new(State {
        queue: Queue::new(options),
        cancellations: VecDeque::new(),
        receiver: None,
        is_closed: false,
        is_abandoned: false,
    })));
    (ShardSender(channel.clone()), ShardReceiver(channel))
}

struct Channel(Mutex<State>);

struct State {
    queue: Queue<Submission>,
    /// Requests that take back an earlier submission whose client has gone. There are never more of them than there were
    /// such submissions, so they need no bound.
    cancellations: VecDeque<Submission>,
    /// Wakes the receiver, if it waits.
    receiver: Option<Waker>,
    /// No more requests are accepted. Cancellations still are.
    is_closed: bool,
    /// The receiver is gone.
    is_abandoned: bool,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the receiver, if it waits. Not under the lock, which the receiver takes first of all.
fn wake(receiver: Option<Waker>) {
    receiver.into_iter().for_each(Waker::wake);
}

/// The end of a shard's channel that requests are sent to. When it is dropped, the channel is closed.
pub(crate) struct ShardSender(Arc<Channel>);

impl ShardSender {
    /// Puts a request into the queue, unless it would wait there for too long. The result is to be dropped when the caller has
    /// its answer.
    pub(super) fn submit(&self, ticket: Ticket, request: Box<Request>) -> Result<Unanswered, NotQueued> {
        let cost = Cost { weight: request.weight().max(1) as u64, bytes: request.encoded_bytes() };
        let makes_room = request.makes_room();
        let namespace = request.namespace.clone();
        let now = Instant::now();
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(NotQueued::Closed);
        }
        let was_empty = state.queue.is_empty();
        let pushed = state.queue.push(now, &namespace, (ticket, request), cost, makes_room);
        // If requests wait already, the receiver was woken for them, or takes none for now.
        let receiver = if was_empty { state.receiver.take() } else { None };
        drop(state);
        // The refused request is dropped only now: freeing a large one takes time.
        let unanswered = pushed.map_err(|(_, overloaded)| NotQueued::Overloaded(overloaded))?;
        wake(receiver);
        Ok(unanswered)
    }

    /// Whether a request of this size would be accepted now.
    pub(super) fn check(&self, namespace: &Name, bytes: usize, makes_room: bool) -> Result<(), Overloaded> {
        let now = Instant::now();
        self.0.lock().queue.check(now, namespace, bytes, makes_room)
    }

    /// Passes on a request that takes an earlier one back. It is never refused for overload.
    pub(super) fn cancel(&self, ticket: Ticket, request: Box<Request>) -> Result<(), NotQueued> {
        let mut state = self.0.lock();
        if state.is_abandoned {
            return Err(NotQueued::Closed);
        }
        state.cancellations.push_back((ticket, request));
        let receiver = state.receiver.take();
        drop(state);
        wake(receiver);
        Ok(())
    }
}

impl Drop for ShardSender {
    fn drop(&mut self) {
        let receiver = {
            let mut state = self.0.lock();
            state.is_closed = true;
            state.receiver.take()
        };
        wake(receiver);
    }
}

/// What [`ShardReceiver::receive`] took.
pub(crate) struct Received {
    /// Requests that take an earlier one back.
    pub(crate) cancellations: VecDeque<Submission>,
    /// None if no requests were asked for.
    pub(crate) taken: Option<TakenRequests>,
}

pub(crate) struct TakenRequests {
    pub(crate) taken: Taken<Submission>,
    /// Why those that are late are refused.
    pub(crate) overloaded: Overloaded,
    /// Whether more requests wait.
    pub(crate) left_some: bool,
    /// Whether no request waits, and none will come.
    pub(crate) was_last: bool,
}

/// The end of a shard's channel that the shard's task receives from. When it is dropped, waiting requests are dropped too, and
/// their callers learn that there is no answer.
pub(crate) struct ShardReceiver(Arc<Channel>);

impl ShardReceiver {
    /// Waits until there are cancellations, or, if the task wants requests, until it can take one or none will come. Requests
    /// of a namespace that is held up cannot be taken.
    pub(crate) async fn changed(&self, wants_requests: bool, held_up: &HashSet<Name>) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if wants_requests {
                state.queue.handle_ready(Instant::now(), held_up);
            }
            let has_ended = state.is_closed && state.queue.is_empty();
            let is_ready = wants_requests && (has_ended || state.queue.has_work(held_up));
            if is_ready || !state.cancellations.is_empty() {
                return Poll::Ready(());
            }
            match &mut state.receiver {
                Some(receiver) => receiver.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }

    /// An append of the shard took this long.
    pub(crate) fn handle_appended(&self, time: Duration) {
        self.0.lock().queue.handle_appended(time);
    }

    /// The shard was lost, and opens again.
    pub(crate) fn handle_lost(&self) {
        self.0.lock().queue.handle_lost();
    }

    /// Takes all cancellations and, if `most` is given, about so many requests.
    pub(crate) fn receive(&self, most: Option<Cost>, held_up: &HashSet<Name>) -> Received {
        let now = Instant::now();
        let mut state = self.0.lock();
        let cancellations = std::mem::take(&mut state.cancellations);
        let taken = most.map(|most| TakenRequests {
            taken: state.queue.take(now, most, held_up, |(ticket, _)| ticket.is_closed()),
            overloaded: state.queue.overloaded(now),
            left_some: !state.queue.is_empty(),
            was_last: state.is_closed && state.queue.is_empty(),
        });
        Received { cancellations, taken }
    }

    /// All requests that wait.
    pub(crate) fn drain(&self) -> impl Iterator<Item = Submission> + use<> {
        self.0.lock().queue.drain()
    }

    /// From now on no request is accepted. Those that wait can still be taken.
    pub(crate) fn close(&self) {
        self.0.lock().is_closed = true;
    }
}

impl Drop for ShardReceiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.is_closed, state.is_abandoned) = (true, true);
        let dropped = (state.queue.drain(), std::mem::take(&mut state.cancellations));
        drop(state);
        // Their callers run when the tickets are dropped, and must not find the lock taken.
        drop(dropped);
    }
}
