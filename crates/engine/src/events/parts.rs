//! The event of a decision: it incubates while the decision is open, and is published or invalidated when that ends.

use super::{
    command::StreamTerms,
    keys,
    stream::{Events, Key, key_bytes},
};
use crate::{
    Name, Position, Time,
    effect::{ChangeKind, EventInfo},
    turn::Turn,
};
use limina_api::decisions::PartEvent;
use serde::{Deserialize, Serialize};

/// The event of a decision, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPart {
    /// The stream.
    pub stream: Name,
    /// The event. While the decision is open, it is not published, even if its time has come.
    pub event: EventInfo,
    /// What became of the event.
    pub state: EventState,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventState {
    /// It incubates.
    Submitted,
    /// It is published. This is final.
    Published,
    /// It is invalidated. This is final.
    Invalidated,
}

/// Why a stream does not accept an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusedEvent {
    /// The event is a duplicate: its key is closed.
    EventConflict {
        /// The time of the latest occurrence.
        conflicting_time: Time,
        /// The time at which the key opens. `None` if that is not known, because an open decision holds it.
        open_at: Option<Time>,
    },
    /// The stream has as many closed keys as it may have.
    StreamFull {
        /// The largest number of closed keys.
        max_events: u32,
    },
}

/// Whether the stream exists.
pub(crate) fn has_stream(events: &Events, part: &PartEvent) -> bool {
    events.find(&part.stream).is_ok()
}

/// Why the event would be refused. The stream exists. Nothing changes, not even in a strictly-once stream.
pub(crate) fn ask(events: &Events, PartEvent { stream: name, event }: &PartEvent) -> Option<RefusedEvent> {
    let stream = events.find(name).ok()?;
    if let Some(number) = stream.numbers.get(event) {
        let key = &stream.keys[number];
        let open_at = key.operation.is_none().then_some(key.until);
        return Some(RefusedEvent::EventConflict { conflicting_time: key.time, open_at });
    }
    let max_events = stream.head.terms.max_events;
    (stream.keys.len() >= max_events as usize).then_some(RefusedEvent::StreamFull { max_events })
}

/// The resident bytes that the event would take.
pub(crate) fn growth(part: &PartEvent) -> u64 {
    key_bytes(&part.event)
}

/// Submits an event that would not be refused, for the decision at this position. Returns the number of its stream, and the
/// event.
pub(crate) fn submit(
    events: &mut Events,
    turn: &mut Turn<'_>,
    PartEvent { stream: name, event }: &PartEvent,
    operation: Position,
) -> (Position, EventInfo) {
    let (stream, tally) = events.find_mut(name).expect("the decision has found it");
    let StreamTerms { duration, .. } = stream.head.terms;
    let key = Key {
        event: event.clone(),
        time: turn.now,
        until: turn.now.after(duration),
        since: operation,
        is_incubating: true,
        operation: Some(operation),
    };
    let info = key.info();
    turn.put(keys::event(turn.namespace, stream.head.made_at, operation), &key);
    stream.remember(tally, operation, key);
    stream.change(turn, tally, ChangeKind::Submitted, event.clone(), turn.now);
    (stream.head.made_at, info)
}

/// The event as it would be if it were submitted now.
pub(crate) fn would_be(events: &Events, part: &PartEvent, now: Time) -> Option<EventPart> {
    let duration = events.find(&part.stream).ok()?.head.terms.duration;
    let event = EventInfo { event: part.event.clone(), time: now, publishes_at: now.after(duration) };
    Some(EventPart { stream: part.stream.clone(), event, state: EventState::Submitted })
}

/// What became of the event of the open decision at this position. `None` if its stream was deleted.
pub(crate) fn look(events: &Events, made_at: Position, operation: Position) -> Option<EventState> {
    let stream = events.find(&events.named(made_at)?).ok()?;
    let is_own = stream.keys.get(&operation).is_some_and(|key| key.operation == Some(operation));
    // If the key is no longer the decision's, a duplicate has invalidated the event.
    Some(if is_own { EventState::Submitted } else { EventState::Invalidated })
}

/// Publishes the event of a committed decision, now or when its time has come. `position` is that of the commit.
pub(crate) fn commit(
    events: &mut Events,
    turn: &mut Turn<'_>,
    made_at: Position,
    operation: Position,
    position: Position,
) -> Option<EventState> {
    let (stream, tally) = events.named(made_at).and_then(|name| events.find_mut(&name))?;
    let Some(key) = stream.keys.get_mut(&operation).filter(|key| key.operation == Some(operation)) else {
        return Some(EventState::Invalidated);
    };
    if key.until > turn.now {
        // From now on the event has a timer, and it must not have the key of another one.
        (key.operation, key.since) = (None, position);
        let timer_key = key.timer_key(turn.namespace);
        turn.put(keys::event(turn.namespace, made_at, operation), &*key);
        turn.timers.set(timer_key, stream.timer(operation));
        return Some(EventState::Submitted);
    }
    if let Some(key) = stream.forget(turn, tally, operation) {
        stream.change(turn, tally, ChangeKind::Published, key.event, key.time);
    }
    Some(EventState::Published)
}

/// Invalidates the event of a decision that was not committed, and opens its key, unless a duplicate has invalidated it first.
pub(crate) fn roll_back(
    events: &mut Events,
    turn: &mut Turn<'_>,
    made_at: Position,
    operation: Position,
) -> Option<EventState> {
    let (stream, tally) = events.named(made_at).and_then(|name| events.find_mut(&name))?;
    let is_own = stream.keys.get(&operation).is_some_and(|key| key.operation == Some(operation));
    if is_own && let Some(key) = stream.forget(turn, tally, operation) {
        stream.change(turn, tally, ChangeKind::Invalidated, key.event, key.time);
    }
    Some(EventState::Invalidated)
}
