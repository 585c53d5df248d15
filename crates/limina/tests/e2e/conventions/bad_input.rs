//! Requests that do not validate: 400 `InvalidRequest`, the field named, and nothing done.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::{Ledger, batch, hold};
use crate::reply::Reply;

/// (body, the field that must be named)
type Case = (Value, &'static str);

#[track_caller]
fn check(ledger: &Ledger, path: &str, cases: Vec<Case>) {
    for (body, field) in cases {
        let said = format!("POST {path} {}", shorten(&body));
        refused(&said, ledger.post(path, body), field);
    }
}

/// With the request in the message: a table's line number says little.
#[track_caller]
fn refused(said: &str, reply: Reply, field: &str) {
    assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{said} → {}", reply.text);
    let named = reply.body["field"].as_str().unwrap_or_default();
    assert!(named.contains(field), "{said}: `field` should name {field:?} → {}", reply.text);
    reply.refused(400, "InvalidRequest");
}

fn shorten(body: &Value) -> String {
    let text = body.to_string();
    if text.len() <= 300 {
        text
    } else {
        format!("{}… ({} bytes)", text.chars().take(300).collect::<String>(), text.len())
    }
}

fn long() -> String {
    "x".repeat(257)
}

/// Ids and names that no call accepts.
fn bad_names() -> Vec<Value> {
    vec![
        json!(""),
        json!(long()),
        // 258 bytes in 129 characters.
        json!("ж".repeat(129)),
        json!("."),
        json!(".."),
        json!("a\u{0}b"),
        json!("tab\there"),
        json!("line\nbreak"),
        json!("\u{7f}"),
        json!("\u{85}"),
        json!(5),
        json!(true),
        json!(null),
        json!(["a"]),
        json!({"a": 1}),
    ]
}

#[test]
fn limits_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    let mut cases: Vec<Case> = bad_names().into_iter().map(|name| (json!({"name": name}), "name")).collect();
    cases.extend([
        (json!({}), "name"),
        (json!({"context": {}}), "name"),
        (json!({"name": "a", "cieling": 5}), "cieling"),
        (json!({"name": "a", "limit_name": "a"}), "limit_name"),
        (json!({"name": "a", "Ceiling": 5}), "Ceiling"),
        (json!({"name": "a", "ceiling": "5"}), "ceiling"),
        (json!({"name": "a", "ceiling": 5.5}), "ceiling"),
        (json!({"name": "a", "ceiling": 9_223_372_036_854_775_808_u64}), "ceiling"),
        (json!({"name": "a", "ceiling": true}), "ceiling"),
        (json!({"name": "a", "ceiling": []}), "ceiling"),
        (json!({"name": "a", "limit_id": 7}), "limit_id"),
        (json!({"name": "a", "limit_id": ""}), "limit_id"),
        (json!({"name": "a", "limit_id": long()}), "limit_id"),
        (json!({"name": "a", "context": "text"}), "context"),
        (json!({"name": "a", "context": ["k", "v"]}), "context"),
        (json!({"name": "a", "context": {"k": 1}}), "context"),
        (json!({"name": "a", "context": {"k": null}}), "context"),
        (json!({"name": "a", "context": {"k": {"deep": "v"}}}), "context"),
        (json!({"name": "a", "context": {"k": true}}), "context"),
    ]);
    check(&ledger, "/limits", cases);
    assert_eq!(ledger.get("/limits").ok().items().len(), 0, "nothing was made");
}

#[test]
fn patches_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.post("/limits", json!({"name": "a", "ceiling": 10, "context": {"k": "v"}})).created();
    let before = ledger.limit("a").ok().body;
    for (body, field) in [
        (json!({"name": "b"}), "name"),
        (json!({"limit_id": "b"}), "limit_id"),
        (json!({"ceiling": "5"}), "ceiling"),
        (json!({"ceiling": 0.5}), "ceiling"),
        (json!({"ceiling": 9_223_372_036_854_775_808_u64}), "ceiling"),
        (json!({"context": "text"}), "context"),
        (json!({"context": {"k": 1}}), "context"),
        (json!({"context": {"k": "new"}, "ceilling": 1}), "ceilling"),
    ] {
        refused(&format!("PATCH {body}"), ledger.patch("a", body.clone()), field);
    }
    assert_eq!(ledger.limit("a").ok().body, before);
}

