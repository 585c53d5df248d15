//! Events: each at most once within a duration, pushed to followers as a gapless stream of changes.
//!
//! The text of an event is its key. A stream remembers the keys that are closed: for `duration` after an event was accepted
//! or, in a `strictly_once` stream, after any occurrence. Until then the accepted event incubates; at the end it is published
//! or invalidated. Each step of an event's life is a change of the stream, with the next clock.
//!
//! Streams and their closed keys are resident; kept changes are paged.
//!
//! Read in this order: `command`, `reply`, `stream`, `submit`, `due`, `reads`.

mod command;
mod due;
pub(crate) mod keys;
mod lists;
pub(crate) mod parts;
mod reads;
mod reply;
mod stream;
mod submit;

pub use crate::effect::{Change, ChangeKind, Event, EventInfo, KeyFrame};
pub use command::{ChangesAfter, Command, KEPT_CHANGES, Mode, StreamTerms, Submit};
pub use parts::{EventPart, EventState, RefusedEvent};
pub use reply::{Changes, Refusal, Reply, StreamInfo, Submitted};
pub use stream::Sizes;
pub(crate) use stream::{Events, Garbage};

use crate::{
    Name, Position,
    answer_size::AnswerBudget,
    turn::{CannotRun, Turn, View},
};

/// Runs a command, or returns the records that must be fetched first.
pub(crate) fn apply(
    events: &mut Events,
    turn: &mut Turn<'_>,
    command: &Command,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    turn.begin_family(events.resident_bytes());
    Ok(match command {
        Command::Put { name, terms } => stream::put(events, turn, name, terms),
        Command::Delete(name) => stream::delete(events, turn, name),
        Command::Submit(submit) => submit::submit(events, turn, submit),
        Command::KeyFrame { stream, make } => reads::key_frame(events, turn, stream, make.as_ref()),
        Command::Get(name) => lists::get(events, name),
        Command::List(page) => Ok(lists::list(events, page)),
        Command::Incubating(name) => lists::incubating(events, name, AnswerBudget::new(max_answer))?,
        Command::Snapshot(name) => events.find(name).map(|stream| Reply::Incubating(stream.key_frame())),
        Command::Changes(wanted) => return reads::changes(events, turn.view(), wanted),
    })
}

/// A stream as it is now.
pub(crate) fn find_stream(events: &Events, name: &Name) -> Option<StreamInfo> {
    match lists::get(events, name) {
        Ok(Reply::Stream(info)) => Some(info),
        _ => None,
    }
}

/// Fails with the records that must be fetched before the command can run.
pub(crate) fn missing(events: &Events, view: View<'_>, command: &Command) -> Result<(), CannotRun> {
    match command {
        Command::Changes(wanted) => reads::changes(events, view, wanted).map(|_| ()),
        _ => Ok(()),
    }
}

/// Publishes the event of a key, or opens the key again, because `duration` has passed.
pub(crate) fn expire_key(events: &mut Events, turn: &mut Turn<'_>, stream: Position, key: Position) {
    due::expire_key(events, turn, stream, key);
}
