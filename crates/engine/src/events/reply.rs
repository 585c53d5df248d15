//! The replies and refusals of events.

use super::command::StreamTerms;
use crate::{
    Listed, Name, QuotaExceeded, Time,
    effect::{Change, EventInfo, KeyFrame},
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The reply to a command that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// A stream as it is now.
    Stream(StreamInfo),
    /// A stream that this command has created.
    StreamCreated(StreamInfo),
    /// The stream is deleted.
    StreamDeleted,
    /// A page of the streams, sorted by name.
    Streams(Listed<StreamInfo, Name>),
    /// The event was accepted.
    Submitted(Submitted),
    /// The incubating events.
    Incubating(KeyFrame),
    /// Stored changes after a clock.
    Changes(Changes),
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The stream does not exist.
    StreamNotFound {
        /// The stream's name.
        stream: Name,
    },
    /// The mode of an existing stream cannot be changed.
    StreamModeConflict {
        /// The stream's name.
        stream: Name,
    },
    /// The event is a duplicate: its key is closed.
    EventConflict {
        /// The time of the latest occurrence before this one.
        conflicting_time: Time,
        /// Whether this occurrence has invalidated the earlier event.
        invalidated: bool,
    },
    /// The stream has as many closed keys as it may have.
    StreamFull {
        /// The largest number of closed keys.
        max_events: u32,
    },
    /// The namespace would have more than its quota allows. Nothing has changed.
    QuotaExceeded(QuotaExceeded),
}

impl From<QuotaExceeded> for Refusal {
    fn from(exceeded: QuotaExceeded) -> Refusal {
        Refusal::QuotaExceeded(exceeded)
    }
}

impl Refusal {
    /// The error code in problem documents, metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::StreamNotFound { .. } => "StreamNotFound",
            Refusal::StreamModeConflict { .. } => "StreamModeConflict",
            Refusal::EventConflict { .. } => "EventConflict",
            Refusal::StreamFull { .. } => "StreamFull",
            Refusal::QuotaExceeded(_) => "QuotaExceeded",
        }
    }
}

/// A stream as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// The stream's name.
    pub name: Name,
    /// Mode, duration and bounds.
    pub terms: StreamTerms,
    /// The clock of the last change.
    pub clock: u64,
    /// The number of incubating events.
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

/// The stored changes after a clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Changes {
    /// The changes, without a gap. Empty if the clock is that of the last change.
    Kept(Vec<Change>),
    /// Some of the changes are no longer stored, or the clock is in the future.
    NotKept,
}
