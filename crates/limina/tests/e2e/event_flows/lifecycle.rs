//! Each submitted event is either published or invalidated, exactly once.

use std::collections::BTreeMap;

use serde_json::json;

use crate::events::{Events, SLACK, Submitted, now, setting};
use crate::harness::{Server, eventually};
use crate::ledger::with;
use crate::reply::Reply;
use crate::stomp::{Change, Follower, Kind, Stomp};

#[test]
fn an_event_is_published_after_its_duration_and_not_before() {
    let server = Server::fresh();
    let events = server.events();
    for mode in ["only_once", "strictly_once"] {
        events.put(mode, &setting(mode, "300ms")).created();
        let mut stomp = Stomp::connect(&server);
        let mut follower = stomp.follow("0", &format!("/topic/{mode}"));
        for _ in 0..3 {
            let sent = events.accept(mode, "🌮");
            assert_eq!(sent.publishes_at, sent.time + 300);
            let submitted = stomp.push().change();
            let published = stomp.push().change();
            let came = now();
            let time = sent.time;
            assert_eq!(submitted, change(Kind::Submitted, sent.clock, "🌮", time));
            assert_eq!(published, change(Kind::Published, sent.clock + 1, "🌮", time));
            assert!(came + SLACK >= sent.publishes_at, "published at {came}, {sent:?}");
            let incubating = events.incubating(mode);
            assert_eq!((incubating.clock, incubating.events), (sent.clock + 1, BTreeMap::new()));
            follower.clock = published.clock;
        }
    }
}

fn change(kind: Kind, clock: u64, event: &str, time: u64) -> Change {
    Change { kind, clock, event: event.to_owned(), time }
}

/// Many clients submit few keys in both modes: every accepted event ends once, and the stream contains each change.
#[test]
fn every_event_ends_exactly_once_under_load() {
    let server = Server::fresh();
    let events = server.events();
    for mode in ["only_once", "strictly_once"] {
        events.put(mode, &with(setting(mode, "150ms"), json!({"key_frame_every": "100ms"}))).created();
        let mut stomp = Stomp::connect(&server);
        let mut follower = stomp.follow("0", &format!("/topic/{mode}"));
        let told: Vec<(Vec<Submitted>, Vec<u64>)> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8)
                .map(|n| {
                    scope.spawn({
                        let events = events.clone();
                        move || submit_many(&events, mode, n)
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("a client")).collect()
        });
        let last = events.await_none(mode);
        stomp.follow_to(&mut follower, last.clock);
        assert_eq!((follower.clock, follower.jumps), (last.clock, 0), "every change came");
        let accepted: Vec<Submitted> = told.iter().flat_map(|(accepted, _)| accepted.clone()).collect();
        let invalidated: Vec<u64> = told.iter().flat_map(|(_, invalidated)| invalidated.clone()).collect();
        check_ends(&follower, &accepted);
        let ended = |kind| follower.changes.iter().filter(|change| change.kind == kind).count();
        assert_eq!(ended(Kind::Invalidated), invalidated.len(), "each invalidation was told to one client");
        assert_eq!(ended(Kind::Published) + ended(Kind::Invalidated), accepted.len());
        assert!(mode == "strictly_once" || invalidated.is_empty());
        assert!(!accepted.is_empty());
    }
}

/// Submits events. Returns the accepted submissions, and the times of the events that were invalidated.
fn submit_many(events: &Events, stream: &str, client: u64) -> (Vec<Submitted>, Vec<u64>) {
    let (mut accepted, mut invalidated) = (Vec::new(), Vec::new());
    let mut random = crate::load::Random::new(client + 1);
    for _ in 0..150 {
        let event = format!("key {}", random.below(40));
        let reply = events.submit(stream, &event);
        match reply.status {
            201 => accepted.push(reply.submitted()),
            _ => {
                let reply: Reply = reply.refused(409, "EventConflict");
                if reply.body["invalidated"] == true {
                    invalidated.push(reply.conflict(true));
                }
            }
        }
    }
    (accepted, invalidated)
}

/// Checks that the follower saw each of these events submitted, at its clock, and ended once; and no other events.
#[track_caller]
pub(crate) fn check_ends(follower: &Follower, accepted: &[Submitted]) {
    let mut seen: BTreeMap<(&str, u64), Vec<Kind>> = BTreeMap::new();
    for change in &follower.changes {
        seen.entry((&change.event, change.time)).or_default().push(change.kind);
    }
    for ((event, time), kinds) in &seen {
        let fine = matches!(kinds[..], [Kind::Submitted, Kind::Published | Kind::Invalidated]);
        assert!(fine, "{event} of {time}: {kinds:?}");
    }
    for event in accepted {
        let at = follower.changes.iter().find(|change| change.clock == event.clock);
        let at = at.unwrap_or_else(|| panic!("no change at the clock of {event:?}"));
        assert_eq!(
            (at.kind, at.event.as_str(), at.time),
            (Kind::Submitted, event.event.as_str(), event.time)
        );
    }
    assert_eq!(seen.len(), accepted.len(), "events that nobody submitted, or that are missing");
}

/// Thousands of events fall due at nearly the same time.
#[test]
fn many_events_fall_due_in_order() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", "3s");
    let mut stomp = Stomp::connect(&server);
    let mut follower = stomp.follow("0", "/topic/s");
    let mut accepted: Vec<Submitted> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let events = events.clone();
                scope.spawn(move || {
                    (0..250).map(|n| events.accept("s", &format!("{client}/{n}"))).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    accepted.sort_by_key(|event| event.clock);
    assert!(accepted.is_sorted_by_key(|event| event.time), "the times grow with the clock");
    let end = eventually(|| {
        let now = events.incubating("s");
        now.events.is_empty().then_some(now.clock)
    });
    stomp.follow_to(&mut follower, end.expect("all are published"));
    check_ends(&follower, &accepted);
    let published = follower.changes.iter().filter(|change| change.kind == Kind::Published);
    assert!(published.is_sorted_by_key(|change| change.time), "in the order in which they were due");
}
