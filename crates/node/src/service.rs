//! The facade that every front end speaks to.

use crate::{
    NodeFailure, PeerError,
    cluster::{Cluster, Others},
    metrics::{CountedChecks, Metrics},
    shard_of,
    streams::Streams,
};
use limina_engine::{
    Command, Name, Outcome, Page, Request,
    limiter::{self, Change},
    outcome::NamespaceInfo,
};
use limina_shard::Failure;
use limina_store::{NodeId, ShardId};
use serde::{Deserialize, Serialize};
use std::{
    error::Error,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    runtime::Handle,
    sync::{mpsc, mpsc::error::TrySendError, oneshot, watch},
};

/// How many requests may wait until somebody serves their shard. One more is refused at once.
const MAX_WAITING: usize = 16_384;
/// How long to wait before asking again, unless it is known before that the shard has moved.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How long a node tries to take back a request whose client has gone, while the shard does not answer.
const TAKE_BACK_FOR: Duration = Duration::from_secs(600);

/// Where a reply goes.
pub(crate) type Ticket = oneshot::Sender<Result<Outcome, Failure>>;

/// A request on its way to its shard.
pub(crate) type Submission = (Ticket, Request);

/// The channel to a shard: front ends send, the shard's task receives.
pub(crate) fn shard_channel(max_queue: usize) -> (ShardSender, ShardReceiver) {
    let (submit, submissions) = mpsc::channel(max_queue);
    let (take_back, taken_back) = mpsc::unbounded_channel();
    (ShardSender { submit, take_back }, ShardReceiver { submissions, taken_back })
}

/// The end of a shard's channel that requests are sent to.
pub(crate) struct ShardSender {
    submit: mpsc::Sender<Submission>,
    take_back: mpsc::UnboundedSender<Submission>,
}

/// The end of a shard's channel that the shard's task receives from.
pub(crate) struct ShardReceiver {
    pub(crate) submissions: mpsc::Receiver<Submission>,
    /// Cancellations of earlier submissions whose clients have gone. Their number is bounded by that of those submissions.
    pub(crate) taken_back: mpsc::UnboundedReceiver<Submission>,
}

/// Hands requests to the shard of their namespace, wherever it is. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    /// Empty until the store is open.
    routes: OnceLock<Vec<Route>>,
    is_stopping: AtomicBool,
    /// Whether stored records can be read.
    is_store_open: AtomicBool,
    /// Whether clients can reach the shards of this process.
    is_serving: watch::Sender<bool>,
    /// The other nodes, where there may be some.
    others: OnceLock<Others>,
    /// The first failure of the node, if it has failed.
    failure: watch::Sender<Option<NodeFailure>>,
    metrics: Metrics,
    streams: Streams,
}

/// The route to one shard.
struct Route {
    location: watch::Sender<Location>,
    is_open: AtomicBool,
    /// How many requests wait until somebody serves the shard.
    waiting: AtomicUsize,
}

/// Where a shard is, as far as is known here.
#[derive(Clone)]
pub(crate) enum Location {
    /// Nobody serves it, or it is not known who does.
    Unknown,
    /// In this process.
    Local(Arc<ShardSender>),
    /// In another node, at this address.
    Remote(Arc<str>),
    /// In this process, where its task has panicked. It stays closed.
    Failed,
}

/// Why there is no outcome. Except for [`Unavailable::OutcomeUnknown`], nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error, Serialize, Deserialize)]
pub enum Unavailable {
    /// The shard's queue is full.
    #[error("the server is overloaded; try again shortly")]
    Overloaded,
    /// The process is stopping.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// There is no room for more writes.
    #[error("the storage is full; reads go on")]
    StorageFull,
    /// The shard is being opened, or its store does not answer.
    #[error("the shard is not available at the moment")]
    ShardUnavailable,
    /// It may or may not have been done.
    #[error(
        "it is not known whether this was done; repeat it under the same key or operation id to find out"
    )]
    OutcomeUnknown,
}

