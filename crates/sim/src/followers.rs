//! Those who follow streams of events: they are told what the shard releases, go away, and come back by their clocks.
//!
//! Each folds what it hears into what incubates, as the guide tells clients to. What it has must be right at every clock.

use crate::random::Random;
use limina_engine::{
    Effect, Name, Time,
    events::{Change, ChangeKind, Changes, Command, Event, KeyFrame, Refusal, Reply},
};
use std::collections::BTreeMap;

/// What came of it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Changes that were read by somebody who came back.
    pub resumed: u64,
    /// Key frames for somebody who could not resume, or had nothing.
    pub begun: u64,
    /// States that were compared with the engine's, of which at least one event was a part.
    pub compared: u64,
}

impl Counts {
    /// Several runs together.
    pub fn add(&mut self, other: &Counts) {
        self.resumed += other.resumed;
        self.begun += other.begun;
        self.compared += other.compared;
    }
}

/// One who follows a stream.
#[derive(Debug)]
pub struct Follower {
    namespace: Name,
    stream: Name,
    /// The clock of what it has; none if it has nothing.
    clock: Option<u64>,
    incubating: BTreeMap<Event, Time>,
    presence: Presence,
    /// What the shard had in its memory was lost since, and may have happened without being told.
    may_have_missed: bool,
}

#[derive(Debug)]
enum Presence {
    Away,
    /// It has asked for what it missed, and keeps what it is told meanwhile.
    Asking {
        question: Command,
        told: Vec<Change>,
    },
    There,
}

impl Follower {
    /// One who has heard nothing yet.
    pub fn new(namespace: Name, stream: Name) -> Follower {
        Follower {
            namespace,
            stream,
            clock: None,
            incubating: BTreeMap::new(),
            presence: Presence::Away,
            may_have_missed: false,
        }
    }

    /// Where it follows which stream.
    pub fn address(&self) -> (&Name, &Name) {
        (&self.namespace, &self.stream)
    }

    /// Hears nothing more for a while.
    pub fn leave(&mut self) {
        self.presence = Presence::Away;
    }

    /// Comes back, if it is away, or may have missed something. This is what it asks for.
    pub fn come_back(&mut self, random: &mut Random) -> Option<Command> {
        let is_whole = matches!(self.presence, Presence::There) && !self.may_have_missed;
        if is_whole || matches!(self.presence, Presence::Asking { .. }) {
            return None;
        }
        let limit = 1 + random.below(20) as usize;
        self.ask(match self.clock {
            Some(after) => Command::Changes { stream: self.stream.clone(), after, limit },
            None => self.wants_key_frame(),
        })
    }

    /// The shard has lost its memory. What is read from now on contains all that had happened.
    pub fn shard_lost(&mut self) {
        self.may_have_missed = true;
        if let Presence::Asking { told, .. } = &mut self.presence {
            told.clear();
        }
    }

    /// The shard has released this.
    pub fn hear(&mut self, effect: &Effect, counts: &mut Counts) -> Result<(), String> {
        let (namespace, stream) = match effect {
            Effect::StreamChanged { namespace, stream, .. }
            | Effect::KeyFrame { namespace, stream, .. }
            | Effect::StreamDeleted { namespace, stream } => (namespace, stream),
            _ => return Ok(()),
        };
        if (namespace, stream) != self.address() || matches!(self.presence, Presence::Away) {
            return Ok(());
        }
        match effect {
            Effect::StreamChanged { change, .. } => self.hear_change(change),
            Effect::KeyFrame { frame, .. } => self.hear_key_frame(frame, counts),
            _ => {
                self.lose_stream();
                Ok(())
            }
        }
    }

    fn hear_change(&mut self, change: &Change) -> Result<(), String> {
        match &mut self.presence {
            Presence::Asking { told, .. } => {
                told.push(change.clone());
                Ok(())
            }
            // It comes back for what it has missed.
            _ if self.may_have_missed && self.clock.is_none_or(|clock| change.clock > clock + 1) => {
                self.leave();
                Ok(())
            }
            _ => {
                self.may_have_missed = false;
                self.fold(change)
            }
        }
    }

