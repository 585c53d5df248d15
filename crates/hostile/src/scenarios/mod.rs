//! The scenarios, in files by what they attack.

mod memory;
mod overload;
mod protocol;
mod requests;
mod state;
mod streams;
mod work;

use crate::{Failed, http::Connection, scenario::Scenario, stage::Stage};
use std::{sync::Arc, time::Instant};
use tokio::task::JoinSet;

/// All scenarios, in the order in which they are played.
pub fn all() -> Vec<Scenario> {
    let scenarios = [
        streams::scenarios(),
        memory::scenarios(),
        work::scenarios(),
        overload::scenarios(),
        protocol::scenarios(),
        requests::scenarios(),
        state::scenarios(),
    ];
    scenarios.into_iter().flatten().collect()
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
