//! What happens by itself: events are published, and keys are open again.

use super::stream::Events;
use crate::{Position, effect::ChangeKind, turn::Turn};

pub(super) fn expire_key(events: &mut Events, turn: &mut Turn<'_>, stream: Position, key: Position) {
    // A stream that is gone is freed bit by bit, and so are its timers.
    let Some(name) = events.named(stream) else { return };
    let Some((stream, changed)) = events.find_mut(&name) else { return };
    if let Some(key) = stream.forget(turn, key) {
        turn.advance();
        if key.is_incubating {
            stream.change(turn, changed, ChangeKind::Published, key.event, key.time);
        }
    }
}
