//! Where each shard is, as far as this node knows.

use super::{Service, Unavailable, shard_channel::ShardSender};
use crate::shard_of;
use limina_engine::Name;
use limina_store::{NodeId, ShardId, Sharding};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The most requests that wait for a node to serve one shard. Further requests are rejected at once.
const MAX_WAITING: usize = 16_384;
/// How long a request waits before it is sent again, unless the shard moves before. A planned move takes some milliseconds, so
/// the first pauses are short; each is twice as long as the previous one, up to [`SHORT_RETRY_AFTER`], and after
/// [`PLANNED_MOVE`] up to [`RETRY_AFTER`].
const FIRST_RETRY_AFTER: Duration = Duration::from_millis(5);
const SHORT_RETRY_AFTER: Duration = Duration::from_millis(20);
const PLANNED_MOVE: Duration = Duration::from_secs(1);
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The routes to all shards.
pub(super) struct Routes {
    /// By the number of the shard.
    routes: Vec<Route>,
    sharding: Sharding,
}

/// The route to one shard.
pub(super) struct Route {
    location: watch::Sender<Location>,
    is_open: AtomicBool,
    /// How many requests wait until a node serves the shard.
    waiting: AtomicUsize,
}

/// Where a shard is, as far as this node knows.
#[derive(Clone)]
pub(crate) enum Location {
    /// No node serves the shard, or this node does not know which one does.
    Unknown,
    /// In this process.
    Local(Arc<ShardSender>),
    /// In another node, at this address.
    Remote(Arc<str>),
    /// In this process, where the shard's task has panicked. The shard stays closed.
    Failed,
}

impl Routes {
    pub(super) fn new(sharding: Sharding) -> Routes {
        let route = |_| Route {
            location: watch::Sender::new(Location::Unknown),
            is_open: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        };
        Routes { routes: (0..sharding.shards).map(route).collect(), sharding }
    }

    pub(super) fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// The shard of a namespace.
    pub(super) fn shard_of(&self, namespace: &Name) -> ShardId {
        shard_of(namespace.as_str(), self.sharding)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (ShardId, &Route)> {
        (0..).map(ShardId).zip(&self.routes)
    }

    /// None if there is no shard of this number.
    pub(super) fn find(&self, shard: ShardId) -> Option<&Route> {
        self.routes.get(usize::from(shard.0))
    }

    pub(super) fn get(&self, shard: ShardId) -> &Route {
        &self.routes[usize::from(shard.0)]
    }
}

impl Route {
    pub(super) fn location(&self) -> Location {
        self.location.borrow().clone()
    }

    /// The location, and a channel that tells when it changes.
    pub(super) fn watch(&self) -> (Location, watch::Receiver<Location>) {
        let mut channel = self.location.subscribe();
        let location = channel.borrow_and_update().clone();
        (location, channel)
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

impl Service {
    /// The location of a shard has changed.
    pub(crate) fn set_location(&self, shard: ShardId, new: Location) {
        self.route_to(shard).location.send_if_modified(|old| {
            let is_same = match (&*old, &new) {
                (Location::Unknown, Location::Unknown) => true,
                (Location::Remote(old), Location::Remote(new)) => old == new,
                _ => false,
            };
            if !is_same {
                *old = new;
            }
            !is_same
        });
    }

    /// A shard is in another node, if that node is alive; otherwise its location is unknown.
    pub(crate) fn set_location_node(&self, shard: ShardId, node: Option<NodeId>) {
        let address = self.inner.others.get().and_then(|others| others.address(node?));
        self.set_location(shard, address.map_or(Location::Unknown, Location::Remote));
    }

    /// The shard of a namespace and its location, now and whenever it changes.
    pub(crate) fn watch_location(&self, namespace: &Name) -> Option<(ShardId, watch::Receiver<Location>)> {
        let routes = self.inner.routes.get()?;
        let shard = routes.shard_of(namespace);
        Some((shard, routes.get(shard).location.subscribe()))
    }

    /// A shard of this process has started to serve requests, or has stopped.
    pub(crate) fn set_open(&self, shard: ShardId, is_open: bool) {
        let route = self.route_to(shard);
        let was_open = route.is_open.swap(is_open, Ordering::AcqRel);
        self.inner.metrics.shards.open.inc_by(i64::from(is_open) - i64::from(was_open));
        if is_open {
            // Followers compare their changes with the streams of every shard that opens, also if it was here before.
            route.location.send_modify(|_| {});
        }
    }

    /// A shard of this process is no longer served: other nodes must follow its streams elsewhere.
    pub(crate) fn shard_left(&self, shard: ShardId) {
        if let Some(routes) = self.inner.routes.get() {
            self.streams().shard_left(|namespace| routes.shard_of(namespace) == shard);
        }
    }

    /// Whether a shard is in this process.
    pub(crate) fn is_local(&self, shard: ShardId) -> bool {
        let route = self.inner.routes.get().and_then(|routes| routes.find(shard));
        route.is_some_and(|route| matches!(route.location(), Location::Local(_)))
    }

    /// Whether a shard is in this process and serves requests.
    pub(crate) fn is_open(&self, shard: ShardId) -> bool {
        self.route_to(shard).is_open()
    }

    fn route_to(&self, shard: ShardId) -> &Route {
        self.inner.routes.get().expect("a shard runs on a service that is started").get(shard)
    }
}

/// A request that waits until a node serves its shard.
pub(super) struct WaitForOwner<'a> {
    route: &'a Route,
    location: watch::Receiver<Location>,
    since: Instant,
    until: Instant,
    pause: Duration,
}

impl WaitForOwner<'_> {
    /// Fails if too many requests wait for the shard.
    pub(super) fn new(route: &Route, at_most: Duration) -> Result<WaitForOwner<'_>, Unavailable> {
        if route.waiting.fetch_add(1, Ordering::AcqRel) >= MAX_WAITING {
            route.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(Unavailable::Overloaded { retry_after_ms: at_most.as_millis() as u64 });
        }
        let (location, since) = (route.location.subscribe(), Instant::now());
        Ok(WaitForOwner { route, location, since, until: since + at_most, pause: FIRST_RETRY_AFTER })
    }

    /// Waits until the location changes, or for a while. Returns whether the request should be sent again: false if it
    /// has waited for too long.
    pub(super) async fn wait(&mut self) -> bool {
        let _whichever_is_first = tokio::time::timeout(self.pause, self.location.changed()).await;
        let longest = if self.since.elapsed() < PLANNED_MOVE { SHORT_RETRY_AFTER } else { RETRY_AFTER };
        self.pause = longest.min(2 * self.pause);
        Instant::now() < self.until
    }
}

impl Drop for WaitForOwner<'_> {
    fn drop(&mut self) {
        self.route.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
