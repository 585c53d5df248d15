//! Namespaces: nothing is shared between two, and nothing of a removed one comes back.

use serde_json::json;

use crate::harness::Server;
use crate::ledger::encode;
use crate::limiter::{LONG, fixed};
use crate::shape;

#[track_caller]
fn remove(server: &Server, namespace: &str) {
    let reply = server.delete(&format!("/v1/ns/{}", encode(namespace)));
    assert!([200, 204].contains(&reply.status), "{} {}", reply.status, reply.text);
}

#[track_caller]
fn listed(server: &Server, namespace: &str) -> bool {
    shape::namespaces(&server.get("/v1/ns").ok().body).iter().any(|name| name == namespace)
}

#[test]
fn two_namespaces_share_nothing() {
    let mut server = Server::fresh();
    let (red, blue) = (server.limiter_of("red"), server.limiter_of("blue"));
    for limiter in [&red, &blue] {
        limiter.rule("r", &["a"], 1);
        limiter.check(json!({"a": 1})).allowed().uses("r", 1);
    }
    red.set_limit("r", 3);
    let lease = red.lease(json!({"a": 1}), 2, "1h").created().lease_id();
    blue.check(json!({"a": 1})).denied(&["r"]).uses("r", 1);
    blue.held(&lease).refused(404, "LeaseNotFound");
    blue.release(&lease).refused(404, "LeaseNotFound");
    server.limiter().get("/rules/r").refused(404, "RuleNotFound");
    server.crash_and_restart();
    server.limiter_of("red").look(json!({"a": 1})).uses("r", 3);
    server.limiter_of("blue").look(json!({"a": 1})).uses("r", 1);
}

#[test]
fn nothing_of_a_removed_namespace_comes_back() {
    let mut server = Server::fresh();
    let limiter = server.limiter_of("brief ns");
    let fill = || {
        limiter.rule("in use", &["a"], 5);
        limiter.window("window", &["a"], 5, fixed(LONG));
        limiter.override_of("in use", "o", json!({"a": 1}), 5);
        limiter.take(json!({"a": 1}), 2).allowed().uses("in use/o", 2).uses("window", 2);
        limiter.lease(json!({"a": 1}), 2, "1h").created().lease_id()
    };
    let lease = fill();
    server.limiter().rule("kept", &[], 1);
    remove(&server, "brief ns");
    assert!(!listed(&server, "brief ns"));
    limiter.get("/rules/window").refused(404, "RuleNotFound");
    limiter.held(&lease).refused(404, "LeaseNotFound");
    assert_eq!(limiter.in_use().len(), 0);
    limiter.take(json!({"a": 1}), 50).allowed().applied(&[]);
    // The same again starts from nothing.
    let lease = fill();
    remove(&server, "brief ns");
    server.crash_and_restart();
    let limiter = server.limiter_of("brief ns");
    assert_eq!(limiter.names("/rules", None, 10).len(), 0);
    assert_eq!(limiter.all("/leases", None, 10).len(), 0);
    limiter.heartbeat(&lease).refused(404, "LeaseNotFound");
    assert_eq!(limiter.in_use().len(), 0);
    server.limiter().get("/rules/kept").ok();
}

#[test]
fn reading_never_creates_one() {
    let server = Server::fresh();
    let limiter = server.limiter_of("new");
    limiter.get("/rules").ok();
    limiter.get("/leases").ok();
    limiter.get("/rules/r").refused(404, "RuleNotFound");
    limiter.post("/counters/query", json!({})).ok();
    limiter.post("/rules/match", json!({"key_values": {}})).ok();
    limiter.look(json!({"a": 1})).allowed();
    assert!(!listed(&server, "new"));
    limiter.rule("r", &[], 1);
    assert!(listed(&server, "new"));
    // Without a prefix it is `default`.
    server.limiter().rule("d", &[], 1);
    server.limiter_of("default").get("/rules/d").ok();
}

/// The ledger and the limiter of one namespace go together and do not disturb each other.
#[test]
fn a_namespace_holds_both_families() {
    let server = Server::fresh();
    let (ledger, limiter) = (server.ledger_of("both"), server.limiter_of("both"));
    ledger.create("a");
    limiter.rule("a", &["a"], 1);
    ledger.hold("op", &[("a", 5)]).ok().value("a", 0, 5);
    limiter.check(json!({"a": 1})).allowed();
    ledger.values(&["a"]).ok().value("a", 0, 5);
    remove(&server, "both");
    ledger.limit("a").refused(404, "LimitNotFound");
    limiter.get("/rules/a").refused(404, "RuleNotFound");
}
