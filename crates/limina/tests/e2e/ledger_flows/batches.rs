//! Batches with as many items as the API allows.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::{batch, hold, results};
use crate::reply::values_of;

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
    // Each operation id has 256 bytes, so the body is much larger than 1 MiB.
    let holds: Vec<Value> = (0..5000).map(|n| hold(&format!("{n:0256}"), &[("a", 1)])).collect();
    let reply = ledger.post("/hold/batch", batch(holds)).ok();
    assert!(results(&reply).iter().all(|result| result["status"] == 200));
    ledger.values(&["a"]).ok().value("a", 0, 5000);
}
