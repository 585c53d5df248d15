//! Events: at most once in a duration, pushed as a gapless stream of changes.
//!
//! A stream remembers the keys (an event's text is its key) that are closed: for `duration` after an event was accepted
//! or, where events must be strictly alone, after any occurrence. An accepted event incubates until then, and ends as
//! published or as invalidated. Each step of an event's life is a change of the stream, under the next clock.
//!
//! Streams and what they remember are resident; kept changes are paged.
//!
//! Read in this order: `command`, `reply`, `stream`, `submit`, `due`, `reads`.

mod command;
mod due;
pub(crate) mod keys;
mod lists;
mod reads;
mod reply;
mod stream;
mod submit;

pub use crate::effect::{Change, ChangeKind, Event, EventInfo, KeyFrame};
pub use command::{Command, KEPT_CHANGES, Mode, StreamTerms};
pub use reply::{Changes, Refusal, Reply, StreamInfo, Submitted};
pub use stream::Sizes;
pub(crate) use stream::{Events, Garbage};

use crate::{
    Position,
    answer_size::AnswerBudget,
    turn::{CannotRun, Turn, View},
};

/// Runs a command, or says what must be fetched first.
pub(crate) fn apply(
    events: &mut Events,
    turn: &mut Turn<'_>,
    command: &Command,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    Ok(match command {
        Command::Put { name, terms } => stream::put(events, turn, name, terms),
        Command::Delete(name) => stream::delete(events, turn, name),
        Command::Submit { stream, event, make } => submit::submit(events, turn, stream, event, make.as_ref()),
        Command::KeyFrame { stream, make } => reads::key_frame(events, turn, stream, make.as_ref()),
        Command::Get(name) => lists::get(events, name),
        Command::List(page) => Ok(lists::list(events, page)),
        Command::Incubating(name) => lists::incubating(events, name, AnswerBudget::new(max_answer))?,
        Command::Changes { stream, after, limit } => {
            return reads::changes(events, turn.view(), stream, *after, *limit);
        }
    })
}

/// Stops if something must be fetched before the command can run.
pub(crate) fn missing(events: &Events, view: View<'_>, command: &Command) -> Result<(), CannotRun> {
    match command {
        Command::Changes { stream, after, limit } => {
            reads::changes(events, view, stream, *after, *limit).map(|_| ())
        }
        _ => Ok(()),
    }
}

/// A key's time has run out: its event is published, or it is open again.
pub(crate) fn expire_key(events: &mut Events, turn: &mut Turn<'_>, stream: Position, key: Position) {
    due::expire_key(events, turn, stream, key);
}
