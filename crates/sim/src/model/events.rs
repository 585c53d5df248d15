//! The naive events: every stream keeps all its changes, and one list of closed keys that is scanned at every step.
//!
//! Nothing here is uncertain: the same commands in the same order have the same answers, and each change takes one
//! position.

use super::{Bounds, Order, pages::page_of};
use limina_engine::{
    Listed, Name, Page, Quota, Time,
    events::{
        Change, ChangeKind, Changes, Command, Event, EventInfo, EventState, KEPT_CHANGES, KeyFrame, Mode,
        Refusal, RefusedEvent, Reply, StreamInfo, StreamTerms, Submitted,
    },
};
use std::collections::BTreeMap;

type Answer = Result<Reply, Refusal>;

/// The streams of one namespace.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Events {
    bounds: Bounds,
    streams: BTreeMap<Name, Stream>,
}

#[derive(Debug, Clone, PartialEq)]
struct Stream {
    terms: StreamTerms,
    /// The clock before the first change.
    began: u64,
    changes: Vec<Change>,
    /// In the order in which they were closed.
    closed: Vec<Closed>,
}

#[derive(Debug, Clone, PartialEq)]
struct Closed {
    event: Event,
    time: u64,
    until: u64,
    /// The position of the latest occurrence.
    since: u64,
    is_incubating: bool,
    /// The position of the open decision whose event it is. Such an event does not fall due.
    operation: Option<u64>,
}

impl Events {
    pub(super) fn new(bounds: &Bounds) -> Events {
        Events { bounds: bounds.clone(), ..Events::default() }
    }

    /// The expected answer, after everything that is due has been executed. A list is returned as far as `shown` covers
    /// it.
    pub(super) fn run(&mut self, now: u64, order: &mut Order, command: &Command, shown: &Answer) -> Answer {
        match command {
            Command::Put { name, terms } => match self.streams.get_mut(name) {
                None => {
                    self.make(order, name, *terms)?;
                    Ok(Reply::StreamCreated(self.info(name)?))
                }
                Some(stream) if stream.terms.mode() != terms.mode() => {
                    Err(Refusal::StreamModeConflict { stream: name.clone() })
                }
                Some(stream) => {
                    if stream.terms != *terms {
                        stream.terms = *terms;
                        order.advance();
                    }
                    Ok(Reply::Stream(self.info(name)?))
                }
            },
            Command::Delete(name) => {
                self.streams.remove(name).ok_or_else(|| not_found(name))?;
                order.advance();
                Ok(Reply::StreamDeleted)
            }
            Command::Submit(submit) => {
                self.make_if_missing(order, submit.stream(), submit.make())?;
                self.submit(now, order, submit.stream(), submit.event())
            }
            Command::KeyFrame { stream, make } => {
                self.make_if_missing(order, stream, make.as_ref())?;
                Ok(Reply::Stream(self.info(stream)?))
            }
            Command::Get(name) => Ok(Reply::Stream(self.info(name)?)),
            Command::List(page) => Ok(Reply::Streams(self.list(page, shown))),
            Command::Incubating(name) | Command::Snapshot(name) => {
                let stream = self.find(name)?;
                let incubating = stream.closed.iter().filter(|closed| closed.is_incubating);
                let events = incubating.map(Closed::info).collect();
                Ok(Reply::Incubating(KeyFrame { clock: stream.clock(), events }))
            }
            Command::Changes(wanted) => {
                let stream = self.find(wanted.stream())?;
                let oldest = stream.clock().saturating_sub(KEPT_CHANGES).max(stream.began);
                if wanted.after() < oldest || wanted.after() > stream.clock() {
                    return Ok(Reply::Changes(Changes::NotKept));
                }
                let missed = stream.changes.iter().filter(|change| change.clock > wanted.after());
                Ok(Reply::Changes(Changes::Kept(missed.take(wanted.limit()).cloned().collect())))
            }
        }
    }

