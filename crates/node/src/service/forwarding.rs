//! One request's way to the shard that executes it: the shard's task in this process, or another node.

use super::{
    Location, NotDecided, Service, Unavailable,
    abandoning::{LocalRequest, TakeBackOnDrop},
    routes::{Route, WaitForOwner},
    shard_channel::{NotQueued, ShardSender},
};
use crate::{Metrics, PeerError, cluster::Others};
use limina_engine::{Outcome, Request};
use limina_shard::Failure;
use limina_store::ShardId;
use tokio::sync::{oneshot, watch};

impl Service {
    /// Sends a request to its shard.
    ///
    /// Among several nodes the shard may move meanwhile. A request that certainly was not executed is sent again, to the new
    /// owner, for a limited time. A read whose answer was lost is sent again once only: if the request itself crashed its
    /// node, it must not crash one node after another.
    pub(super) async fn submit_to(
        &self,
        route: &Route,
        shard: ShardId,
        request: Box<Request>,
    ) -> Result<Outcome, Unavailable> {
        let Some(others) = self.inner.others.get() else {
            let Location::Local(sender) = route.location() else { return Err(Unavailable::ShardUnavailable) };
            return self.send(shard, &sender, request).await.map_err(|error| self.reason(error, true));
        };
        let is_write = request.is_write();
        let mut waiting: Option<WaitForOwner<'_>> = None;
        let mut may_repeat_lost = !is_write;
        loop {
            let (location, moved) = route.watch();
            let answer = match location {
                // Without the store the request could only wait.
                Location::Local(_) if others.store_is_away() => Err(PeerError::NotThere),
                Location::Local(sender) => self.send(shard, &sender, request.clone()).await,
                Location::Remote(address) => {
                    self.inner.metrics.cluster.forwarded.inc();
                    if let Err(error) = reach(others, &address, moved).await {
                        Err(error)
                    } else {
                        // The other node takes the request back if it learns that this node no longer waits. But its answer may
                        // be under way already, so this node, which knows its client, takes the request back as well.
                        let mut take_back = TakeBackOnDrop::new(self, shard, &request);
                        let answer = others.peers().ask(&address, shard, &request).await;
                        take_back.disarm();
                        answer
                    }
                }
                Location::Unknown => Err(PeerError::NotThere),
                Location::Failed => Err(PeerError::Unavailable(Unavailable::ShardUnavailable)),
            };
            let error = match answer {
                Ok(outcome) => return Ok(outcome),
                Err(PeerError::NotThere) => PeerError::NotThere,
                Err(PeerError::Lost) if may_repeat_lost => {
                    may_repeat_lost = false;
                    PeerError::NotThere
                }
                Err(error) => return Err(self.reason(error, is_write)),
            };
            // The last node of a cluster has given its shards away, and no other node takes them.
            if self.is_leaving() && !others.has_successor() {
                return Err(Unavailable::ShuttingDown);
            }
            if others.store_is_away() {
                return Err(self.reason(error, is_write));
            }
            let waiting = match &mut waiting {
                Some(waiting) => waiting,
                none => none.insert(WaitForOwner::new(route, others.max_wait())?),
            };
            if !waiting.wait().await || self.is_stopping() {
                return Err(self.reason(error, is_write));
            }
        }
    }

    fn reason(&self, error: PeerError, is_write: bool) -> Unavailable {
        match error {
            PeerError::Unavailable(reason) => reason,
            PeerError::Lost if is_write => Unavailable::OutcomeUnknown,
            _ if self.is_stopping() => Unavailable::ShuttingDown,
            PeerError::Lost | PeerError::NotThere => Unavailable::ShardUnavailable,
        }
    }

    /// Sends a request to a shard of this process, and waits for the answer.
    pub(super) async fn send(
        &self,
        shard: ShardId,
        sender: &ShardSender,
        request: Box<Request>,
    ) -> Result<Outcome, PeerError> {
        let (answer, reply) = oneshot::channel();
        let is_write = request.is_write();
        let take_back = TakeBackOnDrop::new(self, shard, &request);
        let mut local = LocalRequest { reply, take_back };
        let (_answer_memory, unanswered) = match sender.submit(self.memory(), answer, request) {
            Ok(admitted) => admitted,
            Err(not_queued) => {
                local.take_back.disarm();
                return Err(match not_queued {
                    NotQueued::Overloaded(overloaded) => PeerError::Unavailable(overloaded.into()),
                    NotQueued::MemoryFull(full) => PeerError::Unavailable(full.into()),
                    NotQueued::Closed => PeerError::NotThere,
                });
            }
        };
        // A request that can be taken back may wait for a lock, and is no work for the shard meanwhile.
        let _unanswered = unanswered.filter(|_| !local.take_back.is_armed());
        let _in_queue = InQueue::new(&self.inner.metrics);
        let answer = (&mut local.reply).await;
        local.take_back.disarm();
        match answer {
            Ok(result) => result.map_err(|not_decided| match not_decided {
                NotDecided::Late(overloaded) => PeerError::Unavailable(overloaded.into()),
                NotDecided::Failed(Failure::Unavailable) => PeerError::NotThere,
                NotDecided::Failed(Failure::OutcomeUnknown) => PeerError::Lost,
                NotDecided::Failed(Failure::StorageFull) => PeerError::Unavailable(Unavailable::StorageFull),
                NotDecided::Failed(Failure::Closing) if self.is_stopping() => {
                    PeerError::Unavailable(Unavailable::ShuttingDown)
                }
                // Only this shard closes, and moves to another node.
                NotDecided::Failed(Failure::Closing) => PeerError::Unavailable(Unavailable::ShardUnavailable),
            }),
            // The shard's task ended without an answer. A write may have been executed.
            Err(_) if is_write => Err(PeerError::Lost),
            Err(_) => Err(PeerError::NotThere),
        }
    }
}

/// Waits for a connection to the node at that address, unless the shard moves before. A node that hangs accepts connections and says nothing
/// on them for seconds, and the request need not wait for that once another node has the shard.
async fn reach(
    others: &Others,
    address: &str,
    mut moved: watch::Receiver<Location>,
) -> Result<(), PeerError> {
    tokio::select! {
        biased;
        reached = others.peers().reach(address) => reached,
        _ = moved.changed() => Err(PeerError::NotThere),
    }
}

/// Counts a request in the queue's depth until it is answered, or its client has gone.
struct InQueue<'a>(&'a Metrics);

impl InQueue<'_> {
    fn new(metrics: &Metrics) -> InQueue<'_> {
        metrics.requests.queue_depth.inc();
        InQueue(metrics)
    }
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.0.requests.queue_depth.dec();
    }
}
