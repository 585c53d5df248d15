//! The conventions of the HTTP contract, through real sockets, against a backend that answers what a case says.

use limina_engine::{
    Command, Millis, Name, Outcome, Page, Position, Request, Time,
    ledger::{
        self, AsOf, EntryInfo, EntryKind, FinalizationReply, HeldLimitInfo, HoldReply, HoldState, LimitInfo,
        OperationInfo, Patch, Refusal, Reply, Transfer, Value, ValuesReply,
    },
    outcome::NamespaceInfo,
};
use limina_node::{ShardStatus, Unavailable};
use limina_server::{App, Backend, Metrics, backend::Pending, openapi_json, serve};
use prometheus_client::registry::Registry;
use reqwest::{Client, Method, Response};
use serde_json::{Value as Json, json};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

const MIB: usize = 1 << 20;

/// Remembers what it was asked, and answers what it was told to.
#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<Request>>,
    answer: Mutex<Option<Result<Outcome, Unavailable>>>,
    pages: Mutex<Vec<Page<Name>>>,
    ready: AtomicBool,
    /// While it is locked, no answer is given.
    gate: tokio::sync::Mutex<()>,
}

impl Backend for Fake {
    fn submit(&self, request: Request) -> Pending<'_, Outcome> {
        Box::pin(async move {
            let _open = self.gate.lock().await;
            let answer =
                self.answer.lock().unwrap().clone().unwrap_or_else(|| Ok(plausible(&request.command)));
            self.asked.lock().unwrap().push(request);
            answer
        })
    }

    fn namespaces(&self, page: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>> {
        Box::pin(async move {
            let first =
                page.after.as_ref().map_or(0, |after| after.as_str()[1..].parse::<usize>().unwrap() + 1);
            let found = (first..5)
                .take(page.limit)
                .map(|n| NamespaceInfo { name: name(&format!("n{n}")), position: Position(n as u64 * 10) });
            let found = found.collect();
            self.pages.lock().unwrap().push(page);
            Ok(found)
        })
    }

    fn shard_statuses(&self) -> Vec<ShardStatus> {
        vec![ShardStatus { shard: 0, is_open: true }]
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
        Command::Ledger(command) => match command {
            CreateLimit(_) | PatchLimit { .. } | GetLimit(_) => Reply::Limit(limit("a")),
            ListLimits(_) => Reply::Limits { items: vec![limit("a")], more: false },
            Transfer(transfer) => transferred(transfer),
            Batch(transfers) => {
                Reply::Batch(transfers.iter().map(|transfer| Ok(transferred(transfer))).collect())
            }
            Values { .. } => Reply::Values(ValuesReply { position: Position(3), values: vec![value("a")] }),
            GetOperation(_) => Reply::Operation(operation(vec![HoldState::Held])),
            ListOperations { .. } => Reply::Operations { items: Vec::new(), next: None },
            ListEntries { .. } => Reply::Entries { items: Vec::new(), next: None },
        },
    };
    Outcome::Ledger(Ok(reply))
}

