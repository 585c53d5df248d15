//! More connections or more requests than the server can serve.

use crate::{
    Failed, h2,
    http::Connection,
    scenario::{Kind, Scenario},
    server::Limits,
    stage::Stage,
};
use serde_json::json;
use std::{sync::Arc, time::Instant};
use tokio::{io::AsyncWriteExt, task::JoinSet, time::sleep};

pub(super) fn scenarios() -> Vec<Scenario> {
    let limits = Limits { open_files: Some(64), memory_mib: Some(1024), ..Limits::default() };
    vec![
        Scenario::new(
            "connections",
            Kind::Overload,
            "5,000 connections, each with a request at any time",
            |stage| Box::pin(connections(stage)),
        ),
        Scenario::new(
            "in-flight",
            Kind::Overload,
            "40,000 requests at any time, on 200 HTTP/2 connections",
            |stage| Box::pin(in_flight(stage)),
        ),
        Scenario::new(
            "idle-connections",
            Kind::Memory,
            "200 idle connections with `ulimit -n` of 64",
            |stage| Box::pin(idle_connections(stage)),
        )
        .with_limits(limits),
        Scenario::new("slowloris", Kind::Memory, "4,000 connections send one byte a second", |stage| {
            Box::pin(slowloris(stage))
        }),
    ]
}

/// The rule of the checks that these scenarios send. They wait for the disk, as the honest client's do.
async fn prepare(stage: &Stage) -> Result<String, Failed> {
    let rule = json!({"name": "all", "group_by": ["k"], "limit": 1_000_000_000,
        "window": {"type": "fixed", "per": "1h"}, "durability": "durable"});
    stage.prepare("POST", "/limiter/rules", &rule).await?;
    Ok(json!({"key_values": {"k": "v"}}).to_string())
}

async fn connections(stage: &Stage) -> Result<(), Failed> {
    let request = Arc::new(stage.post("/limiter/check", &prepare(stage).await?));
    let mut open = Vec::new();
    for _ in 0..stage.scaled(5_000) {
        open.push(Connection::open(stage.address()).await?);
    }
    stage.begin().await?;
    let (begin, time) = (Instant::now(), stage.hostile_time());
    let mut clients = JoinSet::new();
    for mut connection in open {
        let request = request.clone();
        clients.spawn(async move {
            let mut answers = Vec::new();
            while begin.elapsed() < time {
                let asked = Instant::now();
                let answer = connection.exchange(&request).await;
                let is_open = answer.is_ok();
                answers.push((answer, asked.elapsed()));
                if !is_open {
                    break;
                }
            }
            answers
        });
    }
    let mut refusals = Vec::new();
    while let Some(answers) = clients.join_next().await {
        for (answer, took) in answers? {
            stage.tally().note_result(&answer);
            if answer.is_ok_and(|answer| answer.status == 503) {
                refusals.push(took);
            }
        }
    }
    refusals.sort_unstable();
    if let Some(median) = refusals.get(refusals.len() / 2) {
        let p99 = refusals[refusals.len() * 99 / 100];
        stage.remark(format!("refusals took {median:.0?} at the median and {p99:.0?} at p99"));
    }
    Ok(())
}

/// Each connection keeps 200 requests open: when one is answered, the next is sent.
async fn in_flight(stage: &Stage) -> Result<(), Failed> {
    const STREAMS: u32 = 200;
    let body = Arc::new(prepare(stage).await?);
    let path = Arc::new(stage.path("/limiter/check"));
    stage.begin().await?;
    let (begin, time) = (Instant::now(), stage.hostile_time());
    let mut clients = JoinSet::new();
    for _ in 0..stage.scaled(200) {
        let (address, body, path) = (stage.address(), body.clone(), path.clone());
        clients.spawn(async move {
            let mut connection = h2::Connection::open(address).await?;
            let mut bytes = Vec::new();
            let mut next = 1;
            for _ in 0..STREAMS {
                h2::push_request(&mut bytes, next, "POST", &path, body.as_bytes());
                next += 2;
            }
            let (mut accepted, mut others) = (0, 0);
            while begin.elapsed() < time {
                connection.writing.write_all(&bytes).await?;
                bytes.clear();
                let frame = connection.reading.next().await?;
                match frame.kind {
                    h2::HEADERS if frame.is_ok => accepted += 1,
                    h2::HEADERS | h2::RST_STREAM => others += 1,
                    h2::GOAWAY => break,
                    _ => {}
                }
                if frame.ends_stream || frame.kind == h2::RST_STREAM {
                    h2::push_request(&mut bytes, next, "POST", &path, body.as_bytes());
                    next += 2;
                }
            }
            Ok::<_, Failed>((accepted, others))
        });
    }
    while let Some(client) = clients.join_next().await {
        match client? {
            Ok((accepted, others)) => {
                let mut counts = stage.tally().counts();
                counts.accepted += accepted;
                counts.refused += others;
            }
            Err(_) => stage.tally().closed(),
        }
    }
    Ok(())
}

/// The honest client, which is already connected, must not notice that others cannot connect any more.
async fn idle_connections(stage: &Stage) -> Result<(), Failed> {
    stage.begin().await?;
    let mut idle = Vec::new();
    for _ in 0..200 {
        match Connection::open(stage.address()).await {
            Ok(connection) => {
                stage.tally().accepted();
                idle.push(connection);
            }
            Err(_) => stage.tally().closed(),
        }
    }
    sleep(stage.hostile_time()).await;
    Ok(())
}

async fn slowloris(stage: &Stage) -> Result<(), Failed> {
    let head = format!("POST {} HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", stage.path("/limiter/check"));
    stage.begin().await?;
    let mut clients = JoinSet::new();
    let (begin, time) = (Instant::now(), stage.hostile_time());
    for _ in 0..stage.scaled(4_000) {
        let (address, head) = (stage.address(), head.clone());
        clients.spawn(async move {
            let mut connection = Connection::open(address).await?;
            connection.send(head.as_bytes()).await?;
            while begin.elapsed() < time {
                connection.send(b"x").await?;
                sleep(std::time::Duration::from_secs(1).min(time)).await;
            }
            Ok::<_, Failed>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        match client? {
            Ok(()) => stage.tally().accepted(),
            Err(_) => stage.tally().closed(),
        }
    }
    Ok(())
}
