//! Any node answers for any namespace, with the same answer as the owner.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::{Cluster, LONG, SHARDS, flags, metric, new_store};
use crate::compare::same_everywhere;
use crate::events;
use crate::harness::Server;
use crate::ledger::{batch, hold, results};
use crate::limiter::{self, fixed};
use crate::locks::exclusive;
use crate::reply::{Reply, all_pages};
use crate::shape;

/// Each namespace is written through one node and read through all nodes. Each node owns some of the namespaces.
#[test]
fn all_families_work_through_any_node() {
    let cluster = Cluster::of(3, LONG);
    for owner in 0..3 {
        let namespace = cluster.namespace_of(owner);
        for through in 0..3 {
            let writer = &cluster[through];
            let name = format!("by-{through}");
            use_ledger(&cluster, writer, &namespace, &name);
            use_limiter(&cluster, writer, &namespace, &name);
            use_locks(&cluster, through, &namespace, &name);
            use_events(&cluster, writer, &namespace, &name);
        }
    }
}

/// Every node behind a load balancer has the same configuration of Envoy's limits. A limit counts the requests of all
/// nodes together.
#[test]
fn envoy_is_answered_by_any_node() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("limits.yaml");
    std::fs::write(
        &config,
        "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: {unit: year, requests_per_unit: 6}\n",
    )
    .unwrap();
    let mut cluster = Cluster::empty(new_store(), LONG);
    let store = cluster.store().to_owned();
    for _ in 0..3 {
        let own = [&flags(&store, LONG)[..], &["--envoy-config", config.to_str().unwrap()]].concat();
        cluster.join_with(&own);
    }
    cluster.settle(&[0, 1, 2]);
    let request = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]});
    let ask = |n: usize| {
        let node = &cluster[n % 3];
        let answer = node.http().post(node.url("/json")).body(request.to_string()).send().unwrap();
        (answer.status().as_u16(), answer.json::<Value>().unwrap()["statuses"][0]["limitRemaining"].clone())
    };
    let answers: Vec<_> = (0..7).map(ask).collect();
    // Protobuf's JSON omits a number that is 0.
    let left = [json!(5), json!(4), json!(3), json!(2), json!(1), Value::Null];
    let expected = left.into_iter().map(|left| (200, left)).chain([(429, Value::Null)]);
    assert_eq!(answers, expected.collect::<Vec<_>>());
}

#[track_caller]
fn use_ledger(cluster: &Cluster, writer: &Server, namespace: &str, name: &str) {
    let ledger = writer.ledger_of(namespace);
    ledger.create_with_ceiling(name, 10);
    let held = ledger.hold(name, &[(name, 7)]).ok();
    ledger.commit(name, &[(name, 6)]).ok().value(name, 6, 0);
    same_everywhere(cluster, |node| node.ledger_of(namespace).values(&[name]).ok().value(name, 6, 0));
    same_everywhere(cluster, |node| {
        node.ledger_of(namespace).values_as_of(name, &[name]).same_view_as(&held)
    });
    same_everywhere(cluster, |node| node.ledger_of(namespace).operation(name).ok());
    same_everywhere(cluster, |node| node.ledger_of(namespace).get(&format!("/limits/{name}/entries")).ok());
}

#[track_caller]
fn use_limiter(cluster: &Cluster, writer: &Server, namespace: &str, name: &str) {
    let limiter = writer.limiter_of(namespace);
    limiter.rule(name, &[name], 5);
    limiter.take(json!({name: 1}), 2).allowed().uses(name, 2);
    let lease = limiter.lease(json!({name: 1}), 1, "1h").created().lease();
    same_everywhere(cluster, |node| node.limiter_of(namespace).look(json!({name: 1})).uses(name, 3));
    same_everywhere(cluster, |node| node.limiter_of(namespace).get(&format!("/rules/{name}")).ok());
    same_everywhere(cluster, |node| node.limiter_of(namespace).held(&lease).ok());
    limiter.release(&lease).is(204);
}

#[track_caller]
fn use_locks(cluster: &Cluster, through: usize, namespace: &str, name: &str) {
    let at = |n: usize| cluster[(through + n) % cluster.len()].locks_of(namespace);
    let grant = at(0).grant(exclusive(json!({"lock": name})));
    same_everywhere(cluster, |node| node.locks_of(namespace).get(&grant.lock_id).ok());
    at(1).heartbeat(&grant).ok();
    at(1).taken(exclusive(json!({"lock": name})));
    at(2).let_go(&grant);
    at(0).free(exclusive(json!({"lock": name})));
}

#[track_caller]
fn use_events(cluster: &Cluster, writer: &Server, namespace: &str, name: &str) {
    let events = writer.events_of(namespace);
    events.only_once(name, events::LONG);
    let submitted = events.accept(name, "🌮");
    same_everywhere(cluster, |node| node.events_of(namespace).read(name).ok().has("clock", submitted.clock));
    for node in 0..cluster.len() {
        let events = cluster[node].events_of(namespace);
        assert_eq!(events.incubating(name).events, BTreeMap::from([("🌮".to_owned(), submitted.time)]));
        assert_eq!(events.submit(name, "🌮").conflict(false), submitted.time);
    }
}