    fn make_if_missing(
        &mut self,
        order: &mut Order,
        name: &Name,
        make: Option<&StreamTerms>,
    ) -> Result<(), Refusal> {
        match (self.streams.get(name), make) {
            (None, Some(terms)) => self.make(order, name, *terms),
            _ => Ok(()),
        }
    }

    fn make(&mut self, order: &mut Order, name: &Name, terms: StreamTerms) -> Result<(), Refusal> {
        if let Some(exceeded) = self.bounds.refuses(Quota::Streams, self.streams.len(), 1) {
            return Err(Refusal::QuotaExceeded(exceeded));
        }
        let began = order.advance();
        self.streams.insert(name.clone(), Stream { terms, began, changes: Vec::new(), closed: Vec::new() });
        Ok(())
    }

    fn submit(&mut self, now: u64, order: &mut Order, name: &Name, event: &Event) -> Answer {
        let stream = self.streams.get_mut(name).ok_or_else(|| not_found(name))?;
        let (mode, max_events) = (stream.terms.mode(), stream.terms.max_events());
        let until = now + stream.terms.duration().0;
        let found = stream.closed.iter().position(|closed| closed.event == *event);
        let Some(place) = found else {
            if stream.closed.len() >= max_events as usize {
                return Err(Refusal::StreamFull { max_events });
            }
            let since = order.advance();
            stream.closed.push(Closed {
                event: event.clone(),
                time: now,
                until,
                since,
                is_incubating: true,
                operation: None,
            });
            let clock = stream.change(ChangeKind::Submitted, event, now);
            let publishes_at = Time(until);
            let event = EventInfo { event: event.clone(), time: Time(now), publishes_at };
            return Ok(Reply::Submitted(Submitted { event, clock }));
        };
        let closed = &mut stream.closed[place];
        let (time, was_incubating) = (closed.time, closed.is_incubating);
        let mut invalidated = false;
        if mode == Mode::StrictlyOnce {
            let since = order.advance();
            *closed = Closed {
                event: event.clone(),
                time: now,
                until,
                since,
                is_incubating: false,
                operation: None,
            };
            invalidated = was_incubating;
        }
        if invalidated {
            stream.change(ChangeKind::Invalidated, event, time);
        }
        Err(Refusal::EventConflict { conflicting_time: Time(time), invalidated })
    }

    fn find(&self, name: &Name) -> Result<&Stream, Refusal> {
        self.streams.get(name).ok_or_else(|| not_found(name))
    }

    fn info(&self, name: &Name) -> Result<StreamInfo, Refusal> {
        let stream = self.find(name)?;
        let incubating = stream.closed.iter().filter(|closed| closed.is_incubating).count();
        Ok(StreamInfo { name: name.clone(), terms: stream.terms, clock: stream.clock(), incubating })
    }

    fn list(&self, page: &Page<Name>, shown: &Answer) -> Listed<StreamInfo, Name> {
        let all = self.streams.keys().filter_map(|name| Some((name.clone(), self.info(name).ok()?)));
        let next = match shown {
            Ok(Reply::Streams(shown)) => shown.next.clone(),
            _ => None,
        };
        page_of(all.collect(), page, next)
    }

    /// The clock of every stream.
    pub(super) fn clocks(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.streams.iter().map(|(name, stream)| (name, stream.clock()))
    }

    /// When the next key expires, and the position that set its timer.
    pub(super) fn next_due(&self) -> Option<(u64, u64)> {
        let closed = self.streams.values().flat_map(|stream| &stream.closed);
        closed.filter_map(Closed::due).min()
    }

    /// Expires what is due next. If several are due together, the one that was set first.
    pub(super) fn expire_next(&mut self, order: &mut Order) {
        let Some(due) = self.next_due() else { return };
        let is_due = |closed: &Closed| closed.due() == Some(due);
        let found = self.streams.values_mut().find_map(|stream| {
            let place = stream.closed.iter().position(is_due)?;
            Some((stream, place))
        });
        let Some((stream, place)) = found else { return };
        order.advance();
        let closed = stream.closed.remove(place);
        if closed.is_incubating {
            stream.change(ChangeKind::Published, &closed.event, closed.time);
        }
    }
}