impl Unavailable {
    /// The word by which it is known in problem documents, metrics and logs.
    pub fn code(self) -> &'static str {
        match self {
            Unavailable::Overloaded => "Overloaded",
            Unavailable::ShuttingDown => "ShuttingDown",
            Unavailable::StorageFull => "StorageFull",
            Unavailable::ShardUnavailable => "ShardUnavailable",
            Unavailable::OutcomeUnknown => "OutcomeUnknown",
        }
    }
}

impl Service {
    /// A service without shards yet: everything is unavailable until a [`crate::Node`] is started on it.
    pub fn new(metrics: Metrics) -> Service {
        Service {
            inner: Arc::new(Inner {
                routes: OnceLock::new(),
                is_stopping: AtomicBool::new(false),
                is_store_open: AtomicBool::new(true),
                is_serving: watch::Sender::new(true),
                others: OnceLock::new(),
                failure: watch::Sender::new(None),
                metrics,
                streams: Streams::default(),
            }),
        }
    }

    /// Does what is asked, and returns when it is durable. Where the caller does not wait for that, a lock that it asked
    /// for is not waited for either, and not held.
    ///
    /// A request that takes another one back goes on until it is done, whether or not the caller waits for that.
    pub async fn submit(&self, request: Request) -> Result<Outcome, Unavailable> {
        let checks = CountedChecks::of(&request);
        let result = match self.routes() {
            Ok(routes) => {
                let shard = shard_of(request.namespace.as_str(), routes.len() as u16);
                match request.is_cancellation() {
                    true => {
                        let taking_back = tokio::spawn(self.clone().taken_back(shard, request));
                        taking_back.await.unwrap_or(Err(Unavailable::OutcomeUnknown))
                    }
                    false => self.submit_to(routes, shard, request).await,
                }
            }
            Err(unavailable) => Err(unavailable),
        };
        match &result {
            Ok(outcome) => {
                self.inner.metrics.requests.decided(outcome);
                if let Some(checks) = &checks {
                    self.inner.metrics.limiter.rule_checks.count(checks, outcome);
                }
            }
            Err(unavailable) => self.inner.metrics.requests.not_decided(unavailable.code()),
        }
        result
    }

    /// Does what another node asks for, if the shard is in this one.
    pub async fn answer_peer(&self, shard: ShardId, request: Request) -> Result<Outcome, PeerError> {
        let route = self.inner.routes.get().and_then(|routes| routes.get(usize::from(shard.0)));
        let sender = match route.map(Route::location) {
            Some(Location::Local(sender)) => sender,
            Some(Location::Failed) => return Err(PeerError::Unavailable(Unavailable::ShardUnavailable)),
            Some(Location::Remote(_) | Location::Unknown) | None => return Err(PeerError::NotThere),
        };
        self.asked_by_peer(&request.command);
        self.send(shard, &sender, request).await.map_err(|error| match error {
            // It is this node that stops, not the one that asks.
            PeerError::Unavailable(Unavailable::ShuttingDown) => {
                PeerError::Unavailable(Unavailable::ShardUnavailable)
            }
            error => error,
        })
    }

    /// A part of all namespaces, by name.
    pub async fn namespaces(&self, page: Page<Name>) -> Result<Vec<NamespaceInfo>, Unavailable> {
        let name = Name::new("default").expect("a valid name");
        let mut all = Vec::new();
        let routes = self.routes()?;
        for shard in (0..routes.len() as u16).map(ShardId) {
            let command = Command::ListNamespaces(page.clone());
            let request = Request { namespace: name.clone(), idempotency: None, command };
            if let Outcome::Namespaces(mut part) = self.submit_to(routes, shard, request).await? {
                all.append(&mut part);
            }
        }
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all.truncate(page.limit());
        Ok(all)
    }

    /// Whether requests are served. Alone: every shard is open. Among others: this node's tenure has not run out, and
    /// since it came there was a moment at which every shard was served. And the process is not stopping, its store
    /// can be read, and the node has not failed.
    pub fn is_ready(&self) -> bool {
        let Ok(routes) = self.routes() else { return false };
        if !self.inner.is_store_open.load(Ordering::Acquire) || self.inner.failure.borrow().is_some() {
            return false;
        }
        match self.inner.others.get() {
            None => routes.iter().all(Route::is_open),
            Some(others) => others.is_ready(),
        }
    }

