//! The facade that every front end speaks to.

use crate::{
    NotAnswered,
    cluster::{Cluster, Others},
    metrics::{Decision, Metrics, Reason},
    rule_checks::Asked,
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

/// The two ends of the way to a shard.
pub(crate) fn way(max_queue: usize) -> (Way, Arrivals) {
    let (submit, submissions) = mpsc::channel(max_queue);
    let (take_back, taken_back) = mpsc::unbounded_channel();
    (Way { submit, take_back }, Arrivals { submissions, taken_back })
}

/// Where requests go in.
pub(crate) struct Way {
    submit: mpsc::Sender<Submission>,
    take_back: mpsc::UnboundedSender<Submission>,
}

/// Where they come out.
pub(crate) struct Arrivals {
    pub(crate) submissions: mpsc::Receiver<Submission>,
    /// What takes back an earlier submission whose client has gone. There is no bound but the number of those.
    pub(crate) taken_back: mpsc::UnboundedReceiver<Submission>,
}

/// Hands requests to the shard of their namespace, wherever it is. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    /// Empty until the store is open.
    doors: OnceLock<Vec<Door>>,
    is_stopping: AtomicBool,
    /// Whether clients can reach the shards of this process.
    is_serving: watch::Sender<bool>,
    /// The other nodes, where there may be some.
    others: OnceLock<Others>,
    metrics: Metrics,
    streams: Streams,
}

/// The way to one shard.
struct Door {
    at: watch::Sender<At>,
    is_open: AtomicBool,
    /// How many requests wait until somebody serves the shard.
    waiting: AtomicUsize,
}

/// Where a shard is, as far as is known here.
#[derive(Clone)]
pub(crate) enum At {
    /// Nobody serves it, or it is not known who does.
    Nowhere,
    /// In this process.
    Here(Arc<Way>),
    /// In another node, at this address.
    There(Arc<str>),
}

