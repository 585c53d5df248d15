//! Streams: their terms, their closed keys and their clocks.

use super::{
    command::{KEPT_CHANGES, StreamTerms},
    keys,
    reply::{Refusal, Reply, StreamInfo},
};
use crate::{
    Effect, Name, Position, Quota, QuotaExceeded, Time,
    effect::{Change, ChangeKind, Event, EventInfo, KeyFrame},
    ids::NamespaceId,
    record::{self, Malformed, key::ResidentKey},
    resident::Heap,
    resident::{self, Shrink},
    timers::{TIMER_BYTES, Timer, TimerKey, TimerSource, Timers},
    turn::{BatchChanges, Turn},
};
use alloc::{collections::BTreeMap, vec::Vec};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// The number of keys of a deleted stream that one slice frees.
const GARBAGE_SLICE: usize = 1_024;

/// The streams of a namespace.
#[derive(Debug, Default)]
pub(crate) struct Events {
    streams: BTreeMap<Name, Stream>,
    names: HashMap<Position, Name>,
    tally: Tally,
    gone: Vec<Stream>,
}

/// What is known about all streams together.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The streams whose heads the next flush writes.
    changed: Vec<Position>,
    /// The resident bytes of the streams and their keys.
    bytes: u64,
}

/// A stream without its name and its keys.
const STREAM_BYTES: u64 = resident::tree_slot::<(Name, Stream)>() + resident::hash_slot::<(Position, Name)>();
/// A closed key without the event.
const KEY_BYTES: u64 =
    resident::tree_slot::<(Position, Key)>() + resident::hash_slot::<(Event, Position)>() + TIMER_BYTES;

/// What the first stream takes besides.
const FIRST_STREAM_BYTES: u64 =
    resident::first_in_tree::<(Name, Stream)>() + resident::first_in_hash::<(Position, Name)>();
/// What the first closed key of a stream takes besides.
const FIRST_KEY_BYTES: u64 =
    resident::first_in_tree::<(Position, Key)>() + resident::first_in_hash::<(Event, Position)>();

/// The resident bytes of a stream without its keys.
pub(super) fn stream_bytes(name: &Name) -> u64 {
    STREAM_BYTES + name.heap()
}

/// The resident bytes of a closed key.
pub(super) fn key_bytes(event: &Event) -> u64 {
    KEY_BYTES + resident::shared(event.len())
}

/// How much there is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Streams.
    pub streams: usize,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) head: Head,
    /// The closed keys, by their numbers: the position at which the key was closed first. So lists are in the order of
    /// acceptance.
    pub(super) keys: BTreeMap<Position, Key>,
    pub(super) numbers: HashMap<Event, Position>,
    pub(super) incubating: usize,
    /// The resident bytes of the keys.
    key_bytes: u64,
    is_changed: bool,
}

/// A stream's own record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) name: Name,
    pub(super) terms: StreamTerms,
    /// The position of the change that created the stream. The clock began at this number, so that a stream that is deleted
    /// and created again never repeats a clock.
    pub(super) made_at: Position,
    pub(super) clock: u64,
}

/// A closed key, with the latest event that closed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) event: Event,
    pub(super) time: Time,
    /// The time at which the event is published, or the key is opened again.
    pub(super) until: Time,
    /// The position of the change that closed the key last. It identifies the timer.
    pub(super) since: Position,
    pub(super) is_incubating: bool,
    /// The position of the open decision whose event this is. Such an event does not fall due, and has no timer.
    pub(super) operation: Option<Position>,
}

impl Key {
    pub(super) fn timer_key(&self, namespace: NamespaceId) -> TimerKey {
        TimerKey { due: self.until, namespace, source: TimerSource::Change(self.since) }
    }

    pub(super) fn info(&self) -> EventInfo {
        EventInfo { event: self.event.clone(), time: self.time, publishes_at: self.until }
    }
}