    /// Returns when every shard is served, by this node or another, for the first time.
    pub async fn until_served(&self) {
        if let Some(others) = self.inner.others.get() {
            others.until_complete().await;
        }
    }

    /// All nodes and all shards, as far as is known here; no shards before the store is open.
    pub fn cluster(&self) -> Cluster {
        let routes = self.inner.routes.get().map(Vec::as_slice).unwrap_or_default();
        match self.inner.others.get() {
            None => Cluster::alone(self.is_ready(), routes.iter().map(Route::is_open)),
            Some(others) => others.cluster(self.is_ready(), |shard| {
                routes.get(usize::from(shard.0)).is_some_and(Route::is_open)
            }),
        }
    }

    /// Clients cannot reach this service before [`Service::begin_serving`]. Time stands still until then in shards that are
    /// opened after an interruption: holders of locks and leases must not lose time in which they cannot send heartbeats.
    pub fn hold_back(&self) {
        self.inner.is_serving.send_replace(false);
    }

    /// Clients are served from now on.
    pub fn begin_serving(&self) {
        self.inner.is_serving.send_if_modified(|is_serving| !std::mem::replace(is_serving, true));
    }

    /// Whether clients are served, now and when that changes.
    pub(crate) fn serving(&self) -> watch::Receiver<bool> {
        self.inner.is_serving.subscribe()
    }

    /// Another node asks for one of its clients, so clients do reach the shards of this process. What a node asks for
    /// itself, to apply its file of rules, does not tell.
    fn asked_by_peer(&self, command: &Command) {
        let is_for_a_client = match command {
            Command::ListNamespaces(_) => false,
            Command::Limiter(limiter::Command::Change(change)) => !matches!(**change, Change::ApplyFile(_)),
            _ => true,
        };
        if is_for_a_client && !*self.inner.is_serving.borrow() {
            self.begin_serving();
        }
    }

    /// From now on everything is refused with [`Unavailable::ShuttingDown`]; what was taken before is answered.
    pub fn begin_stop(&self) {
        self.inner.is_stopping.store(true, Ordering::Release);
        self.inner.streams.stop();
    }

    /// From now on stored records can be read, or cannot. Requests that need none are answered in either case.
    pub fn set_store_open(&self, is_open: bool) {
        self.inner.is_store_open.store(is_open, Ordering::Release);
    }

    /// The node has failed. Later failures are logged only: the owner acts on the first.
    pub(crate) fn report_failure(&self, failure: NodeFailure) {
        tracing::error!(error = &failure as &dyn Error, "a task of the node has panicked");
        self.inner.failure.send_if_modified(|first| match first {
            Some(_) => false,
            None => first.replace(failure).is_none(),
        });
    }

    /// The first failure of the node, now and when it happens.
    pub(crate) fn failure(&self) -> watch::Receiver<Option<NodeFailure>> {
        self.inner.failure.subscribe()
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.inner.streams
    }

    pub(crate) fn others(&self) -> Option<&Others> {
        self.inner.others.get()
    }

    /// There are so many shards, and it is not known yet where they are.
    pub(crate) fn start(&self, shards: u16, others: Option<Others>) {
        if let Some(others) = others {
            assert!(self.inner.others.set(others).is_ok(), "a service is started once");
        }
        let route = |_| Route {
            location: watch::Sender::new(Location::Unknown),
            is_open: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        };
        let routes = (0..shards).map(route).collect();
        assert!(self.inner.routes.set(routes).is_ok(), "a service is started once");
    }

    /// A shard is somewhere else from now on.
    pub(crate) fn set_location(&self, shard: ShardId, at: Location) {
        let same = |old: &Location| match (old, &at) {
            (Location::Unknown, Location::Unknown) => true,
            (Location::Remote(old), Location::Remote(new)) => old == new,
            _ => false,
        };
        self.route_to(shard).location.send_if_modified(|old| {
            let is_new = !same(old);
            if is_new {
                *old = at.clone();
            }
            is_new
        });
    }

