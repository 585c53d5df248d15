//! Looking at streams.

use super::{
    reply::{Refusal, Reply},
    stream::{Events, Stream},
};
use crate::{Name, Page, lists::pick};

pub(super) fn get(events: &Events, name: &Name) -> Result<Reply, Refusal> {
    Ok(Reply::Stream(events.find(name)?.info()))
}

pub(super) fn list(events: &Events, page: &Page<Name>) -> Reply {
    let streams = events.after(page.after.as_ref());
    let name = |stream: &&Stream| stream.head.name.clone();
    Reply::Streams(pick(streams, page.limit, |stream| Some(stream.info()), name))
}

pub(super) fn incubating(events: &Events, name: &Name) -> Result<Reply, Refusal> {
    Ok(Reply::Incubating(events.find(name)?.key_frame()))
}
