//! Clients that make the server hold bytes: answers that are not read, requests that do not end, requests that wait.

use super::streams;
use crate::{
    Failed, h2,
    http::{self, Connection},
    scenario::{Kind, Scenario},
    server::Limits,
    stage::Stage,
};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::{io::AsyncWriteExt, task::JoinSet, time::sleep};

const MIB: usize = 1 << 20;

pub(super) fn scenarios() -> Vec<Scenario> {
    let limits = Limits { address_space_mib: Some(1024), ..Limits::default() };
    vec![
        Scenario::new(
            "closed-window",
            Kind::Memory,
            "200 pages of 5 MB on an HTTP/2 connection with a closed window",
            |stage| Box::pin(closed_window(stage)),
        ),
        Scenario::new("stalled-pages", Kind::Memory, "200 clients do not read a page of 5 MB", |stage| {
            Box::pin(stalled_pages(stage))
        }),
        Scenario::new(
            "unfinished-bodies",
            Kind::Memory,
            "150 bodies of 16 MiB lack their last byte",
            |stage| Box::pin(unfinished_bodies(stage)),
        ),
        Scenario::new("unfinished-heads", Kind::Memory, "3,000 heads of 390 KB do not end", |stage| {
            Box::pin(unfinished_heads(stage))
        }),
        Scenario::new(
            "lock-waiters",
            Kind::Memory,
            "1,500 requests of 1 MB wait for a lock, and are granted at once",
            |stage| Box::pin(lock_waiters(stage)),
        ),
        Scenario::new(
            "address-space",
            Kind::Memory,
            "stalled followers, pages and bodies with `ulimit -v` of 1 GiB",
            |stage| Box::pin(address_space(stage)),
        )
        .with_limits(limits),
    ]
}

/// Rules of 5 KB each, so that a page of 1,000 has 5 MB.
async fn prepare_pages(stage: &Stage) -> Result<(), Failed> {
    let text = "x".repeat(1000);
    let rule = |number: usize| {
        let list: Vec<String> = (0..5).map(|item| format!("{item}{text}")).collect();
        json!({"name": format!("r{number:04}"), "group_by": ["tenant"], "limit": 1, "selection": {"k": {"in": list}}})
    };
    stage.prepare_many("POST", |_| "/limiter/rules".into(), stage.scaled(1000), rule).await
}

const PAGE: &str = "/limiter/rules?limit=1000";

async fn closed_window(stage: &Stage) -> Result<(), Failed> {
    prepare_pages(stage).await?;
    stage.begin().await?;
    let _connection = close_window(stage).await?;
    sleep(stage.hostile_time()).await;
    Ok(())
}

/// Asks for 200 pages on a connection on which no answer may have a body. It stays open while the value lives.
async fn close_window(stage: &Stage) -> Result<impl Sized + use<>, Failed> {
    let mut connection = h2::Connection::open_with_closed_window(stage.address()).await?;
    let mut bytes = Vec::new();
    for number in 0..200 {
        h2::push_request(&mut bytes, 2 * number + 1, "GET", &stage.path(PAGE), b"");
    }
    connection.writing.write_all(&bytes).await?;
    // Without a window only heads can arrive.
    let heads = async {
        for _ in 0..200 {
            let frame = loop {
                let frame = connection.reading.next().await?;
                if matches!(frame.kind, h2::HEADERS | h2::RST_STREAM | h2::GOAWAY) {
                    break frame;
                }
            };
            match frame.is_ok {
                true => stage.tally().accepted(),
                false => stage.tally().refused(),
            }
        }
        Ok::<(), Failed>(())
    };
    // A server that waits for the window before it answers is as good as one that refuses.
    let _closed_or_waiting = tokio::time::timeout(stage.hostile_time(), heads).await;
    Ok(connection)
}

async fn stalled_pages(stage: &Stage) -> Result<(), Failed> {
    prepare_pages(stage).await?;
    stage.begin().await?;
    let mut readers = Vec::new();
    for _ in 0..200 {
        let mut reader = Connection::open_stalled(stage.address()).await?;
        reader.send(&http::request("GET", &stage.path(PAGE), "", b"")).await?;
        match reader.read_head_only().await {
            Ok(200) => stage.tally().accepted(),
            Ok(503) => stage.tally().refused(),
            Ok(status) => stage.tally().fault(format!("a page was answered {status}")),
            Err(_) => stage.tally().closed(),
        }
        readers.push(reader);
    }
    sleep(stage.hostile_time()).await;
    Ok(())
}

