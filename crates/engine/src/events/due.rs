//! The timers of closed keys: events are published, and keys are opened again.

use super::stream::Events;
use crate::{Position, effect::ChangeKind, turn::Turn};

pub(super) fn expire_key(events: &mut Events, turn: &mut Turn<'_>, stream: Position, key: Position) {
    // The stream may be deleted: its timers are freed in slices.
    let Some(name) = events.named(stream) else { return };
    let Some((stream, tally)) = events.find_mut(&name) else { return };
    if let Some(key) = stream.forget(turn, tally, key) {
        turn.advance();
        if key.is_incubating {
            stream.change(turn, tally, ChangeKind::Published, key.event, key.time);
        }
    }
}
