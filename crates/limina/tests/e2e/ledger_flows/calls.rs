//! Every request of the ledger, with its JSON.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::Ledger;

#[test]
fn every_call_and_its_json() {
    let server = Server::fresh();
    for ledger in [server.ledger(), server.ledger_of("a%2Fb")] {
        limits(&ledger);
        operations(&ledger);
        batches(&ledger);
        deletion(&ledger);
    }
}

/// Creates `daily` at position 1, changes it at 2 and 3, and then creates `plain` at 4.
fn limits(ledger: &Ledger) {
    let request = json!({"name": "daily", "limit_id": "id-7", "context": {"provider": "p"}, "ceiling": 500});
    let daily = |ceiling: Value, context: Value| {
        json!({"name": "daily", "limit_id": "id-7", "context": context, "ceiling": ceiling, "available": ceiling,
            "commit_value": 0, "hold_value": 0, "total_value": 0, "created_position": 1})
    };
    let made = ledger.post("/limits", request.clone()).created();
    assert_eq!(made.body, daily(json!(500), json!({"provider": "p"})));
    ledger.post("/limits", request).refused(409, "DuplicateLimitName").naming(&["daily"]);
    // Null removes a field. A field that is omitted stays.
    let patched = ledger.patch("daily", json!({"ceiling": null})).ok();
    assert_eq!(patched.body, daily(Value::Null, json!({"provider": "p"})));
    let patched = ledger.patch("daily", json!({"ceiling": 600, "context": null})).ok();
    assert_eq!(patched.body, daily(json!(600), json!({})));
    assert_eq!(ledger.limit("daily").ok().body, patched.body);
    ledger.limit("absent").refused(404, "LimitNotFound").naming(&["absent"]);

    ledger.create("plain");
    let page = ledger.get("/limits?limit=1").ok();
    assert_eq!((page.items()[0].clone(), page.next()), (patched.body, Some("daily")));
    let last = ledger.get("/limits?limit=1&after=daily").ok();
    let plain = json!({"name": "plain", "limit_id": null, "context": {}, "ceiling": null, "available": null,
        "commit_value": 0, "hold_value": 0, "total_value": 0, "created_position": 4});
    assert_eq!(last.body, json!({"items": [plain], "next": null}));
}

