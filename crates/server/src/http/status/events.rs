//! The answers about events.

use super::super::{
    json,
    problem::{Code, Failure},
    to_wire::events as to_wire,
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
        // Nobody asks for them here: those who follow do.
        Reply::StreamDeleted | Reply::Changes(_) => StatusCode::NO_CONTENT.into_response(),
    })
}

pub(crate) fn stream_not_found(stream: &Name) -> Failure {
    Failure::new(Code::StreamNotFound, format!("there is no stream {stream:?}"))
        .with("stream", stream.as_str())
}

fn refusal(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::StreamNotFound { stream } => stream_not_found(&stream),
        Refusal::StreamModeConflict { stream } => Failure::new(
            Code::StreamModeConflict,
            format!("stream {stream:?} has the other mode, and keeps it"),
        )
        .with("stream", stream.as_str()),
        Refusal::EventConflict { conflicting_time, invalidated } => {
            let detail = match invalidated {
                true => "the same event has happened within the duration, and is invalidated now",
                false => "the same event has happened within the duration",
            };
            Failure::new(Code::EventConflict, detail)
                .with("conflicting_time", conflicting_time.0)
                .with("invalidated", invalidated)
        }
        Refusal::StreamFull { max_events } => {
            Failure::new(Code::StreamFull, format!("the stream remembers {max_events} events already"))
                .with("max_events", max_events)
        }
    }
}
