//! Subscriptions begin and end while streams change: each subscription is consistent, and nothing remains of those that
//! ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;

use crate::event_flows::stomp_stalled::resident;
use crate::events::{Events, LONG, setting};
use crate::harness::{DEADLINE, Server, eventually};
use crate::ledger::with;
use crate::locks::PROMPT;
use crate::stomp::{Follower, Stomp, V12};
use crate::websocket::{Received, WebSocket};

/// Submits events until `over` is set.
fn write_on(events: &Events, stream: &str, writer: u64, over: &AtomicBool) {
    let mut random = crate::load::Random::new(writer + 1);
    while !over.load(Ordering::Relaxed) {
        let reply = events.submit(stream, &format!("{writer}/{}", random.below(30)));
        assert!([201, 409, 404].contains(&reply.status), "{}", reply.text);
    }
}

/// One connection subscribes and unsubscribes with the same id repeatedly: after the receipt of UNSUBSCRIBE, no message
/// of that subscription arrives.
#[test]
fn subscribing_and_unsubscribing_under_load() {
    let server = Server::fresh();
    let events = server.events();
    let body = json!({"key_frame_every": "100ms"});
    events.put("s", &with(setting("strictly_once", "100ms"), body)).created();
    let over = AtomicBool::new(false);
    let mut stomp = Stomp::connect(&server);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (events, over) = (&events, &over);
            scope.spawn(move || write_on(events, "s", writer, over));
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut resume: Option<u64> = None;
            for round in 0..60 {
                let mut follower = Follower::default();
                match resume {
                    Some(after) if round % 2 == 0 => {
                        stomp.resume("again", "/topic/s", after);
                        // This test does not know which events were incubating then, but it knows the clocks.
                        for clock in after + 1..after + 6 {
                            assert_eq!(stomp.push_change().clock, clock, "round {round}");
                        }
                        follower.clock = after + 5;
                    }
                    _ => {
                        follower = stomp.follow("again", "/topic/s");
                        let to = follower.clock + 5;
                        stomp.follow_to(&mut follower, to);
                    }
                }
                let receipt = format!("r{round}");
                stomp.send("UNSUBSCRIBE", &[("id", "again"), ("receipt", &receipt)], "");
                let mut last = follower.clock;
                loop {
                    let frame = stomp.receive();
                    if frame.command == "RECEIPT" {
                        assert_eq!(frame.header("receipt-id"), Some(receipt.as_str()));
                        break;
                    }
                    let push = frame.push();
                    assert_eq!(push.clock(), last + u64::from(!push.is_key_frame()));
                    last = push.clock();
                }
                resume = Some(last);
            }
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

/// A stream is deleted and created again while many clients subscribe. Each subscription gets messages of one stream,
/// from its key frame to the ERROR, or of none, and never the clocks of an earlier stream.
#[test]
fn subscribing_while_a_stream_is_recreated() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let over = AtomicBool::new(false);
    let address = server.address();
    let told: Vec<BTreeMap<u64, String>> = std::thread::scope(|scope| {
        let subscribers: Vec<_> = (0..4)
            .map(|_| {
                let over = &over;
                scope.spawn(move || {
                    let mut seen: BTreeMap<u64, String> = BTreeMap::new();
                    while !over.load(Ordering::Relaxed) {
                        let mut stomp = Stomp::connect_to(address);
                        stomp.subscribe("0", "/topic/s");
                        let mut follower = Follower::default();
                        loop {
                            let frame = stomp.receive();
                            if frame.command == "ERROR" {
                                frame.error_naming("StreamNotFound");
                                break;
                            }
                            follower.fold(frame.push());
                        }
                        stomp.expect_close();
                        for change in follower.changes {
                            let before = seen.insert(change.clock, change.event.clone());
                            assert_eq!(before, None, "a clock twice: {change:?}");
                        }
                    }
                    seen
                })
            })
            .collect();
        for round in 0..40 {
            for n in 0..5 {
                events.accept("s", &format!("{round}/{n}"));
            }
            events.delete("s").is(204);
            events.only_once("s", LONG);
        }
        over.store(true, Ordering::Relaxed);
        events.delete("s").is(204);
        subscribers.into_iter().map(|subscriber| subscriber.join().expect("a subscriber")).collect()
    });
    let mut all: BTreeMap<u64, String> = BTreeMap::new();
    for (clock, event) in told.into_iter().flatten() {
        let known = all.entry(clock).or_insert_with(|| event.clone());
        assert_eq!(*known, event, "two changes with the clock {clock}");
    }
}

