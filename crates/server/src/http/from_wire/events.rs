//! The requests about events.

use super::{super::problem::Failure, within_span};
use limina_engine::{
    Millis, Name,
    events::{Command, Event, Mode, StreamTerms},
};
use limina_wire::events as wire;

const MAX_EVENT: usize = 1024;
const DEFAULT_EVENTS: u32 = 10_000;
const MAX_EVENTS: u32 = 1_000_000;
const MIN_DURATION: Millis = Millis(10);
const MAX_DURATION: Millis = Millis(30 * Millis::DAY.0);
const DEFAULT_KEY_FRAME: Millis = Millis(10_000);
const MIN_KEY_FRAME: Millis = Millis(100);

/// What the two streams are that are made by their first use.
pub(crate) const fn made_by_use(mode: Mode) -> StreamTerms {
    StreamTerms {
        mode,
        duration: Millis(10_000),
        max_events: DEFAULT_EVENTS,
        key_frame_every: DEFAULT_KEY_FRAME,
    }
}

pub(crate) fn put(name: Name, stream: wire::PutStream) -> Result<Command, Failure> {
    let mode = match stream.mode {
        wire::Mode::OnlyOnce => Mode::OnlyOnce,
        wire::Mode::StrictlyOnce => Mode::StrictlyOnce,
    };
    let max_events = stream.max_events.unwrap_or(DEFAULT_EVENTS);
    if !(1..=MAX_EVENTS).contains(&max_events) {
        return Err(Failure::invalid("max_events", format!("must be from 1 to {MAX_EVENTS}")));
    }
    let duration = within_span(
        "duration",
        stream.duration,
        MIN_DURATION,
        MAX_DURATION,
        "must be from 10 ms to 30 days",
    )?;
    let key_frame_every = match stream.key_frame_every {
        None => DEFAULT_KEY_FRAME,
        Some(span) => within_span(
            "key_frame_every",
            span,
            MIN_KEY_FRAME,
            Millis::DAY,
            "must be from 100 ms to 24 hours",
        )?,
    };
    Ok(Command::Put { name, terms: StreamTerms { mode, duration, max_events, key_frame_every } })
}

pub(crate) fn submit(stream: Name, new: &wire::NewEvent<'_>) -> Result<Command, Failure> {
    Ok(Command::Submit { stream, event: event("event", &new.event)?, make: None })
}

/// A body that is the event itself.
pub(crate) fn submit_body(stream: Name, body: &[u8], mode: Mode) -> Result<Command, Failure> {
    let text = str::from_utf8(body).map_err(|_| Failure::invalid("body", "must be UTF-8"))?;
    Ok(Command::Submit { stream, event: event("body", text)?, make: Some(made_by_use(mode)) })
}

fn event(field: &'static str, text: &str) -> Result<Event, Failure> {
    match (1..=MAX_EVENT).contains(&text.len()) {
        true => Ok(text.into()),
        false => Err(Failure::invalid(field, format!("must have 1–{MAX_EVENT} bytes"))),
    }
}
