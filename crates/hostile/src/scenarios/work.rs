//! Requests that cost the shard a lot of work.

use super::repeat;
use crate::{
    Failed,
    http::{self, Connection},
    scenario::{Kind, Scenario},
    stage::Stage,
};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// The most items of a batch.
const BATCH: usize = 8_192;
/// The most items of an `in` list.
const IN: usize = 1_024;
/// After the clients of abandoned batches have gone, the next request is answered within this time.
const MAX_NEXT: Duration = Duration::from_millis(500);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "long-in-lists",
            Kind::Work,
            "batches of 8,192 checks under 50 rules with 15 `in` lists of 1,024 each",
            |stage| Box::pin(long_in_lists(stage)),
        ),
        Scenario::new(
            "large-in-query",
            Kind::Work,
            "queries with 64 `in` lists of 1,024 over 100,000 counters",
            |stage| Box::pin(large_in_query(stage)),
        ),
        Scenario::new("hold-batch", Kind::Work, "batches of 8,192 holds of 50 and of 40 changes", |stage| {
            Box::pin(hold_batch(stage))
        }),
        Scenario::new(
            "delete-namespace",
            Kind::Work,
            "a namespace with 500,000 counters is deleted",
            |stage| Box::pin(delete_namespace(stage)),
        ),
        Scenario::new(
            "abandoned-batches",
            Kind::Overload,
            "1,000 batches of 8,192 checks, whose clients leave without the answer",
            |stage| Box::pin(abandoned_batches(stage)),
        ),
    ]
}

/// Each check has the last value of each `in` list, and fails only the last condition of each rule. So each list is searched
/// to its end, no index of values helps, and the answer stays small.
async fn long_in_lists(stage: &Stage) -> Result<(), Failed> {
    let key = |number: usize| format!("k{number:02}");
    let value = |item: usize| format!("a long prefix in common, {item:06}");
    let list: Vec<String> = (0..IN).map(value).collect();
    let rule = |number: usize| {
        let lists = (0..15).map(|number| (key(number), json!({"in": list})));
        let selection = lists.chain([(key(15), json!({"gt": 1}))]).collect::<serde_json::Map<_, _>>();
        json!({"name": format!("r{number}"), "group_by": ["k00"], "limit": 1, "selection": selection})
    };
    stage.prepare_many("POST", |_| "/limiter/rules".into(), stage.scaled(50), rule).await?;
    stage.begin().await?;
    let pairs = (0..15).map(|number| (key(number), Value::from(value(IN - 1))));
    let pairs = pairs.chain([(key(15), json!(1))]).collect::<serde_json::Map<_, _>>();
    let checks = json!({"checks": vec![json!({"key_values": pairs}); stage.scaled(BATCH)]});
    repeat(stage, 1, stage.post("/limiter/check/batch", &checks.to_string())).await
}

/// Makes counters in `namespace`, each of its own key-values.
async fn prepare_counters(stage: &Stage, count: usize) -> Result<(), Failed> {
    let rule = json!({"name": "all", "group_by": [], "limit": -1});
    stage.prepare("POST", "/limiter/rules", &rule).await?;
    let size = stage.scaled(BATCH);
    let batch = |batch: usize| {
        let numbers = (batch * size)..((batch + 1) * size).min(count);
        json!({"checks": numbers.map(|number| json!({"key_values": {"n": number, "name": format!("counter {number}")}})).collect::<Vec<_>>()})
    };
    stage.prepare_many("POST", |_| "/limiter/check/batch".into(), count.div_ceil(size), batch).await
}

async fn large_in_query(stage: &Stage) -> Result<(), Failed> {
    prepare_counters(stage, stage.scaled(100_000)).await?;
    stage.begin().await?;
    // No counter satisfies any part, so each list is searched to its end for each counter.
    let part = |part: usize| json!({"where": {"n": {"in": (0..IN).map(|item| 1_000_000 + part * IN + item).collect::<Vec<_>>()}}});
    let query = json!({"any": (0..63).map(part).collect::<Vec<_>>()});
    repeat(stage, 2, stage.post("/limiter/counters/query?limit=1000", &query.to_string())).await
}

