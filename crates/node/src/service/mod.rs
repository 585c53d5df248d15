//! The facade that every front end calls: a request goes in, an outcome comes out.
//!
//! `submit` finds the shard of a request, here or in another node (`forwarding`), and hands the request to the shard's task
//! (`shard_channel`), if it may wait there (`admission`). If a client goes away before its answer, its request for locks is taken back (`abandoning`).

mod abandoning;
mod admission;
mod forwarding;
mod routes;
mod shard_channel;
#[cfg(test)]
mod tests;
mod unavailable;

pub use admission::QueueOptions;
pub(crate) use routes::Location;
pub(crate) use shard_channel::{NotDecided, ShardReceiver, Ticket, shard_channel};
pub use unavailable::Unavailable;

use crate::{
    Budget, NodeFailure, PeerError,
    cluster::{Cluster, Others},
    metrics::{CountedChecks, Metrics},
    refusals::{RefusalSubject, Refusals},
    streams::Streams,
};
use limina_engine::{
    Command, Listed, Name, Outcome, Page, Request,
    audit::{self, AuditCursor, AuditRecord},
    limiter::{self, Change, SetAuthor},
    outcome::NamespaceInfo,
};
use limina_store::{ShardId, Sharding, ShardingKey};
use routes::{Route, Routes};
use std::{
    error::Error,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;

/// Hands requests to the shard of their namespace, whichever node owns it. A clone is the same service.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    /// Empty until a node is started on the service.
    routes: OnceLock<Routes>,
    is_stopping: AtomicBool,
    /// Whether this node gives its shards to others, and forwards requests to them.
    is_leaving: AtomicBool,
    /// Whether stored records can be read.
    is_store_open: AtomicBool,
    /// Whether clients can reach the shards of this process.
    is_serving: watch::Sender<bool>,
    /// The other nodes. Empty if the store belongs to this node alone.
    others: OnceLock<Others>,
    /// The first failure of the node, if it has failed.
    failure: watch::Sender<Option<NodeFailure>>,
    metrics: Metrics,
    memory: Budget,
    streams: Streams,
    refusals: Refusals,
}

impl Service {
    /// A service without shards: every request is rejected with [`Unavailable::ShardUnavailable`] until a [`crate::Node`] is
    /// started on the service. Its memory has no limit.
    pub fn new(metrics: Metrics) -> Service {
        let memory = Budget::new(u64::MAX, &metrics);
        Service::with_memory(metrics, memory)
    }

    /// Like [`Service::new`], with a memory budget: while it is used up, requests that would add state are rejected with
    /// [`Unavailable::Overloaded`], and so are new followers.
    pub fn with_memory(metrics: Metrics, memory: Budget) -> Service {
        Service {
            inner: Arc::new(Inner {
                routes: OnceLock::new(),
                is_stopping: AtomicBool::new(false),
                is_leaving: AtomicBool::new(false),
                is_store_open: AtomicBool::new(true),
                is_serving: watch::Sender::new(true),
                others: OnceLock::new(),
                failure: watch::Sender::new(None),
                metrics,
                streams: Streams::new(memory.clone()),
                refusals: Refusals::default(),
                memory,
            }),
        }
    }

    /// Executes a request, and returns its outcome when the outcome is durable.
    ///
    /// If the caller drops the future of a request for locks, the request stops waiting, and locks that it was granted are
    /// released. A request that takes another one back is executed even if the caller drops the future.
    pub async fn submit(&self, request: Request) -> Result<Outcome, Unavailable> {
        let checks = CountedChecks::of(&request);
        let subject = RefusalSubject::of(&request);
        let is_dry_run = request.command.is_dry_run();
        // It is large, and moves through several futures and queues.
        let request = Box::new(request);
        let result = match self.routes() {
            Ok(routes) => {
                let shard = routes.shard_of(&request.namespace);
                match request.is_cancellation() {
                    true => {
                        let taking_back = tokio::spawn(self.clone().take_back(shard, request));
                        taking_back.await.unwrap_or(Err(Unavailable::OutcomeUnknown))
                    }
                    false => self.submit_to(routes.get(shard), shard, request).await,
                }
            }
            Err(unavailable) => Err(unavailable),
        };
        match &result {
            Ok(outcome) => {
                self.inner.metrics.requests.decided(outcome, is_dry_run);
                if let Some(subject) = &subject {
                    self.inner.refusals.record(subject, outcome);
                }
                if let Some(checks) = &checks {
                    self.inner.metrics.limiter.rule_checks.count(checks, outcome);
                }
            }
            Err(unavailable) => self.inner.metrics.requests.not_decided(unavailable.code()),
        }
        result
    }

