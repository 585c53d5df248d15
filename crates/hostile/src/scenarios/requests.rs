//! Requests that are wrong in an expensive way, or whose answers would be.

use super::repeat;
use crate::{
    Failed,
    http::{self, Connection},
    scenario::{Kind, Scenario},
    stage::Stage,
};
use serde_json::json;
use std::time::Instant;

const MIB: usize = 1 << 20;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("deep-json", Kind::Work, "bodies nested as deep as they are long", |stage| {
            Box::pin(deep_json(stage))
        }),
        Scenario::new("wrong-items", Kind::Work, "batches of 16 MB of items that are wrong", |stage| {
            Box::pin(wrong_items(stage))
        }),
        Scenario::new(
            "huge-heads",
            Kind::Work,
            "heads of 1 MB, of 20,000 fields, and with a path of 1 MB",
            |stage| Box::pin(huge_heads(stage)),
        ),
        Scenario::new(
            "large-answers",
            Kind::Work,
            "keyed batches whose answers would be gigabytes",
            |stage| Box::pin(large_answers(stage)),
        ),
    ]
}

async fn deep_json(stage: &Stage) -> Result<(), Failed> {
    let size = stage.scaled(MIB) - 100.min(stage.scaled(MIB) / 2);
    let lists = "[".repeat(size);
    let objects = format!(r#"{{"key_values":{}"#, r#"{"a":"#.repeat(size / 5));
    let selection = format!(r#"{{"name":"r","limit":1,"selection":{}"#, r#"{"k":"#.repeat(size / 5));
    stage.begin().await?;
    tokio::try_join!(
        repeat(stage, 2, stage.post("/limiter/check", &lists)),
        repeat(stage, 2, stage.post("/limiter/check", &objects)),
        repeat(stage, 2, stage.post("/limiter/rules", &selection)),
    )?;
    Ok(())
}

async fn wrong_items(stage: &Stage) -> Result<(), Failed> {
    let items = "1,".repeat(stage.scaled(8 * MIB) - 50.min(stage.scaled(8 * MIB) / 2));
    stage.begin().await?;
    tokio::try_join!(
        repeat(stage, 2, stage.post("/limiter/check/batch", &format!(r#"{{"checks":[{items}1]}}"#))),
        repeat(stage, 2, stage.post("/ledger/hold/batch", &format!(r#"{{"operations":[{items}1]}}"#))),
    )?;
    Ok(())
}

async fn huge_heads(stage: &Stage) -> Result<(), Failed> {
    let size = stage.scaled(MIB);
    let path = stage.path("/limiter/rules");
    let long = http::request("GET", &path, &format!("X-Long: {}\r\n", "x".repeat(size)), b"");
    let many = http::request("GET", &path, &"X: y\r\n".repeat(stage.scaled(20_000)), b"");
    let target = http::request("GET", &format!("{path}?after={}", "x".repeat(size)), "", b"");
    stage.begin().await?;
    let (begin, time) = (Instant::now(), stage.hostile_time());
    while begin.elapsed() < time {
        for request in [&long, &many, &target] {
            let mut connection = Connection::open(stage.address()).await?;
            match connection.send_unfinished(request).await {
                Ok(Some(answer)) => stage.tally().note(&answer),
                Ok(None) => stage.tally().note_result(&connection.answer().await),
                Err(_) => stage.tally().closed(),
            }
        }
    }
    Ok(())
}

/// Two hundred rules apply to each check, so the answer is thousands of times as large as the request.
async fn large_answers(stage: &Stage) -> Result<(), Failed> {
    let name = "x".repeat(200);
    let rule = |number: usize| json!({"name": format!("{name}{number}"), "group_by": ["tenant"], "limit": 1_000_000});
    stage.prepare_many("POST", |_| "/limiter/rules".into(), stage.scaled(200), rule).await?;
    let check = json!({"key_values": {"tenant": "t".repeat(1000)}});
    let checks = json!({"checks": vec![check; stage.scaled(8_192)]}).to_string();
    stage.begin().await?;
    let (begin, time) = (Instant::now(), stage.hostile_time());
    let mut number = 0;
    while begin.elapsed() < time {
        let key = format!("Idempotency-Key: k{number}\r\n");
        let request = http::request("POST", &stage.path("/limiter/check/batch"), &key, checks.as_bytes());
        let answer = Connection::open(stage.address()).await?.exchange(&request).await?;
        if answer.status == 413 {
            let code = answer.json()?["code"].clone();
            if code != "AnswerTooLarge" {
                stage.tally().fault(format!("refused with {code}"));
            }
        }
        stage.tally().note(&answer);
        number += 1;
    }
    Ok(())
}