pub(super) fn put(
    events: &mut Events,
    turn: &mut Turn<'_>,
    name: &Name,
    terms: &StreamTerms,
) -> Result<Reply, Refusal> {
    let Some(stream) = events.streams.get_mut(name) else {
        events.check_quotas(turn, name, None)?;
        return Ok(Reply::StreamCreated(events.make(turn, name, terms).info()));
    };
    if stream.head.terms.mode != terms.mode {
        return Err(Refusal::StreamModeConflict { stream: name.clone() });
    }
    if stream.head.terms != *terms {
        stream.head.terms = *terms;
        turn.advance();
        stream.mark_changed(&mut events.tally);
    }
    Ok(Reply::Stream(stream.info()))
}

pub(super) fn delete(events: &mut Events, turn: &mut Turn<'_>, name: &Name) -> Result<Reply, Refusal> {
    let Some(stream) = events.streams.remove(name) else {
        return Err(Refusal::StreamNotFound { stream: name.clone() });
    };
    let made_at = stream.head.made_at;
    events.names.remove(&made_at);
    events.names.shrink();
    events.tally.bytes -= stream_bytes(name) + stream.key_bytes;
    turn.advance();
    turn.remove(keys::stream(turn.namespace, made_at));
    turn.sweep(keys::events(turn.namespace, made_at));
    turn.sweep(keys::changes(turn.namespace, made_at));
    turn.effect(Effect::StreamDeleted { namespace: turn.head.name.clone(), stream: name.clone() });
    events.gone.push(stream);
    Ok(Reply::StreamDeleted)
}

