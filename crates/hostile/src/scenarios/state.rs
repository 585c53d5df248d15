//! State that a namespace makes the server keep.

use crate::{
    Failed,
    http::Connection,
    scenario::{Kind, Scenario},
    server::Limits,
    stage::Stage,
};
use serde_json::{Value, json};
use std::time::Duration;

/// The quotas of the scenario of that name.
const QUOTAS: &str = "[quotas]
rules = 100
counters = 1000
ledger_limits = 1000
streams = 10
locks_held = 100
leases = 100
";

/// The longest time in which a store with a million ledger limits opens: a third of what it took when it was first measured.
const MAX_OPENING: Duration = Duration::from_millis(1_900);

pub(super) fn scenarios() -> Vec<Scenario> {
    let limits = Limits { config: Some(QUOTAS), memory_mib: Some(1024), ..Limits::default() };
    vec![
        Scenario::new(
            "quotas",
            Kind::Memory,
            "one namespace makes as much of everything as it can",
            |stage| Box::pin(quotas(stage)),
        )
        .with_limits(limits),
        Scenario::new(
            "opening",
            Kind::Alone,
            "the server opens a store with a million ledger limits",
            |stage| Box::pin(opening(stage)),
        ),
    ]
}

/// One client makes far more of everything than its namespace may have. The refusals name the quota, and the namespace goes
/// on working.
async fn quotas(stage: &Stage) -> Result<(), Failed> {
    type Body = fn(usize) -> Value;
    let made: [(&str, &str, usize, Body); 6] = [
        ("POST", "/limiter/rules", 100, |n| json!({"name": n.to_string(), "group_by": ["k"], "limit": -1})),
        ("PUT", "/limiter/counters/set", 1000, |n| json!({"key_values": {"n": n}, "counters": 1})),
        ("POST", "/limiter/leases", 100, |n| json!({"key_values": {"k": n}, "hits": 1, "ttl": "1h"})),
        ("POST", "/ledger/limits", 1000, |n| json!({"name": n.to_string()})),
        ("PUT", "/events/", 10, |_| json!({"mode": "only_once", "duration": "1h"})),
        ("POST", "/locks", 100, |n| json!({"key_values": {"n": n}, "ttl": "1h"})),
    ];
    stage.begin().await?;
    let mut connection = Connection::open(stage.address()).await?;
    for (method, path, quota, body) in made {
        let mut refused = 0;
        for number in 0..quota + 20 {
            let path = if path.ends_with('/') { format!("{path}{number}") } else { path.to_owned() };
            let body = body(number).to_string();
            let request = crate::http::request(method, &stage.path(&path), "", body.as_bytes());
            let answer = connection.exchange(&request).await?;
            stage.tally().note(&answer);
            if answer.status == 507 {
                refused += 1;
                if answer.json()?["quota"].as_str().is_none() {
                    stage.tally().fault(format!("a refusal names no quota: {}", answer.text()));
                }
            }
        }
        if refused == 0 {
            stage.tally().fault(format!("{path}: {} were made, and {quota} is the quota", quota + 20));
        }
    }
    let check = json!({"key_values": {"other": 1}, "hits": 0}).to_string();
    stage.tally().note(&connection.exchange(&stage.post("/limiter/check", &check)).await?);
    Ok(())
}

async fn opening(stage: &Stage) -> Result<(), Failed> {
    // Each operation makes 50 limits. A batch of 1,000 operations stays well below the largest body.
    let batch = |batch: usize| {
        let operation = |operation: usize| {
            let number = batch * 1_000 + operation;
            let changes =
                (0..50).map(|limit| json!({"limit_name": format!("l{number}-{limit}"), "value": 1}));
            json!({"operation_id": number.to_string(), "create_missing": true, "changes": changes.collect::<Vec<_>>()})
        };
        json!({"operations": (0..1_000).map(operation).collect::<Vec<_>>()})
    };
    stage.prepare_many("POST", |_| "/ledger/hold/batch".into(), stage.scaled(20), batch).await?;
    stage.begin().await?;
    let took = stage.restart().await?;
    stage.remark(format!("the server was ready after {took:.1?}"));
    if took > MAX_OPENING {
        stage.tally().too_slow(format!("opening took {took:.1?}, and {MAX_OPENING:.1?} is the bound"));
    }
    Ok(())
}
