//! What can be asked about events.

use crate::{Millis, Name, Page, effect::Event};
use serde::{Deserialize, Serialize};

/// How many changes of a stream are kept for those who come back.
pub const KEPT_CHANGES: u64 = 10_000;

/// A command about events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Make a stream, or change its terms but for the mode.
    Put {
        /// Its name.
        name: Name,
        /// What it is to be.
        terms: StreamTerms,
    },
    /// Remove a stream with all that it remembers.
    Delete(Name),
    /// An event has happened.
    Submit {
        /// In which stream.
        stream: Name,
        /// Which.
        event: Event,
        /// What the stream is to be if there is none.
        make: Option<StreamTerms>,
    },
    /// Tell all who follow the stream what incubates, in its place among the changes.
    KeyFrame {
        /// Which stream.
        stream: Name,
        /// What it is to be if there is none.
        make: Option<StreamTerms>,
    },
    /// Read a stream.
    Get(Name),
    /// A part of the streams, by name.
    List(Page<Name>),
    /// What incubates in a stream.
    Incubating(Name),
    /// Kept changes of a stream, the oldest first.
    Changes {
        /// Which stream.
        stream: Name,
        /// Those after this clock.
        after: u64,
        /// How many at most; at least 1.
        limit: usize,
    },
}

impl Command {
    /// Whether it may change something. A key frame changes nothing that is stored, unless it makes the stream.
    pub fn is_write(&self) -> bool {
        match self {
            Command::Put { .. } | Command::Delete(_) | Command::Submit { .. } => true,
            Command::KeyFrame { make, .. } => make.is_some(),
            Command::Get(_) | Command::List(_) | Command::Incubating(_) | Command::Changes { .. } => false,
        }
    }
}

/// What a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTerms {
    /// What a duplicate does.
    pub mode: Mode,
    /// For how long an event closes its key.
    pub duration: Millis,
    /// How many keys are remembered at most.
    pub max_events: u32,
    /// How often those who follow are told all that incubates.
    pub key_frame_every: Millis,
}

/// What a duplicate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// It is refused.
    OnlyOnce,
    /// It is refused, invalidates the earlier event if that still incubates, and keeps the key closed anew.
    StrictlyOnce,
}