impl Events {
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { streams: self.streams.len() }
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.tally.bytes + resident::unless_empty(self.streams.len(), FIRST_STREAM_BYTES)
    }

    /// The resident bytes, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        let keys = |stream: &Stream| {
            let keys = stream.keys.values().map(|key| key_bytes(&key.event)).sum::<u64>();
            keys + resident::unless_empty(stream.keys.len(), FIRST_KEY_BYTES)
        };
        let streams = self.streams.iter().map(|(name, stream)| stream_bytes(name) + keys(stream));
        streams.sum::<u64>() + resident::unless_empty(self.streams.len(), FIRST_STREAM_BYTES)
    }

    /// Checks that the namespace may have this stream, if there is none, and one more key for the event.
    pub(super) fn check_quotas(
        &self,
        turn: &Turn<'_>,
        name: &Name,
        event: Option<&Event>,
    ) -> Result<(), QuotaExceeded> {
        let is_new = !self.streams.contains_key(name);
        turn.check_quota(Quota::Streams, self.streams.len(), usize::from(is_new))?;
        let more = if is_new { stream_bytes(name) } else { 0 } + event.map_or(0, key_bytes);
        turn.check_bytes(self.resident_bytes(), more)
    }

    pub(super) fn find(&self, name: &Name) -> Result<&Stream, Refusal> {
        self.streams.get(name).ok_or_else(|| Refusal::StreamNotFound { stream: name.clone() })
    }

    pub(super) fn after(&self, after: Option<&Name>) -> impl Iterator<Item = &Stream> {
        use core::ops::Bound::{Excluded, Unbounded};
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        self.streams.range::<Name, _>(range).map(|(_, stream)| stream)
    }

    pub(super) fn named(&self, made_at: Position) -> Option<Name> {
        self.names.get(&made_at).cloned()
    }

    pub(super) fn find_mut(&mut self, name: &Name) -> Option<(&mut Stream, &mut Tally)> {
        self.streams.get_mut(name).map(|stream| (stream, &mut self.tally))
    }

    pub(super) fn make(&mut self, turn: &mut Turn<'_>, name: &Name, terms: &StreamTerms) -> &mut Stream {
        let made_at = turn.advance();
        let head = Head { name: name.clone(), terms: *terms, made_at, clock: made_at.0 };
        let mut stream = Stream::new(head);
        stream.mark_changed(&mut self.tally);
        self.tally.bytes += stream_bytes(name);
        self.names.insert(made_at, name.clone());
        self.streams.entry(name.clone()).or_insert(stream)
    }

    /// Writes the after-images of the heads that have changed since the last call.
    pub(crate) fn flush(&mut self, namespace: NamespaceId, changes: &mut BatchChanges) {
        for made_at in core::mem::take(&mut self.tally.changed) {
            let stream = self.names.get(&made_at).and_then(|name| self.streams.get_mut(name));
            if let Some(stream) = stream {
                stream.is_changed = false;
                changes.put(&keys::stream(namespace, made_at), &stream.head);
            }
        }
    }

    /// Leaves out some clocks of every stream. The changes before them are removed: what followers saw after them may never have happened, so
    /// every follower needs a key frame.
    pub(crate) fn jump_clocks(&mut self, namespace: NamespaceId, by: u64, changes: &mut BatchChanges) {
        for stream in self.streams.values_mut() {
            let kept = keys::changes(namespace, stream.head.made_at);
            changes.sweeps.push(
                kept.start..keys::change(namespace, stream.head.made_at, stream.head.clock + 1).into_bytes(),
            );
            stream.head.clock = stream.head.clock.saturating_add(by);
            stream.mark_changed(&mut self.tally);
        }
    }

    /// Loads a stored record. A stream comes before its closed keys.
    pub(crate) fn load(&mut self, key: ResidentKey<'_>, bytes: &[u8]) -> Result<(), Malformed> {
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Stream(made_at) => self.load_stream(made_at, bytes),
            keys::Resident::Event { stream, number } => self.load_event(stream, number, bytes),
        }
    }

    fn load_stream(&mut self, made_at: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let head: Head = record::decode(bytes)?;
        let name = head.name.clone();
        self.tally.bytes += stream_bytes(&name);
        let is_sound = head.made_at == made_at
            && self.names.insert(made_at, name.clone()).is_none()
            && self.streams.insert(name, Stream::new(head)).is_none();
        if is_sound { Ok(()) } else { Err(Malformed) }
    }

    /// A closed key without a stream is left over from a deleted stream, and a pending sweep removes it.
    fn load_event(&mut self, made_at: Position, number: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let key: Key = record::decode(bytes)?;
        let stream = self.names.get(&made_at).and_then(|name| self.streams.get_mut(name));
        let stands_twice =
            stream.is_some_and(|stream| stream.remember(&mut self.tally, number, key).is_some());
        if stands_twice { Err(Malformed) } else { Ok(()) }
    }

    /// Sets the timers of the loaded keys.
    pub(crate) fn finish_load(&self, namespace: NamespaceId, timers: &mut Timers) {
        for stream in self.streams.values() {
            for (number, key) in stream.keys.iter().filter(|(_, key)| key.operation.is_none()) {
                timers.set(key.timer_key(namespace), stream.timer(*number));
            }
        }
    }

    /// The streams that were deleted since the last call.
    pub(crate) fn take_garbage(&mut self, namespace: NamespaceId) -> impl Iterator<Item = Garbage> {
        core::mem::take(&mut self.gone).into_iter().map(move |stream| Garbage { namespace, stream })
    }

    /// All streams of a deleted namespace, with their names.
    pub(crate) fn into_garbage(self, namespace: NamespaceId) -> impl Iterator<Item = (Name, Garbage)> {
        let streams = self.streams.into_iter();
        streams.map(move |(name, stream)| (name, Garbage { namespace, stream }))
    }
}

impl Stream {
    fn new(head: Head) -> Stream {
        let (keys, numbers) = (BTreeMap::new(), HashMap::new());
        Stream { head, keys, numbers, incubating: 0, key_bytes: 0, is_changed: false }
    }

    pub(super) fn info(&self) -> StreamInfo {
        StreamInfo {
            name: self.head.name.clone(),
            terms: self.head.terms,
            clock: self.head.clock,
            incubating: self.incubating,
        }
    }

