//! Queries: rules, overrides and counters found by key-values.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::Server;
use crate::limiter::Limiter;

/// The `id`s of the counters that a query finds, by pages of several sizes.
#[track_caller]
fn counters(limiter: &Limiter, query: Value) -> Vec<i64> {
    let mut results = [1, 3, 1000].map(|page| {
        let found = limiter.all("/counters/query", Some(&query), page);
        let mut ids: Vec<i64> =
            found.iter().map(|counter| counter["key_values"]["id"].as_i64().expect("`id`")).collect();
        ids.sort();
        ids
    });
    assert!(results.iter().all(|ids| *ids == results[0]), "pages differ: {results:?}");
    std::mem::take(&mut results[0])
}

/// Counters 1 to 8.
fn filled(server: &Server) -> Limiter {
    let limiter = server.limiter();
    for (n, key_values) in [
        json!({"id": 1}),
        json!({"id": 2, "user": "ann"}),
        json!({"id": 3, "user": "bob"}),
        json!({"id": 4, "user": "ann", "path": "/api/x"}),
        json!({"id": 5, "user": "ann", "path": "/web"}),
        json!({"id": 6, "user": 7, "path": "/api/y", "size": 10}),
        json!({"id": 7, "user": 7.5, "size": 2.5}),
        json!({"id": 8, "user": true, "path": "/api/x", "size": 30, "more": 1}),
    ]
    .into_iter()
    .enumerate()
    {
        limiter.set(key_values, n as i64 + 1).ok();
    }
    limiter
}

#[test]
fn counters_are_found_by_their_key_values() {
    let server = Server::fresh();
    let limiter = filled(&server);
    let check = |selection: Value, expected: &[i64]| {
        assert_eq!(counters(&limiter, json!({"where": selection})), expected, "{selection}");
    };
    check(json!({}), &[1, 2, 3, 4, 5, 6, 7, 8]);
    check(json!({"user": "ann"}), &[2, 4, 5]);
    check(json!({"user": {"DataType": 12, "Value": "ann"}}), &[2, 4, 5]);
    check(json!({"user": {"eq": 7}}), &[6]);
    check(json!({"user": {"ne": "ann"}}), &[3, 6, 7, 8]);
    check(json!({"user": {"gte": 7}}), &[6, 7]);
    check(json!({"user": {"lt": "b"}}), &[2, 4, 5]);
    check(json!({"user": {"in": ["bob", true, 7]}}), &[3, 6, 8]);
    check(json!({"path": {"prefix": "/api/"}}), &[4, 6, 8]);
    check(json!({"path": {"exists": true}}), &[4, 5, 6, 8]);
    check(json!({"path": {"exists": false}}), &[1, 2, 3, 7]);
    check(json!({"path": {"exists": false}, "user": {"exists": true}}), &[2, 3, 7]);
    check(json!({"user": "ann", "path": {"prefix": "/api"}}), &[4]);
    check(json!({"size": {"gt": 2, "lte": 10}}), &[6, 7]);
    check(json!({"user": "nobody"}), &[]);
    check(json!({"id": {"gt": 3}, "more": {"exists": false}}), &[4, 5, 6, 7]);
    assert_eq!(counters(&limiter, json!({})), [1, 2, 3, 4, 5, 6, 7, 8], "an empty query finds all");
}

#[test]
fn queries_combine() {
    let server = Server::fresh();
    let limiter = filled(&server);
    let check =
        |query: Value, expected: &[i64]| assert_eq!(counters(&limiter, query.clone()), expected, "{query}");
    check(json!({"min_keys": 3}), &[4, 5, 6, 7, 8]);
    check(json!({"max_keys": 2}), &[1, 2, 3]);
    check(json!({"min_keys": 3, "max_keys": 3}), &[4, 5, 7]);
    check(json!({"min_keys": 2, "where": {"user": "ann"}, "max_keys": 2}), &[2]);
    check(json!({"min_keys": 9}), &[]);
    check(json!({"any": [{"where": {"user": "bob"}}, {"where": {"size": {"gt": 5}}}]}), &[3, 6, 8]);
    check(json!({"any": [{"where": {"user": "bob"}}, {"min_keys": 5}, {"max_keys": 1}]}), &[1, 3, 8]);
    check(json!({"all": [{"where": {"user": "ann"}}, {"where": {"path": {"exists": true}}}]}), &[4, 5]);
    check(json!({"all": [{"min_keys": 3}, {"where": {"size": {"exists": false}}}]}), &[4, 5]);
    // All parts of one query must hold.
    check(
        json!({"where": {"path": {"prefix": "/api/"}}, "any": [{"where": {"user": "ann"}}, {"where": {"size": 30}}]}),
        &[4, 8],
    );
    check(
        json!({"any": [{"all": [{"min_keys": 4}, {"max_keys": 4}]}, {"any": [{"where": {"id": 1}}]}]}),
        &[1, 6],
    );
}