    /// The same, where it is known by the node that has it.
    pub(crate) fn set_location_node(&self, shard: ShardId, node: Option<NodeId>) {
        let address = self.inner.others.get().and_then(|others| others.address(node?));
        self.set_location(shard, address.map_or(Location::Unknown, Location::Remote));
    }

    /// The other nodes, and the address of the one that has this shard.
    pub(crate) fn other(&self, shard: ShardId) -> Option<(&Others, Arc<str>)> {
        match self.route_to(shard).location() {
            Location::Remote(address) => Some((self.inner.others.get()?, address)),
            Location::Local(_) | Location::Unknown | Location::Failed => None,
        }
    }

    /// Where the shard of a namespace is, now and whenever that changes.
    pub(crate) fn watch(&self, namespace: &Name) -> Option<(ShardId, watch::Receiver<Location>)> {
        let routes = self.inner.routes.get()?;
        let shard = shard_of(namespace.as_str(), routes.len() as u16);
        Some((shard, routes[usize::from(shard.0)].location.subscribe()))
    }

    /// A shard of this process serves requests from now on, or no longer.
    pub(crate) fn set_open(&self, shard: ShardId, is_open: bool) {
        let route = self.route_to(shard);
        let was_open = route.is_open.swap(is_open, Ordering::AcqRel);
        self.inner.metrics.shards.open.inc_by(i64::from(is_open) - i64::from(was_open));
        if is_open {
            // Followers compare what they have with the streams of a shard that opens, also if it was here before.
            route.location.send_modify(|_| {});
        }
    }

    /// A shard of this process is served no longer: other nodes must follow its streams elsewhere.
    pub(crate) fn shard_left(&self, shard: ShardId) {
        let shards = self.inner.routes.get().map_or(0, Vec::len);
        self.streams().moved(shard, shards as u16);
    }

    /// Whether a shard is in this process.
    pub(crate) fn is_here(&self, shard: ShardId) -> bool {
        let route = self.inner.routes.get().and_then(|routes| routes.get(usize::from(shard.0)));
        route.is_some_and(|route| matches!(route.location(), Location::Local(_)))
    }

    /// Whether a shard is in this process and serves requests.
    pub(crate) fn is_open(&self, shard: ShardId) -> bool {
        self.route_to(shard).is_open()
    }

    fn route_to(&self, shard: ShardId) -> &Route {
        let routes = self.inner.routes.get().expect("a shard runs on a service that is started");
        &routes[usize::from(shard.0)]
    }

    fn routes(&self) -> Result<&[Route], Unavailable> {
        if self.inner.is_stopping.load(Ordering::Acquire) {
            return Err(Unavailable::ShuttingDown);
        }
        self.inner.routes.get().map(Vec::as_slice).ok_or(Unavailable::ShardUnavailable)
    }

