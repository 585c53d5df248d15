//! A batch of checks with as many items as the API allows.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::results;
use crate::limiter::checks;

#[test]
fn a_batch_has_up_to_8192_checks() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 5000);
    let batch: Vec<Value> = (0..8193).map(|n| json!({"key_values": {"a": 1, "n": n % 100}})).collect();
    limiter.post("/check/batch", checks(batch.clone())).invalid("checks");
    limiter.look(json!({"a": 1})).uses("r", 0);
    let reply = limiter.post("/check/batch", checks(batch[..8192].to_vec())).ok();
    let results = results(&reply);
    assert_eq!(results.len(), 8192);
    for (n, result) in results.iter().enumerate() {
        let expected = if n < 5000 { (200, n as i64 + 1) } else { (429, 5000) };
        assert_eq!(
            (result["status"].as_i64(), result["limits"][0]["used"].as_i64()),
            (Some(expected.0), Some(expected.1))
        );
    }
    server.crash_and_restart();
    server.limiter().look(json!({"a": 1})).uses("r", 5000);
    assert_eq!(server.limiter().in_use().values().sum::<i64>(), 5000);
}
