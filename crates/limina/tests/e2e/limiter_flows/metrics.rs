//! The limiter's metrics, and its paths in the API reference.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::around::{Metrics, unnamed};
use crate::harness::Server;
use crate::ledger::results;
use crate::limiter::checks;

#[track_caller]
fn metrics(server: &Server) -> (String, Metrics) {
    let text = server.get("/metrics").ok().text;
    let metrics = Metrics::parse(&text);
    (text, metrics)
}

#[test]
fn each_rule_has_its_metrics() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("shop-orders", &[], 3);
    let of_rule = || -> f64 {
        let (_, metrics) = metrics(&server);
        metrics
            .samples
            .iter()
            .filter(|((_, labels), _)| labels.contains("\"shop-orders\""))
            .map(|(_, value)| value)
            .sum()
    };
    for _ in 0..3 {
        limiter.check(json!({})).allowed();
    }
    let passed = of_rule();
    assert!(passed >= 3.0, "three checks passed: {passed}\n{}", metrics(&server).0);
    for _ in 0..4 {
        limiter.check(json!({})).denied(&["shop-orders"]);
    }
    assert!(of_rule() >= passed + 4.0, "four more were refused:\n{}", metrics(&server).0);
}

#[test]
fn rule_names_do_not_break_the_metrics_format() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for name in ["quote\"", "back\\slash", "ünï🌮", "a{b=\"c\"} 1", "x,y", "}"] {
        limiter.rule(name, &[], -1);
    }
    limiter.check(json!({})).allowed();
    let (text, metrics) = metrics(&server);
    assert!(text.contains("ünï🌮"), "{text}");
    assert!(!metrics.samples.is_empty());
}

#[test]
fn series_do_not_grow_with_groups() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["user"], 1);
    let visit = |n: usize| {
        limiter.check(json!({"user": n})).allowed();
        limiter.check(json!({"user": n})).denied(&["r"]);
        let lease = limiter.lease(json!({"user": format!("l{n}")}), 1, "1h").created().lease();
        limiter.release(&lease).is(204);
    };
    visit(0);
    metrics(&server);
    let before = metrics(&server).1.samples.len();
    (1..40).for_each(visit);
    assert_eq!(metrics(&server).1.samples.len(), before, "39 more groups made more series");
}

#[test]
fn series_of_rules_are_bounded() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let count = 2500;
    crate::concurrency::race(16, |client| {
        for n in (client..count).step_by(16) {
            let name = format!("rule-{n:05}");
            limiter
                .post("/rules", json!({"name": name, "group_by": [], "selection": {"n": n}, "limit": 1}))
                .created();
        }
    });
    let batch = (0..count).map(|n| json!({"key_values": {"n": n}})).collect();
    let reply = limiter.post("/check/batch", checks(batch)).ok();
    assert!(results(&reply).iter().all(|result| result["status"] == 200));
    let (text, _) = metrics(&server);
    let named: BTreeSet<&str> =
        text.match_indices("rule-").filter_map(|(at, _)| text.get(at..at + 10)).collect();
    assert!(!named.is_empty(), "none is named");
    assert!(named.len() < count, "all {count} rules are named");
}

#[test]
fn the_reference_has_every_path() {
    let server = Server::fresh();
    let document: Value = serde_json::from_str(&server.get("/openapi.json").ok().text).expect("valid JSON");
    let paths = document["paths"].as_object().expect("paths");
    for (path, methods) in [
        ("/limiter/rules", &["get", "post"][..]),
        ("/limiter/rules/{}", &["get", "put", "patch", "delete"]),
        ("/limiter/rules/{}/groups", &["get"]),
        ("/limiter/rules/{}/overrides", &["get", "post"]),
        ("/limiter/rules/{}/overrides/{}", &["get", "put", "patch", "delete"]),
        ("/limiter/rules/match", &["post"]),
        ("/limiter/check", &["post"]),
        ("/limiter/check/batch", &["post"]),
        ("/limiter/counters", &["post", "put"]),
        ("/limiter/counters/set", &["put"]),
        ("/limiter/leases", &["get", "post"]),
        ("/limiter/leases/{}", &["get", "delete"]),
        ("/limiter/leases/{}/heartbeat", &["post"]),
        ("/limiter/rules/query", &["post"]),
        ("/limiter/counters/query", &["post"]),
        ("/limiter/rules/{}/overrides/query", &["post"]),
    ] {
        let found = paths.iter().find(|(found, _)| unnamed(found).ends_with(path));
        let Some((_, item)) = found else { panic!("no {path} among {:?}", paths.keys().collect::<Vec<_>>()) };
        for method in methods {
            let responses = item[method]["responses"].as_object();
            assert!(responses.is_some_and(|responses| !responses.is_empty()), "{method} {path}: {item}");
        }
    }
}
