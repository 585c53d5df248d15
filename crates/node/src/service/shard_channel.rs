//! The channel to a shard's task: the shard's queue between the front ends and the task, the admission to it, and a clock.

use super::admission::{Admission, Admitted, Overloaded, QueueOptions, Unanswered};
use crate::{
    Metrics,
    memory::{Budget, MemoryFull, Reservation},
};
use limina_engine::{Job, Name, Outcome, Request};
use limina_shard::{
    Failure, FairQueue, Requests,
    fair_queue::{RoundSize, Verdict},
};
use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};

/// The most work and bytes that the shard takes at a time. A larger request is taken alone.
///
/// What waits in the queue is ordered and refused by the queue's rules, so only a little of it is taken at once: a small part
/// of what an append may cover. While an append is in flight, more of it follows.
const ROUND_WORK: usize = 2_048;
const ROUND_BYTES: usize = 8 << 20;

/// A request on its way to its shard.
type Submission = (Ticket, Job);

/// Takes the answer of one request to its caller.
pub(crate) struct Ticket {
    reply: ReplySender,
    /// None if the request takes an earlier one back: then it is begun in any case.
    admitted: Option<Admitted>,
}

pub(super) type ReplySender = oneshot::Sender<Result<Outcome, NotDecided>>;

impl Ticket {
    /// Answers the caller, unless it has gone.
    pub(crate) fn answer(self, result: Result<Outcome, NotDecided>) {
        let _client_gone = self.reply.send(result);
    }
}

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
    MemoryFull(MemoryFull),
    /// The shard's task has ended, or takes no more requests.
    Closed,
}

/// The channel to a shard: front ends send, the shard's task receives.
pub(crate) fn shard_channel(options: QueueOptions, metrics: Metrics) -> (ShardSender, ShardReceiver) {
    let channel = Arc::new(Channel(Mutex::new(State {
        queue: FairQueue::default(),
        admission: Admission::new(options),
        receiver: None,
        is_closed: false,
        is_abandoned: false,
    })));
    let receiver = ShardReceiver { channel: channel.clone(), metrics, may_take: false, left_some: false };
    (ShardSender(channel), receiver)
}

struct Channel(Mutex<State>);

struct State {
    queue: FairQueue<Submission>,
    admission: Admission,
    /// Wakes the receiver, if it waits.
    receiver: Option<Waker>,
    /// No more requests are accepted. Those that take an earlier one back still are.
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
    /// Puts a request into the queue, unless there is no memory for what it may add or for its answer, or it would wait there for
    /// too long. The result is to be dropped when the caller has its answer.
    ///
    /// A request that takes an earlier one back is never refused for overload, and also accepted when the channel is closed. There
    /// are never more of them than there were such requests, so they need no bound.
    pub(super) fn submit(
        &self,
        memory: &Budget,
        reply: ReplySender,
        request: Box<Request>,
    ) -> Result<(Option<Reservation>, Option<Unanswered>), NotQueued> {
        let answer_memory = memory.admit(&request).map_err(NotQueued::MemoryFull)?;
        let (bytes, makes_room) = (request.encoded_bytes(), request.makes_room());
        // If it is refused, it is dropped when the channel is not locked any more: freeing a large one takes time.
        let job = Job::new(request);
        let (namespace, weight) = (job.request.namespace.clone(), job.weight());
        let now = Instant::now();
        let mut state = self.0.lock();
        let State { queue, admission, receiver, is_closed, is_abandoned } = &mut *state;
        let is_cancellation = job.request.is_cancellation();
        if *is_abandoned || (*is_closed && !is_cancellation) {
            return Err(NotQueued::Closed);
        }
        let admitted = match is_cancellation {
            true => None,
            false => Some(admission.admit(queue, now, &namespace, weight, bytes, makes_room)),
        };
        let (unanswered, admitted) = admitted.transpose().map_err(NotQueued::Overloaded)?.unzip();
        // If requests wait already, the receiver was woken for them, or takes none for now.
        let receiver = if queue.is_empty() { receiver.take() } else { None };
        queue.push(&namespace, weight, (Ticket { reply, admitted }, job));
        drop(state);
        wake(receiver);
        Ok((answer_memory, unanswered))
    }

