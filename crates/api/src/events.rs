//! Streams of events, each accepted once per duration, and the messages to their followers.

#[cfg(feature = "openapi")]
use crate::Name;
#[cfg(feature = "openapi")]
use crate::schema::{KeyFrameInterval, StreamDuration};
use crate::{Duration, words::from_word};
use alloc::borrow::Cow;
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `PUT /events/{stream}`: create a stream, or change everything except its mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutStream {
    /// The name of the stream. It may be absent; otherwise it must be the name in the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>)]
    pub name: Option<String>,
    /// What a duplicate does. It cannot change later.
    pub mode: Mode,
    /// How long an event blocks duplicates of itself, and the time until it is published: 10 ms–30 d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = StreamDuration)]
    pub duration: Option<Duration>,
    /// The duration in milliseconds, in place of `duration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 10, maximum = 2_592_000_000_u64)]
    pub duration_ms: Option<u64>,
    /// How many distinct events the stream can remember at once: 1–1,000,000. Default: 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_events: Option<u32>,
    /// How often followers receive all incubating events: 100 ms–24 h. Default: 10 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<KeyFrameInterval>)]
    pub key_frame_every: Option<Duration>,
    /// The same in milliseconds, in place of `key_frame_every`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub key_frame_every_ms: Option<u64>,
    /// Ignored: a stream that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub clock: Option<u64>,
    /// Ignored: a stream that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub incubating: Option<u64>,
}

/// What a duplicate of an event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = StreamMode)]
pub enum Mode {
    /// The duplicate is refused.
    OnlyOnce,
    /// The duplicate is refused, and the earlier event is invalidated: it will not be published.
    StrictlyOnce,
}

from_word!(Mode: "only_once" => OnlyOnce, "strictly_once" => StrictlyOnce);

/// A stream of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stream<'a> {
    /// The name, unique within the namespace.
    pub name: Cow<'a, str>,
    /// What a duplicate does.
    pub mode: Mode,
    /// How long an event blocks duplicates of itself, in milliseconds.
    pub duration_ms: u64,
    /// How many distinct events the stream can remember at once.
    pub max_events: u32,
    /// How often followers receive all incubating events, in milliseconds.
    pub key_frame_every_ms: u64,
    /// The clock of the last change. Every change of the stream adds 1.
    pub clock: u64,
    /// The number of incubating events.
    pub incubating: usize,
}

/// `POST /events/{stream}`: submit an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEvent<'a> {
    /// The text of the event, 1–1,024 bytes. Events with the same text are duplicates.
    #[serde(borrow)]
    #[schema(min_length = 1, max_length = 1024, example = "🌮", extensions(("x-max-bytes" = json!(1024))))]
    pub event: Cow<'a, str>,
}

/// An event that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted<'a> {
    /// Always `submitted`.
    pub status: SubmittedStatus,
    /// The text of the event.
    pub event: Cow<'a, str>,
    /// When the event was accepted, in epoch milliseconds.
    pub time: u64,
    /// The clock of this change.
    pub clock: u64,
    /// When the event will be published unless it is invalidated, in epoch milliseconds.
    pub publishes_at: u64,
}

/// The status of an event that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubmittedStatus {
    /// The event was accepted and incubates.
    Submitted,
}

/// All incubating events of a stream: accepted, and neither published nor invalidated yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Incubating<'a> {
    /// The clock of the last change that this list includes.
    pub clock: u64,
    /// The events, in the order in which they were accepted.
    pub events: Vec<IncubatingEvent<'a>>,
}

/// An incubating event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncubatingEvent<'a> {
    /// The text of the event.
    pub event: Cow<'a, str>,
    /// When the event was accepted, in epoch milliseconds.
    pub time: u64,
    /// When the event will be published unless it is invalidated, in epoch milliseconds.
    pub publishes_at: u64,
}

/// A message to the followers of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "messageType")]
pub enum Message<'a> {
    /// An event was accepted and incubates.
    #[serde(rename = "SUBMITTED_EVENT", rename_all = "camelCase")]
    Submitted {
        /// The clock of this change.
        clock: u64,
        /// The event.
        event_time: EventTime<'a>,
    },
    /// A duplicate invalidated the event. It will not be published.
    #[serde(rename = "INVALIDATED_EVENT", rename_all = "camelCase")]
    Invalidated {
        /// The clock of this change.
        clock: u64,
        /// The event.
        event_time: EventTime<'a>,
    },
    /// The duration passed without a duplicate that invalidates the event.
    #[serde(rename = "PUBLISHED_EVENT", rename_all = "camelCase")]
    Published {
        /// The clock of this change.
        clock: u64,
        /// The event.
        event_time: EventTime<'a>,
    },
    /// All incubating events: the first message to a new follower, then repeated periodically.
    #[serde(rename = "KEY_FRAME")]
    KeyFrame {
        /// The clock of this change.
        clock: u64,
        /// The incubating events, in the order in which they were accepted.
        snapshot: Vec<SnapshotEvent<'a>>,
    },
}

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventTime<'a> {
    /// The text of the event.
    pub event: Cow<'a, str>,
    /// When the event was accepted, in epoch milliseconds.
    pub time: u64,
}

/// An event of a key frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotEvent<'a> {
    /// The text of the event.
    pub event: Cow<'a, str>,
    /// When the event was accepted, in epoch milliseconds.
    pub time: u64,
    /// Always `Valid`.
    pub status: SnapshotStatus,
}

/// The status of an event in a key frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum SnapshotStatus {
    /// The event incubates.
    Valid,
}
