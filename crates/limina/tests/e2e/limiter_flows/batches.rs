//! `POST /check/batch`: each on its own, in order.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::results;
use crate::limiter::{LONG, check_denied, check_limits, checks, fixed};
use crate::reply::check_problem;

#[test]
fn each_check_is_on_its_own() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 2);
    limiter.window("w", &["b"], 1, fixed(LONG));
    let reply = limiter
        .post(
            "/check/batch",
            checks(vec![
                json!({"key_values": {"a": 1}}),
                json!({"key_values": {"a": 1}, "hits": 2}),
                json!({"key_values": {"a": 1, "b": 1}}),
                json!({"key_values": {"a": 2, "b": 1}}),
                json!({"key_values": {"a": null}}),
                json!({"key_values": {"a": 2}, "hitz": 1}),
                json!({"KeyValues": {"a": {"DataType": 7, "Value": 2}}, "hits": 2}),
                json!({"key_values": {"a": 2}, "dry_run": true}),
                json!({"key_values": {"none": 1}}),
                json!({"key_values": {"a": 1}}),
            ]),
        )
        .ok();
    let results = results(&reply);
    let statuses: Vec<u64> =
        results.iter().map(|result| result["status"].as_u64().expect("`status`")).collect();
    assert_eq!(statuses, [200, 429, 200, 429, 400, 400, 200, 429, 200, 429], "{}", reply.text);
    for (n, by) in [(1, "r"), (3, "w"), (7, "r"), (9, "r")] {
        check_problem(&results[n], 429, "LimitReached");
        check_denied(&results[n], &[by]);
    }
    for n in [4, 5] {
        check_problem(&results[n], 400, "InvalidRequest");
    }
    for n in [0, 2, 6, 8] {
        assert_eq!(results[n]["allowed"], true, "{}", results[n]);
        check_limits(&results[n]);
    }
    limiter.look(json!({"a": 1})).uses("r", 2);
    limiter.look(json!({"a": 2})).uses("r", 2);
    limiter.look(json!({"b": 1})).uses("w", 1);
}

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