fn transferred(transfer: &Transfer) -> Reply {
    let (operation_id, position, values) = (transfer.operation_id().clone(), Position(3), vec![value("a")]);
    match transfer {
        Transfer::Hold(_) => Reply::Hold(HoldReply { operation_id, position, values, skipped: Vec::new() }),
        Transfer::Finish(_) => Reply::Finalization(FinalizationReply { operation_id, position, values }),
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn value(limit: &str) -> Value {
    Value { limit_name: name(limit), limit_id: None, commit_value: 5, hold_value: -2 }
}

fn limit(limit: &str) -> LimitInfo {
    let context = [("k".into(), "v".into())].into();
    LimitInfo { value: value(limit), context, ceiling: Some(9), created_at: Position(1) }
}

fn operation(states: Vec<HoldState>) -> OperationInfo {
    let holds = states.into_iter().enumerate().map(|(place, state)| HeldLimitInfo {
        limit_name: name(&format!("l{place}")),
        limit_id: Some(name("id")),
        value: 7,
        held_at: Position(2),
        expires_at: Some(Time(1_700_000_000_000)),
        state,
    });
    OperationInfo { operation_id: name("op"), position: Position(2), holds: holds.collect() }
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
    let fake = Arc::new(Fake::default());
    fake.ready.store(true, Ordering::Relaxed);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let app = App::new(fake.clone(), metrics, Arc::new(registry)).with_body_timeout(body_timeout);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(serve(listener, app, async {
        let _ = stopped.await;
    }));
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
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
    assert_eq!(headers["content-type"], "application/problem+json");
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

#[tokio::test]
async fn bodies_that_do_not_parse_or_validate_name_the_field() {
    let server = start().await;
    let check = async |path: &str, body: &str, field: &str| {
        let problem = problem_of(server.send("POST", path, body).await, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], field, "{body:.300} gave {problem}");
        server.nothing_asked();
    };
    // Not JSON, or not an object.
    check("/v1/ledger/hold", "", "body").await;
    check("/v1/ledger/hold", " ", "body").await;
    check("/v1/ledger/hold", "hello", "body").await;
    check("/v1/ledger/hold", "null", "body").await;
    check("/v1/ledger/hold", "[]", "body").await;
    check("/v1/ledger/hold", r#"["op", [{"limit_name": "a", "value": 1}]]"#, "body").await;
    check("/v1/ledger/hold", "\u{feff}{}", "body").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "changes": [}"#, "body").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op""#, "body").await;
    check("/v1/ledger/hold", &format!("{HOLD} x"), "body").await;
    check("/v1/ledger/hold", &format!("{HOLD}{HOLD}"), "body").await;
    check("/v1/ledger/hold", &"[".repeat(100_000), "body").await;
    check("/v1/ledger/hold", &r#"{"changes":"#.repeat(50_000), "changes").await;
    check("/v1/ledger/limits", &format!(r#"{{"name": "a", "context": {}"#, "[".repeat(500)), "context").await;
    // Unknown, missing, repeated.
    check("/v1/ledger/hold", "{}", "operation_id").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op"}"#, "changes").await;
    check("/v1/ledger/hold", r#"{"operation": "op"}"#, "operation").await;
    check(
        "/v1/ledger/hold",
        r#"{"operation_id": "op", "changes": [{"limit_nam": "a"}]}"#,
        "changes[0].limit_nam",
    )
    .await;
    check(
        "/v1/ledger/hold",
        r#"{"operation_id": "op", "changes": [{"limit_name": "a"}]}"#,
        "changes[0].value",
    )
    .await;
    check("/v1/ledger/hold", r#"{"operation_id": "a", "operation_id": "b"}"#, "operation_id").await;
    let twice = r#"{"operation_id": "op", "changes": [{"limit_name": "a", "value": 1, "value": 2}]}"#;
    check("/v1/ledger/hold", twice, "changes[0].value").await;
    check("/v1/ledger/limits", r#"{"name": "a", "context": {"k": "1", "k": "2"}}"#, "context.k").await;
    // Types.
    check("/v1/ledger/hold", r#"{"operation_id": 5}"#, "operation_id").await;
    check("/v1/ledger/hold", r#"{"operation_id": null}"#, "operation_id").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "changes": {}}"#, "changes").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "changes": [["a", 1]]}"#, "changes[0]").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "skip_existing_holds": 1}"#, "skip_existing_holds")
        .await;
    for wrong in
        ["1.0", "1e3", "\"1\"", "9223372036854775808", "-9223372036854775809", "1e999", "true", "null"]
    {
        let body =
            format!(r#"{{"operation_id": "op", "changes": [{{"limit_name": "a", "value": {wrong}}}]}}"#);
        check("/v1/ledger/hold", &body, "changes[0].value").await;
    }
    check("/v1/ledger/limits", r#"{"name": "a", "ceiling": 1.5}"#, "ceiling").await;
    check("/v1/ledger/limits", r#"{"name": "a", "context": {"k": 1}}"#, "context.k").await;
    check("/v1/ledger/values", r#"{"limit_names": ["a"], "position": -1}"#, "position").await;
    for wrong in
        ["\"10\"", "\"\"", "\"1.5s\"", "-1", "1.5", "true", "\"0ms\"", "0", "\"367d\"", "31622400001"]
    {
        let body = HOLD.replacen('{', &format!(r#"{{"expires_after": {wrong}, "#), 1);
        check("/v1/ledger/hold", &body, "expires_after").await;
    }
    // Names and lists.
    check("/v1/ledger/limits", r#"{"name": ""}"#, "name").await;
    check("/v1/ledger/limits", r#"{"name": ".."}"#, "name").await;
    check("/v1/ledger/limits", r#"{"name": "a\n"}"#, "name").await;
    check("/v1/ledger/limits", &json!({"name": "x".repeat(257)}).to_string(), "name").await;
    check("/v1/ledger/limits", r#"{"name": "a", "limit_id": ""}"#, "limit_id").await;
    check("/v1/ledger/limits", r#"{"name": "a", "context": {"": "v"}}"#, "context.").await;
    check(
        "/v1/ledger/limits",
        &json!({"name": "a", "context": {"k": "v".repeat(1025)}}).to_string(),
        "context.k",
    )
    .await;
    let context: serde_json::Map<_, _> = (0..65).map(|n| (n.to_string(), json!("v"))).collect();
    check("/v1/ledger/limits", &json!({"name": "a", "context": context}).to_string(), "context").await;
    check(
        "/v1/ledger/hold",
        r#"{"operation_id": "", "changes": [{"limit_name": "a", "value": 1}]}"#,
        "operation_id",
    )
    .await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "changes": []}"#, "changes").await;
    let many: Vec<Json> = (0..65).map(|n| json!({"limit_name": format!("l{n}"), "value": 1})).collect();
    check("/v1/ledger/hold", &json!({"operation_id": "op", "changes": many}).to_string(), "changes").await;
    let twice = json!({"operation_id": "op", "changes": [{"limit_name": "a", "value": 1}, {"limit_name": "a", "value": 2}]});
    check("/v1/ledger/hold", &twice.to_string(), "changes[1].limit_name").await;
    check("/v1/ledger/commit", &twice.to_string(), "changes[1].limit_name").await;
    check("/v1/ledger/rollback", r#"{"operation_id": "op", "changes": []}"#, "changes").await;
    check("/v1/ledger/values", r#"{"limit_names": []}"#, "limit_names").await;
    check("/v1/ledger/values", r#"{"limit_names": ["a", "b", "a"]}"#, "limit_names[2]").await;
    check("/v1/ledger/values", r#"{"limit_names": ["a", ""]}"#, "limit_names[1]").await;
    check("/v1/ledger/values", r#"{"limit_names": ["a"], "operation_id": "op", "position": 1}"#, "position")
        .await;
    // Batches as a whole.
    check("/v1/ledger/hold/batch", r#"{"operations": []}"#, "operations").await;
    check("/v1/ledger/hold/batch", r#"{"operation": []}"#, "operation").await;
    check("/v1/ledger/hold/batch", r#"{"operations": {}}"#, "operations").await;
    let item = json!({"operation_id": "op"});
    check("/v1/ledger/commit/batch", &json!({"operations": vec![item; 8193]}).to_string(), "operations")
        .await;
    // What a client sends is not repeated at any length.
    let long = json!({"x".repeat(MIB / 2): 1}).to_string();
    let answer = server.send("POST", "/v1/ledger/hold", &long).await.text().await.unwrap();
    assert!(answer.len() < 4096);
}

#[tokio::test]
async fn invalid_utf8_in_a_body() {
    let server = start().await;
    let body = b"{\"operation_id\": \"\xff\"}".to_vec();
    let response = server.request("POST", "/v1/ledger/hold").body(body).send().await.unwrap();
    assert_eq!(problem_of(response, 400, "InvalidRequest").await["field"], "body");
}

#[tokio::test]
async fn bodies_become_commands() {
    let server = start().await;
    let check = async |method: &str, path: &str, body: &str, status: u16, expect: ledger::Command| {
        let response = server.send(method, path, body).await;
        assert_eq!(response.status().as_u16(), status, "{body}");
        assert_eq!(response.headers()["content-type"], "application/json");
        let asked = server.last_asked();
        assert_eq!(asked.command, Command::Ledger(expect), "{body}");
        assert_eq!((asked.namespace.as_str(), asked.idempotency), ("default", None));
    };
    let new = |limit_id, context, ceiling| {
        ledger::Command::CreateLimit(ledger::NewLimit { name: name("a"), limit_id, context, ceiling })
    };
    check("POST", "/v1/ledger/limits", r#"{"name": "a"}"#, 201, new(None, [].into(), None)).await;
    let full = r#"{"name": "a", "limit_id": "7", "context": {"k": "v"}, "ceiling": -9223372036854775808}"#;
    let context = || [("k".into(), "v".into())].into();
    check("POST", "/v1/ledger/limits", full, 201, new(Some(name("7")), context(), Some(i64::MIN))).await;
    let patched = |ceiling, context| ledger::Command::PatchLimit { name: name("a"), ceiling, context };
    check("PATCH", "/v1/ledger/limits/a", "", 200, patched(Patch::Keep, Patch::Keep)).await;
    check("PATCH", "/v1/ledger/limits/a", "{}", 200, patched(Patch::Keep, Patch::Keep)).await;
    let body = r#"{"ceiling": null, "context": {"k": "v"}}"#;
    check("PATCH", "/v1/ledger/limits/a", body, 200, patched(Patch::Remove, Patch::Set(context()))).await;
    let body = r#"{"ceiling": 0, "context": null}"#;
    check("PATCH", "/v1/ledger/limits/a", body, 200, patched(Patch::Set(0), Patch::Remove)).await;
    let hold = ledger::Hold {
        operation_id: name("op"),
        changes: vec![ledger::Change {
            limit_name: name("a"),
            value: i64::MAX,
            limit_id: Some(name("7")),
            context: context(),
        }],
        skip_existing_holds: true,
        create_missing: true,
        expires_after: Some(Millis(90_000)),
    };
    let body = r#"{"operation_id": "op", "changes": [{"limit_name": "a", "value": 9223372036854775807,
        "limit_id": "7", "context": {"k": "v"}}], "skip_existing_holds": true, "create_missing": true,
        "expires_after": "1m30s"}"#;
    check("POST", "/v1/ledger/hold", body, 200, ledger::Command::Transfer(Transfer::Hold(hold))).await;
    let finished = |finish, changes| {
        ledger::Command::Transfer(Transfer::Finish(ledger::Finalization {
            finish,
            operation_id: name("op"),
            changes,
        }))
    };
    check(
        "POST",
        "/v1/ledger/commit",
        r#"{"operation_id": "op"}"#,
        200,
        finished(ledger::Finish::Commit, None),
    )
    .await;
    let changes = vec![ledger::FinalizationChange { limit_name: name("a"), value: Some(-3) }];
    let body = r#"{"operation_id": "op", "changes": [{"limit_name": "a", "value": -3}]}"#;
    check("POST", "/v1/ledger/rollback", body, 200, finished(ledger::Finish::Rollback, Some(changes))).await;
    let values = |as_of| ledger::Command::Values { limit_names: vec![name("b"), name("a")], as_of };
    check("POST", "/v1/ledger/values", r#"{"limit_names": ["b", "a"]}"#, 200, values(AsOf::Now)).await;
    let body = r#"{"limit_names": ["b", "a"], "operation_id": "op"}"#;
    check("POST", "/v1/ledger/values", body, 200, values(AsOf::Operation(name("op")))).await;
    let body = r#"{"limit_names": ["b", "a"], "position": 0}"#;
    check("POST", "/v1/ledger/values", body, 200, values(AsOf::Position(Position(0)))).await;
    check("GET", "/v1/ledger/operations/op", "", 200, ledger::Command::GetOperation(name("op"))).await;
}

#[tokio::test]
async fn content_types() {
    let server = start().await;
    let check = async |header: (&str, &str), status: u16| {
        let request = server.request("POST", "/v1/ledger/hold").header(header.0, header.1).body(HOLD);
        let response = request.send().await.unwrap();
        if status == 415 {
            problem_of(response, 415, "UnsupportedMediaType").await;
        } else {
            assert_eq!(response.status().as_u16(), status, "{header:?}");
        }
    };
    check(("x-nothing", ""), 200).await;
    check(("content-type", "application/json"), 200).await;
    check(("content-type", "application/json; charset=utf-8"), 200).await;
    check(("content-type", "Application/JSON"), 200).await;
    check(("content-type", "application/vnd.limina+json"), 200).await;
    check(("content-type", "text/plain"), 415).await;
    check(("content-type", "text/json"), 415).await;
    check(("content-type", "application/jsonp"), 415).await;
    check(("content-type", "application/x-www-form-urlencoded"), 415).await;
    check(("content-encoding", "identity"), 200).await;
    check(("content-encoding", "gzip"), 415).await;
}

#[tokio::test]
async fn sizes() {
    let server = start().await;
    let check = async |path: &str, length: usize, status: u16| {
        let mut body = HOLD.to_owned();
        if path.ends_with("/batch") {
            body = format!(r#"{{"operations": [{body}]}}"#);
        }
        body.extend(std::iter::repeat_n(' ', length - body.len()));
        let response = server.send("POST", path, &body).await;
        if status == 413 {
            assert_eq!(response.headers()["connection"], "close");
            problem_of(response, 413, "PayloadTooLarge").await;
        } else {
            assert_eq!(response.status().as_u16(), status, "{path} {length}");
        }
    };
    check("/v1/ledger/hold", MIB, 200).await;
    check("/v1/ledger/hold", MIB + 1, 413).await;
    check("/v1/ledger/hold", 5 * MIB, 413).await;
    check("/v1/ledger/hold", 8 * MIB, 413).await;
    check("/v1/ledger/hold/batch", 16 * MIB, 200).await;
    check("/v1/ledger/hold/batch", 16 * MIB + 1, 413).await;
    // Also for paths that want no body the client sees the answer.
    problem_of(server.send("POST", "/nowhere", &" ".repeat(5 * MIB)).await, 404, "NotFound").await;
    // A client that asks first need not send it.
    let answer = server
        .raw(b"POST /v1/ledger/hold HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn slow_bodies() {
    let server = start_with(Duration::from_millis(50)).await;
    let answer = server.raw(b"POST /v1/ledger/hold HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.contains(r#""code":"RequestTimeout""#), "{answer}");
    server.nothing_asked();
}

#[tokio::test]
async fn names_in_paths() {
    let server = start().await;
    let check = async |path: &str, expect: Result<(&str, &str), &str>| {
        let response = server.send("GET", path, "").await;
        match expect {
            Ok((namespace, limit)) => {
                assert_eq!(response.status().as_u16(), 200, "{path}");
                let asked = server.last_asked();
                assert_eq!(asked.namespace.as_str(), namespace, "{path}");
                assert_eq!(asked.command, Command::Ledger(ledger::Command::GetLimit(name(limit))), "{path}");
            }
            Err(field) => {
                let problem = problem_of(response, 400, "InvalidRequest").await;
                assert_eq!(problem["field"], field, "{path}");
            }
        }
    };
    check("/v1/ledger/limits/a", Ok(("default", "a"))).await;
    check("/v1/ledger/limits/a%2Fb%20c%25", Ok(("default", "a/b c%"))).await;
    check("/v1/ledger/limits/a+b", Ok(("default", "a+b"))).await;
    check("/v1/ledger/limits/%F0%9F%8C%AE", Ok(("default", "🌮"))).await;
    check("/v1/ns/shop%2F1/ledger/limits/a", Ok(("shop/1", "a"))).await;
    check("/v1/ns/ledger/ledger/limits/limits", Ok(("ledger", "limits"))).await;
    check("/v1/ledger/limits/%FF", Err("name")).await;
    check("/v1/ns/%FF/ledger/limits/a", Err("namespace")).await;
    check("/v1/ledger/limits/a%00", Err("name")).await;
    check("/v1/ledger/limits/a%0Ab", Err("name")).await;
    check("/v1/ledger/limits/", Err("name")).await;
    check("/v1/ledger/limits//entries", Err("name")).await;
    check("/v1/ns//ledger/limits/a", Err("namespace")).await;
    check("/v1/ns/n/ledger/limits/", Err("name")).await;
    check(&format!("/v1/ledger/limits/{}", "x".repeat(256)), Ok(("default", &*"x".repeat(256)))).await;
    check(&format!("/v1/ledger/limits/{}", "x".repeat(257)), Err("name")).await;
    check("/v1/ledger/operations/%01", Err("operation_id")).await;
    check("/v1/ledger/operations/", Err("operation_id")).await;
    // Clients resolve dots by themselves, so these are sent by hand.
    for path in ["/v1/ledger/limits/%2E", "/v1/ledger/limits/..", "/v1/ns/%2e%2e/ledger/limits/a"] {
        let answer = server
            .raw(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
            .await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[tokio::test]
async fn query_parameters() {
    let server = start().await;
    let refused = async |path: &str, field: &str| {
        let problem = problem_of(server.send("GET", path, "").await, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], field, "{path}");
        server.nothing_asked();
    };
    refused("/v1/ledger/limits?limit=0", "limit").await;
    refused("/v1/ledger/limits?limit=1001", "limit").await;
    refused("/v1/ledger/limits?limit=-1", "limit").await;
    refused("/v1/ledger/limits?limit=", "limit").await;
    refused("/v1/ledger/limits?limit=1e2", "limit").await;
    refused("/v1/ledger/limits?limit=1&limit=2", "limit").await;
    refused("/v1/ledger/limits?after=", "after").await;
    refused("/v1/ledger/limits?after=%FF", "after").await;
    refused("/v1/ledger/limits?offset=3", "offset").await;
    refused("/v1/ledger/limits?state=held", "state").await;
    refused("/v1/ledger/limits/a?x=1", "x").await;
    refused("/v1/ledger/limits/a/entries?after=x", "after").await;
    refused("/v1/ledger/operations?state=committed", "state").await;
    refused("/v1/ledger/operations/op?state=held", "state").await;
    refused("/v1/ns?limit=0", "limit").await;
    let problem =
        problem_of(server.send("POST", "/v1/ledger/hold?dry_run=1", HOLD).await, 400, "InvalidRequest").await;
    assert_eq!(problem["field"], "dry_run");

    let asked = async |path: &str, expect: ledger::Command| {
        assert_eq!(server.send("GET", path, "").await.status().as_u16(), 200, "{path}");
        assert_eq!(server.last_asked().command, Command::Ledger(expect), "{path}");
    };
    let page = |after: Option<&str>, limit| Page { after: after.map(name), limit };
    asked("/v1/ledger/limits", ledger::Command::ListLimits(page(None, 100))).await;
    asked("/v1/ledger/limits?", ledger::Command::ListLimits(page(None, 100))).await;
    asked(
        "/v1/ledger/limits?limit=1000&after=a%26b+c",
        ledger::Command::ListLimits(page(Some("a&b c"), 1000)),
    )
    .await;
    let operations = |only_held| ledger::Command::ListOperations { only_held, page: page(None, 100) };
    asked("/v1/ledger/operations", operations(false)).await;
    asked("/v1/ledger/operations?state=held", operations(true)).await;
    let entries = Page { after: Some(Position(7)), limit: 1 };
    let entries = ledger::Command::ListEntries { limit_name: name("a"), page: entries };
    asked("/v1/ledger/limits/a/entries?after=7&limit=1", entries).await;
}

#[tokio::test]
async fn methods_and_paths() {
    let server = start().await;
    let check = async |method: &str, path: &str, allow: &[&str]| {
        let response = server.send(method, path, "").await;
        if allow.is_empty() {
            problem_of(response, 404, "NotFound").await;
        } else {
            let found = response.headers()["allow"].to_str().unwrap().to_owned();
            let found: BTreeSet<&str> = found.split(',').map(str::trim).collect();
            assert_eq!(found, allow.iter().copied().collect(), "{method} {path}");
            problem_of(response, 405, "MethodNotAllowed").await;
        }
    };
    check("GET", "/", &[]).await;
    check("GET", "/v1", &[]).await;
    check("GET", "/v1/ledger", &[]).await;
    check("POST", "/v1/ledger/holds", &[]).await;
    check("POST", "/v1/ledger/hold/", &[]).await;
    check("GET", "/v2/ledger/limits", &[]).await;
    check("GET", "/v1/ns/n/ledger", &[]).await;
    check("GET", "/v1/ledger/hold", &["POST"]).await;
    check("DELETE", "/v1/ledger/limits", &["GET", "HEAD", "POST"]).await;
    check("DELETE", "/v1/ns/n/ledger/limits/a", &["GET", "HEAD", "PATCH"]).await;
    check("OPTIONS", "/v1/ledger/operations", &["GET", "HEAD"]).await;
    check("BREW", "/healthz", &["GET", "HEAD"]).await;
    check("GET", "/v1/ns/n", &["DELETE"]).await;
    for path in ["/v1/ledger/limits", "/v1/ledger/limits/a", "/v1/ns", "/healthz", "/docs", "/openapi.json"] {
        let response = server.send("HEAD", path, "").await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        assert_eq!(response.bytes().await.unwrap().len(), 0, "{path}");
    }
    let head = server.send("HEAD", "/v1/ledger/hold", "").await;
    assert_eq!(head.status().as_u16(), 405);
}

#[tokio::test]
async fn malformed_http() {
    let server = start().await;
    let check = async |bytes: &[u8], start: &str| {
        let answer = server.raw(bytes).await;
        assert!(answer.starts_with(start), "{:?} gave {answer:?}", String::from_utf8_lossy(bytes));
    };
    check(b"hello\r\n\r\n", "HTTP/1.1 400 ").await;
    check(b"GET /healthz HTTP/1.1\r\nbad header\r\n\r\n", "HTTP/1.1 400 ").await;
    check(b"POST /v1/ledger/hold HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 400 ").await;
    let chunked = b"POST /v1/ledger/hold HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    check(chunked, "HTTP/1.1 400 ").await;
    let long = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(MIB));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The server may answer and close before all of it is sent.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).await.is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 431");
    }
    // The old protocol still works.
    check(b"GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.0 200 ").await;
    // And after all of it, so does the server.
    assert_eq!(server.send("GET", "/healthz", "").await.text().await.unwrap(), "ok");
}

#[tokio::test]
async fn idempotency_keys() {
    let server = start().await;
    let send = async |path: &str, keys: &[&[u8]], body: &str| {
        let mut request = server.request("POST", path).body(body.to_owned());
        for key in keys {
            request =
                request.header("Idempotency-Key", reqwest::header::HeaderValue::from_bytes(key).unwrap());
        }
        request.send().await.unwrap()
    };
    let check = async |key: &[u8], expect: Option<&str>| {
        let response = send("/v1/ledger/hold", &[key], HOLD).await;
        match expect {
            Some(expect) => {
                assert_eq!(response.status().as_u16(), 200);
                assert_eq!(server.last_asked().idempotency.unwrap().key.as_str(), expect);
            }
            None => {
                let problem = problem_of(response, 400, "InvalidRequest").await;
                assert_eq!(problem["field"], "Idempotency-Key");
            }
        }
    };
    check(b"k", Some("k")).await;
    check(b"\"k\"", Some("k")).await;
    check(b"\"\"k\"\"", Some("\"k\"")).await;
    check(b"\"k", Some("\"k")).await;
    check(b"\"", Some("\"")).await;
    check("ключ".as_bytes(), Some("ключ")).await;
    check("x".repeat(256).as_bytes(), Some(&"x".repeat(256))).await;
    check(format!("\"{}\"", "x".repeat(256)).as_bytes(), Some(&"x".repeat(256))).await;
    check("x".repeat(257).as_bytes(), None).await;
    check(b"", None).await;
    check(b"\"\"", None).await;
    check(b"\xff", None).await;
    check(b"a\tb", None).await;
    let problem = problem_of(send("/v1/ledger/hold", &[b"a", b"b"], HOLD).await, 400, "InvalidRequest").await;
    assert_eq!(problem["field"], "Idempotency-Key");

    // A key belongs to namespace, method, path and body; both forms of the default namespace are one.
    let fingerprint = async |path: &str, body: &str| {
        assert!(send(path, &[b"k"], body).await.status().is_success(), "{path} {body}");
        server.last_asked().idempotency.unwrap().fingerprint
    };
    let first = fingerprint("/v1/ledger/hold", HOLD).await;
    assert_eq!(fingerprint("/v1/ledger/hold", HOLD).await, first);
    assert_eq!(fingerprint("/v1/ns/default/ledger/hold", HOLD).await, first);
    assert_ne!(fingerprint("/v1/ns/other/ledger/hold", HOLD).await, first);
    assert_ne!(fingerprint("/v1/ledger/hold", &format!("{HOLD} ")).await, first);
    let finish = r#"{"operation_id": "op"}"#;
    let commit = fingerprint("/v1/ledger/commit", finish).await;
    assert_ne!(fingerprint("/v1/ledger/rollback", finish).await, commit);
    // Reads take none, not even a wrong one.
    assert_eq!(
        send("/v1/ledger/values", &[b"\xff"], r#"{"limit_names": ["a"]}"#).await.status().as_u16(),
        200
    );
    assert_eq!(server.last_asked().idempotency, None);

    server.answers(Ok(Outcome::IdempotencyKeyReused));
    problem_of(send("/v1/ledger/hold", &[b"k"], HOLD).await, 422, "IdempotencyKeyReused").await;
}

#[tokio::test]
async fn refusals_have_their_status_and_members() {
    let server = start().await;
    let check = async |answer: Result<Outcome, Unavailable>, status: u16, code: &str, members: Json| {
        server.answers(answer);
        let problem = problem_of(server.send("POST", "/v1/ledger/hold", HOLD).await, status, code).await;
        let mut found = problem.as_object().unwrap().clone();
        found.retain(|key, _| !["type", "title", "status", "detail", "code"].contains(&key.as_str()));
        assert_eq!(Json::Object(found), members, "{code}");
    };
    let refused = |refusal| Ok(Outcome::Ledger(Err(refusal)));
    let op = || name("op");
    let committed = HoldState::Committed { value: 1, at: Position(3) };
    let rolled_back = HoldState::RolledBack { at: Position(3), expired: true };
    let limit_names = || vec![name("a"), name("b")];
    let both = |mut others: Json| {
        others["limit_name"] = json!("a");
        others["limit_names"] = json!(["a", "b"]);
        others
    };
    let refusal = refused(Refusal::DuplicateLimitName { limit_name: name("a") });
    check(refusal, 409, "DuplicateLimitName", json!({"limit_name": "a"})).await;
    let refusal = refused(Refusal::LimitNotFound { limit_names: limit_names() });
    check(refusal, 404, "LimitNotFound", both(json!({}))).await;
    let refusal =
        |limit_name, state| refused(Refusal::OperationNotFound { operation_id: op(), limit_name, state });
    check(refusal(None, None), 404, "OperationNotFound", json!({"operation_id": "op"})).await;
    let members = json!({"operation_id": "op", "limit_name": "a", "state": "rolled_back"});
    check(refusal(Some(name("a")), Some(rolled_back)), 404, "OperationNotFound", members).await;
    let limits = vec![(name("a"), committed), (name("b"), rolled_back)];
    let refusal = refused(Refusal::OperationAlreadyInFinalState { operation_id: op(), limits });
    let members = both(json!({"operation_id": "op", "state": "committed"}));
    check(refusal, 409, "OperationAlreadyInFinalState", members).await;
    let refusal = refused(Refusal::DuplicateOperation { operation_id: op(), limit_names: limit_names() });
    check(refusal, 409, "DuplicateOperation", both(json!({"operation_id": "op"}))).await;
    let refusal = refused(Refusal::LimitExceeded { limits: vec![(name("a"), 5), (name("b"), -5)] });
    let ceilings = json!([{"limit_name": "a", "ceiling": 5}, {"limit_name": "b", "ceiling": -5}]);
    check(refusal, 409, "LimitExceeded", both(json!({"limits": ceilings}))).await;
    let refusal = refused(Refusal::ValueOverflow { limit_names: limit_names() });
    check(refusal, 409, "ValueOverflow", both(json!({}))).await;
    let refusal =
        refused(Refusal::CommitExceedsHold { operation_id: op(), limit_name: name("a"), held: 5, value: 6 });
    let members = json!({"operation_id": "op", "limit_name": "a", "held_value": 5, "value": 6});
    check(refusal, 409, "CommitExceedsHold", members).await;
    let refusal = refused(Refusal::OperationTooLarge { operation_id: op() });
    check(refusal, 400, "InvalidRequest", json!({"operation_id": "op", "field": "changes"})).await;
    let refusal = refused(Refusal::PositionNotReached { current: Position(7) });
    check(refusal, 400, "InvalidRequest", json!({"field": "position", "current_position": 7})).await;
    let none = || json!({});
    let refusal = refused(Refusal::LimitsValuesReadingException);
    check(refusal, 503, "LimitsValuesReadingException", none()).await;
    check(refused(Refusal::Unreadable), 503, "ShardUnavailable", none()).await;
    check(Ok(Outcome::Unreadable), 503, "ShardUnavailable", none()).await;
    check(Ok(Outcome::IdempotencyKeyReused), 422, "IdempotencyKeyReused", none()).await;
    check(Err(Unavailable::Overloaded), 503, "Overloaded", none()).await;
    check(Err(Unavailable::ShuttingDown), 503, "ShuttingDown", none()).await;
    check(Err(Unavailable::StorageFull), 503, "StorageFull", none()).await;
    check(Err(Unavailable::ShardUnavailable), 503, "ShardUnavailable", none()).await;
    check(Err(Unavailable::OutcomeUnknown), 503, "OutcomeUnknown", none()).await;
}

#[tokio::test]
async fn replies_have_their_form() {
    let server = start().await;
    let check = async |reply: Reply, expect: Json| {
        server.answers(Ok(Outcome::Ledger(Ok(reply))));
        let response = server.send("GET", "/v1/ledger/limits/a", "").await;
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.json::<Json>().await.unwrap(), expect);
    };
    let limit_json = |text: &str| {
        json!({"name": text, "limit_id": null, "context": {"k": "v"}, "ceiling": 9, "commit_value": 5,
            "hold_value": -2, "total_value": 3, "created_position": 1})
    };
    let value_json =
        json!({"limit_name": "a", "limit_id": null, "commit_value": 5, "hold_value": -2, "total_value": 3});
    check(Reply::Limit(limit("a")), limit_json("a")).await;
    let items = || vec![limit("a"), limit("b")];
    let listed = |next: Json| json!({"items": [limit_json("a"), limit_json("b")], "next": next});
    check(Reply::Limits { items: items(), more: true }, listed(json!("b"))).await;
    check(Reply::Limits { items: items(), more: false }, listed(Json::Null)).await;
    check(
        Reply::Hold(HoldReply {
            operation_id: name("op"),
            position: Position(4),
            values: vec![value("a")],
            skipped: vec![name("b")],
        }),
        json!({"operation_id": "op", "position": 4, "values": [value_json], "skipped": ["b"]}),
    )
    .await;
    let reply =
        FinalizationReply { operation_id: name("op"), position: Position(4), values: vec![value("a")] };
    check(Reply::Finalization(reply), json!({"operation_id": "op", "position": 4, "values": [value_json]}))
        .await;
    let reply = ValuesReply { position: Position(4), values: vec![value("a")] };
    check(Reply::Values(reply), json!({"position": 4, "values": [value_json]})).await;

    let committed = HoldState::Committed { value: 6, at: Position(8) };
    let rolled_back = HoldState::RolledBack { at: Position(9), expired: false };
    let expired = HoldState::RolledBack { at: Position(9), expired: true };
    let hold_json = |limit: &str, state: &str, committed: Json, at: Json, expired: bool| {
        json!({"limit_name": limit, "limit_id": "id", "state": state, "held_value": 7, "committed_value": committed,
            "hold_position": 2, "final_position": at, "expires_at": 1_700_000_000_000_u64, "expired": expired})
    };
    let op_json = |state: &str, holds: Json| json!({"operation_id": "op", "position": 2, "state": state, "holds": holds});
    let holds = json!([
        hold_json("l0", "rolled_back", Json::Null, json!(9), true),
        hold_json("l1", "held", Json::Null, Json::Null, false)
    ]);
    check(Reply::Operation(operation(vec![expired, HoldState::Held])), op_json("held", holds)).await;
    let holds = json!([
        hold_json("l0", "rolled_back", Json::Null, json!(9), false),
        hold_json("l1", "committed", json!(6), json!(8), false)
    ]);
    check(Reply::Operation(operation(vec![rolled_back, committed])), op_json("committed", holds.clone()))
        .await;
    let items = vec![operation(vec![rolled_back, committed])];
    let listed = json!({"items": [op_json("committed", holds)], "next": "op"});
    check(Reply::Operations { items, next: Some(name("op")) }, listed).await;
    let holds = json!([hold_json("l0", "rolled_back", Json::Null, json!(9), false)]);
    check(Reply::Operation(operation(vec![rolled_back])), op_json("rolled_back", holds)).await;

    for (kind, word) in [
        (EntryKind::Hold, "hold"),
        (EntryKind::Commit, "commit"),
        (EntryKind::Rollback, "rollback"),
        (EntryKind::Expiry, "expiry"),
    ] {
        let entry = EntryInfo {
            position: Position(4),
            time: Time(1_700_000_000_000),
            operation_id: name("op"),
            kind,
            value: -1,
            commit_value: 2,
            hold_value: 3,
        };
        let entry_json = json!({"position": 4, "time": 1_700_000_000_000_u64, "operation_id": "op", "type": word,
            "value": -1, "commit_value": 2, "hold_value": 3, "total_value": 5});
        let listed = json!({"items": [entry_json], "next": "4"});
        check(Reply::Entries { items: vec![entry], next: Some(Position(4)) }, listed).await;
    }
}

#[tokio::test]
async fn batches_answer_each_item_in_its_place() {
    let server = start().await;
    let hold = |id: &str| json!({"operation_id": id, "changes": [{"limit_name": "a", "value": 1}]});
    let empty = |id: &str| json!({"operation_id": id, "changes": []});
    let send = async |items: Vec<Json>| {
        let body = json!({"operations": items}).to_string();
        let response = server.send("POST", "/v1/ledger/hold/batch", &body).await;
        assert_eq!(response.status().as_u16(), 200);
        let answer: Json = response.json().await.unwrap();
        answer["results"].as_array().unwrap().clone()
    };
    let short = |results: &[Json]| -> Vec<String> {
        let words = results.iter().map(|result| {
            let word = result.get("code").or(result.get("operation_id")).unwrap().as_str().unwrap();
            format!("{} {word}", result["status"])
        });
        words.collect()
    };
    let results = send(vec![hold("x"), hold("y")]).await;
    assert_eq!(short(&results), ["200 x", "200 y"]);
    let mut first = results[0].clone();
    assert_eq!(first.as_object_mut().unwrap().remove("status"), Some(json!(200)));
    let single: Json =
        server.send("POST", "/v1/ledger/hold", &hold("x").to_string()).await.json().await.unwrap();
    assert_eq!(first, single, "an item is the single call's body plus its status");

    let results =
        send(vec![empty("v"), hold("w"), empty("x"), hold(""), hold("y"), hold("z"), hold(".")]).await;
    let bad = "400 InvalidRequest";
    assert_eq!(short(&results), [bad, "200 w", bad, bad, "200 y", "200 z", bad]);
    assert_eq!(results[0]["field"], "changes");
    assert_eq!(results[3]["field"], "operation_id");
    // Items that do not even parse are no different.
    let typo = json!({"operation_id": "u", "chang": []});
    let results = send(vec![typo, hold("w"), json!(7), hold("y"), hold("z")]).await;
    assert_eq!(short(&results), [bad, "200 w", bad, "200 y", "200 z"]);
    assert_eq!((&results[0]["field"], &results[2]["field"]), (&json!("chang"), &json!("body")));
    let Command::Ledger(ledger::Command::Batch(asked)) = server.last_asked().command else { panic!() };
    assert_eq!(asked.iter().map(|t| t.operation_id().as_str()).collect::<Vec<_>>(), ["w", "y", "z"]);

    let refused = Err(Refusal::ValueOverflow { limit_names: vec![name("a")] });
    let done = Ok(transferred(&asked[0]));
    server.answers(Ok(Outcome::Ledger(Ok(Reply::Batch(vec![refused, done, Err(Refusal::Unreadable)])))));
    let results = send(vec![hold("w"), empty("x"), hold("y"), hold("z")]).await;
    assert_eq!(short(&results), ["409 ValueOverflow", bad, "200 w", "503 ShardUnavailable"]);

    let asked = server.fake.asked.lock().unwrap().len();
    assert_eq!(short(&send(vec![empty("x")]).await), [bad]);
    assert_eq!(server.fake.asked.lock().unwrap().len(), asked, "there was nothing to ask");

    server.answers(Err(Unavailable::Overloaded));
    let body = json!({"operations": [hold("x"), empty("y")]}).to_string();
    problem_of(server.send("POST", "/v1/ledger/hold/batch", &body).await, 503, "Overloaded").await;
}

#[tokio::test]
async fn namespaces() {
    let server = start().await;
    let check = async |query: &str, items: &[&str], next: Json| {
        let page: Json = server.send("GET", &format!("/v1/ns{query}"), "").await.json().await.unwrap();
        let found: Vec<&str> =
            page["items"].as_array().unwrap().iter().map(|i| i["namespace"].as_str().unwrap()).collect();
        assert_eq!((found.as_slice(), &page["next"]), (items, &next), "{query}");
    };
    check("", &["n0", "n1", "n2", "n3", "n4"], Json::Null).await;
    check("?limit=2", &["n0", "n1"], json!("n1")).await;
    check("?limit=2&after=n1", &["n2", "n3"], json!("n3")).await;
    check("?limit=2&after=n3", &["n4"], Json::Null).await;
    check("?limit=5", &["n0", "n1", "n2", "n3", "n4"], Json::Null).await;
    assert_eq!(server.send("DELETE", "/v1/ns/a%2Fb", "").await.status().as_u16(), 204);
    let asked = server.last_asked();
    assert_eq!((asked.namespace.as_str(), asked.command), ("a/b", Command::DeleteNamespace));
    server.answers(Ok(Outcome::NamespaceNotFound));
    let problem = problem_of(server.send("DELETE", "/v1/ns/x", "").await, 404, "NamespaceNotFound").await;
    assert_eq!(problem["namespace"], "x");
    for path in ["/v1/ns/%FF", "/v1/ns/"] {
        let problem = problem_of(server.send("DELETE", path, "").await, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], "namespace");
    }
}

#[tokio::test]
async fn health_and_metrics() {
    let server = start().await;
    assert_eq!(server.send("GET", "/healthz", "").await.text().await.unwrap(), "ok");
    assert_eq!(server.send("GET", "/readyz", "").await.status().as_u16(), 200);
    server.fake.ready.store(false, Ordering::Relaxed);
    problem_of(server.send("GET", "/readyz", "").await, 503, "ShardUnavailable").await;
    assert_eq!(server.send("GET", "/healthz", "").await.status().as_u16(), 200);

    server.send("POST", "/v1/ledger/hold", HOLD).await;
    server.send("POST", "/v1/ns/some-client-text/ledger/hold", HOLD).await;
    server.send("POST", "/v1/ledger/hold", "{}").await;
    server.send("GET", "/some-client-text", "").await;
    server.send("PUT", "/v1/ledger/hold", "").await;
    let response = server.send("GET", "/metrics", "").await;
    let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(media_type.starts_with("application/openmetrics-text"), "{media_type}");
    let text = response.text().await.unwrap();
    for line in [
        r#"limina_http_requests_total{family="ledger",operation="hold",status="200"} 2"#,
        r#"limina_http_requests_total{family="ledger",operation="hold",status="400"} 1"#,
        r#"limina_http_requests_total{family="none",operation="not_found",status="404"} 1"#,
        r#"limina_http_requests_total{family="none",operation="method_not_allowed",status="405"} 1"#,
        r#"limina_http_requests_total{family="around",operation="readyz",status="503"} 1"#,
        r#"limina_http_request_duration_seconds_count{family="ledger",operation="hold"} 3"#,
        "limina_http_requests_in_flight 1",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("some-client-text"));
}

#[tokio::test]
async fn the_reference() {
    let server = start().await;
    let document: Json = server.send("GET", "/openapi.json", "").await.json().await.unwrap();
    assert_eq!(document, serde_json::from_str::<Json>(&openapi_json()).unwrap());
    assert_eq!(openapi_json(), openapi_json());
    let paths = document["paths"].as_object().unwrap();
    for path in paths.keys().filter(|path| path.starts_with("/v1/ledger/")) {
        assert!(paths.contains_key(&path.replace("/v1/", "/v1/ns/{namespace}/")), "{path}");
    }
    assert_eq!(paths.len(), 2 * 12 + 2 + 6);
    let mut ids = BTreeSet::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{operation}");
            // What is documented is there: each path answers its methods with something else than 404 or 405.
            let path =
                path.replace("{namespace}", "n").replace("{name}", "a").replace("{operation_id}", "op");
            let status = server.send(&method.to_uppercase(), &path, "").await.status().as_u16();
            assert!(![404, 405].contains(&status), "{method} {path} gave {status}");
        }
    }
    // Every reference within the document leads somewhere.
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
    let response = server.send("GET", "/docs", "").await;
    let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    let page = response.text().await.unwrap();
    for code in ["InvalidRequest", "LimitExceeded", "OutcomeUnknown", "IdempotencyKeyReused"] {
        assert!(page.contains(&format!("id=\"{code}\"")), "{code}");
    }
}

#[tokio::test]
async fn http2_by_prior_knowledge() {
    let server = start().await;
    let client = Client::builder().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/v1/ledger/hold", server.address);
    let response = client.post(&url).body(HOLD).send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(response.status().as_u16(), 200);
    let response = client.post(&url).body(" ".repeat(5 * MIB)).send().await.unwrap();
    assert!(!response.headers().contains_key("connection"));
    problem_of(response, 413, "PayloadTooLarge").await;
}

#[tokio::test]
async fn a_stop_lets_requests_in_flight_end() {
    let mut server = start().await;
    let closed = server.fake.gate.lock().await;
    let pending = tokio::spawn(server.request("POST", "/v1/ledger/hold").body(HOLD).send());
    // The request has arrived when it is counted as in flight beside the one that asks.
    loop {
        let text = server.send("GET", "/metrics", "").await.text().await.unwrap();
        if text.contains("limina_http_requests_in_flight 2") {
            break;
        }
        tokio::task::yield_now().await;
    }
    server.stop.take().unwrap().send(()).unwrap();
    // New connections are refused while the old request is still open.
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.serving.is_finished());
    drop(closed);
    let response = pending.await.unwrap().unwrap();
    assert_eq!(response.status().as_u16(), 200);
    tokio::time::timeout(Duration::from_secs(5), server.serving).await.expect("it ends").unwrap();
}
