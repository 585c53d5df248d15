//! Invalid requests to the ledger get 400 `InvalidRequest` with the name of the field, and change nothing.
//!
//! The bounds themselves are tested where they are checked, in `crates/engine/tests`. Here each field has a wrong type
//! once and a wrong value once, so that the answer names it.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::{Ledger, batch, hold};
use crate::reply::Reply;

/// (body, the field that must be named)
type Case = (Value, &'static str);

#[track_caller]
fn check(ledger: &Ledger, path: &str, cases: Vec<Case>) {
    for (body, field) in cases {
        let text = body.to_string();
        let said = format!("POST {path} {}", text.chars().take(300).collect::<String>());
        refused(&said, ledger.post(path, body), field);
    }
}

/// The panic message contains the request, because the line number of a table of cases says little.
#[track_caller]
fn refused(said: &str, reply: Reply, field: &str) {
    assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{said} → {}", reply.text);
    let named = reply.body["field"].as_str().unwrap_or_default();
    assert!(named.contains(field), "{said}: `field` should name {field:?} → {}", reply.text);
    reply.refused(400, "InvalidRequest");
}

#[test]
fn limits_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    let mut cases: Vec<Case> = vec![(json!({}), "name")];
    for name in [json!(""), json!("x".repeat(257)), json!("."), json!("a\u{0}b"), json!(5), json!(null)] {
        cases.push((json!({"name": name}), "name"));
    }
    cases.extend([
        (json!({"name": "a", "cieling": 5}), "cieling"),
        (json!({"name": "a", "Ceiling": 5}), "Ceiling"),
        (json!({"name": "a", "ceiling": "5"}), "ceiling"),
        (json!({"name": "a", "ceiling": 5.5}), "ceiling"),
        (json!({"name": "a", "ceiling": 9_223_372_036_854_775_808_u64}), "ceiling"),
        (json!({"name": "a", "limit_id": 7}), "limit_id"),
        (json!({"name": "a", "limit_id": ""}), "limit_id"),
        (json!({"name": "a", "context": ["k", "v"]}), "context"),
        (json!({"name": "a", "context": {"k": 1}}), "context"),
        (json!({"name": "a", "context": {"k": {"deep": "v"}}}), "context"),
    ]);
    check(&ledger, "/limits", cases);
    assert_eq!(ledger.get("/limits").ok().items().len(), 0, "nothing was made");

    ledger.post("/limits", json!({"name": "a", "ceiling": 10, "context": {"k": "v"}})).created();
    let before = ledger.limit("a").ok().body;
    for (body, field) in [
        (json!({"name": "b"}), "name"),
        (json!({"ceiling": 0.5}), "ceiling"),
        (json!({"context": {"k": 1}}), "context"),
        (json!({"context": {"k": "new"}, "ceilling": 1}), "ceilling"),
    ] {
        refused(&format!("PATCH {body}"), ledger.patch("a", body.clone()), field);
    }
    assert_eq!(ledger.limit("a").ok().body, before);
}