/// When connections break, the server closes their sockets too.
#[test]
fn sockets_of_vanished_subscribers_are_closed() {
    let mut server = Server::fresh();
    server.events().only_once("s", LONG);
    server.events().accept("s", "x");
    let path = format!("/proc/{}/fd", server.process().id());
    let open = || std::fs::read_dir(&path).expect("the server's files").count();
    let before = open();
    for round in 0..3 {
        let subscribers: Vec<Stomp> = (0..100)
            .map(|_| {
                let mut stomp = Stomp::connect(&server);
                stomp.follow("0", "/topic/s");
                stomp
            })
            .collect();
        assert!(open() >= before + 100);
        for mut stomp in subscribers {
            stomp.socket().vanish();
        }
        let mut now = 0;
        let closed = eventually(|| {
            now = open();
            (now < before + 50).then_some(())
        });
        assert!(closed.is_some(), "round {round}: {now} files are open, {before} were before");
    }
}

/// The server answers a client's close frame with a close frame (RFC 6455, 5.5.1).
#[test]
fn a_close_is_answered_with_a_close() {
    let server = Server::fresh();
    let mut subscribed = Stomp::connect(&server);
    server.events().only_once("s", LONG);
    subscribed.follow("0", "/topic/s");
    check_close("subscribed", subscribed.socket());
    check_close("connected", Stomp::connect(&server).socket());
}

#[test]
fn a_close_before_connect_is_answered_with_a_close() {
    let server = Server::fresh();
    check_close("not connected yet", &mut WebSocket::open(server.address(), &[V12]));
}

#[track_caller]
fn check_close(when: &str, socket: &mut WebSocket) {
    socket.send(8, &1000_u16.to_be_bytes());
    assert_eq!(socket.receive(DEADLINE), Received::Close(Some(1000)), "{when}");
}

/// Subscribers that do not read delay neither a stop nor the end of their stream.
#[test]
fn a_stop_does_not_wait_for_stalled_subscribers() {
    let mut server = Server::fresh();
    let events = server.events();
    events.put("s", &with(setting("only_once", LONG), json!({"key_frame_every": "100ms"}))).created();
    events.only_once("gone", LONG);
    let _stalled: Vec<Stomp> = (0..10)
        .map(|_| {
            let mut stomp = Stomp::connect(&server);
            stomp.subscribe("0", "/topic/s");
            stomp
        })
        .collect();
    let mut told = Stomp::connect(&server);
    told.subscribe("0", "/topic/gone");
    // Key frames of about 300 KB, ten times a second, soon fill the buffers of the sockets.
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let events = &events;
            scope.spawn(move || {
                for n in 0..80 {
                    events.accept("s", &format!("{writer}/{n}/{}", "x".repeat(1000)));
                    events.accept("gone", &format!("{writer}/{n}/{}", "x".repeat(1000)));
                }
            });
        }
    });
    let before = resident(&mut server);
    let filled = Instant::now();
    while filled.elapsed() < std::time::Duration::from_secs(3) {
        events.incubating("s");
    }
    // A key frame is encoded once, however many subscribers wait for it.
    let grown = resident(&mut server).saturating_sub(before);
    assert!(grown < 48 << 20, "grown by {} MiB", grown >> 20);
    events.delete("gone").is(204);
    // The subscriber now reads the pending messages, or the key frame that replaced them. The last message is the
    // ERROR.
    loop {
        let frame = told.receive();
        if frame.command == "ERROR" {
            frame.error_naming("StreamNotFound");
            break;
        }
    }
    told.expect_close();
    let stopped = Instant::now();
    server.stop();
    assert!(stopped.elapsed() < 2 * PROMPT, "the stop took {:?}", stopped.elapsed());
}