    /// Whether a request of this size would be refused now, because its shard is overloaded. A front end asks before it
    /// decodes a large request, so that a refusal costs little. [`Service::submit`] asks again.
    pub fn check_load(&self, namespace: &Name, bytes: usize, makes_room: bool) -> Result<(), Unavailable> {
        let Some(routes) = self.inner.routes.get() else { return Ok(()) };
        let shard = routes.shard_of(namespace);
        // The owner of a shard in another node decides for itself.
        let Location::Local(sender) = routes.get(shard).location() else { return Ok(()) };
        let checked = sender.check(namespace, bytes, makes_room).map_err(Unavailable::from);
        if let Err(unavailable) = checked {
            self.inner.metrics.requests.not_decided(unavailable.code());
        }
        checked
    }

    /// Executes a request that another node has forwarded, if the shard is in this process.
    pub async fn answer_peer(&self, shard: ShardId, request: Request) -> Result<Outcome, PeerError> {
        let route = self.inner.routes.get().and_then(|routes| routes.find(shard));
        let sender = match route.map(Route::location) {
            Some(Location::Local(sender)) => sender,
            Some(Location::Failed) => return Err(PeerError::Unavailable(Unavailable::ShardUnavailable)),
            Some(Location::Remote(_) | Location::Unknown) | None => return Err(PeerError::NotThere),
        };
        self.forwarded_by_peer(&request.command);
        self.send(shard, &sender, Box::new(request)).await.map_err(|error| match error {
            // This node is stopping; the node that asks is not.
            PeerError::Unavailable(Unavailable::ShuttingDown) => {
                PeerError::Unavailable(Unavailable::ShardUnavailable)
            }
            error => error,
        })
    }

    /// A page of all namespaces, ordered by name.
    pub async fn namespaces(&self, page: Page<Name>) -> Result<Vec<NamespaceInfo>, Unavailable> {
        let name = Name::new("default").expect("a valid name");
        let mut all = Vec::new();
        let routes = self.routes()?;
        for (shard, route) in routes.all() {
            let command = Command::ListNamespaces(page.clone());
            let request = Box::new(Request::new(name.clone(), command));
            if let Outcome::Namespaces(mut part) = self.submit_to(route, shard, request).await? {
                all.append(&mut part);
            }
        }
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all.truncate(page.limit());
        Ok(all)
    }

    /// A page of the audit of all namespaces, by time.
    pub async fn audit(
        &self,
        page: Page<AuditCursor>,
    ) -> Result<Listed<AuditRecord, AuditCursor>, Unavailable> {
        let name = Name::new("default").expect("a valid name");
        let mut parts = Vec::new();
        for (shard, route) in self.routes()?.all() {
            let command = Command::ListShardAudit(page.clone());
            let request = Box::new(Request::new(name.clone(), command));
            if let Outcome::Audit(part) = self.submit_to(route, shard, request).await? {
                parts.push(part);
            }
        }
        Ok(audit::merge(parts, page.limit()))
    }

    /// Whether clients should send requests to this node. They should not while it is leaving or stopping, after it has failed, and while its store cannot be
    /// read. A node on a store of its own also needs every shard to be open. A node among others needs a tenure that has not
    /// expired, and it must have seen, once since it joined, that every shard was served.
    pub fn is_ready(&self) -> bool {
        let Ok(routes) = self.routes() else { return false };
        if self.is_leaving() {
            return false;
        }
        if !self.inner.is_store_open.load(Ordering::Acquire) || self.inner.failure.borrow().is_some() {
            return false;
        }
        match self.inner.others.get() {
            None => routes.all().all(|(_, route)| route.is_open()),
            Some(others) => others.is_ready(),
        }
    }

    /// Returns when every shard has been served once, by this node or another.
    pub async fn until_served(&self) {
        if let Some(others) = self.inner.others.get() {
            others.until_complete().await;
        }
    }

