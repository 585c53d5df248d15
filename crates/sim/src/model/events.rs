//! The naive events: every stream keeps all its changes, and one list of closed keys that is scanned at every step.
//!
//! Nothing here is uncertain: the same commands in the same order have the same answers, and each change takes one
//! position.

use super::{Bounds, Order};
use limina_engine::{
    Listed, Name, Page, Quota, Time,
    events::{
        Change, ChangeKind, Changes, Command, Event, EventInfo, KEPT_CHANGES, KeyFrame, Mode, Refusal, Reply,
        StreamInfo, StreamTerms, Submitted,
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
}

impl Events {
    pub(super) fn new(bounds: &Bounds) -> Events {
        Events { bounds: bounds.clone(), ..Events::default() }
    }

    /// The expected answer, after everything that is due has been executed. A list is returned as far as `shown` covers
    /// it.
    pub(super) fn run(
        &mut self,
        now: u64,
        order: &mut Order,
        command: &Command,
        shown: Option<&Answer>,
    ) -> Answer {
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
            Command::Incubating(name) => {
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
            stream.closed.push(Closed { event: event.clone(), time: now, until, since, is_incubating: true });
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
            *closed = Closed { event: event.clone(), time: now, until, since, is_incubating: false };
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

    fn list(&self, page: &Page<Name>, shown: Option<&Answer>) -> Listed<StreamInfo, Name> {
        let names = self.streams.keys().filter(|name| page.after.as_ref().is_none_or(|after| *name > after));
        let mut all: Vec<StreamInfo> = names.filter_map(|name| self.info(name).ok()).collect();
        // A page may be short, but a key that it skips must not exist.
        let next = match shown {
            Some(Ok(Reply::Streams(shown))) => shown.next.clone(),
            _ => None,
        };
        all.retain(|stream| next.as_ref().is_none_or(|next| stream.name <= *next));
        let next = next.or((all.len() > page.limit()).then(|| all[page.limit() - 1].name.clone()));
        all.truncate(page.limit());
        Listed { items: all, next }
    }

    /// When the next key expires.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.streams.values().flat_map(|stream| &stream.closed).map(|closed| closed.until).min()
    }

    /// Expires everything that is due by `now`, in due order.
    pub(super) fn expire(&mut self, order: &mut Order, now: u64) {
        while self.next_due().is_some_and(|due| due <= now) {
            self.expire_next(order);
        }
    }

    /// Expires what is due next. If several are due together, the one that was set first.
    pub(super) fn expire_next(&mut self, order: &mut Order) {
        let firsts = self.streams.values_mut().filter_map(|stream| {
            let due = |place: &usize| (stream.closed[*place].until, stream.closed[*place].since);
            let place = (0..stream.closed.len()).min_by_key(due)?;
            Some((due(&place), place, stream))
        });
        let Some((_, place, stream)) = firsts.min_by_key(|(due, ..)| *due) else { return };
        order.advance();
        let closed = stream.closed.remove(place);
        if closed.is_incubating {
            stream.change(ChangeKind::Published, &closed.event, closed.time);
        }
    }
}

impl Stream {
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
    fn info(&self) -> EventInfo {
        EventInfo { event: self.event.clone(), time: Time(self.time), publishes_at: Time(self.until) }
    }
}

fn not_found(name: &Name) -> Refusal {
    Refusal::StreamNotFound { stream: name.clone() }
}