#[test]
fn holds_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let change = json!({"limit_name": "a", "value": 1});
    let mut cases: Vec<Case> = Vec::new();
    for name in bad_names() {
        cases.push((json!({"operation_id": name, "changes": [change]}), "operation_id"));
        cases.push((
            json!({"operation_id": "op", "changes": [{"limit_name": name, "value": 1}]}),
            "limit_name",
        ));
    }
    for value in [
        json!("1"),
        json!(1.5),
        json!(1e30),
        json!(9_223_372_036_854_775_808_u64),
        json!(u64::MAX),
        json!(null),
        json!(true),
        json!([1]),
        json!({"DataType": 6, "Value": "1"}),
    ] {
        cases
            .push((json!({"operation_id": "op", "changes": [{"limit_name": "a", "value": value}]}), "value"));
    }
    cases.extend([
        (json!({}), "operation_id"),
        (json!({"changes": [change]}), "operation_id"),
        (json!({"operation_id": "op"}), "changes"),
        (json!({"operation_id": "op", "changes": []}), "changes"),
        (json!({"operation_id": "op", "changes": null}), "changes"),
        (json!({"operation_id": "op", "changes": {}}), "changes"),
        (json!({"operation_id": "op", "changes": change}), "changes"),
        (json!({"operation_id": "op", "changes": "a"}), "changes"),
        (json!({"operation_id": "op", "changes": ["a"]}), "changes"),
        // A change is an object; its fields have no order to go by.
        (json!({"operation_id": "op", "changes": [["a", 1]]}), "changes"),
        (json!({"operation_id": "op", "changes": [{"limit_name": "a"}]}), "value"),
        (json!({"operation_id": "op", "changes": [{"value": 1}]}), "limit_name"),
        (json!({"operation_id": "op", "changes": [change, {"limit_name": "a", "value": 2}]}), "changes"),
        (json!({"operation_id": "op", "changes": [{"limit_name": "a", "value": 1, "valeu": 2}]}), "valeu"),
        (
            json!({"operation_id": "op", "changes": [{"limit_name": "a", "value": 1, "context": {"k": 1}}]}),
            "context",
        ),
        (
            json!({"operation_id": "op", "changes": [{"limit_name": "a", "value": 1, "limit_id": 1}]}),
            "limit_id",
        ),
        (json!({"operation_id": "op", "changes": [change], "skip_existing": true}), "skip_existing"),
        (
            json!({"operation_id": "op", "changes": [change], "skip_existing_holds": "yes"}),
            "skip_existing_holds",
        ),
        (json!({"operation_id": "op", "changes": [change], "skip_existing_holds": 1}), "skip_existing_holds"),
        (json!({"operation_id": "op", "changes": [change], "create_missing": 1}), "create_missing"),
        (json!({"operation_id": "op", "changes": [change], "operationId": "op"}), "operationId"),
        (json!({"operation_id": "op", "changes": [change], "operations": []}), "operations"),
    ]);
    check(&ledger, "/hold", cases);
    ledger.values(&["a"]).ok().value("a", 0, 0);
}

#[test]
fn finalizations_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    ledger.hold("op", &[("a", 5)]).ok();
    for path in ["/commit", "/rollback"] {
        let mut cases: Vec<Case> = Vec::new();
        for name in bad_names() {
            cases.push((json!({"operation_id": name}), "operation_id"));
            cases.push((json!({"operation_id": "op", "changes": [{"limit_name": name}]}), "limit_name"));
        }
        cases.extend([
            (json!({}), "operation_id"),
            (json!({"operation_id": "op", "changes": []}), "changes"),
            (json!({"operation_id": "op", "changes": {}}), "changes"),
            (json!({"operation_id": "op", "changes": [{}]}), "limit_name"),
            (json!({"operation_id": "op", "changes": [{"value": 5}]}), "limit_name"),
            (json!({"operation_id": "op", "changes": [{"limit_name": "a", "value": "5"}]}), "value"),
            (json!({"operation_id": "op", "changes": [{"limit_name": "a", "value": 0.5}]}), "value"),
            (json!({"operation_id": "op", "changes": [{"limit_name": "a", "value": u64::MAX}]}), "value"),
            (json!({"operation_id": "op", "changes": [{"limit_name": "a", "amount": 5}]}), "amount"),
            (json!({"operation_id": "op", "changes": [{"limit_name": "a"}, {"limit_name": "a"}]}), "changes"),
            (json!({"operation_id": "op", "expires_after": "1s"}), "expires_after"),
            (json!({"operation_id": "op", "skip_existing_holds": true}), "skip_existing_holds"),
            (json!({"operation": "op"}), "operation"),
        ]);
        check(&ledger, path, cases);
        let many: Vec<Value> = (0..65).map(|n| json!({"limit_name": format!("l-{n}")})).collect();
        check(&ledger, path, vec![(json!({"operation_id": "op", "changes": many}), "changes")]);
    }
    ledger.values(&["a"]).ok().value("a", 0, 5);
}

