//! Batches: each item on its own, in order.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::{batch, hold, results, with};
use crate::reply::{check_problem, values_of};

#[track_caller]
fn refusal(result: &Value, status: u16, code: &str) {
    check_problem(result, status, code);
}

#[test]
fn a_batch_answers_each_item_as_the_single_call_would() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    ledger.create_with_ceiling("tight", 1);
    ledger.hold("done", &[("a", 1)]).ok();
    ledger.commit_all("done").ok();

    let reply = ledger.post(
        "/hold/batch",
        batch(vec![
            hold("op-1", &[("a", 5)]),
            hold("op-2", &[("missing", 5)]),
            hold("op-1", &[("a", 5)]),
            hold("done", &[("a", 5)]),
            hold("op-3", &[("tight", 2)]),
            hold("op-4", &[("a", i64::MAX)]),
            with(hold("op-1", &[("a", 5), ("tight", 1)]), json!({"skip_existing_holds": true})),
            with(hold("op-5", &[("new", 3)]), json!({"create_missing": true})),
            hold("op-6", &[("new", 4)]),
            hold("op-7", &[]),
            hold("op-8", &[("a", 6)]),
        ]),
    );
    let reply = reply.ok();
    let results = results(&reply);
    assert_eq!(results.len(), 11, "{}", reply.text);
    let held = |n: usize, operation: &str, values: &[(&str, i64, i64)]| {
        let result = &results[n];
        assert_eq!(
            (&result["status"], &result["operation_id"]),
            (&json!(200), &json!(operation)),
            "{result}"
        );
        let values: Vec<_> =
            values.iter().map(|&(name, commit, hold)| (name.to_owned(), commit, hold)).collect();
        assert_eq!(values_of(result), values);
        result["position"].as_u64().expect("position")
    };
    let positions = [
        held(0, "op-1", &[("a", 1, 5)]),
        held(6, "op-1", &[("a", 1, 5), ("tight", 0, 1)]),
        held(7, "op-5", &[("new", 0, 3)]),
        held(8, "op-6", &[("new", 0, 7)]),
        held(10, "op-8", &[("a", 1, 11)]),
    ];
    assert!(positions.is_sorted_by(|a, b| a < b), "in order: {positions:?}");
    refusal(&results[1], 404, "LimitNotFound");
    refusal(&results[2], 409, "DuplicateOperation");
    refusal(&results[3], 409, "OperationAlreadyInFinalState");
    refusal(&results[4], 409, "LimitExceeded");
    refusal(&results[5], 409, "ValueOverflow");
    refusal(&results[9], 400, "InvalidRequest");
    assert_eq!(results[6]["skipped"], json!(["a"]));
}

#[test]
fn commits_and_rollbacks_come_in_batches_too() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let holds = (0..6).map(|n| hold(&format!("op-{n}"), &[("a", 10)])).collect();
    ledger.post("/hold/batch", batch(holds)).ok();

    let all = |n: i32| json!({"operation_id": format!("op-{n}")});
    let reply = ledger
        .post(
            "/commit/batch",
            batch(vec![
                all(0),
                hold("op-1", &[("a", 4)]),
                hold("op-2", &[("a", 11)]),
                all(9),
                hold("op-3", &[("absent", 1)]),
                all(0),
            ]),
        )
        .ok();
    let commits = results(&reply);
    assert_eq!(commits.len(), 6);
    assert_eq!((&commits[0]["status"], values_of(&commits[0])), (&json!(200), vec![("a".into(), 10, 50)]));
    assert_eq!((&commits[1]["status"], values_of(&commits[1])), (&json!(200), vec![("a".into(), 14, 40)]));
    refusal(&commits[2], 409, "CommitExceedsHold");
    refusal(&commits[3], 404, "OperationNotFound");
    refusal(&commits[4], 404, "LimitNotFound");
    assert_eq!(commits[5], commits[0], "the same finalization again");

    let reply = ledger.post("/rollback/batch", batch(vec![all(2), all(1), all(3), all(2)])).ok();
    let rollbacks = results(&reply);
    assert_eq!(
        (&rollbacks[0]["status"], values_of(&rollbacks[0])),
        (&json!(200), vec![("a".into(), 14, 30)])
    );
    refusal(&rollbacks[1], 404, "OperationNotFound");
    assert_eq!(
        (&rollbacks[2]["status"], values_of(&rollbacks[2])),
        (&json!(200), vec![("a".into(), 14, 20)])
    );
    assert_eq!(rollbacks[3], rollbacks[0]);
    ledger.values(&["a"]).ok().value("a", 14, 20);
}

#[test]
fn a_batch_has_up_to_8192_items() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let holds: Vec<Value> = (0..8193).map(|n| hold(&format!("op-{n}"), &[("a", 1)])).collect();

    ledger.post("/hold/batch", batch(holds.clone())).invalid("operations");
    ledger.values(&["a"]).ok().value("a", 0, 0);
    let reply = ledger.post("/hold/batch", batch(holds[..8192].to_vec())).ok();
    let results = results(&reply);
    assert_eq!(results.len(), 8192);
    for (n, result) in results.iter().enumerate() {
        assert_eq!((&result["status"], &result["operation_id"]), (&json!(200), &holds[n]["operation_id"]));
        assert_eq!(values_of(result), [("a".into(), 0, n as i64 + 1)]);
    }
    server.crash_and_restart();
    server.ledger().values(&["a"]).ok().value("a", 0, 8192);
    server.ledger().values_as_of("op-4095", &["a"]).ok().value("a", 0, 4096);
}

#[test]
fn a_batch_may_be_longer_than_a_single_body() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    // 256 bytes of operation id each: well over 1 MiB in all.
    let holds: Vec<Value> = (0..5000).map(|n| hold(&format!("{n:0256}"), &[("a", 1)])).collect();
    let reply = ledger.post("/hold/batch", batch(holds)).ok();
    assert!(results(&reply).iter().all(|result| result["status"] == 200));
    ledger.values(&["a"]).ok().value("a", 0, 5000);
}
