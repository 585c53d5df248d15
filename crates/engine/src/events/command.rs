//! The commands about events, and the limits within which they can be built.
//!
//! `Deserialize` does not check these limits: see [`UncheckedRequest`](crate::UncheckedRequest).

use crate::{Invalid, Millis, Name, Page, effect::Event};
use limina_api::invalid::{check_bytes, check_duration, check_number};
use serde::{Deserialize, Serialize};

/// The number of changes of a stream that are kept for followers that return.
pub const KEPT_CHANGES: u64 = 10_000;

/// A command about events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Create a stream, or change its terms. The mode of an existing stream cannot change.
    Put {
        /// The stream.
        name: Name,
        /// The terms that the stream gets.
        terms: StreamTerms,
    },
    /// Remove a stream with everything that it remembers.
    Delete(Name),
    /// An event has happened.
    Submit(Submit),
    /// Send a snapshot of all incubating events to every follower of the stream, in its place among the changes.
    KeyFrame {
        /// The stream.
        stream: Name,
        /// The terms with which the stream is created if it does not exist. None refuses the command then.
        make: Option<StreamTerms>,
    },
    /// Read a stream.
    Get(Name),
    /// A page of the streams, by name.
    List(Page<Name>),
    /// The incubating events of a stream, if the answer is not too large.
    Incubating(Name),
    /// Kept changes of a stream, the oldest first.
    Changes(ChangesAfter),
    /// The incubating events of a stream for a follower, which needs them all, however many they are.
    Snapshot(Name),
}

impl Command {
    /// Whether the command may change something. A key frame changes nothing that is stored, unless it creates the stream.
    pub fn is_write(&self) -> bool {
        match self {
            Command::Put { .. } | Command::Delete(_) | Command::Submit(_) => true,
            Command::KeyFrame { make, .. } => make.is_some(),
            Command::Get(_)
            | Command::List(_)
            | Command::Incubating(_)
            | Command::Snapshot(_)
            | Command::Changes(_) => false,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self {
            Command::Put { name: _, terms } => terms.validate(),
            Command::Submit(submit) => submit.validate(),
            Command::KeyFrame { stream: _, make } => make.as_ref().map_or(Ok(()), StreamTerms::validate),
            Command::List(page) => page.validate(),
            Command::Changes(changes) => changes.validate(),
            Command::Delete(_) | Command::Get(_) | Command::Incubating(_) | Command::Snapshot(_) => Ok(()),
        }
    }
}

/// An event to be submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submit {
    pub(super) stream: Name,
    pub(super) event: Event,
    pub(super) make: Option<StreamTerms>,
}

impl Submit {
    /// The longest event, in bytes. An event is not empty.
    pub const MAX_EVENT_BYTES: usize = 1024;

    /// Submits the event to a stream that exists.
    pub fn new(stream: Name, event: Event) -> Result<Submit, Invalid> {
        let submit = Submit { stream, event, make: None };
        submit.validate()?;
        Ok(submit)
    }

    /// Creates the stream with these terms if it does not exist.
    #[must_use]
    pub fn with_make(self, make: Option<StreamTerms>) -> Submit {
        Submit { make, ..self }
    }

    /// The stream.
    pub fn stream(&self) -> &Name {
        &self.stream
    }

    /// The event's text.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The terms with which the stream is created if it does not exist. None refuses the event then.
    pub fn make(&self) -> Option<&StreamTerms> {
        self.make.as_ref()
    }

    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        check_bytes("event", &self.event, 1..=Submit::MAX_EVENT_BYTES)?;
        self.make.as_ref().map_or(Ok(()), StreamTerms::validate)
    }
}

/// A question for the kept changes of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesAfter {
    pub(super) stream: Name,
    pub(super) after: u64,
    pub(super) limit: usize,
}

