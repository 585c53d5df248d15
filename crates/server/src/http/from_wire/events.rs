//! The requests about events.

use super::{super::problem::Failure, Span, check_same_name};
use limina_api::events as wire;
use limina_engine::{
    Millis, Name,
    events::{Command, Mode, StreamTerms, Submit},
};

/// The terms of the two streams that are created by their first use.
pub(crate) fn made_by_use(mode: Mode) -> StreamTerms {
    StreamTerms::new(mode, Millis(10_000)).expect("ten seconds are within the limits")
}

/// The terms of the stream `name`.
pub(crate) fn terms(name: &Name, stream: wire::PutStream) -> Result<StreamTerms, Failure> {
    check_same_name(name, stream.name.as_deref())?;
    let mode = match stream.mode {
        wire::Mode::OnlyOnce => Mode::OnlyOnce,
        wire::Mode::StrictlyOnce => Mode::StrictlyOnce,
    };
    let duration = Span::new("duration", stream.duration, stream.duration_ms)?;
    let terms = StreamTerms::new(mode, duration.required()?);
    let mut terms = terms.map_err(|invalid| duration.as_sent(invalid))?;
    if let Some(max_events) = stream.max_events {
        terms = terms.with_max_events(max_events)?;
    }
    let every = Span::new("key_frame_every", stream.key_frame_every, stream.key_frame_every_ms)?;
    if let Some(millis) = every.millis {
        terms = terms.with_key_frame_every(millis).map_err(|invalid| every.as_sent(invalid))?;
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
