//! `[quotas]` in the configuration file: how much a namespace may have, and how the server refuses more.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::around::Metrics;
use crate::harness::Server;
use crate::ledger::hold;
use crate::limiter::{LONG, checks, fixed};
use crate::reply::Reply;

#[track_caller]
fn full(reply: Reply, quota: &str, limit: u64, used: u64) {
    let reply = reply.refused(507, "QuotaExceeded");
    is_full(&reply.body, quota, limit, used);
}

#[track_caller]
fn is_full(problem: &Value, quota: &str, limit: u64, used: u64) {
    let found = json!([problem["code"], problem["quota"], problem["limit"], problem["used"]]);
    assert_eq!(found, json!(["QuotaExceeded", quota, limit, used]), "{problem}");
}

#[test]
fn quotas_refuse_growth_and_remove_nothing() {
    let home = TempDir::new().expect("a temporary directory");
    let file = home.path().join("limina.toml");
    let configure = |quotas: &str| {
        let settings = format!("journal_segment_mib = 4\n[quotas]\n{quotas}");
        fs::write(&file, settings).expect("a configuration file");
    };
    configure(
        "rules = 1\ngroups = 1\nledger_limits = 2\nlocks_held = 1\nlocks_waiting = 0\nstreams = 1\n\
         [quotas.\"shop-*\"]\nledger_limits = 1\nrules = \"unlimited\"\n",
    );
    let flags = ["--config", file.to_str().expect("a path that is text")];
    let mut server = Server::start_with(home.path().join("data"), &flags);

    let limiter = server.limiter();
    limiter.window("a", &["user"], 5, fixed(LONG));
    full(limiter.post("/rules", json!({"name": "b", "group_by": ["user"], "limit": 1})), "rules", 1, 1);
    let check = |user: &str| json!({"key_values": {"user": user}});
    limiter.post("/check", check("ann")).ok();
    full(limiter.post("/check", check("bob")), "groups", 1, 1);
    let batch = limiter.post("/check/batch", checks(vec![check("bob"), check("ann")])).ok();
    is_full(&batch.body["results"][0], "groups", 1, 1);
    assert_eq!(batch.body["results"][0]["status"], 507);
    assert_eq!(batch.body["results"][1]["status"], 200);

    let ledger = server.ledger();
    ledger.post("/limits", json!({"name": "l1"})).created();
    let mut two = hold("op", &[("l2", 1), ("l3", 1)]);
    two["create_missing"] = json!(true);
    full(ledger.post("/hold", two.clone()), "ledger_limits", 2, 1);
    let batch = ledger.post("/hold/batch", json!({"operations": [two, hold("op", &[("l1", 1)])]})).ok();
    is_full(&batch.body["results"][0], "ledger_limits", 2, 1);
    ledger.post("/commit", json!({"operation_id": "op"})).ok();

    let post = |path: &str, body: Value| Reply::to(server.http().post(server.url(path)).json(&body));
    let acquire = |door: &str, wait: &str| {
        post("/v1/locks", json!({"key_values": {"door": door}, "ttl": "1h", "wait": wait}))
    };
    acquire("front", "0ms").ok();
    full(acquire("back", "0ms"), "locks_held", 1, 1);
    full(acquire("front", "1s"), "locks_waiting", 0, 0);
    post("/only-once-event", json!("taco")).created();
    full(post("/strictly-once-event", json!("taco")), "streams", 1, 1);

    let shop = server.ledger_of("shop-1");
    shop.post("/limits", json!({"name": "l1"})).created();
    full(shop.post("/limits", json!({"name": "l2"})), "ledger_limits", 1, 1);
    server.limiter_of("shop-1").rule("a", &["user"], 5);
    server.limiter_of("shop-1").rule("b", &["user"], 5);

    let metrics = Metrics::parse(&server.get("/metrics").ok().text);
    let refusals = |quota: &str| {
        let labels = format!("quota=\"{quota}\"");
        metrics.samples.get(&("limina_quota_refusals_total".to_owned(), labels)).copied()
    };
    assert_eq!((refusals("groups"), refusals("ledger_limits")), (Some(2.0), Some(3.0)));

    // After a restart with lower quotas, everything still exists.
    configure("ledger_limits = 0\nrules = 0\n");
    server.restart();
    server.ledger().post("/limits", json!({"name": "l2"})).refused(507, "QuotaExceeded");
    server.ledger().post("/hold", hold("op2", &[("l1", 1)])).ok();
    server.limiter().post("/check", check("ann")).ok();
    server.limiter().delete("/rules/a").is(204);
    server.limiter().post("/rules", json!({"name": "a", "limit": 1})).refused(507, "QuotaExceeded");
}
