//! Events without a front end.

use super::workload::{Client, KEY_FRAME_EVERY, MAX_EVENTS, STREAM};
use crate::{
    Failed,
    in_process::{Caller, name, unexpected},
};
use limina_engine::{
    self as engine, Millis, Outcome,
    events::{Command, Mode, Refusal, Reply, StreamTerms, Submit},
};
use std::time::Duration;

impl Client for Caller {
    async fn put(&mut self, duration: Duration) -> Result<(), Failed> {
        let command = Command::Put { name: name(STREAM), terms: terms(duration) };
        submit(self, command).await?.map(drop).map_err(unexpected)
    }

    async fn submit(&mut self, event: &str) -> Result<bool, Failed> {
        let command = Command::Submit(Submit::new(name(STREAM), event.into())?);
        match submit(self, command).await? {
            Ok(Reply::Submitted(_)) => Ok(true),
            Err(Refusal::EventConflict { .. }) => Ok(false),
            other => Err(unexpected(other)),
        }
    }
}

fn terms(duration: Duration) -> StreamTerms {
    let key_frame_every = Millis(KEY_FRAME_EVERY.as_millis() as u64);
    StreamTerms::new(Mode::OnlyOnce, Millis(duration.as_millis() as u64))
        .and_then(|terms| terms.with_max_events(MAX_EVENTS)?.with_key_frame_every(key_frame_every))
        .expect("valid terms")
}

async fn submit(caller: &Caller, command: Command) -> Result<Result<Reply, Refusal>, Failed> {
    match caller.submit(engine::Command::Events(command)).await? {
        Outcome::Events(result) => Ok(result),
        other => Err(unexpected(other)),
    }
}
