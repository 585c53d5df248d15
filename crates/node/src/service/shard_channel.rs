//! The bounded channel to a shard's task.

use limina_engine::{Outcome, Request};
use limina_shard::Failure;
use tokio::sync::{mpsc, oneshot};

/// Takes the answer of one request to its caller. It is closed when the caller has gone.
pub(crate) type Ticket = oneshot::Sender<Result<Outcome, Failure>>;

/// A request on its way to its shard.
pub(crate) type Submission = (Ticket, Request);

/// The channel to a shard: front ends send, the shard's task receives. At most `max_queue` requests wait in it.
pub(crate) fn shard_channel(max_queue: usize) -> (ShardSender, ShardReceiver) {
    let (submit, submissions) = mpsc::channel(max_queue);
    let (cancel, cancellations) = mpsc::unbounded_channel();
    (ShardSender { submit, cancel }, ShardReceiver { submissions, cancellations })
}

/// The end of a shard's channel that requests are sent to.
pub(crate) struct ShardSender {
    pub(super) submit: mpsc::Sender<Submission>,
    pub(super) cancel: mpsc::UnboundedSender<Submission>,
}

/// The end of a shard's channel that the shard's task receives from.
pub(crate) struct ShardReceiver {
    pub(crate) submissions: mpsc::Receiver<Submission>,
    /// Requests that take back an earlier submission whose client has gone. There are never more of them than there were
    /// such submissions, so this channel needs no bound.
    pub(crate) cancellations: mpsc::UnboundedReceiver<Submission>,
}