    /// The shard of a namespace, whether the namespace exists or not. None before the store is open.
    pub fn shard_of(&self, namespace: &Name) -> Option<ShardId> {
        self.inner.routes.get().map(|routes| routes.shard_of(namespace))
    }

    /// A secret that all nodes of the store know, and no client. None before the store is open.
    pub fn shared_secret(&self) -> Option<[u8; ShardingKey::BYTES]> {
        self.inner.routes.get().map(|routes| *routes.sharding().key.bytes())
    }

    /// All nodes and all shards, as this node knows them. There are no shards before the store is open.
    pub fn cluster(&self) -> Cluster {
        let routes = self.inner.routes.get();
        match self.inner.others.get() {
            None => {
                let routes = routes.into_iter().flat_map(Routes::all);
                Cluster::alone(self.is_ready(), routes.map(|(_, route)| route.is_open()))
            }
            Some(others) => others.cluster(self.is_ready(), |shard| {
                routes.and_then(|routes| routes.find(shard)).is_some_and(Route::is_open)
            }),
        }
    }

    /// Declares that clients cannot reach this service before [`Service::begin_serving`]. In shards that open after an
    /// interruption, time stands still until then: holders of locks and leases must not lose time in which they cannot send
    /// heartbeats.
    pub fn postpone_serving(&self) {
        self.inner.is_serving.send_replace(false);
    }

    /// Declares that clients reach this service from now on.
    pub fn begin_serving(&self) {
        self.inner.is_serving.send_if_modified(|is_serving| !std::mem::replace(is_serving, true));
    }

    /// Whether clients reach this service, now and when that changes.
    pub(crate) fn serving(&self) -> watch::Receiver<bool> {
        self.inner.is_serving.subscribe()
    }

    /// If another node forwards a request of one of its clients, clients do reach the shards of this process. Requests that
    /// a node makes on its own, to apply its rule sets, prove nothing.
    fn forwarded_by_peer(&self, command: &Command) {
        let is_for_a_client = match command {
            Command::ListNamespaces(_) | Command::ListShardAudit(_) => false,
            Command::Limiter(limiter::Command::Change(change)) => match **change {
                Change::PutRuleSet { author, .. } | Change::DeleteRuleSet { author, .. } => {
                    author == SetAuthor::Client
                }
                _ => true,
            },
            _ => true,
        };
        if is_for_a_client && !*self.inner.is_serving.borrow() {
            self.begin_serving();
        }
    }

    /// From now on this node is not ready, so that load balancers send their clients elsewhere. Requests that still arrive are
    /// served.
    pub(crate) fn begin_leave(&self) {
        self.inner.is_leaving.store(true, Ordering::Release);
    }

    /// From now on, new requests are rejected with [`Unavailable::ShuttingDown`]. Accepted requests are still answered.
    pub fn begin_stop(&self) {
        self.inner.is_stopping.store(true, Ordering::Release);
        self.inner.streams.stop();
        self.inner.refusals.stop();
    }

    fn is_leaving(&self) -> bool {
        self.inner.is_leaving.load(Ordering::Acquire)
    }

    fn is_stopping(&self) -> bool {
        self.inner.is_stopping.load(Ordering::Acquire)
    }

    /// Declares whether stored records can be read. Requests that need none are answered in either case.
    pub fn set_store_open(&self, is_open: bool) {
        self.inner.is_store_open.store(is_open, Ordering::Release);
    }

    /// The node has failed. Later failures are logged only: the owner acts on the first one.
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

    /// The memory budget of the process.
    pub fn memory(&self) -> &Budget {
        &self.inner.memory
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.inner.streams
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.inner.refusals
    }

    pub(crate) fn others(&self) -> Option<&Others> {
        self.inner.others.get()
    }

    /// A node starts on this service. The locations of its shards are not known yet.
    pub(crate) fn start(&self, sharding: Sharding, others: Option<Others>) {
        if let Some(others) = others {
            assert!(self.inner.others.set(others).is_ok(), "a service is started once");
        }
        assert!(self.inner.routes.set(Routes::new(sharding)).is_ok(), "a service is started once");
    }

    fn routes(&self) -> Result<&Routes, Unavailable> {
        if self.is_stopping() {
            return Err(Unavailable::ShuttingDown);
        }
        self.inner.routes.get().ok_or(Unavailable::ShardUnavailable)
    }
}