    /// The incubating events, in the order of acceptance.
    pub(super) fn incubating(&self) -> impl Iterator<Item = &Event> {
        self.keys.values().filter(|key| key.is_incubating).map(|key| &key.event)
    }

    pub(super) fn key_frame(&self) -> KeyFrame {
        let incubating = self.keys.values().filter(|key| key.is_incubating);
        let mut events = Vec::with_capacity(self.incubating);
        events.extend(incubating.map(Key::info));
        KeyFrame { clock: self.head.clock, events }
    }

    pub(super) fn timer(&self, number: Position) -> Timer {
        Timer::EventKey { stream: self.head.made_at, key: number }
    }

    /// Makes the next flush write the head.
    pub(super) fn mark_changed(&mut self, tally: &mut Tally) {
        if !self.is_changed {
            self.is_changed = true;
            tally.changed.push(self.head.made_at);
        }
    }

    /// Makes the next change of the stream, and returns its clock. The change is stored and sent to followers; the oldest
    /// stored change beyond [`KEPT_CHANGES`] is removed.
    pub(super) fn change(
        &mut self,
        turn: &mut Turn<'_>,
        tally: &mut Tally,
        kind: ChangeKind,
        event: Event,
        time: Time,
    ) -> u64 {
        self.head.clock += 1;
        self.mark_changed(tally);
        let change = Change { clock: self.head.clock, kind, event, time };
        let (made_at, clock) = (self.head.made_at, self.head.clock);
        turn.put_first(keys::change(turn.namespace, made_at, clock), &change);
        if let Some(old) = clock.checked_sub(KEPT_CHANGES).filter(|old| *old > made_at.0) {
            turn.remove(keys::change(turn.namespace, made_at, old));
        }
        let (namespace, stream) = (turn.head.name.clone(), self.head.name.clone());
        turn.effect(Effect::StreamChanged { namespace, stream, change });
        clock
    }

    /// Inserts a closed key. Returns the one that had the same number, if any.
    pub(super) fn remember(&mut self, tally: &mut Tally, number: Position, key: Key) -> Option<Key> {
        let first = resident::unless_empty(usize::from(self.keys.is_empty()), FIRST_KEY_BYTES);
        self.key_bytes += key_bytes(&key.event) + first;
        tally.bytes += key_bytes(&key.event) + first;
        self.incubating += usize::from(key.is_incubating);
        self.numbers.insert(key.event.clone(), number);
        self.keys.insert(number, key)
    }

    pub(super) fn forget(&mut self, turn: &mut Turn<'_>, tally: &mut Tally, number: Position) -> Option<Key> {
        let key = self.keys.remove(&number)?;
        let first = resident::unless_empty(usize::from(self.keys.is_empty()), FIRST_KEY_BYTES);
        self.key_bytes -= key_bytes(&key.event) + first;
        tally.bytes -= key_bytes(&key.event) + first;
        self.numbers.remove(&key.event);
        self.numbers.shrink();
        self.incubating -= usize::from(key.is_incubating);
        if key.operation.is_none() {
            turn.timers.cancel(key.timer_key(turn.namespace));
        }
        turn.remove(keys::event(turn.namespace, self.head.made_at, number));
        Some(key)
    }
}

/// A deleted stream. Its keys and their timers are freed in slices.
#[derive(Debug)]
pub(crate) struct Garbage {
    namespace: NamespaceId,
    stream: Stream,
}

impl Garbage {
    /// Frees one slice. Returns whether that was the last one.
    pub(crate) fn free_some(&mut self, timers: &mut Timers) -> bool {
        for _ in 0..GARBAGE_SLICE {
            let Some((_, key)) = self.stream.keys.pop_first() else { return true };
            self.stream.numbers.remove(&key.event);
            if key.operation.is_none() {
                timers.cancel(key.timer_key(self.namespace));
            }
        }
        false
    }
}
