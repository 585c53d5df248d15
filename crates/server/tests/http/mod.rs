//! The conventions of the HTTP contract, through real sockets, against a backend that answers what a case says.

use futures_util::FutureExt;
use limina_engine::{
    Command, Listed, Millis, Name, Outcome, Page, Position, Request, Time,
    audit::{AuditCursor, AuditRecord},
    ledger::{
        self, AsOf, Context, Entry, EntryType, ExceededLimit, FinalizationReply, HoldReply, HoldState, Limit,
        LimitValue, Operation, OperationHold, Patch, Refusal, Reply, State, Transfer, ValuesReply,
    },
    outcome::NamespaceInfo,
};
use limina_node::{Cluster, FollowError, NodeStatus, ShardStatus, Unavailable};
use limina_server::{App, AppOptions, Backend, Metrics, OPENAPI_JSON, Policy, backend::Pending, serve};
use prometheus_client::registry::Registry;
use reqwest::{Client, Method, Response};
use serde_json::{Value as Json, json};
use std::{
    collections::{BTreeSet, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

mod access;
mod bodies;
mod decisions;
mod details;
mod events;
mod health;
mod liminator;
mod limiter;
mod locks;
mod memory;
mod readers;
mod replies;
mod request_ids;
mod requests;
mod tls;

const MIB: usize = 1 << 20;

/// Remembers what it was asked, and answers what it was told to.
#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<Request>>,
    /// Answered one after another, before what stands in `answer`.
    script: Mutex<VecDeque<Outcome>>,
    answer: Mutex<Option<Result<Outcome, Unavailable>>>,
    pages: Mutex<Vec<Page<Name>>>,
    /// The audit of all namespaces has this record at every time, without end.
    audited: Mutex<Option<AuditRecord>>,
    /// The time behind which the audit of all namespaces was read last.
    audit_read_behind: AtomicU64,
    /// Why streams cannot be followed, one reason after another; then the server is shutting down.
    not_followed: Mutex<VecDeque<FollowError>>,
    ready: AtomicBool,
    /// Why the shards take no more than what makes room.
    overloaded: Mutex<Option<Unavailable>>,
    /// A client that hangs up at the moment at which the next answer is given.
    hangs_up: Mutex<Option<std::net::TcpStream>>,
    /// While it is locked, no answer is given.
    gate: tokio::sync::Mutex<()>,
    /// Notified of every request, before its answer.
    submitted: tokio::sync::Notify,
}

impl Backend for Fake {
    fn submit(&self, request: Request) -> Pending<'_, Outcome> {
        Box::pin(async move {
            self.submitted.notify_one();
            let _open = self.gate.lock().await;
            drop(self.hangs_up.lock().unwrap().take());
            if let Command::Locks(limina_engine::locks::Command::Abandon(_)) = &request.command {
                // The runtime learns meanwhile what has happened on sockets.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
            let answer = match self.script.lock().unwrap().pop_front() {
                Some(outcome) => Ok(outcome),
                None => {
                    self.answer.lock().unwrap().clone().unwrap_or_else(|| Ok(plausible(&request.command)))
                }
            };
            self.asked.lock().unwrap().push(request);
            answer
        })
    }

    fn check_load(&self, _: &Name, _: usize, makes_room: bool) -> Result<(), Unavailable> {
        match *self.overloaded.lock().unwrap() {
            Some(unavailable) if !makes_room => Err(unavailable),
            _ => Ok(()),
        }
    }

    fn namespaces(&self, page: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>> {
        Box::pin(async move {
            let first = page
                .after
                .as_ref()
                .map_or(0, |after| after.as_str()[1..].parse().map_or(0, |n: usize| n + 1));
            let found = (first..5)
                .take(page.limit())
                .map(|n| NamespaceInfo { name: name(&format!("n{n}")), position: Position(n as u64 * 10) });
            let found = found.collect();
            self.pages.lock().unwrap().push(page);
            Ok(found)
        })
    }

    fn audit(&self, page: Page<AuditCursor>) -> Pending<'_, Listed<AuditRecord, AuditCursor>> {
        let record = self.audited.lock().unwrap().clone();
        let begin = page.after.as_ref().map_or(0, |after| after.time.0);
        self.audit_read_behind.store(begin, Ordering::Relaxed);
        let times = (begin..).skip(1).take(page.limit());
        let items: Vec<AuditRecord> = record
            .into_iter()
            .flat_map(|record| {
                times.clone().map(move |time| AuditRecord { time: Time(time), ..record.clone() })
            })
            .collect();
        let next = items.last().map(AuditRecord::cursor);
        Box::pin(async { Ok(Listed { items, next }) })
    }

    fn follow(
        &self,
        _: Name,
        _: Name,
        _: Option<u64>,
        _: Option<limina_engine::events::StreamTerms>,
    ) -> limina_server::backend::Following<'_> {
        let reason = self.not_followed.lock().unwrap().pop_front();
        let reason = reason.unwrap_or(FollowError::Unavailable(Unavailable::ShuttingDown));
        Box::pin(async { Err(reason) })
    }

    fn answer_peer(
        &self,
        _: limina_node::ShardId,
        request: Request,
    ) -> limina_node::peers::PeerFuture<'_, Outcome> {
        let answer = self.submit(request);
        Box::pin(async { answer.await.map_err(limina_node::PeerError::Unavailable) })
    }

    fn feed_peer(
        &self,
        _: limina_node::FeedRequest,
    ) -> limina_node::peers::PeerFuture<'_, Box<dyn limina_node::Feed>> {
        Box::pin(async { Err(limina_node::PeerError::NotThere) })
    }

    fn listen_to_refusals(
        &self,
        namespace: Option<Name>,
    ) -> Result<limina_node::RefusalListener, limina_node::memory::MemoryFull> {
        limina_node::Service::new(limina_node::Metrics::new()).listen_to_refusals(namespace)
    }

    fn refusals_for_peer(
        &self,
        _: limina_node::RefusalsRequest,
    ) -> limina_node::peers::PeerFuture<'_, limina_node::RefusalsPage> {
        Box::pin(async { Err(limina_node::PeerError::NotThere) })
    }

    fn cluster(&self) -> Cluster {
        let me = || "local".to_owned();
        let is_ready = self.is_ready();
        let node = NodeStatus { node: me(), address: None, is_ready, is_leaving: false };
        let shard = |shard| ShardStatus { shard, owner: Some(me()), epoch: None, is_open: true };
        Cluster { me: me(), nodes: vec![node], shards: vec![shard(0), shard(1)] }
    }

    /// The last byte of the name decides.
    fn shard_of(&self, namespace: &Name) -> Option<limina_node::ShardId> {
        let last = namespace.as_bytes().last().copied().unwrap_or_default();
        Some(limina_node::ShardId(u16::from(last % 2)))
    }

    fn shared_secret(&self) -> Option<[u8; 16]> {
        Some([7; 16])
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

/// What the engine could answer, where a case does not care.
fn plausible(command: &Command) -> Outcome {
    use ledger::Command::*;
    let reply = match command {
        Command::DeleteNamespace => return Outcome::NamespaceDeleted,
        Command::ListNamespaces(_) => return Outcome::Namespaces(Vec::new()),
        Command::ListAudit(_) | Command::ListShardAudit(_) => {
            return Outcome::Audit(Listed { items: Vec::new(), next: None });
        }
        Command::Events(command) => return Outcome::Events(Ok(events::plausible(command))),
        Command::Locks(command) => return Outcome::Locks(Ok(locks::plausible(command))),
        Command::Limiter(command) => return Outcome::Limiter(Ok(limiter::plausible(command))),
        Command::Decisions(command) => return Outcome::Decisions(Ok(decisions::plausible(command))),
        Command::Ledger(command) => match command {
            CreateLimit(_) | PatchLimit { .. } | GetLimit(_) => Reply::Limit(limit("a")),
            DeleteLimit(_) => Reply::LimitDeleted,
            ListLimitsByUse(_) => Reply::LimitsByUse(Listed { items: vec![limit("a")], next: None }),
            Extend(_) => Reply::Operation(operation(State::Held, &[(State::Held, None, None)])),
            ListLimits(_) => Reply::Limits(Listed { items: vec![limit("a")], next: None }),
            Transfer(transfer) => transferred(transfer),
            Batch(transfers) => {
                Reply::Batch(transfers.iter().map(|transfer| Ok(transferred(transfer))).collect())
            }
            Values(_) => Reply::Values(ValuesReply { position: Position(3), values: vec![value("a")] }),
            GetOperation(_) => Reply::Operation(operation(State::Held, &[(State::Held, None, None)])),
            ListOperations { .. } => Reply::Operations(Listed { items: Vec::new(), next: None }),
            ListEntries { .. } => Reply::Entries(Listed { items: Vec::new(), next: None }),
        },
    };
    Outcome::Ledger(Ok(reply))
}

fn transferred(transfer: &Transfer) -> Reply {
    let (operation_id, position, values) = (transfer.operation_id().clone(), Position(3), vec![value("a")]);
    match transfer {
        Transfer::Hold(_) => Reply::Hold(HoldReply { operation_id, position, values, skipped: Vec::new() }),
        Transfer::Finish(..) => Reply::Finalization(FinalizationReply { operation_id, position, values }),
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn value(limit: &str) -> LimitValue {
    LimitValue { limit_name: name(limit), limit_id: None, commit_value: 5, hold_value: -2, total_value: 3 }
}

fn limit(limit: &str) -> Limit {
    let context = Context::new([("k", "v")]).unwrap();
    let LimitValue { limit_name, limit_id, commit_value, hold_value, total_value } = value(limit);
    Limit {
        name: limit_name,
        limit_id,
        context,
        ceiling: Some(9),
        commit_value,
        hold_value,
        total_value,
        available: Some(4),
        created_position: Position(1),
    }
}

/// An operation in this state with such holds: the state of each, the committed value, and the position of its end.
fn operation(state: State, holds: &[(State, Option<i64>, Option<u64>)]) -> Operation {
    let holds = holds.iter().enumerate().map(|(place, (state, committed_value, end))| OperationHold {
        limit_name: name(&format!("l{place}")),
        limit_id: Some(name("id")),
        deleted: place == 0,
        state: *state,
        held_value: 7,
        committed_value: *committed_value,
        held_at: Time(1_600_000_000_000),
        hold_position: Position(2),
        final_position: end.map(Position),
        expires_at: Some(Time(1_700_000_000_000)),
        expires_in_ms: (*state == State::Held).then_some(Millis(500)),
        expired: *state == State::RolledBack && place == 0,
    });
    Operation { operation_id: name("op"), position: Position(2), state, holds: holds.collect() }
}

/// A server on a port of its own.
struct Server {
    fake: Arc<Fake>,
    address: SocketAddr,
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

async fn start() -> Server {
    start_with(Duration::from_secs(30)).await
}

async fn start_with(body_timeout: Duration) -> Server {
    start_app(AppOptions { body_timeout, ..anyone() }).await
}

/// It bears with clients that take nothing for so long.
async fn start_patient(reader_timeout: Duration) -> Server {
    start_app(AppOptions { reader_timeout, ..anyone() }).await
}

/// Everybody is let in.
fn anyone() -> AppOptions {
    AppOptions { policy: Policy::anyone(), ..AppOptions::default() }
}

async fn start_app(options: AppOptions) -> Server {
    // The client in clients/rust gives reqwest TLS without a provider, and the tests' HTTP clients panic without one.
    let _another_test_was_first = rustls::crypto::ring::default_provider().install_default();
    let fake = Arc::new(Fake::default());
    fake.ready.store(true, Ordering::Relaxed);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let app = App::new(fake.clone(), metrics, Arc::new(registry), options);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(serve(listener, app, Box::pin(stopped.map(drop))));
    Server { fake, address, client: Client::new(), stop: Some(stop), serving }
}

impl Server {
    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Response {
        self.request(method, path).body(body.to_owned()).send().await.unwrap()
    }

    fn answers(&self, answer: Result<Outcome, Unavailable>) {
        *self.fake.answer.lock().unwrap() = Some(answer);
    }

    fn last_asked(&self) -> Request {
        self.fake.asked.lock().unwrap().last().cloned().expect("nothing was asked")
    }

    fn nothing_asked(&self) {
        assert_eq!(*self.fake.asked.lock().unwrap(), [], "the backend was asked");
    }

    /// Speaks HTTP/1.1 by hand, and returns all that comes back until the connection is closed.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }
}

/// Checks all that is common to problem documents, and returns it.
#[track_caller]
fn is_problem(status: u16, headers: &reqwest::header::HeaderMap, body: &[u8], code: &str) -> Json {
    let problem: Json =
        serde_json::from_slice(body).unwrap_or_else(|_| panic!("{:?}", String::from_utf8_lossy(body)));
    assert_eq!(problem["code"], code, "{problem}");
    assert_eq!(problem["status"], status, "{problem}");
    assert_eq!(problem["type"], format!("/docs#{code}"), "{problem}");
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{problem}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    let is_sentence =
        detail.starts_with(|first: char| first.is_ascii_uppercase()) && detail.ends_with(['.', '…']);
    assert!(is_sentence, "{problem}");
    for word in ["invalid type", "expected ", "missing field", "unknown field", "struct "] {
        assert!(!detail.contains(word) || detail.contains("JSON"), "a word of the parser in {problem}");
    }
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(problem["request_id"], headers["x-request-id"].to_str().unwrap(), "{problem}");
    assert_eq!(headers.contains_key("retry-after"), status == 503, "{problem}");
    problem
}

async fn problem_of(response: Response, status: u16, code: &str) -> Json {
    let (found, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.bytes().await.unwrap();
    assert_eq!(found, status, "{}", String::from_utf8_lossy(&body));
    is_problem(found, &headers, &body, code)
}

const HOLD: &str = r#"{"operation_id": "op", "changes": [{"limit_name": "a", "value": 1}]}"#;
