//! The answers of the events family.

use super::{
    super::{
        json::json,
        problem::{Code, Failure},
        to_wire::events as to_wire,
    },
    common::quota_exceeded,
};
use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use limina_engine::{
    Name,
    events::{Refusal, Reply},
};

pub(super) fn answer(result: Result<Reply, Refusal>) -> Result<Response, Failure> {
    let (done, made) = (StatusCode::OK, StatusCode::CREATED);
    Ok(match &result.map_err(refusal)? {
        Reply::Stream(info) => json(done, &to_wire::stream(info)),
        Reply::StreamCreated(info) => json(made, &to_wire::stream(info)),
        Reply::Streams(listed) => json(done, &to_wire::streams(listed)),
        Reply::Submitted(submitted) => json(made, &to_wire::submitted(submitted)),
        Reply::Incubating(frame) => json(done, &to_wire::incubating(frame)),
        // Only followers request changes, and they do not use this function.
        Reply::StreamDeleted | Reply::Changes(_) => StatusCode::NO_CONTENT.into_response(),
    })
}

pub(crate) fn stream_not_found(stream: &Name) -> Failure {
    Failure::new(Code::StreamNotFound, format!("The stream {stream:?} does not exist."))
        .with("stream", stream.as_str())
}

/// The refusal to give one of the two default streams the mode of the other. Otherwise `/only-once-event` would invalidate events.
pub(crate) fn default_stream_mode(stream: &Name) -> Failure {
    let detail = format!("The stream {stream:?} of the namespace \"default\" has the mode of its name.");
    Failure::new(Code::StreamModeConflict, detail).with("stream", stream.as_str())
}

fn refusal(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::StreamNotFound { stream } => stream_not_found(&stream),
        Refusal::StreamModeConflict { stream } => Failure::new(
            Code::StreamModeConflict,
            format!("The stream {stream:?} has the other mode, which cannot change."),
        )
        .with("stream", stream.as_str()),
        Refusal::EventConflict { conflicting_time, invalidated } => {
            let detail = match invalidated {
                true => "The same event happened within the duration. This request invalidated it.",
                false => "The same event happened within the duration.",
            };
            Failure::new(Code::EventConflict, detail)
                .with("conflicting_time", conflicting_time.0)
                .with("invalidated", invalidated)
        }
        Refusal::StreamFull { max_events } => {
            Failure::new(Code::StreamFull, format!("The stream remembers {max_events} events, its maximum."))
                .with("max_events", max_events)
        }
        Refusal::QuotaExceeded(exceeded) => quota_exceeded(exceeded),
    }
}
