//! Events without a front end.

use super::workload::{Client, KEY_FRAME_EVERY, MAX_EVENTS, STREAM};
use crate::{
    Failed,
    in_process::{Caller, name},
};
use limina_engine::{
    self as engine, Millis, Outcome,
    events::{Command, Mode, Refusal, Reply, StreamTerms, Submit},
};
use std::time::Duration;

impl Client for Caller {
    async fn put(&mut self, duration: Duration) -> Result<(), Failed> {
        let terms = StreamTerms::new(Mode::OnlyOnce, Millis(duration.as_millis() as u64))?
            .with_max_events(MAX_EVENTS)?
            .with_key_frame_every(Millis(KEY_FRAME_EVERY.as_millis() as u64))?;
        match submit(self, Command::Put { name: name(STREAM), terms }).await? {
            Ok(_) => Ok(()),
            Err(refusal) => Err(format!("the stream was not made: {refusal:?}").into()),
        }
    }

    async fn submit(&mut self, event: &str) -> Result<bool, Failed> {
        let command = Command::Submit(Submit::new(name(STREAM), event.into())?);
        match submit(self, command).await? {
            Ok(Reply::Submitted(_)) => Ok(true),
            Err(Refusal::EventConflict { .. }) => Ok(false),
            other => Err(format!("an unexpected outcome: {other:?}").into()),
        }
    }
}

async fn submit(caller: &Caller, command: Command) -> Result<Result<Reply, Refusal>, Failed> {
    match caller.submit(engine::Command::Events(command)).await? {
        Outcome::Events(result) => Ok(result),
        other => Err(format!("an unexpected outcome: {other:?}").into()),
    }
}
