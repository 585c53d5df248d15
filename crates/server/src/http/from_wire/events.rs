//! The requests about events.

use super::{super::problem::Failure, millis};
use limina_engine::{
    Millis, Name,
    events::{Command, Mode, StreamTerms, Submit},
};
use limina_wire::events as wire;

/// The terms of the two streams that are created by their first use.
pub(crate) fn made_by_use(mode: Mode) -> StreamTerms {
    StreamTerms::new(mode, Millis(10_000)).expect("ten seconds are within the limits")
}

pub(crate) fn terms(stream: wire::PutStream) -> Result<StreamTerms, Failure> {
    let mode = match stream.mode {
        wire::Mode::OnlyOnce => Mode::OnlyOnce,
        wire::Mode::StrictlyOnce => Mode::StrictlyOnce,
    };
    let mut terms = StreamTerms::new(mode, millis(stream.duration))?;
    if let Some(max_events) = stream.max_events {
        terms = terms.with_max_events(max_events)?;
    }
    if let Some(span) = stream.key_frame_every {
        terms = terms.with_key_frame_every(millis(span))?;
    }
    Ok(terms)
}

pub(crate) fn submit(stream: Name, new: &wire::NewEvent<'_>) -> Result<Command, Failure> {
    Ok(Command::Submit(Submit::new(stream, (*new.event).into())?))
}

/// A body that is the event itself.
pub(crate) fn submit_body(stream: Name, body: &[u8], mode: Mode) -> Result<Command, Failure> {
    let text = str::from_utf8(body).map_err(|_| Failure::invalid("body", "must be UTF-8"))?;
    let submit = Submit::new(stream, text.into()).map_err(|invalid| invalid.renamed("body"))?;
    Ok(Command::Submit(submit.with_make(Some(made_by_use(mode)))))
}