/// The events of decisions.
impl Events {
    /// The number of the stream. It differs from that of a deleted stream of the same name.
    pub(super) fn number(&self, stream: &Name) -> Option<u64> {
        self.streams.get(stream).map(|stream| stream.began)
    }

    /// Why the stream does not accept the event.
    pub(super) fn refused(&self, stream: &Name, event: &Event) -> Option<RefusedEvent> {
        let stream = self.streams.get(stream)?;
        let max_events = stream.terms.max_events();
        match stream.closed.iter().find(|closed| closed.event == *event) {
            Some(closed) => Some(RefusedEvent::EventConflict {
                conflicting_time: Time(closed.time),
                open_at: closed.operation.is_none().then_some(Time(closed.until)),
            }),
            None if stream.closed.len() >= max_events as usize => {
                Some(RefusedEvent::StreamFull { max_events })
            }
            None => None,
        }
    }

    /// The event as it would be if it were submitted now.
    pub(super) fn would_be(&self, now: u64, stream: &Name, event: &Event) -> Option<EventInfo> {
        let until = now + self.streams.get(stream)?.terms.duration().0;
        Some(EventInfo { event: event.clone(), time: Time(now), publishes_at: Time(until) })
    }

    /// Submits the event of the decision at this position.
    pub(super) fn submit_part(&mut self, now: u64, name: &Name, event: &Event, operation: u64) {
        let stream = self.streams.get_mut(name).expect("the decision has found it");
        stream.closed.push(Closed {
            event: event.clone(),
            time: now,
            until: now + stream.terms.duration().0,
            since: operation,
            is_incubating: true,
            operation: Some(operation),
        });
        stream.change(ChangeKind::Submitted, event, now);
    }

    /// What became of the event of the open decision at this position. `None` if the stream of this number was deleted.
    pub(super) fn look(&self, number: u64, operation: u64) -> Option<EventState> {
        let stream = self.streams.values().find(|stream| stream.began == number)?;
        Some(match stream.place_of(operation) {
            Some(_) => EventState::Submitted,
            None => EventState::Invalidated,
        })
    }

    /// The decision ends at `at`. If it was committed, at this position, its event is published, now or when its time has
    /// come. Otherwise the event is invalidated.
    pub(super) fn end_part(
        &mut self,
        at: u64,
        number: u64,
        operation: u64,
        committed: Option<u64>,
    ) -> Option<EventState> {
        let stream = self.streams.values_mut().find(|stream| stream.began == number)?;
        let Some(place) = stream.place_of(operation) else { return Some(EventState::Invalidated) };
        let closed = &mut stream.closed[place];
        if let Some(position) = committed.filter(|_| closed.until > at) {
            (closed.operation, closed.since) = (None, position);
            return Some(EventState::Submitted);
        }
        let Closed { event, time, .. } = stream.closed.remove(place);
        let kind = if committed.is_some() { ChangeKind::Published } else { ChangeKind::Invalidated };
        stream.change(kind, &event, time);
        Some(if committed.is_some() { EventState::Published } else { EventState::Invalidated })
    }
}

impl Stream {
    /// The place of the event of the open decision at this position.
    fn place_of(&self, operation: u64) -> Option<usize> {
        self.closed.iter().position(|closed| closed.operation == Some(operation))
    }

    fn clock(&self) -> u64 {
        self.began + self.changes.len() as u64
    }

    fn change(&mut self, kind: ChangeKind, event: &Event, time: u64) -> u64 {
        let clock = self.clock() + 1;
        self.changes.push(Change { clock, kind, event: event.clone(), time: Time(time) });
        clock
    }
}

impl Closed {
    fn due(&self) -> Option<(u64, u64)> {
        self.operation.is_none().then_some((self.until, self.since))
    }

    fn info(&self) -> EventInfo {
        EventInfo { event: self.event.clone(), time: Time(self.time), publishes_at: Time(self.until) }
    }
}

fn not_found(name: &Name) -> Refusal {
    Refusal::StreamNotFound { stream: name.clone() }
}
