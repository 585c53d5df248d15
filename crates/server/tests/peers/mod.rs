//! How one node asks another, through real sockets.

use limina_engine::{
    Command, Listed, Name, Outcome, Page, Request,
    audit::{AuditCursor, AuditRecord},
    events::{self, Change, ChangeKind},
    ledger,
    outcome::NamespaceInfo,
};
use limina_node::{
    Budget, Cluster, Feed, FeedEnded, FeedRequest, FollowError, PeerError, Peers, ShardId, StreamUpdate,
    Unavailable, peers::PeerFuture,
};
use limina_server::{
    App, Backend, HttpPeers, Metrics, Secret,
    backend::{Following, Pending},
    serve,
};
use prometheus_client::registry::Registry;
use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, oneshot},
    task::JoinHandle,
};

mod asks;
mod bodies;
mod failures;
mod feeds;
mod hang_ups;
mod raw;

/// Nothing here takes so long, unless it never comes.
const LONG: Duration = Duration::from_secs(30);

fn secret() -> Secret {
    Secret::new("0123456789abcdef").unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A request of which the answer is of no interest.
fn read() -> Request {
    let command = Command::Ledger(ledger::Command::GetLimit(name("a")));
    Request::new(name("n"), command)
}

/// A node that answers what it was told to.
struct Fake {
    asked: Mutex<Vec<(ShardId, Request)>>,
    answer: Mutex<Result<Outcome, PeerError>>,
    /// Each answer takes one.
    gate: Semaphore,
    /// Told when a request is taken, and when it is let go of.
    taken: mpsc::UnboundedSender<Taken>,
    /// What is followed, once.
    feed: Mutex<Option<FakeFeed>>,
    wanted: Mutex<Option<FeedRequest>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Taken {
    Begun,
    LetGo,
}

/// Tells when it is dropped.
struct LetGo(mpsc::UnboundedSender<Taken>);

impl Drop for LetGo {
    fn drop(&mut self) {
        let _nobody_listens = self.0.send(Taken::LetGo);
    }
}

impl Backend for Fake {
    fn submit(&self, _: Request) -> Pending<'_, Outcome> {
        Box::pin(async { Err(Unavailable::ShardUnavailable) })
    }

    fn check_load(&self, _: &Name, _: usize, _: bool) -> Result<(), Unavailable> {
        Ok(())
    }

    fn namespaces(&self, _: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>> {
        Box::pin(async { Err(Unavailable::ShardUnavailable) })
    }

    fn audit(&self, _: Page<AuditCursor>) -> Pending<'_, Listed<AuditRecord, AuditCursor>> {
        Box::pin(async { Ok(Listed { items: Vec::new(), next: None }) })
    }

    fn follow(&self, _: Name, _: Name, _: Option<u64>, _: Option<events::StreamTerms>) -> Following<'_> {
        Box::pin(async { Err(FollowError::StreamNotFound) })
    }

    fn answer_peer(&self, shard: ShardId, request: Request) -> PeerFuture<'_, Outcome> {
        Box::pin(async move {
            let _let_go = LetGo(self.taken.clone());
            let _nobody_listens = self.taken.send(Taken::Begun);
            self.gate.acquire().await.expect("it is never closed").forget();
            self.asked.lock().unwrap().push((shard, request));
            self.answer.lock().unwrap().clone()
        })
    }

    fn feed_peer(&self, wanted: FeedRequest) -> PeerFuture<'_, Box<dyn Feed>> {
        Box::pin(async {
            *self.wanted.lock().unwrap() = Some(wanted);
            let feed = self.feed.lock().unwrap().take();
            feed.map(|feed| Box::new(feed) as Box<dyn Feed>).ok_or(PeerError::NotThere)
        })
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn cluster(&self) -> Cluster {
        Cluster::default()
    }

    fn shard_of(&self, _: &Name) -> Option<ShardId> {
        None
    }
}

/// Tells what it is given; waits for ever when there is no more.
struct FakeFeed(mpsc::UnboundedReceiver<Result<Vec<StreamUpdate>, FeedEnded>>);

impl Feed for FakeFeed {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<StreamUpdate>, FeedEnded>> + Send + '_>> {
        Box::pin(async {
            match self.0.recv().await {
                Some(told) => told,
                None => std::future::pending().await,
            }
        })
    }
}

/// A node on a port of its own.
struct Node {
    fake: Arc<Fake>,
    taken: mpsc::UnboundedReceiver<Taken>,
    server: Server,
}

impl Node {
    /// One that answers at once.
    async fn start() -> Node {
        Node::start_with(Some(secret())).await
    }

    async fn start_with(secret: Option<Secret>) -> Node {
        Node::start_limited(secret, Budget::unlimited()).await
    }

    async fn start_limited(secret: Option<Secret>, memory: Budget) -> Node {
        let (sender, taken) = mpsc::unbounded_channel();
        let fake = Arc::new(Fake {
            asked: Mutex::default(),
            answer: Mutex::new(Ok(Outcome::NamespaceDeleted)),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            taken: sender,
            feed: Mutex::default(),
            wanted: Mutex::default(),
        });
        let server = Server::start_with(fake.clone(), secret, memory).await;
        Node { fake, taken, server }
    }

    fn address(&self) -> &str {
        &self.server.address
    }

    fn answers(&self, answer: Result<Outcome, PeerError>) {
        *self.fake.answer.lock().unwrap() = answer;
    }

    /// From now on no request is answered.
    fn close_gate(&self) {
        self.fake.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    fn feeds(&self) -> mpsc::UnboundedSender<Result<Vec<StreamUpdate>, FeedEnded>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.fake.feed.lock().unwrap() = Some(FakeFeed(receiver));
        sender
    }
}

/// A server for any backend.
struct Server {
    address: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start(backend: Arc<dyn Backend>, secret: Option<Secret>) -> Server {
        Server::start_with(backend, secret, Budget::unlimited()).await
    }

    async fn start_with(backend: Arc<dyn Backend>, secret: Option<Secret>, memory: Budget) -> Server {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let app = App::new(backend, metrics, Arc::new(registry));
        secret.into_iter().for_each(|secret| app.accept_peers(secret));
        app.limit_memory(memory);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(serve(listener, app, async {
            let _ = stopped.await;
        }));
        Server { address, stop, serving }
    }
}

/// Waits, but not for ever.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it takes too long")
}