#[test]
fn rules_are_found_by_their_group_by_keys() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("none", &[], 1);
    limiter.rule("user", &["user"], 1);
    limiter.rule("path", &["path"], 1);
    limiter.rule("both", &["user", "path"], 1);
    limiter.rule("three", &["user", "path", "method"], 1);
    let check = |query: Value, expected: &[&str]| {
        for page in [1, 2, 100] {
            assert_eq!(limiter.names("/rules/query", Some(&query), page), expected, "{query}");
        }
    };
    check(json!({}), &["both", "none", "path", "three", "user"]);
    check(json!({"where": {"user": {"exists": true}}}), &["both", "three", "user"]);
    check(json!({"where": {"user": {"exists": true}, "path": {"exists": false}}}), &["user"]);
    check(json!({"where": {"user": {"exists": true}}, "max_keys": 2}), &["both", "user"]);
    check(json!({"max_keys": 0}), &["none"]);
    check(json!({"min_keys": 2}), &["both", "three"]);
    check(json!({"any": [{"max_keys": 0}, {"where": {"method": {"exists": true}}}]}), &["none", "three"]);
    check(json!({"all": [{"where": {"user": {"exists": true}}}, {"min_keys": 2, "max_keys": 2}]}), &["both"]);
}

#[test]
fn overrides_are_found_by_their_key_values() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["user"], 1);
    limiter.override_of("r", "ann", json!({"user": "ann"}), 1);
    limiter.override_of("r", "ann api", json!({"user": "ann", "path": "/api"}), 1);
    limiter.override_of("r", "bob", json!({"user": "bob"}), 1);
    limiter.override_of("r", "seven", json!({"user": 7, "path": "/x"}), 1);
    limiter.rule("other", &["user"], 1);
    limiter.override_of("other", "elsewhere", json!({"user": "ann"}), 1);
    let check = |query: Value, expected: &[&str]| {
        for page in [1, 2, 100] {
            assert_eq!(limiter.names("/rules/r/overrides/query", Some(&query), page), expected, "{query}");
        }
    };
    check(json!({}), &["ann", "ann api", "bob", "seven"]);
    check(json!({"where": {"user": "ann"}}), &["ann", "ann api"]);
    check(json!({"where": {"user": "ann", "path": {"exists": false}}}), &["ann"]);
    check(json!({"min_keys": 2}), &["ann api", "seven"]);
    check(json!({"any": [{"where": {"user": 7}}, {"where": {"user": "bob"}}]}), &["bob", "seven"]);
    limiter.post("/rules/none/overrides/query", json!({})).refused(404, "RuleNotFound");
}

#[test]
fn a_large_query_pages_through_everything_once() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("all", &[], -1);
    let batch =
        (0..2000).map(|n| json!({"key_values": {"n": n, "even": n % 2 == 0}, "hits": n + 1})).collect();
    limiter.post("/check/batch", crate::limiter::checks(batch)).ok();
    let check = |limiter: &Limiter| {
        for page in [7, 100, 999, 1000] {
            let found = limiter.all("/counters/query", Some(&json!({"where": {"even": true}})), page);
            let numbers: BTreeSet<i64> =
                found.iter().map(|item| item["key_values"]["n"].as_i64().expect("`n`")).collect();
            assert_eq!((found.len(), numbers), (1000, (0..2000).step_by(2).collect()), "pages of {page}");
            let wrong = found.iter().find(|item| {
                crate::limiter::counter(item) != item["key_values"]["n"].as_i64().unwrap_or_default() + 1
            });
            assert_eq!(wrong, None);
        }
    };
    check(&limiter);
    server.crash_and_restart();
    check(&server.limiter());
}

#[test]
fn bad_queries_are_refused() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &[], 1);
    for path in ["/rules/query", "/counters/query", "/rules/r/overrides/query"] {
        for (query, field) in [
            (json!({"were": {}}), "were"),
            (json!({"where": 1}), "where"),
            (json!({"where": {"a": {"about": 1}}}), "where"),
            (json!({"where": {"a": null}}), "where"),
            (json!({"where": {"a": {"exists": "yes"}}}), "where"),
            (json!({"where": {"a": {"in": 1}}}), "where"),
            (json!({"where": {"a": {"prefix": 1}}}), "where"),
            (json!({"min_keys": -1}), "min_keys"),
            (json!({"min_keys": "1"}), "min_keys"),
            (json!({"max_keys": 1.5}), "max_keys"),
            (json!({"any": {}}), "any"),
            (json!({"any": [1]}), "any"),
            (json!({"all": [{"where": {"a": []}}]}), "all"),
        ] {
            let said = format!("{path} {query}");
            let reply = limiter.post(path, query);
            assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{said} → {}", reply.text);
            reply.invalid(field);
        }
        // However deep, it is answered.
        let mut deep = json!({"where": {}});
        for _ in 0..60 {
            deep = json!({"all": [deep]});
        }
        let reply = limiter.post(path, deep);
        assert!([200, 400].contains(&reply.status), "{}", reply.text);
        let deeper = format!("{}{}", "{\"all\":[".repeat(20_000), "]}".repeat(20_000));
        limiter.text("POST", path, &deeper).refused(400, "InvalidRequest");
    }
}
