//! Events: each acknowledged event is submitted and published exactly once, and followers see no gap.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::client::{Client, Round};
use crate::events::{Events, Submitted};
use crate::load::Random;
use crate::sse::Sse;
use crate::stomp::{Follower, Kind};

const STREAM: &str = "s";

/// Creates the stream, and returns its first clock.
#[track_caller]
pub(crate) fn make(client: &mut Client<'_>) -> u64 {
    let setting = json!({"mode": "only_once", "duration": "1s", "key_frame_every": "500ms"});
    client.retry("PUT", &format!("/events/{STREAM}"), &setting).reply.created().number("clock")
}

pub(crate) fn work(mut client: Client<'_>) -> Vec<Submitted> {
    let mut told: Vec<Submitted> = Vec::new();
    while client.round.go_on() {
        let event = format!("{}-{}", client.name, told.len());
        let reply = client.retry("POST", &format!("/events/{STREAM}"), &json!({"event": event})).reply;
        let submitted = reply.submitted();
        let before = told.last().map_or(0, |last| last.clock);
        assert!(submitted.clock > before, "the clock went back: {submitted:?} after {before}");
        told.push(submitted);
        client.round.rest();
    }
    told
}

/// Follows the stream from clock `first` to clock `last`. Each connection is to any of the nodes, and resumes where the
/// last one ended.
pub(crate) fn follow(round: &Round, namespace: &str, seed: u64, first: u64, last: &AtomicU64) -> Follower {
    let mut random = Random::new(seed);
    // The follower starts as if it had seen the stream when it was created and empty.
    let mut follower = Follower { clock: first, key_frames: 1, ..Follower::default() };
    let path = format!("/v1/ns/{namespace}/events/{STREAM}/stream");
    while follower.clock < last.load(Ordering::Relaxed) {
        let after = follower.clock.to_string();
        if let Ok((head, sse)) = Sse::ask(round.any(&mut random), &path, Some(&after))
            && head.starts_with("http/1.1 200")
            // A response with a known length is an error: that node cannot serve the stream yet.
            && head.contains("transfer-encoding: chunked")
        {
            read(sse, &mut follower, last);
        }
        round.rest();
    }
    follower
}

/// Reads until the stream ends or skips a change. All changes are kept, so a skipped change can be requested again.
fn read(mut sse: Sse, follower: &mut Follower, last: &AtomicU64) {
    while follower.clock < last.load(Ordering::Relaxed)
        && let Some(sent) = sse.next()
    {
        let push = sent.push();
        if push.is_key_frame() && push.clock() > follower.clock {
            return;
        }
        follower.fold(push);
    }
}

/// Returns the clock of the stream's last change, once no event is incubating any more.
#[track_caller]
pub(crate) fn last_clock(events: &Events) -> u64 {
    events.await_none(STREAM).clock
}

/// Checks that the follower saw every event submitted and published once, and each acknowledged event at its clock.
#[track_caller]
pub(crate) fn check(follower: &Follower, told: &[Submitted]) {
    let of = |kind: Kind| -> BTreeMap<&str, u64> {
        let changes = follower.changes.iter().filter(|change| change.kind == kind);
        let clocks: Vec<(&str, u64)> = changes.map(|change| (change.event.as_str(), change.clock)).collect();
        let by_event: BTreeMap<&str, u64> = clocks.iter().copied().collect();
        assert_eq!(by_event.len(), clocks.len(), "an event was {kind:?} twice");
        by_event
    };
    let told: BTreeMap<&str, u64> =
        told.iter().map(|submitted| (submitted.event.as_str(), submitted.clock)).collect();
    let submitted = of(Kind::Submitted);
    assert_eq!(submitted, told, "what was submitted, and what was acknowledged");
    assert!(of(Kind::Published).keys().eq(submitted.keys()), "each is published once");
}
