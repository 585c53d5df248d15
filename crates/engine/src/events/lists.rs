//! Reads of streams and incubating events.

use super::{
    reply::{Refusal, Reply},
    stream::{Events, Stream},
};
use crate::{
    Name, Page,
    answer_size::{self, AnswerBudget, TooLarge},
    lists::{LOOKED_AT, pick},
};

/// An upper bound of what an answer contains for each event without its text.
const EVENT_BYTES: usize = 128;

pub(super) fn get(events: &Events, name: &Name) -> Result<Reply, Refusal> {
    Ok(Reply::Stream(events.find(name)?.info()))
}

pub(super) fn list(events: &Events, page: &Page<Name>) -> Reply {
    let streams = events.after(page.after.as_ref());
    let name = |stream: &&Stream| stream.head.name.clone();
    Reply::Streams(pick(streams, page.limit(), LOOKED_AT, |stream| Some(stream.info()), name))
}

pub(super) fn incubating(
    events: &Events,
    name: &Name,
    mut budget: AnswerBudget,
) -> Result<Result<Reply, Refusal>, TooLarge> {
    let stream = match events.find(name) {
        Ok(stream) => stream,
        Err(refusal) => return Ok(Err(refusal)),
    };
    for event in stream.incubating() {
        budget.spend(EVENT_BYTES + answer_size::text(event.as_bytes()))?;
    }
    Ok(Ok(Reply::Incubating(stream.key_frame())))
}
