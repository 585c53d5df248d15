//! Idempotency-Key: a blind retry of a strictly-once event would invalidate one's own.

use std::thread::scope;

use serde_json::json;

use crate::events::{LONG, SLACK, now, wait_until};
use crate::harness::Server;
use crate::reply::Reply;

#[test]
fn a_retry_with_its_key_does_not_invalidate() {
    let mut server = Server::fresh();
    for mode in ["only_once", "strictly_once"] {
        server.events().put(mode, &crate::events::setting(mode, LONG)).created();
        let key = format!("once {mode}");
        let first = server.events().submit_keyed(&key, mode, "🌮");
        let told = first.submitted();
        for round in 0..4 {
            let events = server.events();
            let again = events.submit_keyed(&key, mode, "🌮");
            assert_eq!((again.status, &again.body), (201, &first.body), "round {round}");
            let incubating = events.incubating(mode);
            assert_eq!((incubating.clock, incubating.events["🌮"]), (told.clock, told.time));
            match round {
                1 => server.restart(),
                _ => server.crash_and_restart(),
            }
        }
        let events = server.events();
        // Without it, and with another one, it is a duplicate.
        let strictly = mode == "strictly_once";
        assert_eq!(events.submit_keyed(&format!("twice {mode}"), mode, "🌮").conflict(strictly), told.time);
        events.submit(mode, "🌮").conflict(false);
        // The first reply, still.
        assert_eq!(events.submit_keyed(&key, mode, "🌮").body, first.body);
        events.submit_keyed(&key, mode, "🍎").refused(422, "IdempotencyKeyReused");
    }
}

/// A refusal that invalidates has changed something: its reply is kept too.
#[test]
fn a_refusal_that_invalidated_is_kept() {
    let mut server = Server::fresh();
    let events = server.events();
    events.strictly_once("s", LONG);
    let first = events.accept("s", "x");
    let refused = events.submit_keyed("dup", "s", "x");
    assert_eq!(refused.conflict(true), first.time);
    let clock = events.clock("s");
    for _ in 0..2 {
        let events = server.events();
        let again = events.submit_keyed("dup", "s", "x");
        assert_eq!(again.conflict(true), first.time, "the first reply again");
        assert_eq!(events.clock("s"), clock);
        server.crash_and_restart();
    }
}

/// Many retries at once: one event, and everybody is told of the same.
#[test]
fn retries_at_once_are_one_event() {
    let server = Server::fresh();
    let events = server.events();
    events.strictly_once("s", LONG);
    for round in 0..10 {
        let event = format!("x{round}");
        let replies: Vec<Reply> = scope(|scope| {
            let clients: Vec<_> =
                (0..8).map(|_| scope.spawn(|| events.submit_keyed(&event, "s", &event))).collect();
            clients.into_iter().map(|client| client.join().expect("a client")).collect()
        });
        let mut told: Vec<_> = replies
            .into_iter()
            .filter_map(|reply| match reply.status {
                201 => Some(reply.submitted()),
                _ => {
                    reply.refused(409, "IdempotencyKeyInUse");
                    None
                }
            })
            .collect();
        told.dedup();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(events.incubating("s").events.get(&event), Some(&told[0].time), "not invalidated");
    }
}

#[test]
fn making_a_stream_is_repeated_too() {
    let server = Server::fresh();
    let events = server.events();
    let put = |key: &str, duration: &str| {
        let body =
            json!({"mode": "only_once", "duration": duration, "max_events": 10, "key_frame_every": "1m"});
        Reply::to(events.request("PUT", "/s").header("idempotency-key", key).json(&body))
    };
    let first = put("make", "1h").created();
    let again = put("make", "1h").created();
    assert_eq!(again.body, first.body);
    put("make", "2h").refused(422, "IdempotencyKeyReused");
    put("other", "1h").ok();
}

/// The two paths of the original take keys as well.
#[test]
fn the_plain_paths_take_keys() {
    let mut server = Server::fresh();
    let post = |server: &Server, body: &str| {
        let request = server.http().post(server.url("/strictly-once-event"));
        Reply::to(request.header("idempotency-key", "\"k\"").body(body.to_owned()))
    };
    let first = post(&server, "🌮").submitted();
    assert_eq!(post(&server, "🌮").submitted(), first);
    post(&server, "🍎").refused(422, "IdempotencyKeyReused");
    server.crash_and_restart();
    assert_eq!(post(&server, "🌮").submitted(), first);
}

/// A refused event that invalidates nothing keeps the key closed, and so has changed something: its retry is no new
/// occurrence.
#[test]
fn a_retry_of_a_refused_event_keeps_nothing_closed() {
    let server = Server::fresh();
    let events = server.events();
    let duration = 1500;
    let done = (0..10).any(|attempt| {
        let stream = format!("s{attempt}");
        events.strictly_once(&stream, &format!("{duration}ms"));
        let first = events.accept(&stream, "x");
        let invalidates = events.submit_keyed(&format!("a{attempt}"), &stream, "x");
        let key = format!("b{attempt}");
        let before = now();
        let refused = events.submit_keyed(&key, &stream, "x");
        let latest = now();
        if latest + SLACK >= first.publishes_at {
            return false;
        }
        assert_eq!(invalidates.conflict(true), first.time);
        refused.conflict(false);
        wait_until(latest + duration / 2);
        let again = events.submit_keyed(&key, &stream, "x");
        if now() + SLACK >= before + duration {
            return false;
        }
        assert_eq!((again.status, &again.body), (409, &refused.body), "the first reply again");
        wait_until(latest + duration + SLACK);
        if now() + SLACK >= latest + duration + duration / 2 {
            // So late that it shows nothing.
            return false;
        }
        events.accept(&stream, "x");
        true
    });
    assert!(done, "the machine is too slow for this");
}

/// A refusal that changed nothing is evaluated afresh.
#[test]
fn refusals_that_change_nothing_are_evaluated_afresh() {
    let server = Server::fresh();
    let events = server.events();
    let body = json!({"mode": "only_once", "duration": "2s", "max_events": 1, "key_frame_every": "1h"});
    events.put("s", &body).created();
    let first = events.accept("s", "x");
    let duplicate = events.submit_keyed("duplicate", "s", "x");
    let full = events.submit_keyed("full", "s", "y");
    if now() + SLACK < first.publishes_at {
        assert_eq!(duplicate.conflict(false), first.time);
        full.clone().refused(507, "StreamFull");
    }
    events.await_none("s");
    wait_until(first.publishes_at + SLACK);
    if (duplicate.status, full.status) == (409, 507) {
        events.submit_keyed("duplicate", "s", "x").submitted();
    }
    let found = crate::harness::eventually(|| {
        let reply = events.submit_keyed("full", "s", "y");
        (reply.status == 201).then_some(())
    });
    assert!(found.is_some(), "full for ever");
}

/// Nor is a stream that was not there kept as missing.
#[test]
fn an_unknown_stream_is_looked_for_again() {
    let server = Server::fresh();
    let events = server.events();
    events.submit_keyed("k", "s", "x").refused(404, "StreamNotFound");
    events.only_once("s", LONG);
    let first = events.submit_keyed("k", "s", "x").submitted();
    assert_eq!(events.submit_keyed("k", "s", "x").submitted(), first);
}
