//! Events once per duration, and the messages of their streams.

use crate::{Duration, words::from_word};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// `PUT /events/{stream}`: make a stream, or change all of it but its mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutStream {
    /// What a duplicate does.
    pub mode: Mode,
    /// For how long an event closes its key: 10 ms–30 d.
    pub duration: Duration,
    /// How many keys are remembered: 1–1,000,000; 10,000 if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_events: Option<u32>,
    /// How often those who follow are told all that incubates: 100 ms–24 h; 10 s if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_frame_every: Option<Duration>,
}

/// What a duplicate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", try_from = "Cow<'_, str>")]
pub enum Mode {
    /// It is refused.
    OnlyOnce,
    /// It is refused, and invalidates the earlier event.
    StrictlyOnce,
}

from_word!(Mode: "only_once" => OnlyOnce, "strictly_once" => StrictlyOnce);

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Stream<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// What a duplicate does.
    pub mode: Mode,
    /// For how long an event closes its key.
    pub duration_ms: u64,
    /// How many keys are remembered.
    pub max_events: u32,
    /// How often those who follow are told all that incubates.
    pub key_frame_every_ms: u64,
    /// The clock of its last change.
    pub clock: u64,
    /// How many events incubate.
    pub incubating: usize,
}

/// `POST /events/{stream}`: something has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEvent<'a> {
    /// What: 1–1,024 bytes, which are also the key.
    #[serde(borrow)]
    #[schema(min_length = 1, max_length = 1024, example = "🌮")]
    pub event: Cow<'a, str>,
}

/// An event that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Submitted<'a> {
    /// What became of it.
    pub status: SubmittedStatus,
    /// The event.
    pub event: Cow<'a, str>,
    /// When it happened.
    pub time: u64,
    /// The clock of this change.
    pub clock: u64,
    /// When it is published, unless it is invalidated.
    pub publishes_at: u64,
}

/// What became of an event that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubmittedStatus {
    /// It incubates.
    Submitted,
}

/// What incubates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Incubating<'a> {
    /// The clock of the last change before.
    pub clock: u64,
    /// In the order in which they were accepted.
    pub events: Vec<IncubatingEvent<'a>>,
}

/// An event that incubates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct IncubatingEvent<'a> {
    /// The event.
    pub event: Cow<'a, str>,
    /// When it happened.
    pub time: u64,
    /// When it is published, unless it is invalidated.
    pub publishes_at: u64,
}

/// What is told to those who follow a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "messageType")]
pub enum Message<'a> {
    /// An event was accepted, and incubates.
    #[serde(rename = "SUBMITTED_EVENT", rename_all = "camelCase")]
    Submitted {
        /// The clock of this change.
        clock: u64,
        /// Which event.
        event_time: EventTime<'a>,
    },
    /// A duplicate came.
    #[serde(rename = "INVALIDATED_EVENT", rename_all = "camelCase")]
    Invalidated {
        /// The clock of this change.
        clock: u64,
        /// Which event.
        event_time: EventTime<'a>,
    },
    /// None came in time.
    #[serde(rename = "PUBLISHED_EVENT", rename_all = "camelCase")]
    Published {
        /// The clock of this change.
        clock: u64,
        /// Which event.
        event_time: EventTime<'a>,
    },
    /// All that incubates.
    #[serde(rename = "KEY_FRAME")]
    KeyFrame {
        /// The clock of the last change that it contains.
        clock: u64,
        /// What incubates, in the order in which it was accepted.
        snapshot: Vec<SnapshotEvent<'a>>,
    },
}

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct EventTime<'a> {
    /// The event.
    pub event: Cow<'a, str>,
    /// When it happened.
    pub time: u64,
}

/// An event of a key frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SnapshotEvent<'a> {
    /// The event.
    pub event: Cow<'a, str>,
    /// When it happened.
    pub time: u64,
    /// It incubates.
    pub status: SnapshotStatus,
}

/// How an event of a key frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub enum SnapshotStatus {
    /// It incubates.
    Valid,
}