/// A request that is refused gets the same refusal from the owner and from every other node, headers included.
#[test]
fn refusals_are_the_same_through_any_node() {
    let cluster = Cluster::of(2, LONG);
    let namespace = cluster.namespace_of(0);
    let owner = &cluster[0];
    owner.ledger_of(&namespace).create_with_ceiling("full", 1);
    owner.limiter_of(&namespace).window("none", &["k"], 0, fixed(limiter::LONG));
    owner.locks_of(&namespace).grant(exclusive(json!({"k": 1})));
    owner.events_of(&namespace).only_once("s", events::LONG);
    owner.events_of(&namespace).accept("s", "e");
    owner.ledger_of(&namespace).post_keyed("/hold", "used", &hold("o", &[("full", 1)])).ok();

    let check = |method: &str, path: &str, body: Value, status: u16, code: &str| {
        same_everywhere(&cluster, |node| {
            let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
            let request = node.http().request(method, node.url(&format!("/v1/ns/{namespace}{path}")));
            let request = if body.is_null() { request } else { request.json(&body) };
            Reply::to(request.header("idempotency-key", "used")).refused(status, code)
        });
    };
    check("GET", "/ledger/limits/none", Value::Null, 404, "LimitNotFound");
    check("POST", "/ledger/hold", json!({"operation_id": "x", "changes": []}), 400, "InvalidRequest");
    check("POST", "/ledger/hold", hold("x", &[("full", 1)]), 422, "IdempotencyKeyReused");
    check("GET", "/ledger/operations/none", Value::Null, 404, "OperationNotFound");
    check("GET", "/ledger/none", Value::Null, 404, "NotFound");
    check("DELETE", "/ledger/hold", Value::Null, 405, "MethodNotAllowed");
    check("GET", "/limiter/rules/x", Value::Null, 404, "RuleNotFound");
    check("GET", "/locks/x", Value::Null, 404, "LockNotFound");
    check("DELETE", "/events/x", Value::Null, 404, "StreamNotFound");

    same_everywhere(&cluster, |node| {
        node.ledger_of(&namespace).hold("p", &[("full", 1)]).refused(409, "LimitExceeded")
    });
    same_everywhere(&cluster, |node| node.limiter_of(&namespace).check(json!({"k": 1})).denied(&["none"]));
    same_everywhere(&cluster, |node| {
        node.locks_of(&namespace).ask(&exclusive(json!({"k": 1}))).refused(409, "LockHeld")
    });
    same_everywhere(&cluster, |node| {
        node.events_of(&namespace).submit("s", "e").refused(409, "EventConflict")
    });
    same_everywhere(&cluster, |node| {
        let text = " ".repeat(1024 * 1024 + 1);
        node.ledger_of(&namespace).post_text("/hold", text).refused(413, "PayloadTooLarge")
    });
}

#[test]
fn a_large_batch_can_be_forwarded() {
    let cluster = Cluster::of(2, LONG);
    let (namespace, through) = (cluster.namespace_of(0), 1);
    let limits: Vec<String> = (0..4).map(|n| format!("{n:0250}")).collect();
    let ledger = cluster[through].ledger_of(&namespace);
    limits.iter().for_each(|limit| ledger.create(limit));
    let changes: Vec<(&str, i64)> = limits.iter().map(|limit| (limit.as_str(), 1)).collect();
    let count = 7_000;
    let body = batch((0..count).map(|n| hold(&format!("{n:0250}"), &changes)).collect());
    assert!(body.to_string().len() > 8 * 1024 * 1024, "not large enough to be worth a test");
    let reply = ledger.post("/hold/batch", body).ok();
    assert_eq!(results(&reply).len(), count);
    assert!(results(&reply).iter().all(|result| result["status"] == 200));
    cluster[0].ledger_of(&namespace).values(&[&limits[3]]).ok().value(&limits[3], 0, count as i64);
}

#[test]
fn every_node_lists_all_namespaces() {
    let cluster = Cluster::of(3, LONG);
    let mut names: Vec<String> = (0..10).map(|n| format!("space-{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        cluster[n % 3].ledger_of(name).create("a");
    }
    let listed = |node: usize| {
        let pages = all_pages("/v1/ns", 3, |path| cluster[node].get(path));
        let mut found = shape::namespaces(&json!({"items": pages}));
        found.sort();
        found
    };
    (0..3).for_each(|node| assert_eq!(listed(node), names, "by node {node}"));
    cluster[1].delete("/v1/ns/space-4").is(204);
    names.remove(4);
    (0..3).for_each(|node| assert_eq!(listed(node), names, "by node {node}"));
}

#[test]
fn requests_make_one_hop_and_are_counted() {
    let cluster = Cluster::of(2, LONG);
    let namespace = cluster.namespace_of(0);
    let forwarded = |node: usize| metric(&cluster[node], "limina_cluster_forwarded_total");
    let before = (forwarded(0), forwarded(1));
    cluster[1].ledger_of(&namespace).create("a");
    cluster[0].ledger_of(&namespace).create("b");
    assert_eq!((forwarded(0), forwarded(1)), (before.0, before.1 + 1.0));
    let sum = |name: &str| (0..2).map(|node| metric(&cluster[node], name)).sum::<f64>();
    assert_eq!(sum("limina_cluster_nodes"), 4.0, "each sees both");
    assert!(sum("limina_cluster_shards_claimed_total") >= SHARDS as f64);
    assert_eq!(sum("limina_cluster_shards_lost_total"), 0.0);
}