async fn unfinished_bodies(stage: &Stage) -> Result<(), Failed> {
    stage.begin().await?;
    let _clients = leave_bodies_unfinished(stage).await?;
    sleep(stage.hostile_time()).await;
    Ok(())
}

/// Sends 150 bodies of 16 MiB without their last byte. The connections stay open while the value lives.
async fn leave_bodies_unfinished(stage: &Stage) -> Result<Vec<Connection>, Failed> {
    let length = stage.scaled(16 * MIB);
    let head = http::head("POST", &stage.path("/ledger/hold/batch"), "", length);
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + length - 1, b' ');
    send_unfinished(stage, 150, bytes).await
}

async fn unfinished_heads(stage: &Stage) -> Result<(), Failed> {
    stage.begin().await?;
    let head = format!("GET {} HTTP/1.1\r\nHost: localhost\r\nX-Long: ", stage.path(PAGE));
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + 390_000, b'x');
    let _clients = send_unfinished(stage, stage.scaled(3_000), bytes).await?;
    sleep(stage.hostile_time()).await;
    Ok(())
}

/// Sends the same unfinished request on many connections, and counts the answers that come nevertheless.
async fn send_unfinished(stage: &Stage, count: usize, bytes: Vec<u8>) -> Result<Vec<Connection>, Failed> {
    let bytes = Arc::new(bytes);
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (bytes, address) = (bytes.clone(), stage.address());
        tasks.spawn(async move {
            let mut client = Connection::open(address).await?;
            let answer = client.send_unfinished(&bytes).await;
            Ok::<_, Failed>((client, answer))
        });
    }
    let mut clients = Vec::new();
    while let Some(done) = tasks.join_next().await {
        match done? {
            Ok((client, answer)) => {
                match answer {
                    Ok(None) => stage.tally().accepted(),
                    Ok(Some(answer)) => stage.tally().note(&answer),
                    Err(_) => stage.tally().closed(),
                }
                clients.push(client);
            }
            Err(_) => stage.tally().closed(),
        }
    }
    Ok(clients)
}

/// One client holds a lock, 1,500 shared requests of 1 MB wait for it, and the release grants all of them in one step.
async fn lock_waiters(stage: &Stage) -> Result<(), Failed> {
    let first = json!({"lock": "first"});
    let held = json!({"key_values": first, "ttl": "1h"});
    let held = stage.prepare("POST", "/locks", &held).await?.json()?;
    let word = |field: &str| held[field].as_str().map(str::to_owned).ok_or("not a grant");
    let (id, session) = (word("lock_id")?, word("session_id")?);
    stage.begin().await?;
    let values = "x".repeat(1000);
    let others = (1..64).map(|lock: usize| {
        let pairs = (0..15).map(|key| (format!("{lock}-{key}"), Value::from(values.as_str())));
        json!({"mode": "shared", "key_values": pairs.collect::<serde_json::Map<_, _>>()})
    });
    let locks: Vec<Value> =
        [json!({"mode": "shared", "key_values": first})].into_iter().chain(others).collect();
    let body = json!({"locks": locks, "ttl": "1s", "wait": "5m"}).to_string();
    let request = Arc::new(stage.post("/locks", &body));
    let mut waiters = JoinSet::new();
    for _ in 0..stage.scaled(1_500) {
        let (request, address) = (request.clone(), stage.address());
        waiters.spawn(async move { Connection::open(address).await?.exchange(&request).await });
    }
    // The waiting requests arrive meanwhile. What is refused is answered now.
    sleep(stage.hostile_time()).await;
    let path = stage.path(&format!("/locks/{id}?session_id={session}"));
    http::ask(stage.address(), "DELETE", &path, b"").await?.expect(204)?;
    while let Some(answer) = waiters.join_next().await {
        stage.tally().note_result(&answer?);
    }
    Ok(())
}

/// The worst of the above, one after the other and each while the ones before go on, in a process that may use 1 GiB of
/// addresses. It must refuse instead of being ended by a failed allocation.
async fn address_space(stage: &Stage) -> Result<(), Failed> {
    streams::prepare_stream(stage).await?;
    prepare_pages(stage).await?;
    stage.begin().await?;
    let _followers = streams::stall_stomp(stage).await;
    sleep(stage.hostile_time() / 3).await;
    let _window = close_window(stage).await?;
    sleep(stage.hostile_time() / 3).await;
    let _bodies = leave_bodies_unfinished(stage).await?;
    sleep(stage.hostile_time() / 3).await;
    Ok(())
}
