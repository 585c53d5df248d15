//! Limits: made once, read, and changed in their ceiling and context.

use serde_json::{Value, json};

use crate::harness::Server;

#[test]
fn a_limit_is_made_once() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    let context = json!({"provider": "p-1", "terminal": "t-1"});
    let request = json!({"name": "daily", "limit_id": "id-7", "context": context, "ceiling": 500});

    let made = ledger.post("/limits", request.clone()).created();
    made.has("name", "daily").has("limit_id", "id-7").has("context", context.clone()).has("ceiling", 500);
    ledger.post("/limits", request).refused(409, "DuplicateLimitName").naming(&["daily"]);
    ledger.post("/limits", json!({"name": "daily"})).refused(409, "DuplicateLimitName");

    let check = |server: &Server| {
        let read = server.ledger().limit("daily").ok();
        read.has("name", "daily").has("limit_id", "id-7").has("context", context.clone()).has("ceiling", 500);
        server.ledger().values(&["daily"]).ok().value("daily", 0, 0);
    };
    check(&server);
    server.restart();
    check(&server);
    server.crash_and_restart();
    check(&server);
}

#[test]
fn a_limit_needs_nothing_but_its_name() {
    let server = Server::fresh();
    let ledger = server.ledger();
    let made = ledger.post("/limits", json!({"name": "bare"})).created().has("name", "bare");
    assert!(made.body["ceiling"].is_null(), "{}", made.text);
    ledger.limit("absent").refused(404, "LimitNotFound").naming(&["absent"]);
    // Names are exact.
    ledger.post("/limits", json!({"name": "Bare"})).created();
    ledger.post("/limits", json!({"name": "bare "})).created();
    ledger.limit("BARE").refused(404, "LimitNotFound");
}

#[test]
fn two_limits_may_share_a_limit_id() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.post("/limits", json!({"name": "x", "limit_id": "shared"})).created();
    ledger.post("/limits", json!({"name": "y", "limit_id": "shared"})).created();
    let values = ledger.values(&["x", "y"]).ok().values_are_of(&["x", "y"]);
    for value in values.body["values"].as_array().unwrap() {
        assert_eq!(value["limit_id"], "shared", "{value}");
    }
}

#[test]
fn a_patch_changes_what_it_gives_and_null_removes() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.post("/limits", json!({"name": "a", "context": {"k": "1"}, "ceiling": 10})).created();

    ledger
        .patch("a", json!({"ceiling": 20}))
        .ok()
        .has("name", "a")
        .has("ceiling", 20)
        .has("context", json!({"k": "1"}));
    ledger
        .patch("a", json!({"context": {"k": "2"}}))
        .ok()
        .has("ceiling", 20)
        .has("context", json!({"k": "2"}));
    ledger.patch("a", json!({})).ok().has("ceiling", 20).has("context", json!({"k": "2"}));
    ledger.limit("a").ok().has("ceiling", 20).has("context", json!({"k": "2"}));

    ledger.hold("too much", &[("a", 21)]).refused(409, "LimitExceeded");
    ledger
        .patch("a", json!({"ceiling": null}))
        .ok()
        .has("ceiling", Value::Null)
        .has("context", json!({"k": "2"}));
    ledger.hold("no more", &[("a", 21)]).ok().value("a", 0, 21);

    let patched = ledger.patch("a", json!({"context": null})).ok();
    let gone = |context: &Value| context.is_null() || context == &json!({});
    assert!(gone(&patched.body["context"]), "{}", patched.text);

    ledger.patch("absent", json!({"ceiling": 1})).refused(404, "LimitNotFound");
    server.crash_and_restart();
    let read = server.ledger().limit("a").ok().has("ceiling", Value::Null);
    assert!(gone(&read.body["context"]), "{}", read.text);
}