    /// A key frame stands in its place among the changes, so it says nothing new to somebody who has missed nothing.
    fn hear_key_frame(&mut self, frame: &KeyFrame, counts: &mut Counts) -> Result<(), String> {
        if self.clock.is_some_and(|clock| clock > frame.clock) {
            return Err(format!("a key frame takes back what was told: {frame:?}"));
        }
        match &self.presence {
            Presence::Asking { question: Command::KeyFrame { .. }, .. } => counts.begun += 1,
            Presence::There if self.may_have_missed => {}
            Presence::There => return self.compare(frame, counts),
            // It will have been told by what it reads.
            _ => return Ok(()),
        }
        self.clock = Some(frame.clock);
        self.incubating = frame.events.iter().map(|event| (event.event.clone(), event.time)).collect();
        self.presence = Presence::There;
        self.may_have_missed = false;
        Ok(())
    }

    /// A question was answered; none if the answer was lost. This is what it asks next, if that was its own.
    pub fn answered(
        &mut self,
        question: &Command,
        answer: Option<&Result<Reply, Refusal>>,
        counts: &mut Counts,
    ) -> Result<Option<Command>, String> {
        let told = match &mut self.presence {
            Presence::Asking { question: asked, told } if asked == question => std::mem::take(told),
            _ => return Ok(None),
        };
        match (question, answer) {
            (Command::Changes { limit, .. }, Some(Ok(Reply::Changes(Changes::Kept(missed))))) => {
                self.resume(missed, *limit, told, counts)
            }
            (_, Some(Ok(Reply::Changes(Changes::NotKept)))) => Ok(self.ask(self.wants_key_frame())),
            (_, Some(Err(Refusal::StreamNotFound { .. }))) => {
                self.lose_stream();
                Ok(None)
            }
            // Another has asked for the same; its own comes after the key frame.
            (Command::KeyFrame { .. }, Some(Ok(Reply::Stream(_)))) => Ok(None),
            (_, None) => {
                self.leave();
                Ok(None)
            }
            (_, Some(other)) => Err(format!("{question:?} was answered {other:?}")),
        }
    }

    /// Folds what was read, and then what was told meanwhile. Asks for more if there is a gap between the two.
    fn resume(
        &mut self,
        missed: &[Change],
        limit: usize,
        told: Vec<Change>,
        counts: &mut Counts,
    ) -> Result<Option<Command>, String> {
        for change in missed {
            self.fold(change)?;
        }
        counts.resumed += missed.len() as u64;
        let Some(clock) = self.clock else { return Err("changes for somebody who has nothing".into()) };
        let is_all = missed.len() < limit;
        let is_joined = told.first().is_some_and(|first| first.clock <= clock + 1);
        if !is_all && !is_joined {
            let more = Command::Changes { stream: self.stream.clone(), after: clock, limit };
            self.presence = Presence::Asking { question: more.clone(), told };
            return Ok(Some(more));
        }
        self.presence = Presence::There;
        self.may_have_missed = false;
        for change in told.iter().filter(|change| change.clock > clock) {
            self.fold(change)?;
        }
        Ok(None)
    }

    /// What a client does with a change.
    fn fold(&mut self, change: &Change) -> Result<(), String> {
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

    /// Somebody was answered that this incubates: whoever has missed nothing has been told as much by now.
    pub fn compare(&self, frame: &KeyFrame, counts: &mut Counts) -> Result<(), String> {
        let Some(clock) = self.clock.filter(|_| matches!(self.presence, Presence::There)) else {
            return Ok(());
        };
        if clock < frame.clock && !self.may_have_missed {
            return Err(format!("told up to the clock {clock}, but not {frame:?}"));
        }
        let events = frame.events.iter().map(|event| (&event.event, &event.time));
        if clock == frame.clock && !self.incubating.iter().eq(events.collect::<BTreeMap<_, _>>()) {
            return Err(format!("by what was told {:?} incubates, but {frame:?}", self.incubating));
        }
        counts.compared += u64::from(clock == frame.clock && !frame.events.is_empty());
        Ok(())
    }

    /// Whether it has come as far as this, or has nothing where there is no stream.
    pub fn is_at(&self, frame: Option<&KeyFrame>) -> bool {
        self.clock == frame.map(|frame| frame.clock)
    }

    fn ask(&mut self, question: Command) -> Option<Command> {
        self.presence = Presence::Asking { question: question.clone(), told: Vec::new() };
        Some(question)
    }

    fn wants_key_frame(&self) -> Command {
        Command::KeyFrame { stream: self.stream.clone(), make: None }
    }

    fn lose_stream(&mut self) {
        *self = Follower::new(self.namespace.clone(), self.stream.clone());
    }
}