impl ChangesAfter {
    /// Asks for the changes after a clock: at most `limit`, from 1 to [`KEPT_CHANGES`].
    pub fn new(stream: Name, after: u64, limit: usize) -> Result<ChangesAfter, Invalid> {
        let changes = ChangesAfter { stream, after, limit };
        changes.validate()?;
        Ok(changes)
    }

    /// The stream.
    pub fn stream(&self) -> &Name {
        &self.stream
    }

    /// The clock after which the changes begin.
    pub fn after(&self) -> u64 {
        self.after
    }

    /// The most changes that are returned, at least 1.
    pub fn limit(&self) -> usize {
        self.limit
    }

    fn validate(&self) -> Result<(), Invalid> {
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        check_number("limit", limit, 1..=KEPT_CHANGES as i64)
    }
}

/// The settings of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTerms {
    pub(super) mode: Mode,
    pub(super) duration: Millis,
    pub(super) max_events: u32,
    pub(super) key_frame_every: Millis,
}

impl StreamTerms {
    /// The shortest duration.
    pub const MIN_DURATION: Millis = Millis(10);
    /// The longest duration.
    pub const MAX_DURATION: Millis = Millis(30 * Millis::DAY.0);
    /// The value of [`StreamTerms::max_events`] unless another one is set.
    pub const DEFAULT_MAX_EVENTS: u32 = 10_000;
    /// The largest value of [`StreamTerms::max_events`]. The smallest is 1.
    pub const MAX_EVENTS: u32 = 1_000_000;
    /// The interval between key frames unless another one is set.
    pub const DEFAULT_KEY_FRAME_EVERY: Millis = Millis(10_000);
    /// The shortest interval between key frames.
    pub const MIN_KEY_FRAME_EVERY: Millis = Millis(100);
    /// The longest interval between key frames.
    pub const MAX_KEY_FRAME_EVERY: Millis = Millis::DAY;

    /// A stream in which an event closes its key for `duration`, with the defaults for everything else.
    pub fn new(mode: Mode, duration: Millis) -> Result<StreamTerms, Invalid> {
        let terms = StreamTerms {
            mode,
            duration,
            max_events: StreamTerms::DEFAULT_MAX_EVENTS,
            key_frame_every: StreamTerms::DEFAULT_KEY_FRAME_EVERY,
        };
        terms.validate()?;
        Ok(terms)
    }

    /// The most keys that the stream remembers at a time.
    pub fn with_max_events(self, max_events: u32) -> Result<StreamTerms, Invalid> {
        let terms = StreamTerms { max_events, ..self };
        terms.validate()?;
        Ok(terms)
    }

    /// The interval at which followers receive a key frame.
    pub fn with_key_frame_every(self, key_frame_every: Millis) -> Result<StreamTerms, Invalid> {
        let terms = StreamTerms { key_frame_every, ..self };
        terms.validate()?;
        Ok(terms)
    }

    /// What a duplicate does.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// For how long an event closes its key.
    pub fn duration(&self) -> Millis {
        self.duration
    }

    /// The most keys that the stream remembers at a time.
    pub fn max_events(&self) -> u32 {
        self.max_events
    }

    /// The interval at which followers receive a key frame.
    pub fn key_frame_every(&self) -> Millis {
        self.key_frame_every
    }

    /// Checks terms that were decoded from the bytes of another program.
    pub fn validate(&self) -> Result<(), Invalid> {
        let StreamTerms { mode: _, duration, max_events, key_frame_every } = *self;
        let every = StreamTerms::MIN_KEY_FRAME_EVERY..=StreamTerms::MAX_KEY_FRAME_EVERY;
        check_duration("duration", duration, StreamTerms::MIN_DURATION..=StreamTerms::MAX_DURATION)?;
        check_number("max_events", max_events.into(), 1..=StreamTerms::MAX_EVENTS.into())?;
        check_duration("key_frame_every", key_frame_every, every)
    }
}

/// What a duplicate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// The duplicate is refused.
    OnlyOnce,
    /// The duplicate is refused. It also invalidates the earlier event if that still incubates, and closes the key anew.
    StrictlyOnce,
}
