//! Followers and readers of a large stream.

use crate::{
    Failed,
    http::{Connection, request},
    scenario::{Kind, Scenario},
    stage::{NAMESPACE, Stage},
    stomp,
};
use serde_json::json;
use tokio::time::sleep;

/// Events of 1,000 bytes, so that a key frame has 20 MB.
const EVENTS: usize = 20_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "stalled-stomp",
            Kind::Memory,
            "100 STOMP followers do not read a key frame of 20 MB",
            |stage| Box::pin(stalled_stomp(stage)),
        ),
        Scenario::new(
            "stalled-sse",
            Kind::Memory,
            "100 followers by server-sent events do not read it",
            |stage| Box::pin(stalled_sse(stage)),
        ),
        Scenario::new(
            "stalled-incubating",
            Kind::Memory,
            "100 clients do not read a list of 20 MB",
            |stage| Box::pin(stalled_incubating(stage)),
        ),
        Scenario::new(
            "resuming-followers",
            Kind::Memory,
            "200 STOMP followers resume 9,900 changes back",
            |stage| Box::pin(resuming_followers(stage)),
        ),
    ]
}

/// Makes a stream with `events` incubating events of 1,000 bytes, and returns its clock before the first of them.
async fn prepare(stage: &Stage, events: usize) -> Result<u64, Failed> {
    let stream =
        json!({"mode": "only_once", "duration": "1h", "max_events": 1_000_000, "key_frame_every": "1h"});
    let made = stage.prepare("PUT", "/events/s", &stream).await?.json()?;
    let padding = "x".repeat(990);
    let event = |number: usize| json!({"event": format!("{number:08}{padding}")});
    stage.prepare_many("POST", |_| "/events/s".into(), events, event).await?;
    made["clock"].as_u64().ok_or_else(|| "no clock".into())
}

async fn stalled_stomp(stage: &Stage) -> Result<(), Failed> {
    prepare(stage, stage.scaled(EVENTS)).await?;
    stage.begin().await?;
    let _followers = stall_stomp(stage).await;
    sleep(stage.hostile_time()).await;
    Ok(())
}

/// A hundred followers that read nothing. They stay connected while the value lives.
pub(super) async fn stall_stomp(stage: &Stage) -> Vec<Connection> {
    let mut followers = Vec::new();
    for _ in 0..100 {
        match stomp::subscribe(stage.address(), NAMESPACE, "s", None).await {
            Ok(follower) => {
                stage.tally().accepted();
                followers.push(follower);
            }
            Err(_) => stage.tally().closed(),
        }
    }
    followers
}

/// The stream that [`stall_stomp`] follows.
pub(super) async fn prepare_stream(stage: &Stage) -> Result<(), Failed> {
    prepare(stage, stage.scaled(EVENTS)).await.map(|_| ())
}

async fn stalled_sse(stage: &Stage) -> Result<(), Failed> {
    stall_readers(stage, "/events/s/stream").await
}

async fn stalled_incubating(stage: &Stage) -> Result<(), Failed> {
    stall_readers(stage, "/events/s/incubating").await
}

/// A hundred clients send a GET and read only the head of the answer.
async fn stall_readers(stage: &Stage, path: &str) -> Result<(), Failed> {
    prepare(stage, stage.scaled(EVENTS)).await?;
    stage.begin().await?;
    let mut readers = Vec::new();
    for _ in 0..100 {
        let mut reader = Connection::open_stalled(stage.address()).await?;
        reader.send(&request("GET", &stage.path(path), "", b"")).await?;
        match reader.read_head_only().await {
            Ok(200) => stage.tally().accepted(),
            Ok(503) => stage.tally().refused(),
            Ok(status) => stage.tally().fault(format!("a GET was answered {status}")),
            Err(_) => stage.tally().closed(),
        }
        readers.push(reader);
    }
    sleep(stage.hostile_time()).await;
    Ok(())
}

/// They take the first changes and stop reading, while others are submitted.
async fn resuming_followers(stage: &Stage) -> Result<(), Failed> {
    let start = prepare(stage, stage.scaled(9_900)).await?;
    stage.begin().await?;
    let mut followers = Vec::new();
    for _ in 0..200 {
        match stomp::subscribe(stage.address(), NAMESPACE, "s", Some(start)).await {
            Ok(follower) => {
                stage.tally().accepted();
                followers.push(follower);
            }
            Err(_) => stage.tally().closed(),
        }
    }
    let mut submitter = Connection::open(stage.address()).await?;
    let begin = std::time::Instant::now();
    let mut number = 0;
    while begin.elapsed() < stage.hostile_time() {
        let event = json!({"event": format!("later {number}")}).to_string();
        stage.tally().note(&submitter.exchange(&stage.post("/events/s", &event)).await?);
        number += 1;
    }
    Ok(())
}