/// Why there is no outcome. Except for [`Unavailable::OutcomeUnknown`], nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error, Serialize, Deserialize)]
pub enum Unavailable {
    /// The shard's queue is full.
    #[error("more is asked than can be done; try again shortly")]
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
                doors: OnceLock::new(),
                is_stopping: AtomicBool::new(false),
                is_serving: watch::Sender::new(true),
                others: OnceLock::new(),
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
        let checks = Asked::of(&request);
        let result = match self.doors() {
            Ok(doors) => {
                let shard = shard_of(request.namespace.as_str(), doors.len() as u16);
                match request.takes_back() {
                    true => {
                        let taking_back = tokio::spawn(self.clone().taken_back(shard, request));
                        taking_back.await.unwrap_or(Err(Unavailable::OutcomeUnknown))
                    }
                    false => self.route(doors, shard, request).await,
                }
            }
            Err(unavailable) => Err(unavailable),
        };
        match &result {
            Ok(outcome) => {
                let decision = Decision { family: outcome.family(), outcome: outcome.code() };
                self.inner.metrics.decisions.get_or_create(&decision).inc();
                if let Some(asked) = &checks {
                    self.inner.metrics.rule_checks.count(asked, outcome);
                }
            }
            Err(unavailable) => {
                self.inner.metrics.unavailable.get_or_create(&Reason { code: unavailable.code() }).inc();
            }
        }
        result
    }

    /// Does what another node asks for, if the shard is in this one.
    pub async fn answer_peer(&self, shard: ShardId, request: Request) -> Result<Outcome, NotAnswered> {
        let door = self.inner.doors.get().and_then(|doors| doors.get(usize::from(shard.0)));
        let Some(At::Here(way)) = door.map(Door::at) else { return Err(NotAnswered::NotThere) };
        self.asked_by_peer(&request.command);
        self.send(shard, &way, request).await.map_err(|error| match error {
            // It is this node that stops, not the one that asks.
            NotAnswered::Unavailable(Unavailable::ShuttingDown) => {
                NotAnswered::Unavailable(Unavailable::ShardUnavailable)
            }
            error => error,
        })
    }

    /// A part of all namespaces, by name.
    pub async fn namespaces(&self, page: Page<Name>) -> Result<Vec<NamespaceInfo>, Unavailable> {
        let name = Name::new("default").expect("a valid name");
        let mut all = Vec::new();
        let doors = self.doors()?;
        for shard in (0..doors.len() as u16).map(ShardId) {
            let command = Command::ListNamespaces(page.clone());
            let request = Request { namespace: name.clone(), idempotency: None, command };
            if let Outcome::Namespaces(mut part) = self.route(doors, shard, request).await? {
                all.append(&mut part);
            }
        }
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all.truncate(page.limit);
        Ok(all)
    }

    /// Whether requests are served. Alone: every shard is open. Among others: this node's tenure has not run out, and
    /// since it came there was a moment at which every shard was served. And the process is not stopping.
    pub fn is_ready(&self) -> bool {
        let Ok(doors) = self.doors() else { return false };
        match self.inner.others.get() {
            None => doors.iter().all(Door::is_open),
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
        let doors = self.inner.doors.get().map(Vec::as_slice).unwrap_or_default();
        match self.inner.others.get() {
            None => Cluster::alone(self.is_ready(), doors.iter().map(Door::is_open)),
            Some(others) => others
                .cluster(self.is_ready(), |shard| doors.get(usize::from(shard.0)).is_some_and(Door::is_open)),
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
        let is_for_a_client = !matches!(
            command,
            Command::ListNamespaces(_) | Command::Limiter(limiter::Command::Change(Change::ApplyFile(_)))
        );
        if is_for_a_client && !*self.inner.is_serving.borrow() {
            self.begin_serving();
        }
    }

    /// From now on everything is refused with [`Unavailable::ShuttingDown`]; what was taken before is answered.
    pub fn begin_stop(&self) {
        self.inner.is_stopping.store(true, Ordering::Release);
        self.inner.streams.stop();
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
        let door = |_| Door {
            at: watch::Sender::new(At::Nowhere),
            is_open: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        };
        let doors = (0..shards).map(door).collect();
        assert!(self.inner.doors.set(doors).is_ok(), "a service is started once");
    }

    /// A shard is somewhere else from now on.
    pub(crate) fn set_at(&self, shard: ShardId, at: At) {
        let same = |old: &At| match (old, &at) {
            (At::Nowhere, At::Nowhere) => true,
            (At::There(old), At::There(new)) => old == new,
            _ => false,
        };
        self.door(shard).at.send_if_modified(|old| {
            let is_new = !same(old);
            if is_new {
                *old = at.clone();
            }
            is_new
        });
    }

    /// The same, where it is known by the node that has it.
    pub(crate) fn set_at_node(&self, shard: ShardId, node: Option<NodeId>) {
        let address = self.inner.others.get().and_then(|others| others.address(node?));
        self.set_at(shard, address.map_or(At::Nowhere, At::There));
    }

    /// The other nodes, and the address of the one that has this shard.
    pub(crate) fn other(&self, shard: ShardId) -> Option<(&Others, Arc<str>)> {
        match self.door(shard).at() {
            At::There(address) => Some((self.inner.others.get()?, address)),
            At::Here(_) | At::Nowhere => None,
        }
    }

    /// Where the shard of a namespace is, now and whenever that changes.
    pub(crate) fn watch(&self, namespace: &Name) -> Option<(ShardId, watch::Receiver<At>)> {
        let doors = self.inner.doors.get()?;
        let shard = shard_of(namespace.as_str(), doors.len() as u16);
        Some((shard, doors[usize::from(shard.0)].at.subscribe()))
    }

    /// A shard of this process serves requests from now on, or no longer.
    pub(crate) fn set_open(&self, shard: ShardId, is_open: bool) {
        let was_open = self.door(shard).is_open.swap(is_open, Ordering::AcqRel);
        self.inner.metrics.shards_open.inc_by(i64::from(is_open) - i64::from(was_open));
    }

    /// A shard of this process is served no longer: other nodes must follow its streams elsewhere.
    pub(crate) fn shard_left(&self, shard: ShardId) {
        let shards = self.inner.doors.get().map_or(0, Vec::len);
        self.streams().moved(shard, shards as u16);
    }

    /// Whether a shard is in this process.
    pub(crate) fn is_here(&self, shard: ShardId) -> bool {
        let door = self.inner.doors.get().and_then(|doors| doors.get(usize::from(shard.0)));
        door.is_some_and(|door| matches!(door.at(), At::Here(_)))
    }

    /// Whether a shard is in this process and serves requests.
    pub(crate) fn is_open(&self, shard: ShardId) -> bool {
        self.door(shard).is_open()
    }

    fn door(&self, shard: ShardId) -> &Door {
        let doors = self.inner.doors.get().expect("a shard runs on a service that is started");
        &doors[usize::from(shard.0)]
    }

    fn doors(&self) -> Result<&[Door], Unavailable> {
        if self.inner.is_stopping.load(Ordering::Acquire) {
            return Err(Unavailable::ShuttingDown);
        }
        self.inner.doors.get().map(Vec::as_slice).ok_or(Unavailable::ShardUnavailable)
    }

    /// Asks whoever has the shard. Among several nodes that may change under way: what surely was not done is asked
    /// again, of whoever has it then, for a while.
    async fn route(&self, doors: &[Door], shard: ShardId, request: Request) -> Result<Outcome, Unavailable> {
        let door = &doors[usize::from(shard.0)];
        let Some(others) = self.inner.others.get() else {
            let At::Here(way) = door.at() else { return Err(Unavailable::ShardUnavailable) };
            return self.send(shard, &way, request).await.map_err(|error| self.reason(error, true));
        };
        let is_write = request.is_write();
        let mut patience: Option<Patience<'_>> = None;
        loop {
            let answer = match door.at() {
                At::Here(way) => self.send(shard, &way, request.clone()).await,
                At::There(address) => {
                    self.inner.metrics.forwarded.inc();
                    // The other node takes the request back if it learns that nobody waits. But its answer may be under
                    // way already, so this node, which knows its client, takes it back as well.
                    let mut unheard = Unheard::new(self, shard, &request);
                    let answer = others.peers().ask(&address, shard, &request).await;
                    unheard.take_back = None;
                    answer
                }
                At::Nowhere => Err(NotAnswered::NotThere),
            };
            let error = match answer {
                Ok(outcome) => return Ok(outcome),
                Err(NotAnswered::NotThere) => NotAnswered::NotThere,
                Err(NotAnswered::Lost) if !is_write => NotAnswered::NotThere,
                Err(error) => return Err(self.reason(error, is_write)),
            };
            let patience = match &mut patience {
                Some(patience) => patience,
                none => none.insert(Patience::new(door, others.patience())?),
            };
            if !patience.wait().await || self.inner.is_stopping.load(Ordering::Acquire) {
                return Err(self.reason(error, is_write));
            }
        }
    }

    fn reason(&self, error: NotAnswered, is_write: bool) -> Unavailable {
        match error {
            NotAnswered::Unavailable(reason) => reason,
            NotAnswered::Lost if is_write => Unavailable::OutcomeUnknown,
            _ if self.inner.is_stopping.load(Ordering::Acquire) => Unavailable::ShuttingDown,
            NotAnswered::Lost | NotAnswered::NotThere => Unavailable::ShardUnavailable,
        }
    }

    async fn send(&self, shard: ShardId, way: &Way, request: Request) -> Result<Outcome, NotAnswered> {
        let (ticket, reply) = oneshot::channel();
        let is_write = request.is_write();
        let unheard = Unheard::new(self, shard, &request);
        let mut asking = Asking { reply, unheard };
        let sent = match request.takes_back() {
            true => way.take_back.send((ticket, request)).map_err(|_| NotAnswered::NotThere),
            false => way.submit.try_send((ticket, request)).map_err(|error| match error {
                TrySendError::Full(_) => NotAnswered::Unavailable(Unavailable::Overloaded),
                TrySendError::Closed(_) => NotAnswered::NotThere,
            }),
        };
        if let Err(error) = sent {
            asking.unheard.take_back = None;
            return Err(error);
        }
        self.inner.metrics.queue_depth.inc();
        let _depth = Decrement(&self.inner.metrics);
        let answer = match self.inner.others.get() {
            None => (&mut asking.reply).await,
            Some(others) => tokio::select! {
                biased;
                answer = &mut asking.reply => answer,
                // What was asked for is taken back, where it can be, as if the client had gone.
                () = others.store_is_away() => return Err(match is_write {
                    true => NotAnswered::Lost,
                    false => NotAnswered::Unavailable(Unavailable::ShardUnavailable),
                }),
            },
        };
        asking.unheard.take_back = None;
        match answer {
            Ok(result) => result.map_err(|failure| match failure {
                Failure::Unavailable => NotAnswered::NotThere,
                Failure::OutcomeUnknown => NotAnswered::Lost,
                Failure::StorageFull => NotAnswered::Unavailable(Unavailable::StorageFull),
                // Only where the whole process stops is that what is told.
                Failure::Closing => NotAnswered::Unavailable(self.closing()),
            }),
            // The shard's task ended without an answer. A write may have been done.
            Err(_) if is_write => Err(NotAnswered::Lost),
            Err(_) => Err(NotAnswered::NotThere),
        }
    }

    /// Takes an earlier request back at whichever node has the shard. Doing that twice changes nothing, so it is repeated
    /// until it was surely done.
    async fn taken_back(self, shard: ShardId, request: Request) -> Result<Outcome, Unavailable> {
        let doors = self.inner.doors.get().ok_or(Unavailable::ShardUnavailable)?;
        let until = Instant::now() + TAKE_BACK_FOR;
        loop {
            match self.route(doors, shard, request.clone()).await {
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

impl Door {
    fn at(&self) -> At {
        self.at.borrow().clone()
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

/// A request that waits until somebody serves its shard.
struct Patience<'a> {
    door: &'a Door,
    at: watch::Receiver<At>,
    until: Instant,
}

impl Patience<'_> {
    fn new(door: &Door, span: Duration) -> Result<Patience<'_>, Unavailable> {
        if door.waiting.fetch_add(1, Ordering::AcqRel) >= MAX_WAITING {
            door.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(Unavailable::Overloaded);
        }
        Ok(Patience { door, at: door.at.subscribe(), until: Instant::now() + span })
    }

    /// Waits until it may be worth to ask again; says whether it still is.
    async fn wait(&mut self) -> bool {
        let _whichever_is_first = tokio::time::timeout(ASK_AGAIN, self.at.changed()).await;
        Instant::now() < self.until
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        self.door.waiting.fetch_sub(1, Ordering::AcqRel);
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
        Unheard { service, shard, take_back: request.taken_back_by() }
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
        self.0.queue_depth.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feed, Peers, Wanted, clock::Clocks, cluster::Tenancy, peers::Asked as AskedOf};
    use limina_engine::{
        KeyValues, Millis,
        key_values::Value,
        locks::{self, Acquire, Lock, Mode},
    };
    use prometheus_client::registry::Registry;
    use std::sync::Mutex;

    /// Another node that never answers a request for locks, and loses what takes it back a few times.
    struct Fake {
        asked: mpsc::UnboundedSender<Request>,
        losses: Mutex<Vec<NotAnswered>>,
    }

    impl Peers for Fake {
        fn ask<'a>(&'a self, _: &'a str, _: ShardId, request: &'a Request) -> AskedOf<'a, Outcome> {
            let _nobody_listens = self.asked.send(request.clone());
            Box::pin(async move {
                if !request.takes_back() {
                    std::future::pending::<()>().await;
                }
                match self.losses.lock().unwrap().pop() {
                    Some(loss) => Err(loss),
                    None => Ok(Outcome::Locks(Ok(locks::Reply::Abandoned))),
                }
            })
        }

        fn follow<'a>(&'a self, _: &'a str, _: &'a Wanted) -> AskedOf<'a, Box<dyn Feed>> {
            Box::pin(std::future::ready(Err(NotAnswered::NotThere)))
        }
    }

    fn acquire() -> Request {
        let name = |text: &str| Name::new(text).unwrap();
        let key_values = KeyValues::new(vec![("lock", Value::<&str>::Integer(1))]).unwrap();
        let wanted = Acquire {
            id: name("id"),
            session: name("session"),
            locks: vec![Lock { key_values, mode: Mode::Exclusive }],
            ttl: Millis(1_000),
            wait: Millis(1_000),
            owner: None,
        };
        let command = Command::Locks(locks::Command::Acquire(wanted));
        Request { namespace: name("n"), idempotency: None, command }
    }

    /// The answer of the other node may be under way when the client hangs up, so that only this node can take it back.
    #[tokio::test]
    async fn what_another_node_was_asked_for_is_taken_back_until_it_is_done() {
        let (asked, mut requests) = mpsc::unbounded_channel();
        let losses = vec![NotAnswered::NotThere, NotAnswered::Lost, NotAnswered::Lost];
        let peers = Arc::new(Fake { asked, losses: Mutex::new(losses) });
        let service = Service::new(Metrics::register(&mut Registry::default()));
        let patience = Duration::from_secs(1);
        let tenancy = Tenancy::alone(Clocks::new());
        service.start(1, Some(Others::new(NodeId(1), peers, tenancy, patience)));
        service.set_at(ShardId(0), At::There("other".into()));

        let request = acquire();
        let waiting = tokio::spawn({
            let (service, request) = (service.clone(), request.clone());
            async move { service.submit(request).await }
        });
        assert_eq!(requests.recv().await.as_ref(), Some(&request));
        waiting.abort();
        for _ in 0..4 {
            let asked = tokio::time::timeout(Duration::from_secs(60), requests.recv()).await;
            assert_eq!(asked.expect("it is taken back"), request.taken_back_by());
        }
        // It is done, and not asked for again. Whatever is asked next is the first that is.
        let other = Request { namespace: Name::new("other").unwrap(), ..acquire() };
        let _never_answered = tokio::spawn({
            let (service, other) = (service.clone(), other.clone());
            async move { service.submit(other).await }
        });
        assert_eq!(requests.recv().await, Some(other));
    }
}