    /// Asks whoever has the shard. Among several nodes that may change under sender: what surely was not done is asked
    /// again, of whoever has it then, for a while. A read whose answer was lost is asked again once: if the request itself
    /// ended the node that had it, it must not end one node after another.
    async fn submit_to(
        &self,
        routes: &[Route],
        shard: ShardId,
        request: Request,
    ) -> Result<Outcome, Unavailable> {
        let route = &routes[usize::from(shard.0)];
        let Some(others) = self.inner.others.get() else {
            let Location::Local(sender) = route.location() else { return Err(Unavailable::ShardUnavailable) };
            return self.send(shard, &sender, request).await.map_err(|error| self.reason(error, true));
        };
        let is_write = request.is_write();
        let mut patience: Option<Patience<'_>> = None;
        let mut may_be_lost = !is_write;
        loop {
            let answer = match route.location() {
                // Nothing is begun that cannot be done.
                Location::Local(_) if others.store_is_away() => Err(PeerError::NotThere),
                Location::Local(sender) => self.send(shard, &sender, request.clone()).await,
                Location::Remote(address) => {
                    self.inner.metrics.cluster.forwarded.inc();
                    // The other node takes the request back if it learns that nobody waits. But its answer may be under
                    // sender already, so this node, which knows its client, takes it back as well.
                    let mut unheard = Unheard::new(self, shard, &request);
                    let answer = others.peers().ask(&address, shard, &request).await;
                    unheard.take_back = None;
                    answer
                }
                Location::Unknown => Err(PeerError::NotThere),
                Location::Failed => Err(PeerError::Unavailable(Unavailable::ShardUnavailable)),
            };
            let error = match answer {
                Ok(outcome) => return Ok(outcome),
                Err(PeerError::NotThere) => PeerError::NotThere,
                Err(PeerError::Lost) if may_be_lost => {
                    may_be_lost = false;
                    PeerError::NotThere
                }
                Err(error) => return Err(self.reason(error, is_write)),
            };
            if others.store_is_away() {
                return Err(self.reason(error, is_write));
            }
            let patience = match &mut patience {
                Some(patience) => patience,
                none => none.insert(Patience::new(route, others.patience())?),
            };
            if !patience.wait().await || self.inner.is_stopping.load(Ordering::Acquire) {
                return Err(self.reason(error, is_write));
            }
        }
    }

    fn reason(&self, error: PeerError, is_write: bool) -> Unavailable {
        match error {
            PeerError::Unavailable(reason) => reason,
            PeerError::Lost if is_write => Unavailable::OutcomeUnknown,
            _ if self.inner.is_stopping.load(Ordering::Acquire) => Unavailable::ShuttingDown,
            PeerError::Lost | PeerError::NotThere => Unavailable::ShardUnavailable,
        }
    }

    async fn send(
        &self,
        shard: ShardId,
        sender: &ShardSender,
        request: Request,
    ) -> Result<Outcome, PeerError> {
        let (ticket, reply) = oneshot::channel();
        let is_write = request.is_write();
        let unheard = Unheard::new(self, shard, &request);
        let mut asking = Asking { reply, unheard };
        let sent = match request.is_cancellation() {
            true => sender.take_back.send((ticket, request)).map_err(|_| PeerError::NotThere),
            false => sender.submit.try_send((ticket, request)).map_err(|error| match error {
                TrySendError::Full(_) => PeerError::Unavailable(Unavailable::Overloaded),
                TrySendError::Closed(_) => PeerError::NotThere,
            }),
        };
        if let Err(error) = sent {
            asking.unheard.take_back = None;
            return Err(error);
        }
        self.inner.metrics.requests.queue_depth.inc();
        let _depth = Decrement(&self.inner.metrics);
        let answer = (&mut asking.reply).await;
        asking.unheard.take_back = None;
        match answer {
            Ok(result) => result.map_err(|failure| match failure {
                Failure::Unavailable => PeerError::NotThere,
                Failure::OutcomeUnknown => PeerError::Lost,
                Failure::StorageFull => PeerError::Unavailable(Unavailable::StorageFull),
                // Only where the whole process stops is that what is told.
                Failure::Closing => PeerError::Unavailable(self.closing()),
            }),
            // The shard's task ended without an answer. A write may have been done.
            Err(_) if is_write => Err(PeerError::Lost),
            Err(_) => Err(PeerError::NotThere),
        }
    }

