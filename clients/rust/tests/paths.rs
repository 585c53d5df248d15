//! Every request of the client is one that the OpenAPI document describes, and every operation of the document has a method here.

use axum::{
    Router,
    http::{Request, StatusCode, header::CONTENT_TYPE},
};
use limina_client::Limina;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::net::TcpListener;

/// Operations without a method. Batches form automatically, `PUT /counters` is the same as POST, browsers and load balancers ask
/// for the pages and for `/healthz`, and the rest is what other protocols have at the same port.
const NO_METHOD: &[&str] = &[
    "POST /v1/ns/{}/limiter/check/batch",
    "POST /v1/ns/{}/ledger/hold/batch",
    "POST /v1/ns/{}/ledger/commit/batch",
    "POST /v1/ns/{}/ledger/rollback/batch",
    "POST /v1/ns/{}/decisions/batch",
    "POST /v1/ns/{}/decisions/commit/batch",
    "POST /v1/ns/{}/decisions/rollback/batch",
    "PUT /v1/ns/{}/limiter/counters",
    "POST /v1/ns/{}/liminator/v1",
    "POST /liminator/v1",
    "POST /json",
    "POST /only-once-event",
    "POST /strictly-once-event",
    "POST /time-sync",
    "GET /",
    "GET /docs",
    "GET /healthz",
    "GET /openapi.json",
    "GET /ws",
];

#[tokio::test]
async fn the_client_and_the_openapi_document_agree_on_paths() {
    let (url, asked) = recorder().await;
    let client = Limina::builder(url).namespace("{}").timeout(Duration::from_secs(60)).build().unwrap();
    call_everything(&client).await;
    let called = asked.lock().unwrap().clone();

    let (described, short) = described();
    let unknown: Vec<_> = called.difference(&described).collect();
    assert!(unknown.is_empty(), "the document does not have {unknown:#?}");
    let is_excepted = |one: &&String| NO_METHOD.contains(&one.as_str()) || short.contains(*one);
    let missing: Vec<_> = described.difference(&called).filter(|one| !is_excepted(one)).collect();
    assert!(missing.is_empty(), "the client does not have {missing:#?}");
}

/// A server that answers 404 to everything, and the requests that it has had.
async fn recorder() -> (String, Arc<Mutex<BTreeSet<String>>>) {
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = asked.clone();
    let record = async move |request: Request<axum::body::Body>| {
        seen.lock()
            .unwrap()
            .insert(format!("{} {}", request.method(), request.uri().path()).replace("%7B%7D", "{}"));
        let problem = json!({"status": 404, "code": "NotFound", "title": "there is nothing here"});
        (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "application/problem+json")], problem.to_string())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, Router::new().fallback(record)).await });
    (url, asked)
}

/// The operations of the document, with all names as `{}`; and those that are a shorter form of one below a namespace.
fn described() -> (BTreeSet<String>, BTreeSet<String>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut operations = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let mut general = String::new();
        for (place, part) in path.split('{').enumerate() {
            general += if place == 0 { "" } else { "{}" };
            general += part.split_once('}').map_or(part, |(_name, rest)| rest);
        }
        for method in methods.as_object().unwrap().keys() {
            operations.insert(format!("{} {general}", method.to_uppercase()));
        }
    }
    let short =
        |one: &&String| operations.contains(&one.replace(" /v1/", " /v1/ns/{}/")) && !one.contains("/v1/ns");
    let short = operations.iter().filter(short).cloned().collect();
    (operations, short)
}

async fn call_everything(client: &Limina) {
    const NAME: &str = "{}";
    const TTL: Duration = Duration::from_secs(60);
    let document = json!({});
    // Everything fails, because the recorder has nothing. What matters is what it was asked for.
    macro_rules! call {
        ($($call:expr;)*) => {
            $(assert!($call.await.is_err(), stringify!($call));)*
        };
    }
    let (rules, overrides, sets, counters) =
        (client.rules(), client.overrides(NAME), client.rule_sets(), client.counters());
    call! {
        rules.create(&document);
        rules.list().next();
        rules.get(NAME);
        rules.put(NAME, &document);
        rules.patch(NAME, &document);
        rules.delete(NAME);
        rules.matching([("a", "b")]);
        rules.query(&document).next();
        rules.groups(NAME, 10);
        overrides.create(&document);
        overrides.list().next();
        overrides.get(NAME);
        overrides.put(NAME, &document);
        overrides.patch(NAME, &document);
        overrides.delete(NAME);
        overrides.query(&document).next();
        sets.list().next();
        sets.get(NAME);
        sets.put(NAME, &document);
        sets.diff(NAME, &document);
        sets.delete(NAME);
        counters.add([("a", "b")], 1);
        counters.set([("a", "b")], 1);
        counters.query(&document).next();
        client.check([("a", "b")]);
    }
    let (leases, locks, events) = (client.leases(), client.locks(), client.events());
    call! {
        client.lease([("a", "b")], TTL);
        leases.list().next();
        leases.get(NAME);
        leases.heartbeat(NAME, "session");
        leases.release(NAME, "session");
        leases.force_release(NAME);
        client.lock([("a", "b")], TTL);
        locks.list().next();
        locks.get(NAME);
        locks.query(&document).next();
        locks.heartbeat(NAME, "session");
        locks.release(NAME, "session");
        locks.force_release(NAME);
        events.put(NAME, &document);
        events.list().next();
        events.get(NAME);
        events.delete(NAME);
        events.submit(NAME, "event");
        events.incubating(NAME);
        events.follow(NAME).next();
    }
    let (ledger, limits, decisions, server) =
        (client.ledger(), client.ledger().limits(), client.decisions(), client.server());
    call! {
        ledger.hold(NAME);
        ledger.commit(NAME);
        ledger.rollback(NAME);
        ledger.values(&["limit"]);
        ledger.extend(NAME, None);
        ledger.operation(NAME);
        ledger.operations().next();
        limits.create(&document);
        limits.list().next();
        limits.get(NAME);
        limits.patch(NAME, &document);
        limits.delete(NAME);
        limits.entries(NAME).next();
        client.decide().check([("a", "b")]);
        decisions.create(&document, Duration::ZERO);
        decisions.get(NAME);
        decisions.list().next();
        decisions.commit(NAME);
        decisions.rollback(NAME);
        decisions.heartbeat(NAME);
        client.audit().next();
        client.refusals().next();
        client.namespaces().next();
        client.delete_namespace();
        server.ready();
        server.cluster();
        server.metrics();
        server.audit().next();
        server.refusals().next();
    }
}
