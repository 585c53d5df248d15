//! What is answered and told about events.

use super::command::StreamTerms;
use crate::{
    Listed, Name, Time,
    effect::{Change, EventInfo, KeyFrame},
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An answer about events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// A stream as it is now.
    Stream(StreamInfo),
    /// A stream that was made by this command.
    StreamCreated(StreamInfo),
    /// The stream is gone.
    StreamDeleted,
    /// A part of the streams.
    Streams(Listed<StreamInfo, Name>),
    /// The event was accepted.
    Submitted(Submitted),
    /// What incubates.
    Incubating(KeyFrame),
    /// Kept changes.
    Changes(Changes),
}

/// Why it was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no such stream.
    StreamNotFound {
        /// Its name.
        stream: Name,
    },
    /// A stream's mode stays what it is.
    StreamModeConflict {
        /// Its name.
        stream: Name,
    },
    /// The key is closed.
    EventConflict {
        /// Its latest occurrence before this one.
        conflicting_time: Time,
        /// Whether that was invalidated by this one.
        invalidated: bool,
    },
    /// No more keys can be remembered.
    StreamFull {
        /// How many there may be.
        max_events: u32,
    },
}

impl Refusal {
    /// The word by which it is known.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::StreamNotFound { .. } => "StreamNotFound",
            Refusal::StreamModeConflict { .. } => "StreamModeConflict",
            Refusal::EventConflict { .. } => "EventConflict",
            Refusal::StreamFull { .. } => "StreamFull",
        }
    }
}

/// A stream as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub terms: StreamTerms,
    /// The clock of its last change.
    pub clock: u64,
    /// How many events incubate.
    pub incubating: usize,
}

/// An event that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// The event.
    pub event: EventInfo,
    /// The clock of this change.
    pub clock: u64,
}

/// Kept changes that follow a clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Changes {
    /// These, without a gap; none if the clock is that of the last change.
    Kept(Vec<Change>),
    /// Not all of them are kept any more, or the clock is not reached yet.
    NotKept,
}
