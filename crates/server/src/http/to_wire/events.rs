//! The replies of the events family, and the messages to followers.

use super::borrowed;
use limina_api::{
    Page,
    events::{
        EventTime, Incubating, IncubatingEvent, Message, Mode, SnapshotEvent, SnapshotStatus, Stream,
        Submitted, SubmittedStatus,
    },
};
use limina_engine::{
    Listed, Name,
    events::{self, Change, ChangeKind, EventInfo, KeyFrame, StreamInfo},
};
use limina_node::StreamUpdate;
use std::borrow::Cow;

pub(crate) fn stream(info: &StreamInfo) -> Stream<'_> {
    Stream {
        name: borrowed(&info.name),
        mode: match info.terms.mode() {
            events::Mode::OnlyOnce => Mode::OnlyOnce,
            events::Mode::StrictlyOnce => Mode::StrictlyOnce,
        },
        duration_ms: info.terms.duration().0,
        max_events: info.terms.max_events(),
        key_frame_every_ms: info.terms.key_frame_every().0,
        clock: info.clock,
        incubating: info.incubating,
    }
}

pub(crate) fn streams(listed: &Listed<StreamInfo, Name>) -> Page<Stream<'_>> {
    let next = listed.next.as_ref().map(Name::to_string);
    Page { items: listed.items.iter().map(stream).collect(), next }
}

pub(crate) fn submitted(submitted: &events::Submitted) -> Submitted<'_> {
    let EventInfo { event, time, publishes_at } = &submitted.event;
    Submitted {
        status: SubmittedStatus::Submitted,
        event: Cow::Borrowed(event),
        time: time.0,
        clock: submitted.clock,
        publishes_at: publishes_at.0,
    }
}

pub(crate) fn incubating(frame: &KeyFrame) -> Incubating<'_> {
    Incubating { clock: frame.clock, events: frame.events.iter().map(incubating_event).collect() }
}

fn incubating_event(EventInfo { event, time, publishes_at }: &EventInfo) -> IncubatingEvent<'_> {
    IncubatingEvent { event: Cow::Borrowed(event), time: time.0, publishes_at: publishes_at.0 }
}

pub(crate) fn message(told: &StreamUpdate) -> Message<'_> {
    match told {
        StreamUpdate::Change(change) => changed(change),
        StreamUpdate::KeyFrame(frame) => {
            Message::KeyFrame { clock: frame.clock, snapshot: frame.events.iter().map(snapshot).collect() }
        }
    }
}

fn changed(Change { clock, kind, event, time }: &Change) -> Message<'_> {
    let (clock, event_time) = (*clock, EventTime { event: Cow::Borrowed(event), time: time.0 });
    match kind {
        ChangeKind::Submitted => Message::Submitted { clock, event_time },
        ChangeKind::Invalidated => Message::Invalidated { clock, event_time },
        ChangeKind::Published => Message::Published { clock, event_time },
    }
}

fn snapshot(EventInfo { event, time, .. }: &EventInfo) -> SnapshotEvent<'_> {
    SnapshotEvent { event: Cow::Borrowed(event), time: time.0, status: SnapshotStatus::Valid }
}