#[test]
fn values_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let mut cases: Vec<Case> = Vec::new();
    for name in bad_names() {
        cases.push((json!({"limit_names": [name]}), "limit_names"));
        if !name.is_null() {
            cases.push((json!({"limit_names": ["a"], "operation_id": name}), "operation_id"));
        }
    }
    cases.extend([
        (json!({}), "limit_names"),
        (json!({"limit_names": "a"}), "limit_names"),
        (json!({"limit_names": []}), "limit_names"),
        (json!({"limit_names": ["a", "a"]}), "limit_names"),
        (json!({"limit_names": {"a": 1}}), "limit_names"),
        (json!({"limit_names": ["a"], "position": "1"}), "position"),
        (json!({"limit_names": ["a"], "position": 1.5}), "position"),
        (json!({"limit_names": ["a"], "position": -1}), "position"),
        (json!({"limit_names": ["a"], "position": 1e30}), "position"),
        (json!({"limit_names": ["a"], "pos": 1}), "pos"),
    ]);
    check(&ledger, "/values", cases);
}

#[test]
fn batches_refuse_bad_input() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for path in ["/hold/batch", "/commit/batch", "/rollback/batch"] {
        check(
            &ledger,
            path,
            vec![
                (json!({}), "operations"),
                (json!({"operations": null}), "operations"),
                (json!({"operations": {}}), "operations"),
                (json!({"operations": "op"}), "operations"),
                (json!({"operation": []}), "operation"),
                (json!({"operations": [hold("op", &[("a", 1)])], "atomic": true}), "atomic"),
            ],
        );
    }
    ledger.operation("op").refused(404, "OperationNotFound");
}

/// The item's own problem document, and the items around it done.
#[track_caller]
fn refused_alone(ledger: &Ledger, item: Value) {
    let before = hold(&format!("before {item}"), &[("a", 1)]);
    let after = hold(&format!("after {item}"), &[("a", 1)]);
    let reply = ledger.post("/hold/batch", batch(vec![before, item.clone(), after]));
    assert_eq!(reply.status, 200, "{item} → {}", reply.text);
    let results = crate::ledger::results(&reply);
    let statuses: Vec<&Value> = results.iter().map(|result| &result["status"]).collect();
    assert_eq!(statuses, [&json!(200), &json!(400), &json!(200)], "{item} → {}", reply.text);
    crate::reply::check_problem(&results[1], 400, "InvalidRequest");
}

#[test]
fn an_item_of_a_batch_that_does_not_validate_is_refused_on_its_own() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let change = json!({"limit_name": "a", "value": 1});
    refused_alone(&ledger, json!({"operation_id": "", "changes": [change]}));
    refused_alone(&ledger, json!({"operation_id": "x", "changes": []}));
    refused_alone(&ledger, json!({"operation_id": "x", "changes": [change, change]}));
    refused_alone(&ledger, json!({"operation_id": "x", "changes": [{"limit_name": "..", "value": 1}]}));
    ledger.operation("x").refused(404, "OperationNotFound");
}

/// As the single call would refuse it: a wrong type in one item does not undo the others.
#[test]
fn an_item_of_a_batch_that_does_not_parse_is_refused_on_its_own() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let change = json!({"limit_name": "a", "value": 1});
    refused_alone(&ledger, json!({"operation_id": "x", "changes": [{"limit_name": "a", "value": "1"}]}));
    refused_alone(
        &ledger,
        json!({"operation_id": "x", "changes": [{"limit_name": "a", "value": 1, "typo": 1}]}),
    );
    refused_alone(&ledger, json!({"operation_id": "x", "changes": [change], "expires_after": "soon"}));
    refused_alone(&ledger, json!({"operation_id": "x"}));
    ledger.operation("x").refused(404, "OperationNotFound");
}

#[test]
fn queries_refuse_bad_parameters() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for path in ["/limits", "/operations?state=held", "/limits/a/entries"] {
        for limit in ["0", "1001", "-1", "ten", "", "1.5", "99999999999999999999999", "%20"] {
            let query = format!("{path}{}limit={limit}", if path.contains('?') { '&' } else { '?' });
            refused(&format!("GET {query}"), ledger.get(&query), "limit");
        }
    }
    refused("GET /operations?state=bogus", ledger.get("/operations?state=bogus"), "state");
    for limit in ["1", "1000"] {
        ledger.get(&format!("/limits?limit={limit}")).ok();
    }
}