/// Holds, commits and rolls back from position 5 on.
fn operations(ledger: &Ledger) {
    let value = |name: &str, commit: i64, hold: i64| {
        let id = if name == "daily" { json!("id-7") } else { Value::Null };
        json!({"limit_name": name, "limit_id": id, "commit_value": commit, "hold_value": hold,
            "total_value": commit + hold})
    };
    let hold = json!({"operation_id": "op 1/x", "changes": [
        {"limit_name": "daily", "value": 10}, {"limit_name": "plain", "value": -4},
    ]});
    let held = ledger.post("/hold", hold.clone()).ok();
    let at_5 = [value("daily", 0, 10), value("plain", 0, -4)];
    assert_eq!(held.body, json!({"operation_id": "op 1/x", "position": 5, "values": at_5, "skipped": []}));
    let duplicate = ledger.post("/hold", hold).refused(409, "DuplicateOperation").naming(&["daily", "plain"]);
    assert_eq!(duplicate.body["held_value"], 10);
    let other = json!({"operation_id": "op 1/x", "skip_existing_holds": true,
        "changes": [{"limit_name": "daily", "value": 10}, {"limit_name": "plain", "value": -5}]});
    let other = ledger.post("/hold", other).refused(409, "DuplicateOperation").naming(&["plain"]);
    assert_eq!(other.body["limits"], json!([{"limit_name": "plain", "held_value": -4}]));
    let over = ledger.hold("over", &[("daily", 591)]).refused(409, "LimitExceeded");
    let daily =
        json!({"limit_name": "daily", "ceiling": 600, "commit_value": 0, "hold_value": 10, "available": 590});
    assert_eq!(over.body["limits"], json!([daily]));
    let made = ledger.post(
        "/hold",
        json!({"operation_id": "op 1/x", "skip_existing_holds": true, "create_missing": true,
            "expires_after": "24h", "changes": [
                {"limit_name": "daily", "value": 10},
                {"limit_name": "new", "value": 1, "limit_id": "id-8", "context": {"k": "v"}, "ceiling": 5},
        ]}),
    );
    assert_eq!(made.ok().has("position", 7).body["skipped"], json!(["daily"]));
    let new = ledger.limit("new").ok().has("limit_id", "id-8").has("context", json!({"k": "v"}));
    new.has("ceiling", 5).has("available", 4);
    let nearest = ledger.get("/limits?order=used&limit=1").ok();
    assert_eq!((&nearest.items()[0]["name"], nearest.next()), (&json!("new"), None));

    let committed = json!({"operation_id": "op 1/x", "changes": [{"limit_name": "daily", "value": 7}]});
    let reply = ledger.post("/commit", committed).ok();
    let values = [value("daily", 7, 0)];
    assert_eq!(reply.body, json!({"operation_id": "op 1/x", "position": 8, "values": values}));
    let rolled_back = json!({"operation_id": "op 1/x", "changes": [{"limit_name": "plain"}]});
    ledger.post("/rollback", rolled_back).ok().has("position", 9);
    let over = json!({"operation_id": "op 1/x", "changes": [{"limit_name": "new", "value": 2}]});
    ledger.post("/commit", over).refused(409, "CommitExceedsHold");
    let refused = ledger.rollback_of("op 1/x", &["daily"]).refused(404, "OperationNotFound");
    assert_eq!(refused.body["state"], "committed");

    let operation = ledger.operation("op 1/x").ok().body;
    assert_eq!((&operation["position"], &operation["state"]), (&json!(7), &json!("held")));
    let hold = |name: &str, state: &str, held: i64, committed: Value, at: i64, end: Value| {
        json!({"limit_name": name, "limit_id": value(name, 0, 0)["limit_id"], "deleted": false, "state": state,
            "held_value": held, "committed_value": committed, "held_at": operation["holds"][0]["held_at"],
            "hold_position": at, "final_position": end, "expires_at": null, "expires_in_ms": null,
            "expired": false})
    };
    assert!(operation["holds"][0]["held_at"].is_u64(), "{operation}");
    assert_eq!(operation["holds"][0], hold("daily", "committed", 10, json!(7), 5, json!(8)));
    assert_eq!(operation["holds"][1], hold("plain", "rolled_back", -4, Value::Null, 5, json!(9)));
    let open = &operation["holds"][2];
    assert_eq!((&open["limit_name"], &open["state"]), (&json!("new"), &json!("held")));
    assert!(open["expires_at"].is_u64() && open["expires_in_ms"].as_u64() <= Some(86_400_000), "{open}");
    let extended = ledger.post("/extend", json!({"operation_id": "op 1/x", "expires_after": "48h"})).ok();
    assert!(extended.body["holds"][2]["expires_in_ms"].as_u64() > Some(86_400_000), "{}", extended.text);
    let operation =
        ledger.post("/extend", json!({"operation_id": "op 1/x", "expires_after": null})).ok().body;
    assert_eq!(operation["holds"][2]["expires_in_ms"], Value::Null);
    ledger.post("/extend", json!({"operation_id": "op 1/x"})).invalid("expires_after");
    let absent = json!({"operation_id": "absent", "expires_after": "1h"});
    ledger.post("/extend", absent).refused(404, "OperationNotFound");
    let listed = ledger.get("/operations?state=held&limit_name=new").ok();
    assert_eq!(listed.body, json!({"items": [operation], "next": null}));
    assert_eq!(ledger.get("/operations").ok().body, listed.body);
    assert_eq!(ledger.get("/operations?state=held&older_than=1h").ok().items(), &Vec::<Value>::new());
    ledger.get("/operations?limit_name=absent").refused(404, "LimitNotFound");

    let entries = ledger.get("/limits/daily/entries?limit=1").ok();
    let first = &entries.items()[0];
    assert!(first["time"].is_u64(), "{first}");
    let mut expected = json!({"position": 5, "operation_id": "op 1/x", "type": "hold", "value": 10,
        "commit_value": 0, "hold_value": 10, "total_value": 10});
    expected["time"] = first["time"].clone();
    assert_eq!((first, entries.next()), (&expected, Some("5")));
    let last = ledger.get("/limits/daily/entries?limit=1&after=5").ok();
    assert_eq!((&last.items()[0]["type"], last.next()), (&json!("commit"), None));

    let now = ledger.post("/values", json!({"limit_names": ["plain", "daily"]})).ok();
    let values = [value("plain", 0, 0), value("daily", 7, 0)];
    assert_eq!(now.body, json!({"position": 11, "values": values}));
    let then = ledger.post("/values", json!({"limit_names": ["daily", "plain"], "position": 5})).ok();
    assert_eq!(then.body, json!({"position": 5, "values": at_5}));
    let view = json!({"limit_names": ["daily"], "operation_id": "op 1/x"});
    assert_eq!(ledger.post("/values", view).ok().body["position"], 7);
    ledger.values_at(12, &["daily"]).invalid("position");
    let both = json!({"limit_names": ["daily"], "position": 5, "operation_id": "op 1/x"});
    ledger.post("/values", both).refused(400, "InvalidRequest");
}

