//! `max_events` bounds the keys that are remembered, closed ones included.

use serde_json::json;

use crate::events::{Events, LONG, SLACK, now, setting, wait_until};
use crate::harness::{Server, eventually};
use crate::ledger::with;

#[track_caller]
fn make(events: &Events, mode: &str, duration: &str, max_events: u64) {
    events.put("s", &with(setting(mode, duration), json!({"max_events": max_events}))).created();
}

#[test]
fn a_full_stream_refuses_new_keys_and_changes_nothing() {
    let mut server = Server::fresh();
    make(&server.events(), "only_once", LONG, 3);
    for event in ["a", "b", "c"] {
        server.events().accept("s", event);
    }
    for round in 0..3 {
        let events = server.events();
        let before = events.incubating("s");
        for event in ["d", "e", "🌮"] {
            events.submit("s", event).refused(507, "StreamFull");
        }
        // A key that is remembered is a conflict, full or not.
        assert_eq!(events.submit("s", "a").conflict(false), before.events["a"]);
        assert_eq!(events.incubating("s"), before);
        match round {
            0 => server.restart(),
            _ => server.crash_and_restart(),
        }
    }
    // A larger one has room again.
    let events = server.events();
    events.put("s", &with(setting("only_once", LONG), json!({"max_events": 4}))).ok();
    events.accept("s", "d");
    events.submit("s", "e").refused(507, "StreamFull");
}

#[test]
fn room_comes_back_with_time() {
    let server = Server::fresh();
    let events = server.events();
    make(&events, "only_once", "700ms", 2);
    let mut last = 0;
    for round in 0..3 {
        for n in 0..2 {
            // Full by no more than what is still incubating.
            let event = eventually(|| {
                let reply = events.submit("s", &format!("{round}/{n}"));
                if reply.status == 201 {
                    return Some(reply.submitted());
                }
                reply.refused(507, "StreamFull");
                None
            });
            last = event.expect("there is room again").publishes_at;
        }
    }
    wait_until(last);
    events.await_none("s");
    let first = events.accept("s", "x");
    events.accept("s", "y");
    let reply = events.submit("s", "z");
    if now() + SLACK < first.publishes_at {
        reply.refused(507, "StreamFull");
    }
}

/// Invalidated is not forgotten: the key stays closed, and takes its room.
#[test]
fn closed_keys_are_counted() {
    let mut server = Server::fresh();
    make(&server.events(), "strictly_once", LONG, 2);
    let events = server.events();
    let first = events.accept("s", "a");
    assert_eq!(events.submit("s", "a").conflict(true), first.time);
    events.submit("s", "a").conflict(false);
    assert_eq!(events.incubating("s").events.len(), 0);
    events.accept("s", "b");
    for _ in 0..2 {
        let events = server.events();
        events.submit("s", "c").refused(507, "StreamFull");
        assert_eq!(events.incubating("s").events.keys().collect::<Vec<_>>(), ["b"]);
        server.crash_and_restart();
    }
    let events = server.events();
    assert_eq!(events.read("s").ok().body["incubating"], 1);
    events.submit("s", "b").conflict(true);
    events.submit("s", "c").refused(507, "StreamFull");
}

/// A closed key that opens by itself, with nobody asking for it, gives its room back.
#[test]
fn a_closed_key_is_forgotten_after_its_duration() {
    let server = Server::fresh();
    let events = server.events();
    make(&events, "strictly_once", "400ms", 1);
    for _ in 0..3 {
        let found = eventually(|| {
            let reply = events.submit("s", "a");
            (reply.status == 201).then(|| reply.submitted()).or_else(|| {
                wait_until(now() + 450);
                None
            })
        });
        let event = found.expect("there is room");
        let reply = events.submit("s", "a");
        if reply.status == 409 {
            assert_eq!(reply.conflict(true), event.time);
        }
        wait_until(now() + 450);
        let other = eventually(|| {
            let reply = events.submit("s", "b");
            (reply.status == 201).then_some(()).or_else(|| {
                reply.refused(507, "StreamFull");
                None
            })
        });
        assert!(other.is_some(), "the room of a closed key never came back");
        events.await_none("s");
    }
}
