//! Requests wait or are rejected until the rules of the file are applied.

use limina_engine::{
    Listed, Name, Outcome, Page, Request,
    audit::{AuditCursor, AuditRecord},
    events::StreamTerms,
    outcome::NamespaceInfo,
};
use limina_node::{
    Cluster, Feed, FeedRequest, FollowError, RefusalListener, RefusalsPage, RefusalsRequest, Service,
    ShardId, Unavailable, memory::MemoryFull, peers::PeerFuture,
};
use limina_server::{
    Backend,
    backend::{Following, Pending},
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::sync::watch;

/// The service as front ends see it: until [`Gate::open`], every request of a client waits for a while, and is then rejected
/// as unavailable.
pub(crate) struct Gate {
    service: Service,
    is_open: AtomicBool,
    /// Wakes the requests that wait.
    opened: watch::Sender<bool>,
    max_wait: Duration,
}

impl Gate {
    /// A request waits for at most `max_wait`.
    pub(crate) fn closed(service: Service, max_wait: Duration) -> Gate {
        service.postpone_serving();
        Gate { service, is_open: AtomicBool::new(false), opened: watch::Sender::new(false), max_wait }
    }

    pub(crate) fn open(&self) {
        self.service.begin_serving();
        self.is_open.store(true, Ordering::Release);
        self.opened.send_replace(true);
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Waits until the gate is open. Fails if that takes too long.
    async fn pass(&self) -> Result<(), Unavailable> {
        let mut opened = self.opened.subscribe();
        let opened = opened.wait_for(|is_open| *is_open);
        match tokio::time::timeout(self.max_wait, opened).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Unavailable::ShardUnavailable),
        }
    }
}

impl Backend for Gate {
    fn submit(&self, request: Request) -> Pending<'_, Outcome> {
        match self.is_open() {
            true => Box::pin(self.service.submit(request)),
            false => Box::pin(async {
                self.pass().await?;
                self.service.submit(request).await
            }),
        }
    }

    fn check_load(&self, namespace: &Name, bytes: usize, makes_room: bool) -> Result<(), Unavailable> {
        self.service.check_load(namespace, bytes, makes_room)
    }

    fn namespaces(&self, page: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>> {
        match self.is_open() {
            true => Box::pin(self.service.namespaces(page)),
            false => Box::pin(async {
                self.pass().await?;
                self.service.namespaces(page).await
            }),
        }
    }

    fn audit(&self, page: Page<AuditCursor>) -> Pending<'_, Listed<AuditRecord, AuditCursor>> {
        match self.is_open() {
            true => Box::pin(self.service.audit(page)),
            false => Box::pin(async {
                self.pass().await?;
                self.service.audit(page).await
            }),
        }
    }

    fn follow(
        &self,
        namespace: Name,
        stream: Name,
        resume_after: Option<u64>,
        make: Option<StreamTerms>,
    ) -> Following<'_> {
        match self.is_open() {
            true => Box::pin(self.service.follow(namespace, stream, resume_after, make)),
            false => Box::pin(async move {
                self.pass().await.map_err(FollowError::Unavailable)?;
                self.service.follow(namespace, stream, resume_after, make).await
            }),
        }
    }

    // The node that forwards a request has checked its own gate.
    fn answer_peer(&self, shard: ShardId, request: Request) -> PeerFuture<'_, Outcome> {
        Box::pin(self.service.answer_peer(shard, request))
    }

    fn feed_peer(&self, wanted: FeedRequest) -> PeerFuture<'_, Box<dyn Feed>> {
        Box::pin(self.service.feed_peer(wanted))
    }

    // The ring is filled whether or not the rules are applied.
    fn listen_to_refusals(&self, namespace: Option<Name>) -> Result<RefusalListener, MemoryFull> {
        self.service.listen_to_refusals(namespace)
    }

    fn refusals_for_peer(&self, wanted: RefusalsRequest) -> PeerFuture<'_, RefusalsPage> {
        Backend::refusals_for_peer(&self.service, wanted)
    }

    fn is_ready(&self) -> bool {
        self.is_open() && self.service.is_ready()
    }

    fn cluster(&self) -> Cluster {
        self.service.cluster()
    }

    fn shard_of(&self, namespace: &Name) -> Option<ShardId> {
        self.service.shard_of(namespace)
    }

    fn shared_secret(&self) -> Option<[u8; 16]> {
        self.service.shared_secret()
    }
}