    /// Takes an earlier request back at whichever node has the shard. InFlight that twice changes nothing, so it is repeated
    /// until it was surely done.
    async fn taken_back(self, shard: ShardId, request: Request) -> Result<Outcome, Unavailable> {
        let routes = self.inner.routes.get().ok_or(Unavailable::ShardUnavailable)?;
        let until = Instant::now() + TAKE_BACK_FOR;
        loop {
            match self.submit_to(routes, shard, request.clone()).await {
                Ok(outcome) => return Ok(outcome),
                Err(_) if self.inner.is_stopping.load(Ordering::Acquire) => {
                    return Err(Unavailable::ShuttingDown);
                }
                Err(unavailable) if Instant::now() >= until => {
                    let (namespace, code) = (&request.namespace, unavailable.code());
                    tracing::warn!(
                        %namespace,
                        code,
                        "a lock whose client has gone could not be released; its ttl will end it"
                    );
                    return Err(unavailable);
                }
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }

    fn closing(&self) -> Unavailable {
        match self.inner.is_stopping.load(Ordering::Acquire) {
            true => Unavailable::ShuttingDown,
            false => Unavailable::ShardUnavailable,
        }
    }
}

impl Route {
    fn location(&self) -> Location {
        self.location.borrow().clone()
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

/// A request that waits until somebody serves its shard.
struct Patience<'a> {
    route: &'a Route,
    at: watch::Receiver<Location>,
    until: Instant,
}

impl Patience<'_> {
    fn new(route: &Route, span: Duration) -> Result<Patience<'_>, Unavailable> {
        if route.waiting.fetch_add(1, Ordering::AcqRel) >= MAX_WAITING {
            route.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(Unavailable::Overloaded);
        }
        Ok(Patience { route, at: route.location.subscribe(), until: Instant::now() + span })
    }

    /// Waits until it may be worth to ask again; says whether it still is.
    async fn wait(&mut self) -> bool {
        let _whichever_is_first = tokio::time::timeout(ASK_AGAIN, self.at.changed()).await;
        Instant::now() < self.until
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        self.route.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A client that waits for the answer of a shard in this process.
///
/// The order of the fields counts, since they are dropped in it: the ticket must show that nobody waits before the request
/// is taken back. A request that reaches the shard after it was taken back has such a ticket, and is not begun.
struct Asking<'a> {
    reply: oneshot::Receiver<Result<Outcome, Failure>>,
    unheard: Unheard<'a>,
}

/// A request whose answer nobody has heard. If it is dropped with `take_back` in it, the client has gone, and what it asked
/// for is taken back.
struct Unheard<'a> {
    service: &'a Service,
    shard: ShardId,
    take_back: Option<Request>,
}

impl Unheard<'_> {
    fn new<'a>(service: &'a Service, shard: ShardId, request: &Request) -> Unheard<'a> {
        Unheard { service, shard, take_back: request.cancellation() }
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        // Without a runtime the process ends, and nobody is served any more.
        if let Some(request) = self.take_back.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(self.service.clone().taken_back(self.shard, request));
        }
    }
}

/// Counts a request out of the queue also when its client has gone.
struct Decrement<'a>(&'a Metrics);

