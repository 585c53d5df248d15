//! The interface between the front ends and the service.

use limina_engine::{
    Listed, Name, Outcome, Page, Request,
    audit::{AuditCursor, AuditRecord},
    events::StreamTerms,
    outcome::NamespaceInfo,
};
use limina_node::{
    Cluster, Feed, FeedRequest, FollowError, Follower, RefusalListener, RefusalsPage, RefusalsRequest,
    Service, ShardId, Unavailable, memory::MemoryFull, peers::PeerFuture,
};
use std::pin::Pin;

/// The future of a reply.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Unavailable>> + Send + 'a>>;

/// The future of a new follower.
pub type Following<'a> = Pin<Box<dyn Future<Output = Result<Follower, FollowError>> + Send + 'a>>;

/// The service as the front ends see it, so that their tests need no shard and no store.
pub trait Backend: Send + Sync + 'static {
    /// Executes a request. Returns its outcome when that is durable, or released as a relaxed answer.
    fn submit(&self, request: Request) -> Pending<'_, Outcome>;

    /// Whether a request of this size would be refused now for overload, see [`Service::check_load`].
    fn check_load(&self, namespace: &Name, bytes: usize, makes_room: bool) -> Result<(), Unavailable>;

    /// A page of all namespaces, ordered by name.
    fn namespaces(&self, page: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>>;

    /// A page of the audit of all namespaces, by time.
    fn audit(&self, page: Page<AuditCursor>) -> Pending<'_, Listed<AuditRecord, AuditCursor>>;

    /// Follows a stream of events, see [`Service::follow`].
    fn follow(
        &self,
        namespace: Name,
        stream: Name,
        resume_after: Option<u64>,
        make: Option<StreamTerms>,
    ) -> Following<'_>;

    /// Executes a request of another node, see [`Service::answer_peer`].
    fn answer_peer(&self, shard: ShardId, request: Request) -> PeerFuture<'_, Outcome>;

    /// Follows a stream on behalf of another node, see [`Service::feed_peer`].
    fn feed_peer(&self, wanted: FeedRequest) -> PeerFuture<'_, Box<dyn Feed>>;

    /// Listens to what is refused, see [`Service::listen_to_refusals`].
    fn listen_to_refusals(&self, namespace: Option<Name>) -> Result<RefusalListener, MemoryFull>;

    /// A page of this node's refusals for another node, see [`Service::refusals_for_peer`].
    fn refusals_for_peer(&self, wanted: RefusalsRequest) -> PeerFuture<'_, RefusalsPage>;

    /// Whether the node serves requests: it has recovered its data and is not stopping.
    fn is_ready(&self) -> bool;

    /// All nodes and all shards, as this node sees them.
    fn cluster(&self) -> Cluster;

    /// The shard of a namespace, whether the namespace exists or not. None before the store is open.
    fn shard_of(&self, namespace: &Name) -> Option<ShardId>;

    /// A secret that all nodes know, see [`Service::shared_secret`].
    fn shared_secret(&self) -> Option<[u8; 16]>;
}

impl Backend for Service {
    fn submit(&self, request: Request) -> Pending<'_, Outcome> {
        Box::pin(Service::submit(self, request))
    }

    fn check_load(&self, namespace: &Name, bytes: usize, makes_room: bool) -> Result<(), Unavailable> {
        Service::check_load(self, namespace, bytes, makes_room)
    }

    fn namespaces(&self, page: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>> {
        Box::pin(Service::namespaces(self, page))
    }

    fn audit(&self, page: Page<AuditCursor>) -> Pending<'_, Listed<AuditRecord, AuditCursor>> {
        Box::pin(Service::audit(self, page))
    }

    fn follow(
        &self,
        namespace: Name,
        stream: Name,
        resume_after: Option<u64>,
        make: Option<StreamTerms>,
    ) -> Following<'_> {
        Box::pin(Service::follow(self, namespace, stream, resume_after, make))
    }

    fn answer_peer(&self, shard: ShardId, request: Request) -> PeerFuture<'_, Outcome> {
        Box::pin(Service::answer_peer(self, shard, request))
    }

    fn feed_peer(&self, wanted: FeedRequest) -> PeerFuture<'_, Box<dyn Feed>> {
        Box::pin(Service::feed_peer(self, wanted))
    }

    fn listen_to_refusals(&self, namespace: Option<Name>) -> Result<RefusalListener, MemoryFull> {
        Service::listen_to_refusals(self, namespace)
    }

    fn refusals_for_peer(&self, wanted: RefusalsRequest) -> PeerFuture<'_, RefusalsPage> {
        Box::pin(async { Ok(Service::refusals_for_peer(self, wanted).await) })
    }

    fn is_ready(&self) -> bool {
        Service::is_ready(self)
    }

    fn cluster(&self) -> Cluster {
        Service::cluster(self)
    }

    fn shard_of(&self, namespace: &Name) -> Option<ShardId> {
        Service::shard_of(self, namespace)
    }

    fn shared_secret(&self) -> Option<[u8; 16]> {
        Service::shared_secret(self)
    }
}
