//! What a front end speaks to.

use limina_engine::{Name, Outcome, Page, Request, events::StreamTerms, outcome::NamespaceInfo};
use limina_node::{
    Cluster, Feed, FeedRequest, FollowError, Follower, Service, ShardId, Unavailable, peers::PeerFuture,
};
use std::pin::Pin;

/// A reply on its way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Unavailable>> + Send + 'a>>;

/// Somebody who begins to follow a stream.
pub type Following<'a> = Pin<Box<dyn Future<Output = Result<Follower, FollowError>> + Send + 'a>>;

/// The service as the front ends see it, so that their tests need no shard and no store.
pub trait Backend: Send + Sync + 'static {
    /// Does what is asked, and returns when it is durable.
    fn submit(&self, request: Request) -> Pending<'_, Outcome>;

    /// A part of all namespaces, by name.
    fn namespaces(&self, page: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>>;

    /// Follows a stream of events, see [`Service::follow`].
    fn follow(
        &self,
        namespace: Name,
        stream: Name,
        resume_after: Option<u64>,
        make: Option<StreamTerms>,
    ) -> Following<'_>;

    /// Does what another node asks for, see [`Service::answer_peer`].
    fn answer_peer(&self, shard: ShardId, request: Request) -> PeerFuture<'_, Outcome>;

    /// Follows a stream on behalf of another node, see [`Service::feed_peer`].
    fn feed_peer(&self, wanted: FeedRequest) -> PeerFuture<'_, Box<dyn Feed>>;

    /// Whether requests are served.
    fn is_ready(&self) -> bool;

    /// All nodes and all shards.
    fn cluster(&self) -> Cluster;
}

impl Backend for Service {
    fn submit(&self, request: Request) -> Pending<'_, Outcome> {
        Box::pin(Service::submit(self, request))
    }

    fn namespaces(&self, page: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>> {
        Box::pin(Service::namespaces(self, page))
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

    fn is_ready(&self) -> bool {
        Service::is_ready(self)
    }

    fn cluster(&self) -> Cluster {
        Service::cluster(self)
    }
}
