//! Takes back requests for locks whose clients have gone before they were answered.

use super::{NotDecided, Service, Unavailable, routes::RETRY_AFTER};
use limina_engine::{Outcome, Request};
use limina_store::ShardId;
use std::time::{Duration, Instant};
use tokio::{runtime::Handle, sync::oneshot};

/// How long a node tries to take a request back while the shard does not answer.
const TAKE_BACK_FOR: Duration = Duration::from_secs(600);

/// A request that a shard of this process has, and whose caller waits.
///
/// Fields are dropped in their order, and here the order matters: the ticket must be closed before the request is taken back.
/// If the request reaches the shard after it was taken back, the shard sees the closed ticket and does not execute it.
pub(super) struct LocalRequest<'a> {
    pub(super) reply: oneshot::Receiver<Result<Outcome, NotDecided>>,
    pub(super) take_back: TakeBackOnDrop<'a>,
}

/// Takes a request back when this is dropped before [`TakeBackOnDrop::disarm`]: its client has gone without an answer.
pub(super) struct TakeBackOnDrop<'a> {
    service: &'a Service,
    shard: ShardId,
    /// None if the request need not be taken back.
    cancellation: Option<Box<Request>>,
}

impl TakeBackOnDrop<'_> {
    pub(super) fn new<'a>(service: &'a Service, shard: ShardId, request: &Request) -> TakeBackOnDrop<'a> {
        TakeBackOnDrop { service, shard, cancellation: request.cancellation().map(Box::new) }
    }

    /// Whether the request will be taken back when this is dropped.
    pub(super) fn is_armed(&self) -> bool {
        self.cancellation.is_some()
    }

    /// The request was answered, or never sent.
    pub(super) fn disarm(&mut self) {
        self.cancellation = None;
    }
}

impl Drop for TakeBackOnDrop<'_> {
    fn drop(&mut self) {
        // Without a runtime the process is ending, and serves no clients.
        if let Some(request) = self.cancellation.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(self.service.clone().take_back(self.shard, request));
        }
    }
}

impl Service {
    /// Takes an earlier request back, at whichever node has the shard. Doing that twice changes nothing, so it is repeated
    /// until it certainly was done.
    pub(super) async fn take_back(
        self,
        shard: ShardId,
        request: Box<Request>,
    ) -> Result<Outcome, Unavailable> {
        let routes = self.inner.routes.get().ok_or(Unavailable::ShardUnavailable)?;
        let until = Instant::now() + TAKE_BACK_FOR;
        loop {
            match self.submit_to(routes.get(shard), shard, request.clone()).await {
                Ok(outcome) => return Ok(outcome),
                Err(_) if self.is_stopping() => return Err(Unavailable::ShuttingDown),
                Err(unavailable) if Instant::now() >= until => {
                    let (namespace, code) = (&request.namespace, unavailable.code());
                    tracing::warn!(
                        %namespace,
                        code,
                        "a lock whose client has gone could not be released; its ttl will end it"
                    );
                    return Err(unavailable);
                }
                Err(_) => tokio::time::sleep(RETRY_AFTER).await,
            }
        }
    }
}
