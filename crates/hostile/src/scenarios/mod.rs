//! The scenarios, in files by what they attack.

mod memory;
mod overload;
mod protocol;
mod requests;
mod state;
mod streams;
mod work;

use crate::{
    Failed,
    http::Connection,
    scenario::{Kind, Scenario},
    server::Limits,
    stage::Stage,
};
use std::{sync::Arc, time::Instant};
use tokio::task::JoinSet;

/// All scenarios, in the order in which they are played.
pub fn all() -> Vec<Scenario> {
    use Kind::{Alone, Memory, Overload, Work};
    let small = Limits { address_space_mib: Some(1024), ..Limits::default() };
    let few_files = Limits { open_files: Some(64), memory_mib: Some(1024), ..Limits::default() };
    let quotas = Limits { config: Some(state::QUOTAS), memory_mib: Some(1024), ..Limits::default() };
    vec![
        Scenario::new(
            "stalled-stomp",
            Memory,
            "100 STOMP followers do not read a key frame of 20 MB",
            |stage| Box::pin(streams::stalled_stomp(stage)),
        ),
        Scenario::new("stalled-sse", Memory, "100 followers by server-sent events do not read it", |stage| {
            Box::pin(streams::stalled_sse(stage))
        }),
        Scenario::new("stalled-incubating", Memory, "100 clients do not read a list of 20 MB", |stage| {
            Box::pin(streams::stalled_incubating(stage))
        }),
        Scenario::new(
            "resuming-followers",
            Memory,
            "200 STOMP followers resume 9,900 changes back",
            |stage| Box::pin(streams::resuming_followers(stage)),
        ),
        Scenario::new(
            "closed-window",
            Memory,
            "200 pages of 5 MB on an HTTP/2 connection with a closed window",
            |stage| Box::pin(memory::closed_window(stage)),
        ),
        Scenario::new("stalled-pages", Memory, "200 clients do not read a page of 5 MB", |stage| {
            Box::pin(memory::stalled_pages(stage))
        }),
        Scenario::new("unfinished-bodies", Memory, "150 bodies of 16 MiB lack their last byte", |stage| {
            Box::pin(memory::unfinished_bodies(stage))
        }),
        Scenario::new("unfinished-heads", Memory, "3,000 heads of 390 KB do not end", |stage| {
            Box::pin(memory::unfinished_heads(stage))
        }),
        Scenario::new(
            "lock-waiters",
            Memory,
            "1,500 requests of 1 MB wait for a lock, and are granted at once",
            |stage| Box::pin(memory::lock_waiters(stage)),
        ),
        Scenario::new(
            "address-space",
            Memory,
            "stalled followers, pages and bodies with `ulimit -v` of 1 GiB",
            |stage| Box::pin(memory::address_space(stage)),
        )
        .with_limits(small),
        Scenario::new(
            "long-in-lists",
            Work,
            "batches of 8,192 checks under 50 rules with 15 `in` lists of 1,024 each",
            |stage| Box::pin(work::long_in_lists(stage)),
        ),
        Scenario::new(
            "large-in-query",
            Work,
            "queries with 64 `in` lists of 1,024 over 100,000 counters",
            |stage| Box::pin(work::large_in_query(stage)),
        ),
        Scenario::new("hold-batch", Work, "batches of 8,192 holds of 50 and of 40 changes", |stage| {
            Box::pin(work::hold_batch(stage))
        }),
        Scenario::new("delete-namespace", Work, "a namespace with 500,000 counters is deleted", |stage| {
            Box::pin(work::delete_namespace(stage))
        }),
        Scenario::new(
            "abandoned-batches",
            Overload,
            "1,000 batches of 8,192 checks, whose clients leave without the answer",
            |stage| Box::pin(work::abandoned_batches(stage)),
        ),
        Scenario::new(
            "connections",
            Overload,
            "5,000 connections, each with a request at any time",
            |stage| Box::pin(overload::connections(stage)),
        ),
        Scenario::new(
            "in-flight",
            Overload,
            "40,000 requests at any time, on 200 HTTP/2 connections",
            |stage| Box::pin(overload::in_flight(stage)),
        ),
        Scenario::new("idle-connections", Memory, "200 idle connections with `ulimit -n` of 64", |stage| {
            Box::pin(overload::idle_connections(stage))
        })
        .with_limits(few_files),
        Scenario::new("slowloris", Memory, "4,000 connections send one byte a second", |stage| {
            Box::pin(overload::slowloris(stage))
        }),
        Scenario::new("rapid-resets", Overload, "HTTP/2 requests that are reset at once", |stage| {
            Box::pin(protocol::rapid_resets(stage))
        }),
        Scenario::new(
            "frame-floods",
            Overload,
            "floods of CONTINUATION, PING, SETTINGS and empty DATA frames",
            |stage| Box::pin(protocol::frame_floods(stage)),
        ),
        Scenario::new(
            "stomp-floods",
            Overload,
            "floods of STOMP heart-beats and of empty transactions",
            |stage| Box::pin(protocol::stomp_floods(stage)),
        ),
        Scenario::new("deep-json", Work, "bodies nested as deep as they are long", |stage| {
            Box::pin(requests::deep_json(stage))
        }),
        Scenario::new("wrong-items", Work, "batches of 16 MB of items that are wrong", |stage| {
            Box::pin(requests::wrong_items(stage))
        }),
        Scenario::new(
            "huge-heads",
            Work,
            "heads of 1 MB, of 20,000 fields, and with a path of 1 MB",
            |stage| Box::pin(requests::huge_heads(stage)),
        ),
        Scenario::new("large-answers", Work, "keyed batches whose answers would be gigabytes", |stage| {
            Box::pin(requests::large_answers(stage))
        }),
        Scenario::new("quotas", Memory, "one namespace makes as much of everything as it can", |stage| {
            Box::pin(state::quotas(stage))
        })
        .with_limits(quotas),
        Scenario::new("opening", Alone, "the server opens a store with a million ledger limits", |stage| {
            Box::pin(state::opening(stage))
        }),
    ]
}

/// The same request again and again on several connections, for as long as the hostilities go on.
async fn repeat(stage: &Stage, connections: usize, request: Vec<u8>) -> Result<(), Failed> {
    let (request, address, time) = (Arc::new(request), stage.address(), stage.hostile_time());
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let request = request.clone();
        tasks.spawn(async move {
            let begin = Instant::now();
            let mut answers = Vec::new();
            let mut connection: Option<Connection> = None;
            while answers.is_empty() || begin.elapsed() < time {
                let mut open = match connection.take() {
                    Some(open) => open,
                    None => Connection::open(address).await?,
                };
                let answer = open.exchange(&request).await;
                // A server that rejects a request may close the connection.
                if answer.as_ref().is_ok_and(|answer| answer.status < 400) {
                    connection = Some(open);
                }
                answers.push(answer);
            }
            Ok::<_, Failed>(answers)
        });
    }
    while let Some(answers) = tasks.join_next().await {
        for answer in answers?? {
            stage.tally().note_result(&answer);
        }
    }
    Ok(())
}
