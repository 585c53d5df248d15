//! A client repeats requests under the same idempotency keys through another node, after the owner of their shard has
//! died.

use serde_json::json;

use crate::cluster::{Cluster, SHORT, retry};
use crate::events;
use crate::ledger::{hold, with};
use crate::locks::exclusive;

#[test]
fn idempotency_keys_survive_a_change_of_owner() {
    let mut cluster = Cluster::of(3, SHORT);
    let namespace = cluster.namespace_of(1);
    let (owner, rest) = cluster.apart(1);
    let (ledger, limiter) = (rest[0].ledger_of(&namespace), rest[0].limiter_of(&namespace));
    ledger.create("a");
    limiter.rule("uses", &["k"], 5);
    rest[0].events_of(&namespace).strictly_once("s", events::LONG);
    let requests = [
        ("ledger/hold", hold("o", &[("a", 1)])),
        ("limiter/check", json!({"key_values": {"k": 1}})),
        ("limiter/leases", json!({"key_values": {"k": 1}, "hits": 1, "ttl": "1h"})),
        ("locks", exclusive(json!({"k": 1}))),
        ("events/s", json!({"event": "e"})),
    ];
    let send = |node: usize, n: usize| {
        let (path, body) = &requests[n];
        let url = rest[node].url(&format!("/v1/ns/{namespace}/{path}"));
        rest[node].http().post(url).header("idempotency-key", format!("key {n}")).json(body)
    };
    let first: Vec<_> = (0..requests.len()).map(|n| retry(|| send(0, n))).collect();
    assert!(first.iter().all(|reply| [200, 201].contains(&reply.status)), "{first:?}");
    owner.kill();
    for (n, first) in first.into_iter().enumerate() {
        let again = retry(|| send(1, n)).is(first.status);
        assert_eq!(without_time(again.body), without_time(first.body), "{:?}", requests[n]);
    }
    ledger.values(&["a"]).ok().value("a", 0, 1);
    assert_eq!(limiter.used("uses", json!({"k": 1})), 2);
    let other = hold("another", &[("a", 1)]);
    retry(|| ledger.request("POST", "/hold").header("idempotency-key", "key 0").json(&other))
        .refused(422, "IdempotencyKeyReused");
}

fn without_time(body: serde_json::Value) -> serde_json::Value {
    if body.get("expires_in_ms").is_some() { with(body, json!({"expires_in_ms": 0})) } else { body }
}