/// Each item has the status and the body of the single request.
fn batches(ledger: &Ledger) {
    let holds = json!({"operations": [
        {"operation_id": "b1", "changes": [{"limit_name": "plain", "value": 5}]},
        {"operation_id": "b2", "changes": [{"limit_name": "missing", "value": 5}]},
        {"operation_id": "b3", "changes": []},
    ]});
    let reply = ledger.post("/hold/batch", holds).ok();
    let results = crate::ledger::results(&reply);
    let value = json!({"limit_name": "plain", "limit_id": null, "commit_value": 0, "hold_value": 5,
        "total_value": 5});
    assert_eq!(
        results[0],
        json!({"status": 200, "operation_id": "b1", "position": 12, "values": [value], "skipped": []})
    );
    crate::reply::check_problem(&results[1], 404, "LimitNotFound");
    crate::reply::check_problem(&results[2], 400, "InvalidRequest");
    assert_eq!(results.len(), 3);
    let finish = json!({"operations": [{"operation_id": "b1"}, {"operation_id": "b2"}]});
    for (path, first) in [("/commit/batch", 200), ("/rollback/batch", 404)] {
        let reply = ledger.post(path, finish.clone()).ok();
        let statuses: Vec<_> =
            crate::ledger::results(&reply).iter().map(|result| result["status"].clone()).collect();
        assert_eq!(statuses, [json!(first), json!(404)], "{path}: {}", reply.text);
    }
}

/// A limit is deleted when no hold is open in it. Its operations still show it.
fn deletion(ledger: &Ledger) {
    let in_use = ledger.delete("new").refused(409, "LimitInUse");
    assert_eq!(in_use.body["limit_name"], "new");
    assert_eq!(in_use.body["open_holds"], 1);
    ledger.rollback_of("op 1/x", &["new"]).ok();
    ledger.delete("new").is(204);
    ledger.delete("new").refused(404, "LimitNotFound");
    ledger.create("new");
    let holds = &ledger.operation("op 1/x").ok().body["holds"];
    assert_eq!((&holds[2]["limit_name"], &holds[2]["deleted"]), (&json!("new"), &json!(true)));
    assert_eq!((&holds[2]["limit_id"], &holds[0]["deleted"]), (&json!("id-8"), &json!(false)));
    assert_eq!(ledger.get("/limits/new/entries").ok().items(), &Vec::<Value>::new());
}
