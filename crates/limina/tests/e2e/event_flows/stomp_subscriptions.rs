//! The messages of a subscription: a key frame at once, and then every change in the order of clocks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::events::{LONG, setting};
use crate::harness::Server;
use crate::ledger::with;
use crate::stomp::{Follower, Kind, Push, Stomp, V10, V11};

#[test]
fn subscribers_get_a_key_frame_and_then_every_change() {
    let server = Server::fresh();
    let events = server.events();
    events.strictly_once("s", LONG);
    let before = events.accept("s", "before");
    let mut stomp = Stomp::connect(&server);
    stomp.subscribe("my sub", "/topic/s");
    let frame = stomp.receive().is("MESSAGE").has("subscription", "my sub").has("destination", "/topic/s");
    let key_frame =
        Push::KeyFrame { clock: before.clock, snapshot: [("before".to_owned(), before.time)].into() };
    assert_eq!(frame.push(), key_frame);
    assert_eq!(frame.header("ack"), None, "the mode is auto");
    let mut ids = vec![frame.header("message-id").expect("`message-id`").to_owned()];
    let taco = events.accept("s", "🌮");
    events.submit("s", "🌮").conflict(true);
    for (kind, clock) in [(Kind::Submitted, taco.clock), (Kind::Invalidated, taco.clock + 1)] {
        let frame =
            stomp.receive().is("MESSAGE").has("subscription", "my sub").has("destination", "/topic/s");
        let change = frame.push().change();
        assert_eq!((change.kind, change.clock), (kind, clock));
        assert_eq!((change.event.as_str(), change.time), ("🌮", taco.time));
        ids.push(frame.header("message-id").expect("`message-id`").to_owned());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "message ids differ: {ids:?}");
}

#[test]
fn periodic_key_frames_equal_the_state() {
    let server = Server::fresh();
    let events = server.events();
    events.put("s", &with(setting("only_once", "400ms"), json!({"key_frame_every": "100ms"}))).created();
    let mut stomp = Stomp::connect(&server);
    let begun = Instant::now();
    let mut follower = stomp.follow("0", "/topic/s");
    let mut n = 0;
    // Each key frame is compared with the folded state at the same clock.
    while follower.key_frames < 12 {
        n += 1;
        events.accept("s", &n.to_string());
        let push = stomp.push();
        follower.fold(push);
    }
    assert!(begun.elapsed() >= Duration::from_millis(900), "eleven in {:?}", begun.elapsed());
    let last = events.await_none("s");
    stomp.follow_to(&mut follower, last.clock);
    assert_eq!((follower.jumps, follower.incubating), (0, BTreeMap::new()));
}

#[test]
fn an_unknown_stream_is_an_error() {
    let server = Server::fresh();
    for topic in ["/topic/unknown", "/topic/red/unknown", "/topic/%F0%9F%8C%AE"] {
        let mut stomp = Stomp::connect(&server);
        stomp.send("SUBSCRIBE", &[("id", "0"), ("destination", topic), ("receipt", "r")], "");
        stomp.receive().error_naming("StreamNotFound").has("receipt-id", "r");
        stomp.expect_close();
    }
}

#[test]
fn invalid_destinations_are_errors() {
    let server = Server::fresh();
    for destination in
        ["", "/", "/topic", "/topic/", "/topic/a/b/c", "/queue/s", "s", "/topic/%zz", "/topic/%ff"]
    {
        let mut stomp = Stomp::connect(&server);
        stomp.subscribe("0", destination);
        stomp.receive().is("ERROR");
        stomp.expect_close();
    }
}

/// ACK and NACK as each version defines them: both are accepted, and no message is delivered again.
#[test]
fn acknowledgements_are_accepted_without_redelivery() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    for (round, (protocols, version)) in
        [(&[][..], "1.2"), (&[V11], "1.1"), (&[V10], "1.0")].into_iter().enumerate()
    {
        for mode in ["auto", "client", "client-individual"] {
            if (version, mode) == ("1.0", "client-individual") {
                continue;
            }
            let (mut stomp, _) = Stomp::connect_with(&server, protocols, &[("accept-version", version)]);
            stomp.send("SUBSCRIBE", &[("id", "0"), ("destination", "/topic/s"), ("ack", mode)], "");
            let mut follower = Follower::default();
            for n in 0..6 {
                if n > 0 {
                    events.accept("s", &format!("{round} {mode} {n}"));
                }
                let frame = stomp.receive();
                follower.fold(frame.push());
                if mode == "auto" {
                    continue;
                }
                let id = frame.header("message-id").expect("`message-id`");
                let headers = match version {
                    "1.2" => vec![("id", frame.header("ack").expect("`ack` in 1.2"))],
                    "1.1" => vec![("message-id", id), ("subscription", "0")],
                    _ => vec![("message-id", id)],
                };
                let command = if version != "1.0" && n % 2 == 1 { "NACK" } else { "ACK" };
                stomp.send(command, &headers, "");
            }
            assert_eq!(stomp.receive_within(Duration::from_millis(50)), None, "a redelivery, or an ERROR");
            events.accept("s", &format!("{round} {mode} last"));
            follower.fold(stomp.push());
            assert_eq!(follower.jumps, 0);
        }
    }
}

