//! Requests are rejected until the rules of the file are applied.

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
use std::sync::atomic::{AtomicBool, Ordering};

/// The service as front ends see it: until [`Gate::open`], every request of a client is rejected as unavailable.
pub(crate) struct Gate {
    service: Service,
    is_open: AtomicBool,
}

impl Gate {
    pub(crate) fn closed(service: Service) -> Gate {
        service.postpone_serving();
        Gate { service, is_open: AtomicBool::new(false) }
    }

    pub(crate) fn open(&self) {
        self.service.begin_serving();
        self.is_open.store(true, Ordering::Release);
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

impl Backend for Gate {
    fn submit(&self, request: Request) -> Pending<'_, Outcome> {
        match self.is_open() {
            true => Box::pin(self.service.submit(request)),
            false => Box::pin(std::future::ready(Err(Unavailable::ShardUnavailable))),
        }
    }

    fn check_load(&self, namespace: &Name, bytes: usize, makes_room: bool) -> Result<(), Unavailable> {
        self.service.check_load(namespace, bytes, makes_room)
    }

    fn namespaces(&self, page: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>> {
        match self.is_open() {
            true => Box::pin(self.service.namespaces(page)),
            false => Box::pin(std::future::ready(Err(Unavailable::ShardUnavailable))),
        }
    }

    fn audit(&self, page: Page<AuditCursor>) -> Pending<'_, Listed<AuditRecord, AuditCursor>> {
        match self.is_open() {
            true => Box::pin(self.service.audit(page)),
            false => Box::pin(std::future::ready(Err(Unavailable::ShardUnavailable))),
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
            false => {
                Box::pin(std::future::ready(Err(FollowError::Unavailable(Unavailable::ShardUnavailable))))
            }
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
}
