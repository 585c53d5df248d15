//! Reads for the followers of a stream: key frames, and changes that they have missed.

use super::{
    command::{ChangesAfter, KEPT_CHANGES, StreamTerms},
    keys,
    reply::{Changes, Refusal, Reply},
    stream::Events,
};
use crate::{
    Effect, Name,
    effect::Change,
    record,
    turn::{CannotRun, Turn, View},
};
use alloc::vec::Vec;

pub(super) fn key_frame(
    events: &mut Events,
    turn: &mut Turn<'_>,
    name: &Name,
    make: Option<&StreamTerms>,
) -> Result<Reply, Refusal> {
    if let (Err(_), Some(terms)) = (events.find(name), make) {
        events.check_quotas(turn, name, None)?;
        events.make(turn, name, terms);
    }
    let stream = events.find(name)?;
    let (namespace, frame) = (turn.head.name.clone(), stream.key_frame());
    turn.effect(Effect::KeyFrame { namespace, stream: name.clone(), frame });
    Ok(Reply::Stream(stream.info()))
}

/// The stored changes after a clock. [`Changes::NotKept`] if some of them are no longer stored.
pub(super) fn changes(
    events: &Events,
    view: View<'_>,
    &ChangesAfter { stream: ref name, after, limit }: &ChangesAfter,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    let stream = match events.find(name) {
        Ok(stream) => stream,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let (made_at, last) = (stream.head.made_at, stream.head.clock);
    let oldest = last.saturating_sub(KEPT_CHANGES).max(made_at.0);
    if after < oldest || after > last {
        return Ok(Ok(Reply::Changes(Changes::NotKept)));
    }
    let from = keys::change(view.namespace, made_at, after + 1).into_bytes();
    let to = keys::changes(view.namespace, made_at).end;
    let scanned = view.read(|reader| reader.scan(from, to, limit))?;
    let decoded: Result<Vec<Change>, _> =
        scanned.records.iter().map(|(_, bytes)| record::decode(bytes)).collect();
    let Ok(changes) = decoded else { return Err(CannotRun::Unreadable) };
    // After a restore the clock has jumped, and there are no changes within the jump.
    if changes.first().map_or(last, |first| first.clock - 1) != after {
        return Ok(Ok(Reply::Changes(Changes::NotKept)));
    }
    Ok(Ok(Reply::Changes(Changes::Kept(changes))))
}