/// A client that acknowledges nothing still gets all messages.
#[test]
fn missing_acknowledgements_block_nothing() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let mut stomp = Stomp::connect(&server);
    stomp.send("SUBSCRIBE", &[("id", "0"), ("destination", "/topic/s"), ("ack", "client-individual")], "");
    let mut follower = Follower::default();
    follower.fold(stomp.push());
    let last = (0..300).map(|n| events.accept("s", &n.to_string()).clock).max().expect("some");
    stomp.follow_to(&mut follower, last);
    assert_eq!((follower.changes.len(), follower.jumps), (300, 0));
}

#[test]
fn in_1_0_a_subscription_needs_no_id() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    let (mut stomp, _) = Stomp::connect_with(&server, &[V10], &[]);
    stomp.send("SUBSCRIBE", &[("destination", "/topic/s")], "");
    let frame = stomp.receive().is("MESSAGE").has("destination", "/topic/s");
    assert!(frame.push().is_key_frame());
    stomp.send("UNSUBSCRIBE", &[("destination", "/topic/s"), ("receipt", "u")], "");
    stomp.receive().is("RECEIPT").has("receipt-id", "u");
    server.events().accept("s", "x");
    assert_eq!(stomp.receive_within(Duration::from_millis(100)), None);
}

#[test]
fn several_subscriptions_on_one_connection() {
    let server = Server::fresh();
    let events = server.events();
    for stream in ["a", "b"] {
        events.only_once(stream, LONG);
    }
    let mut stomp = Stomp::connect(&server);
    let mut followers: BTreeMap<&str, Follower> = BTreeMap::new();
    for (id, topic) in [("1", "/topic/a"), ("2", "/topic/b"), ("3", "/topic/default/a")] {
        followers.insert(id, stomp.follow(id, topic));
    }
    for n in 0..20 {
        events.accept("a", &n.to_string());
        events.accept("b", &n.to_string());
    }
    for _ in 0..60 {
        let frame = stomp.receive();
        let id = frame.header("subscription").expect("`subscription`").to_owned();
        followers.get_mut(id.as_str()).expect("one of ours").fold(frame.push());
    }
    for (id, stream) in [("1", "a"), ("2", "b"), ("3", "a")] {
        let incubating = events.incubating(stream);
        let follower = &followers[id];
        assert_eq!((follower.clock, &follower.incubating), (incubating.clock, &incubating.events), "{id}");
    }
    // One subscription ends, and the others continue.
    stomp.send("UNSUBSCRIBE", &[("id", "1"), ("receipt", "u")], "");
    stomp.receive().is("RECEIPT").has("receipt-id", "u");
    events.accept("a", "after");
    stomp.receive().is("MESSAGE").has("subscription", "3");
    assert_eq!(stomp.receive_within(Duration::from_millis(100)), None);
    // The id is free again.
    stomp.follow("1", "/topic/b");
}

#[test]
fn resume_after_sends_the_changes_after_that_clock() {
    let mut server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let start = events.clock("s");
    let clocks: Vec<u64> = (0..100).map(|n| events.accept("s", &n.to_string()).clock).collect();
    for round in 0..3 {
        let mut stomp = Stomp::connect(&server);
        for (n, after) in [clocks[0], clocks[49], clocks[98]].into_iter().enumerate() {
            let id = n.to_string();
            stomp.resume(&id, "/topic/s", after);
            for clock in after + 1..=clocks[99] {
                let change = stomp.receive().has("subscription", &id).push().change();
                assert_eq!((change.clock, change.event), (clock, (clock - start - 1).to_string()));
            }
        }
        match round {
            0 => server.restart(),
            _ => server.crash_and_restart(),
        }
    }
    // At the stream's last clock, the subscription has nothing to send until the next change.
    let mut stomp = Stomp::connect(&server);
    stomp.resume("0", "/topic/s", clocks[99]);
    let next = server.events().accept("s", "next");
    assert_eq!(stomp.push().change().clock, next.clock);
}