    /// Whether a request of this size would be accepted now.
    pub(super) fn check(&self, namespace: &Name, bytes: usize, makes_room: bool) -> Result<(), Overloaded> {
        let now = Instant::now();
        let State { queue, admission, .. } = &mut *self.0.lock();
        admission.check(queue, now, namespace, bytes, makes_room)
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

/// The end of a shard's channel that the shard takes its requests from. When it is dropped, waiting requests are dropped too, and
/// their callers learn that there is no answer.
pub(crate) struct ShardReceiver {
    channel: Arc<Channel>,
    metrics: Metrics,
    /// Whether the shard may take a round. After each round, its task looks first whether there is anything else to do.
    may_take: bool,
    /// Whether the last round left requests behind.
    left_some: bool,
}

impl ShardReceiver {
    /// Waits until the shard may take a round, or until no request waits and none will come, which is returned as `true`. That is
    /// returned once: then `has_ended` is to be true. Called when the shard would take requests.
    pub(crate) async fn changed(&mut self, has_ended: bool) -> bool {
        let has_just_ended = poll_fn(|context| {
            let mut state = self.channel.lock();
            let State { queue, admission, receiver, is_closed, .. } = &mut *state;
            admission.handle_ready(queue, Instant::now());
            if !queue.is_empty() || (*is_closed && !has_ended) {
                return Poll::Ready(queue.is_empty());
            }
            match receiver {
                Some(receiver) => receiver.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            Poll::Pending
        });
        let has_just_ended = has_just_ended.await;
        self.may_take = !has_just_ended;
        has_just_ended
    }

    /// Whether the last round left requests behind.
    pub(crate) fn left_some(&self) -> bool {
        self.left_some
    }

    /// An append of the shard took this long.
    pub(crate) fn handle_appended(&self, time: Duration) {
        self.channel.lock().admission.handle_appended(time);
    }

    /// The shard was lost, and opens again.
    pub(crate) fn handle_lost(&self) {
        let State { queue, admission, .. } = &mut *self.channel.lock();
        admission.handle_lost(queue);
    }

    /// From now on no request is accepted. Those that wait can still be taken.
    pub(crate) fn close(&self) {
        self.channel.lock().is_closed = true;
    }
}

impl Requests<Ticket> for ShardReceiver {
    fn may_be_taken(&self) -> bool {
        self.may_take
    }

    /// Requests that have waited for too long are refused, and those whose clients have gone are dropped.
    fn take_round(&mut self, size: RoundSize) -> Vec<Submission> {
        if !std::mem::take(&mut self.may_take) {
            return Vec::new();
        }
        let now = Instant::now();
        let size = RoundSize { work: size.work.min(ROUND_WORK), ..size };
        let mut state = self.channel.lock();
        let State { queue, admission, .. } = &mut *state;
        let (mut bytes, mut longest_wait) = (0, Duration::ZERO);
        let taken = queue.take(size, |(ticket, _)| {
            let Some(admitted) = &ticket.admitted else { return Verdict::Begin };
            let is_dropped = ticket.reply.is_closed() || admission.is_late(admitted, now);
            if !is_dropped {
                if bytes > 0 && bytes + admitted.bytes > ROUND_BYTES {
                    return Verdict::Stop;
                }
                bytes += admitted.bytes;
            }
            admission.handle_left(admitted);
            longest_wait = longest_wait.max(admitted.waited(now));
            if is_dropped { Verdict::Drop } else { Verdict::Begin }
        });
        admission.handle_taken(queue, now);
        let overloaded = admission.overloaded(queue, now);
        self.left_some = !queue.is_empty();
        drop(state);
        self.metrics.requests.queue_wait_seconds.observe(longest_wait.as_secs_f64());
        for (ticket, _) in taken.dropped {
            match ticket.reply.is_closed() {
                true => _ = self.metrics.requests.abandoned.inc(),
                false => ticket.answer(Err(NotDecided::Late(overloaded))),
            }
        }
        taken.begin
    }

    fn with_queue<R>(&mut self, change: impl FnOnce(&mut FairQueue<Submission>) -> R) -> R {
        let State { queue, admission, .. } = &mut *self.channel.lock();
        let result = change(queue);
        if queue.is_empty() {
            admission.handle_empty();
            self.may_take = false;
        }
        result
    }
}

impl Drop for ShardReceiver {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        (state.is_closed, state.is_abandoned) = (true, true);
        let dropped = state.queue.drain();
        drop(state);
        // Their callers run when the tickets are dropped, and must not find the lock taken.
        drop(dropped);
    }
}
