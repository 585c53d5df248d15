//! How one node asks another, through real sockets.

use futures_util::FutureExt;
use limina_engine::{
    Caller, Command, Listed, Name, Outcome, Page, Request, RequestId,
    audit::{AuditCursor, AuditRecord},
    events::{self, Change, ChangeKind},
    ledger,
    outcome::NamespaceInfo,
};
use limina_node::{
    Budget, Cluster, Feed, FeedEnded, FeedRequest, Fingerprint, FollowError, PeerError, Peers, ShardId,
    StreamUpdate, Unavailable, peers::PeerFuture,
};
use limina_server::{
    App, AppOptions, Backend, Metrics, PeerClient,
    backend::{Following, Pending},
    serve, serve_peers,
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
    time::Instant,
};

mod asks;
mod bodies;
mod failures;
mod feeds;
mod hang_ups;
mod raw;
mod strangers;

pub(crate) use strangers::{Certificate, introduce_to};

/// Nothing here takes so long, unless it never comes.
const LONG: Duration = Duration::from_secs(30);

/// These know each other's certificates, and no others.
fn introduce(nodes: &[&PeerClient]) {
    let certificates: Vec<Fingerprint> = nodes.iter().filter_map(|node| node.certificate()).collect();
    nodes.iter().for_each(|node| node.handle_certificates(certificates.clone(), Instant::now()));
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A value as nodes send it.
fn bytes(value: &impl serde::Serialize) -> Vec<u8> {
    limina_api::binary::encode(value).unwrap()
}

/// A whole request: shard 0, and that a namespace is to be deleted.
fn deletion() -> Vec<u8> {
    ask_bytes(&Request::new(name("n"), Command::DeleteNamespace))
}

/// A request to shard 0.
fn ask_bytes(request: &Request) -> Vec<u8> {
    [vec![0, 0], bytes(request)].concat()
}

/// The answer that the namespace was deleted.
fn deleted() -> Vec<u8> {
    bytes(&Ok::<_, PeerError>(Outcome::NamespaceDeleted))
}

/// Why a node has done nothing.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Refusal {
    Overloaded,
    Invalid {
        field: String,
        reason: String,
    },
    /// No node says this.
    Unknown,
}

/// A request of which the answer is of no interest.
fn read() -> Request {
    let command = Command::Ledger(ledger::Command::GetLimit(name("a")));
    let caller = Caller {
        actor: Some(name("operator")),
        address: Some([192, 0, 2, 7].into()),
        request_id: RequestId::new(b"upstream-7f/42"),
    };
    Request { caller, ..Request::new(name("n"), command) }
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

    fn listen_to_refusals(
        &self,
        namespace: Option<Name>,
    ) -> Result<limina_node::RefusalListener, limina_node::memory::MemoryFull> {
        limina_node::Service::new(limina_node::Metrics::new()).listen_to_refusals(namespace)
    }

    fn refusals_for_peer(
        &self,
        wanted: limina_node::RefusalsRequest,
    ) -> PeerFuture<'_, limina_node::RefusalsPage> {
        Box::pin(async move { Ok(page_of_refusals(wanted.after)) })
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

    fn shared_secret(&self) -> Option<[u8; 16]> {
        None
    }
}

/// A page with one refusal behind `after`.
fn page_of_refusals(after: u64) -> limina_node::RefusalsPage {
    let refused = limina_node::RefusedRequest {
        time: 7,
        namespace: name("n"),
        family: "ledger".into(),
        code: "LimitExceeded".into(),
        rule: None,
        limit_name: Some(name("daily")),
        stream: None,
        key_values: None,
        operation_id: Some(name("op")),
    };
    limina_node::RefusalsPage { items: vec![refused], next: after + 1, missed: 2 }
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
        Node::start_limited(Budget::unlimited()).await
    }

    async fn start_limited(memory: Budget) -> Node {
        let (sender, taken) = mpsc::unbounded_channel();
        let fake = Arc::new(Fake {
            asked: Mutex::default(),
            answer: Mutex::new(Ok(Outcome::NamespaceDeleted)),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            taken: sender,
            feed: Mutex::default(),
            wanted: Mutex::default(),
        });
        let server = Server::start(fake.clone(), memory).await;
        Node { fake, taken, server }
    }

    fn address(&self) -> &str {
        &self.server.address
    }

    /// Another node, which this one knows.
    fn client(&self) -> PeerClient {
        self.server.client()
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

/// A server for any backend, with a listener for nodes and one for clients.
struct Server {
    /// For nodes.
    address: String,
    /// For clients.
    public: String,
    peers: Arc<PeerClient>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start(backend: Arc<dyn Backend>, memory: Budget) -> Server {
        // The client in clients/rust gives reqwest TLS without a provider, and the tests' HTTP clients panic without one.
        let _another_test_was_first = rustls::crypto::ring::default_provider().install_default();
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let options = AppOptions { memory, ..AppOptions::default() };
        let app = App::new(backend, metrics, Arc::new(registry), options);
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = stopped.shared();
        let [for_nodes, for_clients] = [bind().await, bind().await];
        let [address, public] =
            [&for_nodes, &for_clients].map(|listener| listener.local_addr().unwrap().to_string());
        let peers = Arc::new(PeerClient::new(Budget::unlimited()).unwrap());
        let nodes =
            serve_peers(for_nodes, app.clone(), peers.clone(), 1_024, Box::pin(stopped.clone().map(drop)));
        let clients = serve(for_clients, app, Box::pin(stopped.map(drop)));
        let serving = tokio::spawn(async {
            tokio::join!(nodes, clients);
        });
        Server { address, public, peers, stop, serving }
    }

    fn client(&self) -> PeerClient {
        let client = PeerClient::new(Budget::unlimited()).unwrap();
        introduce(&[&client, &self.peers]);
        client
    }
}

async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Waits, but not for ever.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it takes too long")
}
