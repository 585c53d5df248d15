//! A client that follows a stream, and the cursor that reads the stream for it.

use super::Counts;
use crate::random::Random;
use limina_engine::{
    Name, Time,
    events::{Change, ChangeKind, ChangesAfter, Command, Event, KeyFrame, Refusal, Reply},
};
use limina_node::{
    Message, StreamUpdate,
    streams::{Cursor, Ring, Step},
};
use std::{collections::BTreeMap, sync::Arc};

/// A client of one of the nodes.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) node: usize,
    /// `None` while the client is away.
    pub(super) reader: Option<StreamReader>,
    /// The clock of the client's state. `None` if it has nothing.
    pub(super) clock: Option<u64>,
    pub(super) incubating: BTreeMap<Event, Time>,
    /// The stream's clock when the client came without one. Its first key frame must be current.
    pub(super) arrived_at: u64,
}

impl Client {
    pub(super) fn new() -> Client {
        Client { node: 0, reader: None, clock: None, incubating: BTreeMap::new(), arrived_at: 0 }
    }

    pub(super) fn come_back(&mut self, random: &mut Random, released: u64) {
        self.node = random.below(2) as usize;
        self.arrived_at = released;
        self.reader = Some(StreamReader::new(self.clock));
    }

    /// Applies a message to a client. Returns the client's previous clock if it received a key frame instead of
    /// changes.
    pub(super) fn take(&mut self, update: &StreamUpdate, counts: &mut Counts) -> Result<Option<u64>, String> {
        let frame = match update {
            StreamUpdate::Change(change) => {
                counts.changes += 1;
                return self.fold(change).map(|()| None);
            }
            StreamUpdate::KeyFrame(frame) => frame,
        };
        let skipped = match self.clock {
            None if frame.clock < self.arrived_at => {
                return Err(format!("came at the clock {}, and got {frame:?}", self.arrived_at));
            }
            None => {
                counts.begun += 1;
                None
            }
            Some(clock) if clock > frame.clock => {
                return Err(format!("the clock goes back from {clock} to {frame:?}"));
            }
            Some(clock) if clock == frame.clock => {
                self.compare(frame, counts)?;
                None
            }
            Some(clock) => Some(clock),
        };
        self.clock = Some(frame.clock);
        self.incubating = frame.events.iter().map(|event| (event.event.clone(), event.time)).collect();
        Ok(skipped)
    }

    pub(super) fn fold(&mut self, change: &Change) -> Result<(), String> {
        let Change { clock, kind, event, time } = change;
        if self.clock.is_none_or(|last| *clock != last + 1) {
            return Err(format!("after the clock {:?} comes {change:?}", self.clock));
        }
        self.clock = Some(*clock);
        let (before, expected) = match kind {
            ChangeKind::Submitted => (self.incubating.insert(event.clone(), *time), None),
            ChangeKind::Invalidated | ChangeKind::Published => (self.incubating.remove(event), Some(*time)),
        };
        if before == expected { Ok(()) } else { Err(format!("{change:?} comes where {before:?} incubates")) }
    }

    /// At the same clock, the client and the engine must have the same events.
    pub(super) fn compare(&self, frame: &KeyFrame, counts: &mut Counts) -> Result<(), String> {
        let events = frame.events.iter().map(|event| (&event.event, &event.time));
        if !self.incubating.iter().eq(events.collect::<BTreeMap<_, _>>()) {
            return Err(format!("by what was sent {:?} incubates, but {frame:?}", self.incubating));
        }
        counts.compared += u64::from(!frame.events.is_empty());
        Ok(())
    }
}

/// A cursor, and the requests that it has sent to the shard.
#[derive(Debug)]
pub(super) struct StreamReader {
    pub(super) cursor: Cursor,
    pub(super) question: Option<Command>,
}

pub(super) enum Next {
    Take(Vec<Arc<Message>>),
    Ask(Command),
    Nothing,
}

impl StreamReader {
    pub(super) fn new(resume_after: Option<u64>) -> StreamReader {
        StreamReader { cursor: Cursor::new(resume_after), question: None }
    }

    pub(super) fn asked(&self, question: &Command) -> bool {
        self.question.as_ref() == Some(question)
    }

    pub(super) fn next(&mut self, ring: &Ring, stream: &Name) -> Next {
        if self.question.is_some() {
            return Next::Nothing;
        }
        let step = match ring.last() {
            Some(_) => self.cursor.poll(ring),
            None => Step::AskClock,
        };
        let stream = stream.clone();
        let question = match step {
            Step::Send(messages) => return Next::Take(messages),
            Step::Wait => return Next::Nothing,
            Step::AskClock => Command::Get(stream),
            Step::AskKeyFrame => Command::Snapshot(stream),
            Step::AskPage { after, limit } => changes_after(stream, after, limit),
        };
        self.question = Some(question.clone());
        Next::Ask(question)
    }

    pub(super) fn answered(
        &mut self,
        question: &Command,
        answer: Option<&Result<Reply, Refusal>>,
        ring: &mut Ring,
    ) -> Result<(), String> {
        if !self.asked(question) {
            return Ok(());
        }
        self.question = None;
        match (question, answer) {
            (Command::Get(_), Some(Ok(Reply::Stream(info)))) => {
                ring.begin(info.clock);
                self.cursor.handle_clock(info.clock, ring);
            }
            (Command::Snapshot(_), Some(Ok(Reply::Incubating(frame)))) => {
                self.cursor.handle_key_frame(Message::new(StreamUpdate::KeyFrame(frame.clone())));
            }
            (Command::Changes(wanted), Some(Ok(Reply::Changes(changes)))) => {
                self.cursor.handle_page(wanted.after(), changes.clone(), ring);
            }
            // The request will be sent again.
            (_, None) => {}
            (_, Some(other)) => return Err(format!("{question:?} was answered {other:?}")),
        }
        Ok(())
    }
}

pub(super) fn changes_after(stream: Name, after: u64, limit: usize) -> Command {
    let wanted = ChangesAfter::new(stream, after, limit).expect("a cursor asks for few changes at a time");
    Command::Changes(wanted)
}
