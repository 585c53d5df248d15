//! Names of rules and overrides in paths.

use serde_json::json;

use crate::harness::Server;
use crate::ledger::encode;

#[test]
fn rules_can_have_any_name() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    let names = [
        "a b",
        "a/b",
        "ünï🌮",
        "100%",
        "check",
        "query",
        "match",
        "overrides",
        "\"quoted\\\"",
        &"x".repeat(256),
    ];
    for (n, name) in names.iter().enumerate() {
        limiter.rule(name, &["n"], n as i64);
        limiter.override_of(name, name, json!({"n": "o"}), 1);
    }
    server.crash_and_restart();
    let limiter = server.limiter();
    for (n, name) in names.iter().enumerate() {
        limiter.get(&format!("/rules/{}", encode(name))).ok().has("name", *name).has("limit", n);
        limiter.get(&format!("/rules/{0}/overrides/{0}", encode(name))).ok().has("name", *name);
    }
    let reply = limiter.check(json!({"n": 1})).refused(429, "LimitReached");
    let reply = reply.uses("ünï🌮", 0);
    assert_eq!(crate::limiter::limits_of(&reply.body).len(), names.len());
}