impl Drop for Decrement<'_> {
    fn drop(&mut self) {
        self.0.requests.queue_depth.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feed, Peers, Wanted, clock::Clocks, cluster::TenureGuard, peers::Asked};
    use limina_engine::{
        KeyValues, Millis,
        key_values::Value,
        locks::{self, Acquire, Lock, Mode},
    };
    use std::sync::Mutex;

    /// Another node that never answers a request for locks, and loses what takes it back a few times.
    struct Fake {
        asked: mpsc::UnboundedSender<Request>,
        losses: Mutex<Vec<PeerError>>,
    }

    impl Peers for Fake {
        fn who<'a>(&'a self, _: &'a str) -> Asked<'a, String> {
            Box::pin(async { Err(PeerError::NotThere) })
        }

        fn ask<'a>(&'a self, _: &'a str, _: ShardId, request: &'a Request) -> Asked<'a, Outcome> {
            let _nobody_listens = self.asked.send(request.clone());
            Box::pin(async move {
                if !request.is_cancellation() {
                    std::future::pending::<()>().await;
                }
                match self.losses.lock().unwrap().pop() {
                    Some(loss) => Err(loss),
                    None => Ok(Outcome::Locks(Ok(locks::Reply::Abandoned))),
                }
            })
        }

        fn follow<'a>(&'a self, _: &'a str, _: &'a Wanted) -> Asked<'a, Box<dyn Feed>> {
            Box::pin(std::future::ready(Err(PeerError::NotThere)))
        }
    }

    fn acquire() -> Request {
        let name = |text: &str| Name::new(text).unwrap();
        let key_values = KeyValues::new(vec![("lock", Value::<&str>::Integer(1))]).unwrap();
        let locks = vec![Lock { key_values, mode: Mode::Exclusive }];
        let wanted = Acquire::new(name("id"), name("session"), locks, Millis(1_000)).unwrap();
        let wanted = wanted.with_wait(Millis(1_000)).unwrap();
        let command = Command::Locks(locks::Command::Acquire(wanted));
        Request { namespace: name("n"), idempotency: None, command }
    }

    /// The answer of the other node may be under sender when the client hangs up, so that only this node can take it back.
    #[tokio::test]
    async fn what_another_node_was_asked_for_is_taken_back_until_it_is_done() {
        let (asked, mut requests) = mpsc::unbounded_channel();
        let losses = vec![PeerError::NotThere, PeerError::Lost, PeerError::Lost];
        let peers = Arc::new(Fake { asked, losses: Mutex::new(losses) });
        let service = Service::new(Metrics::new());
        let patience = Duration::from_secs(1);
        let tenure_guard = TenureGuard::alone(Clocks::new());
        service.start(1, Some(Others::new(NodeId(1), peers, tenure_guard, || true, patience)));
        service.set_location(ShardId(0), Location::Remote("other".into()));

        let request = acquire();
        let waiting = tokio::spawn({
            let (service, request) = (service.clone(), request.clone());
            async move { service.submit(request).await }
        });
        assert_eq!(requests.recv().await.as_ref(), Some(&request));
        waiting.abort();
        for _ in 0..4 {
            let asked = tokio::time::timeout(Duration::from_secs(60), requests.recv()).await;
            assert_eq!(asked.expect("it is taken back"), request.cancellation());
        }
        // It is done, and not asked for again. Whatever is asked next is the first that is.
        let other = Request { namespace: Name::new("other").unwrap(), ..acquire() };
        let _never_answered = tokio::spawn({
            let (service, other) = (service.clone(), other.clone());
            async move { service.submit(other).await }
        });
        assert_eq!(requests.recv().await, Some(other));
    }

    /// Another node that ends whenever it is asked something, and counts how often that happens.
    #[derive(Default)]
    struct Ends(AtomicUsize);

    impl Peers for Ends {
        fn who<'a>(&'a self, _: &'a str) -> Asked<'a, String> {
            Box::pin(async { Err(PeerError::NotThere) })
        }

        fn ask<'a>(&'a self, _: &'a str, _: ShardId, _: &'a Request) -> Asked<'a, Outcome> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Err(PeerError::Lost) })
        }

        fn follow<'a>(&'a self, _: &'a str, _: &'a Wanted) -> Asked<'a, Box<dyn Feed>> {
            Box::pin(async { Err(PeerError::NotThere) })
        }
    }

    #[tokio::test]
    async fn a_request_that_ends_its_node_is_not_passed_from_node_to_node() {
        let name = |text: &str| Name::new(text).unwrap();
        let check = async |command: locks::Command, expect: Unavailable, asked: usize| {
            let peers = Arc::new(Ends::default());
            let service = Service::new(Metrics::new());
            // Long enough to be asked dozens of times.
            let patience = Duration::from_secs(10);
            let tenure_guard = TenureGuard::alone(Clocks::new());
            let others = Others::new(NodeId(1), peers.clone(), tenure_guard, || true, patience);
            service.start(1, Some(others));
            service.set_location(ShardId(0), Location::Remote("another".into()));
            let command = Command::Locks(command);
            let request = Request { namespace: name("n"), idempotency: None, command };
            assert_eq!(service.submit(request).await.unwrap_err(), expect);
            assert_eq!(peers.0.load(Ordering::Relaxed), asked, "how often a node was asked");
        };
        check(locks::Command::Get(name("l")), Unavailable::ShardUnavailable, 2).await;
        let release = locks::Command::Release { id: name("l"), session: None };
        check(release, Unavailable::OutcomeUnknown, 1).await;
    }
}