async fn hold_batch(stage: &Stage) -> Result<(), Failed> {
    let names: Vec<String> = (0..50).map(|number| format!("l{number}")).collect();
    stage
        .prepare_many("POST", |_| "/ledger/limits".into(), 50, |number| json!({"name": names[number]}))
        .await?;
    stage.begin().await?;
    // The answer to 50 changes would be larger than an answer may be, so the server may refuse these batches after it has read
    // them. The answer to 40 changes is not.
    let changes = |count: usize| {
        let changes = names.iter().take(count).map(|name| json!({"limit_name": name, "value": 1}));
        Value::from(changes.collect::<Vec<_>>()).to_string()
    };
    let sizes = [changes(50), changes(40)];
    let begin = Instant::now();
    let mut round = 0;
    let mut connection = Connection::open(stage.address()).await?;
    while round < 2 || begin.elapsed() < stage.hostile_time() {
        let changes = &sizes[round % 2];
        // Each operation has an id of its own, so that none is a repetition.
        let operation =
            |number: usize| format!(r#"{{"operation_id":"{round}-{number}","changes":{changes}}}"#);
        let operations: Vec<String> = (0..stage.scaled(BATCH)).map(operation).collect();
        let body = format!(r#"{{"operations":[{}]}}"#, operations.join(","));
        let answer = connection.exchange(&stage.post("/ledger/hold/batch", &body)).await?;
        stage.tally().note(&answer);
        if answer.status != 200 {
            connection = Connection::open(stage.address()).await?;
        }
        round += 1;
    }
    Ok(())
}

async fn delete_namespace(stage: &Stage) -> Result<(), Failed> {
    prepare_counters(stage, stage.scaled(500_000)).await?;
    stage.begin().await?;
    tokio::time::sleep(stage.hostile_time() / 12).await;
    let begin = Instant::now();
    let answer = http::ask(stage.address(), "DELETE", &stage.path(""), b"").await?;
    stage.tally().note(&answer);
    stage.remark(format!("the deletion was answered {} after {:.0?}", answer.status, begin.elapsed()));
    // The sweep goes on after the answer.
    tokio::time::sleep(stage.hostile_time() / 2).await;
    Ok(())
}

/// Each client sends a whole batch. When all of them have done so, all of them leave without their answers.
async fn abandoned_batches(stage: &Stage) -> Result<(), Failed> {
    let rule = json!({"name": "all", "group_by": ["n"], "limit": 1_000_000_000});
    stage.prepare("POST", "/limiter/rules", &rule).await?;
    let checks: Vec<Value> =
        (0..stage.scaled(BATCH)).map(|number| json!({"key_values": {"n": number}})).collect();
    let request = Arc::new(stage.post("/limiter/check/batch", &json!({"checks": checks}).to_string()));
    stage.begin().await?;
    let mut tasks = JoinSet::new();
    for _ in 0..stage.scaled(1_000) {
        let (request, address) = (request.clone(), stage.address());
        tasks.spawn(async move {
            let mut client = Connection::open(address).await?;
            let answer = client.send_unfinished(&request).await?;
            Ok::<_, Failed>((client, answer))
        });
    }
    let mut clients = Vec::new();
    while let Some(client) = tasks.join_next().await {
        match client? {
            Ok((client, None)) => {
                stage.tally().accepted();
                clients.push(client);
            }
            Ok((_, Some(answer))) => stage.tally().note(&answer),
            Err(_) => stage.tally().closed(),
        }
    }
    tokio::time::sleep(stage.hostile_time() / 3).await;
    drop(clients);
    let begin = Instant::now();
    let next = json!({"key_values": {"n": 1}}).to_string();
    let mut answer =
        http::ask(stage.address(), "POST", &stage.path("/limiter/check"), next.as_bytes()).await?;
    while answer.status == 503 && begin.elapsed() < Duration::from_secs(60) {
        answer = http::ask(stage.address(), "POST", &stage.path("/limiter/check"), next.as_bytes()).await?;
    }
    let took = begin.elapsed();
    stage.remark(format!("the next request was answered {} after {took:.0?}", answer.status));
    if took > MAX_NEXT {
        stage.tally().fault(format!("after the clients had gone, the next request waited {took:.1?}"));
    }
    Ok(())
}
