//! What may change about a stream, and what may not.

use serde_json::{Value, json};

use crate::events::{LONG, SLACK, now, setting, wait_until};
use crate::harness::Server;
use crate::ledger::with;
use crate::stomp::{Kind, Stomp};

#[test]
fn another_mode_is_a_conflict() {
    let mut server = Server::fresh();
    for (mode, other) in [("only_once", "strictly_once"), ("strictly_once", "only_once")] {
        let events = server.events();
        events.put(mode, &setting(mode, LONG)).created();
        let event = events.accept(mode, "x");
        for _ in 0..2 {
            let events = server.events();
            events.put(mode, &setting(other, "1h")).refused(409, "StreamModeConflict");
            let read = events.read(mode).ok().has("mode", mode).has("duration_ms", 86_400_000);
            assert_eq!(read.body["clock"], event.clock);
            assert_eq!(events.incubating(mode).events["x"], event.time);
            events.put(mode, &setting(mode, LONG)).ok();
            server.crash_and_restart();
        }
    }
    // Once it is gone, the name is free for either.
    let events = server.events();
    events.delete("only_once").is(204);
    events.put("only_once", &setting("strictly_once", LONG)).created();
}

/// A changed duration holds for events from then on; those before keep theirs.
#[test]
fn a_changed_duration_holds_from_then_on() {
    let mut server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let long = events.accept("s", "long");
    events.put("s", &setting("only_once", "800ms")).ok();
    let short = events.accept("s", "short");
    assert_eq!(long.publishes_at, long.time + 86_400_000);
    assert_eq!(short.publishes_at, short.time + 800);
    assert_eq!(events.submit("s", "long").conflict(false), long.time);
    let refused = events.submit("s", "short");
    if now() + SLACK < short.publishes_at {
        assert_eq!(refused.conflict(false), short.time);
    }
    wait_until(short.publishes_at + SLACK);
    // With the short duration the first would have been over by now.
    assert_eq!(events.submit("s", "long").conflict(false), long.time);
    for _ in 0..2 {
        let events = server.events();
        let incubating = events.incubating("s");
        assert_eq!(incubating.publishes_at["long"], long.publishes_at);
        assert_eq!(events.read("s").ok().body["duration_ms"], 800);
        server.crash_and_restart();
    }
    // And the other way round: what was short stays short.
    let events = server.events();
    let short = events.accept("s", "another");
    events.put("s", &setting("only_once", LONG)).ok();
    wait_until(short.publishes_at + SLACK);
    let again = events.accept("s", "another");
    assert_eq!(again.publishes_at, again.time + 86_400_000);
}

/// The same strictly: the refused one counts as the latest occurrence, with the duration of its own time.
#[test]
fn a_changed_duration_holds_for_refused_events_too() {
    let server = Server::fresh();
    let events = server.events();
    events.strictly_once("s", LONG);
    let first = events.accept("s", "x");
    events.put("s", &setting("strictly_once", "500ms")).ok();
    // Incubating for a day, and invalidated today.
    assert_eq!(events.submit("s", "x").conflict(true), first.time);
    let refused = now();
    assert_eq!(events.incubating("s").events.len(), 0);
    // The key is closed for the duration of the latest occurrence, which came after the change.
    wait_until(refused + 500 + SLACK);
    let next = events.accept("s", "x");
    assert_eq!(next.publishes_at, next.time + 500);
}

#[test]
fn settings_are_told_and_kept() {
    let mut server = Server::fresh();
    let changes: [(Value, &str, u64); 3] = [
        (json!({"duration": "1m30s"}), "duration_ms", 90_000),
        (json!({"max_events": 77}), "max_events", 77),
        (json!({"key_frame_every": 250}), "key_frame_every_ms", 250),
    ];
    server.events().only_once("s", LONG);
    let clock = server.events().clock("s");
    for (change, field, told) in changes {
        server.events().put("s", &with(setting("only_once", LONG), change)).ok();
        for _ in 0..2 {
            server.events().read("s").ok().has(field, told).has("clock", clock);
            server.crash_and_restart();
        }
    }
}

/// Fewer than are remembered: those stay, and end as they would have.
#[test]
fn a_smaller_bound_forgets_nothing() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", "2s");
    let mut stomp = Stomp::connect(&server);
    let mut follower = stomp.follow("0", "/topic/s");
    for event in ["a", "b", "c"] {
        events.accept("s", event);
    }
    let reply = events.put("s", &with(setting("only_once", "2s"), json!({"max_events": 1})));
    if reply.status == 200 {
        let last = events.await_none("s");
        stomp.follow_to(&mut follower, last.clock);
        let published = follower.changes.iter().filter(|change| change.kind == Kind::Published);
        assert_eq!(published.count(), 3);
    }
}