#[test]
fn holds_commits_and_rollbacks_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    ledger.hold("held", &[("a", 5)]).ok();
    let change = json!({"limit_name": "a", "value": 1});
    let of = |changes: Value| json!({"operation_id": "op", "changes": changes});
    let mut cases: Vec<Case> = vec![
        (json!({"operation_id": "op"}), "changes"),
        (of(json!([{"limit_name": "a"}])), "value"),
        (of(json!([{"limit_name": "a", "value": 1, "context": {"k": 1}}])), "context"),
        (of(json!([{"limit_name": "a", "value": 1, "limit_id": 1}])), "limit_id"),
        (json!({"operation_id": "op", "changes": [change], "skip_existing": true}), "skip_existing"),
        (json!({"operation_id": "op", "changes": [change], "skip_existing_holds": 1}), "skip_existing_holds"),
        (json!({"operation_id": "op", "changes": [change], "create_missing": 1}), "create_missing"),
        (json!({"operation_id": "op", "changes": [change], "expires_after": 0}), "expires_after"),
    ];
    let of_all: Vec<Case> = vec![
        (json!({}), "operation_id"),
        (json!({"operation_id": "", "changes": [change]}), "operation_id"),
        (json!({"operation_id": 5, "changes": [change]}), "operation_id"),
        (of(json!([])), "changes"),
        (of(json!({})), "changes"),
        (of(json!(["a"])), "changes"),
        // A change is an object, not a list of fields in some order.
        (of(json!([["a", 1]])), "changes"),
        (of(json!([{"value": 1}])), "limit_name"),
        (of(json!([{"limit_name": "..", "value": 1}])), "limit_name"),
        (of(json!([{"limit_name": "a", "value": "1"}])), "value"),
        (of(json!([{"limit_name": "a", "value": 1.5}])), "value"),
        (of(json!([{"limit_name": "a", "value": u64::MAX}])), "value"),
        (of(json!([{"limit_name": "a", "value": 1, "valeu": 2}])), "valeu"),
        (of(json!([change, change])), "changes"),
        (of((0..65).map(|n| json!({"limit_name": format!("l-{n}"), "value": 1})).collect()), "changes"),
        (json!({"operation_id": "op", "changes": [change], "operationId": "op"}), "operationId"),
    ];
    cases.extend(of_all.clone());
    check(&ledger, "/hold", cases);
    for path in ["/commit", "/rollback"] {
        check(&ledger, path, of_all.clone());
        check(&ledger, path, vec![(json!({"operation_id": "held", "expires_after": "1s"}), "expires_after")]);
    }
    ledger.values(&["a"]).ok().value("a", 0, 5);
}

#[test]
fn values_and_lists_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let cases = vec![
        (json!({}), "limit_names"),
        (json!({"limit_names": "a"}), "limit_names"),
        (json!({"limit_names": []}), "limit_names"),
        (json!({"limit_names": [""]}), "limit_names"),
        (json!({"limit_names": ["a", "a"]}), "limit_names"),
        (json!({"limit_names": ["a"], "operation_id": ""}), "operation_id"),
        (json!({"limit_names": ["a"], "position": "1"}), "position"),
        (json!({"limit_names": ["a"], "position": -1}), "position"),
        (json!({"limit_names": ["a"], "pos": 1}), "pos"),
    ];
    check(&ledger, "/values", cases);
    refused("GET /operations?state=bogus", ledger.get("/operations?state=bogus"), "state");
}

#[test]
fn batches_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for path in ["/hold/batch", "/commit/batch", "/rollback/batch"] {
        let cases = vec![
            (json!({}), "operations"),
            (json!({"operations": null}), "operations"),
            (json!({"operations": {}}), "operations"),
            (json!({"operations": [hold("op", &[("a", 1)])], "atomic": true}), "atomic"),
        ];
        check(&ledger, path, cases);
    }
    ledger.operation("op").refused(404, "OperationNotFound");
}

/// Each bad item of a batch has the problem document that the single request would get. The items around it are
/// executed.
#[test]
fn a_bad_item_of_a_batch_is_refused_alone() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let change = json!({"limit_name": "a", "value": 1});
    for item in [
        json!({"operation_id": "", "changes": [change]}),
        json!({"operation_id": "x", "changes": []}),
        json!({"operation_id": "x", "changes": [change, change]}),
        json!({"operation_id": "x", "changes": [{"limit_name": "a", "value": "1"}]}),
        json!({"operation_id": "x", "changes": [{"limit_name": "a", "value": 1, "typo": 1}]}),
        json!({"operation_id": "x", "changes": [change], "expires_after": "soon"}),
        json!({"operation_id": "x"}),
    ] {
        let before = hold(&format!("before {item}"), &[("a", 1)]);
        let after = hold(&format!("after {item}"), &[("a", 1)]);
        let reply = ledger.post("/hold/batch", batch(vec![before, item.clone(), after]));
        assert_eq!(reply.status, 200, "{item} → {}", reply.text);
        let results = crate::ledger::results(&reply);
        let statuses: Vec<&Value> = results.iter().map(|result| &result["status"]).collect();
        assert_eq!(statuses, [&json!(200), &json!(400), &json!(200)], "{item} → {}", reply.text);
        crate::reply::check_problem(&results[1], 400, "InvalidRequest");
    }
    ledger.operation("x").refused(404, "OperationNotFound");
}