#[test]
fn a_future_clock_gets_a_key_frame() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    for ahead in [1, 10_000, u64::MAX / 2] {
        let clock = events.accept("s", &format!("{ahead} ahead")).clock;
        let mut stomp = Stomp::connect(&server);
        stomp.resume("0", "/topic/s", clock + ahead);
        let push = stomp.push();
        assert!(push.is_key_frame(), "{ahead} ahead: {push:?}");
        assert_eq!(push.clock(), clock);
        events.accept("s", &format!("after {ahead}"));
        assert_eq!(stomp.push().change().clock, clock + 1, "and then the changes");
    }
}

#[test]
fn an_invalid_resume_after_causes_no_crash() {
    let server = Server::fresh();
    server.events().only_once("s", LONG);
    for after in ["x", "", "-1", "1.5", "99999999999999999999999"] {
        let mut stomp = Stomp::connect(&server);
        stomp.send("SUBSCRIBE", &[("id", "0"), ("destination", "/topic/s"), ("resume-after", after)], "");
        let frame = stomp.receive();
        assert!(["ERROR", "MESSAGE"].contains(&frame.command.as_str()), "{frame:?}");
    }
    Stomp::connect(&server).follow("0", "/topic/s");
}

/// All subscribers receive the same changes in the same order, whenever they subscribed.
#[test]
fn many_subscribers_see_the_same_order() {
    let server = Server::fresh();
    let events = server.events();
    events.strictly_once("s", "200ms");
    let told: Vec<Follower> = std::thread::scope(|scope| {
        let server = &server;
        let mut subscribers = Vec::new();
        let mut writers = Vec::new();
        for wave in 0..4 {
            for _ in 0..6 {
                let mut stomp = Stomp::connect(server);
                let mut follower = stomp.follow("0", "/topic/s");
                subscribers.push(scope.spawn(move || {
                    while !follower
                        .changes
                        .last()
                        .is_some_and(|change| change.event == "the end" && change.kind == Kind::Published)
                    {
                        follower.fold(stomp.push());
                    }
                    follower
                }));
            }
            let events = server.events();
            writers.push(scope.spawn(move || {
                let mut random = crate::load::Random::new(wave + 7);
                for _ in 0..150 {
                    let reply = events.submit("s", &random.below(60).to_string());
                    assert!([201, 409].contains(&reply.status), "{}", reply.text);
                }
            }));
        }
        for writer in writers {
            writer.join().expect("a writer");
        }
        server.events().accept("s", "the end");
        subscribers.into_iter().map(|subscriber| subscriber.join().expect("a subscriber")).collect()
    });
    let longest = told.iter().max_by_key(|follower| follower.changes.len()).expect("some");
    for follower in &told {
        assert_eq!((follower.jumps, follower.clock), (0, longest.clock));
        assert!(longest.changes.ends_with(&follower.changes), "another order");
    }
}

/// Connections that break without a close frame affect no other client.
#[test]
fn vanished_subscribers_leave_nothing_behind() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let mut stays = Stomp::connect(&server);
    let mut follower = stays.follow("0", "/topic/s");
    for round in 0..30 {
        let mut stomp = Stomp::connect(&server);
        stomp.subscribe("0", "/topic/s");
        stomp.socket().vanish();
        events.accept("s", &round.to_string());
    }
    let last = events.incubating("s");
    stays.follow_to(&mut follower, last.clock);
    assert_eq!((follower.changes.len(), follower.incubating), (30, last.events));
}

/// Only the server can publish on a topic.
#[test]
fn clients_cannot_publish_on_topics() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let mut listener = Stomp::connect(&server);
    let mut follower = listener.follow("0", "/topic/s");
    for destination in ["/topic/s", "/topic/default/s", "/topic/time", "/app/s"] {
        let mut stomp = Stomp::connect(&server);
        let body = json!({"messageType": "SUBMITTED_EVENT", "clock": follower.clock + 1,
            "eventTime": {"event": "forged", "time": 1}});
        stomp.send("SEND", &[("destination", destination), ("receipt", "r")], &body.to_string());
        // The SEND is refused or ignored. In either case it has been handled by now.
        stomp.receive();
    }
    let clock = events.accept("s", "true").clock;
    listener.follow_to(&mut follower, clock);
    assert_eq!(follower.changes.iter().map(|change| change.event.as_str()).collect::<Vec<_>>(), ["true"]);
}

/// If a client uses an id twice, the server may refuse or accept it. It must not leave the connection half subscribed.
#[test]
fn a_repeated_id_causes_no_crash() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("a", LONG);
    events.only_once("b", LONG);
    let mut stomp = Stomp::connect(&server);
    stomp.follow("0", "/topic/a");
    stomp.subscribe("0", "/topic/b");
    match stomp.receive() {
        frame if frame.command == "ERROR" => stomp.expect_close(),
        frame => assert!(frame.has("destination", "/topic/b").push().is_key_frame()),
    }
    Stomp::connect(&server).follow("0", "/topic/a");
}
