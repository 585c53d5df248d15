//! The facade that every front end speaks to.

use crate::{
    NotAnswered,
    metrics::{Decision, Metrics, Reason},
    rule_checks::Asked,
    shard_of,
    streams::Streams,
};
use limina_engine::{Command, Name, Outcome, Page, Request, outcome::NamespaceInfo};
use limina_shard::Failure;
use limina_store::ShardId;
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::{mpsc, mpsc::error::TrySendError, oneshot};

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
    take_back: mpsc::UnboundedSender<Request>,
}

/// Where they come out.
pub(crate) struct Arrivals {
    pub(crate) submissions: mpsc::Receiver<Submission>,
    /// What takes back an earlier submission whose client has gone. There is no bound but the number of those.
    pub(crate) taken_back: mpsc::UnboundedReceiver<Request>,
}

/// Hands requests to the shard of their namespace. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    /// Empty until the store is open.
    shards: OnceLock<Vec<Door>>,
    is_stopping: AtomicBool,
    metrics: Metrics,
    streams: Streams,
}

/// The way to one shard.
struct Door {
    way: Way,
    is_open: AtomicBool,
}

/// A shard as operators see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardStatus {
    /// Its number.
    pub shard: u16,
    /// Whether it serves requests now; otherwise it is being opened.
    pub is_open: bool,
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

impl From<Failure> for Unavailable {
    fn from(failure: Failure) -> Unavailable {
        match failure {
            Failure::StorageFull => Unavailable::StorageFull,
            Failure::Unavailable => Unavailable::ShardUnavailable,
            Failure::Closing => Unavailable::ShuttingDown,
            Failure::OutcomeUnknown => Unavailable::OutcomeUnknown,
        }
    }
}

impl Service {
    /// A service without shards yet: everything is unavailable until a [`crate::Node`] is started on it.
    pub fn new(metrics: Metrics) -> Service {
        Service {
            inner: Arc::new(Inner {
                shards: OnceLock::new(),
                is_stopping: AtomicBool::new(false),
                metrics,
                streams: Streams::default(),
            }),
        }
    }

    /// Does what is asked, and returns when it is durable. Where the caller does not wait for that, a lock that it asked
    /// for is not waited for either, and not held.
    pub async fn submit(&self, request: Request) -> Result<Outcome, Unavailable> {
        let checks = Asked::of(&request);
        let result = match self.shards() {
            Ok(shards) => {
                let shard = shard_of(request.namespace.as_str(), shards.len() as u16);
                self.send(&shards[usize::from(shard.0)].way, request).await
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

    /// Does what another node asks for, in a shard of this node.
    pub async fn answer_peer(&self, shard: ShardId, request: Request) -> Result<Outcome, NotAnswered> {
        let doors = self.inner.shards.get().ok_or(NotAnswered::NotThere)?;
        let door = doors.get(usize::from(shard.0)).ok_or(NotAnswered::NotThere)?;
        self.send(&door.way, request).await.map_err(NotAnswered::Unavailable)
    }

    /// A part of all namespaces, by name.
    pub async fn namespaces(&self, page: Page<Name>) -> Result<Vec<NamespaceInfo>, Unavailable> {
        let name = Name::new("default").expect("a valid name");
        let mut all = Vec::new();
        for shard in self.shards()? {
            let command = Command::ListNamespaces(page.clone());
            let request = Request { namespace: name.clone(), idempotency: None, command };
            if let Outcome::Namespaces(mut part) = self.send(&shard.way, request).await? {
                all.append(&mut part);
            }
        }
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all.truncate(page.limit);
        Ok(all)
    }

    /// Whether requests are served: every shard is open and the process is not stopping.
    pub fn is_ready(&self) -> bool {
        self.shards().is_ok_and(|shards| shards.iter().all(|shard| shard.is_open.load(Ordering::Acquire)))
    }

    /// Every shard; none before the store is open.
    pub fn shard_statuses(&self) -> Vec<ShardStatus> {
        let doors = self.inner.shards.get().map(Vec::as_slice).unwrap_or_default();
        let status = |(shard, door): (usize, &Door)| ShardStatus {
            shard: shard as u16,
            is_open: door.is_open.load(Ordering::Acquire),
        };
        doors.iter().enumerate().map(status).collect()
    }

    /// From now on everything is refused with [`Unavailable::ShuttingDown`]; what was taken before is answered.
    pub fn begin_stop(&self) {
        self.inner.is_stopping.store(true, Ordering::Release);
        self.inner.streams.stop();
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.inner.streams
    }

    pub(crate) fn start(&self, shards: Vec<Way>) {
        let doors = shards.into_iter().map(|way| Door { way, is_open: AtomicBool::new(false) }).collect();
        assert!(self.inner.shards.set(doors).is_ok(), "a service is started once");
    }

    /// A shard serves requests from now on, or no longer.
    pub(crate) fn set_open(&self, shard: ShardId, is_open: bool) {
        let doors = self.inner.shards.get().expect("a shard runs on a service that is started");
        let was_open = doors[usize::from(shard.0)].is_open.swap(is_open, Ordering::AcqRel);
        self.inner.metrics.shards_open.inc_by(i64::from(is_open) - i64::from(was_open));
    }

    fn shards(&self) -> Result<&[Door], Unavailable> {
        if self.inner.is_stopping.load(Ordering::Acquire) {
            return Err(Unavailable::ShuttingDown);
        }
        self.inner.shards.get().map(Vec::as_slice).ok_or(Unavailable::ShardUnavailable)
    }

    async fn send(&self, way: &Way, request: Request) -> Result<Outcome, Unavailable> {
        let is_write = request.is_write();
        let take_back = request.taken_back_by();
        let (ticket, reply) = oneshot::channel();
        way.submit.try_send((ticket, request)).map_err(|error| match error {
            TrySendError::Full(_) => Unavailable::Overloaded,
            TrySendError::Closed(_) => Unavailable::ShuttingDown,
        })?;
        self.inner.metrics.queue_depth.inc();
        let _depth = Decrement(&self.inner.metrics);
        let mut asking = Asking { reply, take_back: take_back.map(|request| (&way.take_back, request)) };
        let answer = (&mut asking.reply).await;
        asking.take_back = None;
        match answer {
            Ok(result) => result.map_err(Unavailable::from),
            // The shard's task ended without an answer. A write may have been done.
            Err(_) if is_write => Err(Unavailable::OutcomeUnknown),
            Err(_) => Err(Unavailable::ShardUnavailable),
        }
    }
}

/// A client that waits for its answer. If it goes away before, what it asked for is taken back.
struct Asking<'a> {
    reply: oneshot::Receiver<Result<Outcome, Failure>>,
    take_back: Option<(&'a mpsc::UnboundedSender<Request>, Request)>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some((sender, request)) = self.take_back.take() {
            // First the ticket shows that nobody waits: a submission that arrives after what takes it back is not made.
            self.reply.close();
            let _shard_is_gone = sender.send(request);
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
