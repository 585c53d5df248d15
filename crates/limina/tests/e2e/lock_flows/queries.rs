//! Queries: grants found by the key-values of their locks.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::locks::{Grant, Locks, exclusive, ids, several, shared};

/// The `id`s of the locks that a query finds, by pages of several sizes.
#[track_caller]
fn found(locks: &Locks, query: &Value) -> Vec<i64> {
    let mut results = [1, 3, 1000].map(|page| {
        let items = locks.query(query, page);
        ids(&items);
        let id = |item: &Value| item["locks"][0]["key_values"]["id"].as_i64().expect("`id`");
        let mut found: Vec<i64> = items.iter().map(id).collect();
        found.sort();
        found
    });
    assert!(results.iter().all(|found| *found == results[0]), "pages differ: {results:?}");
    std::mem::take(&mut results[0])
}

/// Locks 1 to 8, the even ones shared.
fn filled(server: &Server) -> (Locks, Vec<Grant>) {
    let locks = server.locks();
    let sets = [
        json!({"id": 1}),
        json!({"id": 2, "user": "ann"}),
        json!({"id": 3, "user": "bob"}),
        json!({"id": 4, "user": "ann", "path": "/api/x"}),
        json!({"id": 5, "user": "ann", "path": "/web"}),
        json!({"id": 6, "user": 7, "path": "/api/y", "size": 10}),
        json!({"id": 7, "user": 7.5, "size": 2.5}),
        json!({"id": 8, "user": true, "path": "/api/x", "size": 30, "more": 1}),
    ];
    let grants = sets.into_iter().enumerate().map(|(n, set)| match n % 2 {
        0 => locks.grant(exclusive(set)),
        _ => locks.grant(shared(set)),
    });
    let grants = grants.collect();
    (locks, grants)
}

#[test]
fn grants_are_found_by_their_key_values() {
    let mut server = Server::fresh();
    filled(&server);
    for round in 0..2 {
        let locks = server.locks();
        let check = |selection: Value, expected: &[i64]| {
            assert_eq!(found(&locks, &json!({"where": selection})), expected, "{selection}");
        };
        check(json!({}), &[1, 2, 3, 4, 5, 6, 7, 8]);
        check(json!({"user": "ann"}), &[2, 4, 5]);
        check(json!({"user": {"DataType": 12, "Value": "ann"}}), &[2, 4, 5]);
        check(json!({"user": {"eq": 7}}), &[6]);
        check(json!({"user": {"ne": "ann"}}), &[3, 6, 7, 8]);
        check(json!({"user": {"gte": 7}}), &[6, 7]);
        check(json!({"user": {"gt": 7}}), &[7]);
        check(json!({"user": {"lt": "b"}}), &[2, 4, 5]);
        check(json!({"user": {"in": ["bob", true, 7]}}), &[3, 6, 8]);
        check(json!({"path": {"prefix": "/api/"}}), &[4, 6, 8]);
        check(json!({"path": {"exists": true}}), &[4, 5, 6, 8]);
        check(json!({"path": {"exists": false}}), &[1, 2, 3, 7]);
        check(json!({"path": {"exists": false}, "user": {"exists": true}}), &[2, 3, 7]);
        check(json!({"user": "ann", "path": {"prefix": "/api"}}), &[4]);
        check(json!({"size": {"gt": 2, "lte": 10}}), &[6, 7]);
        check(json!({"user": "nobody"}), &[]);
        check(json!({"id": "1"}), &[]);
        assert_eq!(found(&locks, &json!({})), [1, 2, 3, 4, 5, 6, 7, 8], "an empty query finds all");
        if round == 0 {
            server.crash_and_restart();
        }
    }
}

#[test]
fn queries_combine() {
    let server = Server::fresh();
    let (locks, _) = filled(&server);
    let check = |query: Value, expected: &[i64]| assert_eq!(found(&locks, &query), expected, "{query}");
    check(json!({"min_keys": 3}), &[4, 5, 6, 7, 8]);
    check(json!({"max_keys": 2}), &[1, 2, 3]);
    check(json!({"min_keys": 3, "max_keys": 3}), &[4, 5, 7]);
    check(json!({"min_keys": 2, "where": {"user": "ann"}, "max_keys": 2}), &[2]);
    check(json!({"min_keys": 9}), &[]);
    check(json!({"any": [{"where": {"user": "bob"}}, {"where": {"size": {"gt": 5}}}]}), &[3, 6, 8]);
    check(json!({"any": [{"where": {"user": "bob"}}, {"min_keys": 5}, {"max_keys": 1}]}), &[1, 3, 8]);
    check(json!({"all": [{"where": {"user": "ann"}}, {"where": {"path": {"exists": true}}}]}), &[4, 5]);
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
fn what_is_released_is_not_found() {
    let server = Server::fresh();
    let (locks, grants) = filled(&server);
    let query = json!({"where": {"user": "ann"}});
    locks.let_go(&grants[3]);
    assert_eq!(found(&locks, &query), [2, 5]);
    locks.force(&grants[1].lock_id).is(204);
    assert_eq!(found(&locks, &query), [5]);
    locks.grant(shared(json!({"id": 4, "user": "ann", "path": "/api/x"})));
    assert_eq!(found(&locks, &query), [4, 5]);
}

/// Each who shares a lock is found, and a grant of several locks never twice.
#[test]
fn a_query_finds_grants_not_locks() {
    let server = Server::fresh();
    let locks = server.locks();
    for _ in 0..3 {
        locks.grant(shared(json!({"id": 1})));
    }
    assert_eq!(found(&locks, &json!({"where": {"id": 1}})), [1, 1, 1]);
    let pair = several(&[(json!({"id": 2, "n": 1}), "shared"), (json!({"id": 2, "n": 2}), "shared")]);
    let pair = locks.grant(pair);
    let items = locks.query(&json!({"where": {"id": 2}}), 1);
    assert_eq!(items.len(), 1, "both of its locks are meant: {items:?}");
    assert_eq!(items[0]["lock_id"], pair.lock_id.as_str());
}

#[test]
fn bad_queries_are_refused() {
    let server = Server::fresh();
    let locks = server.locks();
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
        let reply = locks.ask_text("/query", &query.to_string());
        assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{query} → {}", reply.text);
        reply.invalid(field);
    }
    let deeper = format!("{}{}", "{\"all\":[".repeat(20_000), "]}".repeat(20_000));
    locks.ask_text("/query", &deeper).refused(400, "InvalidRequest");
}
