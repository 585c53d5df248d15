//! `kill -9` and clean stops: each event ends exactly once, only durable changes are pushed, and events that fell due
//! while the server was down are published at the next start.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::event_flows::lifecycle::check_ends;
use crate::events::{Events, LONG, SLACK, Submitted, now, wait_until};
use crate::harness::{Server, eventually};
use crate::ledger::encode;
use crate::reply::Reply;
use crate::stomp::{Follower, Kind, Stomp};

#[test]
fn incubating_events_survive_with_their_times() {
    let mut server = Server::fresh();
    let events = server.events();
    events.only_once("only", LONG);
    events.strictly_once("strictly", LONG);
    let only = events.accept("only", "🌮");
    let strictly = events.accept("strictly", "🌮");
    let closed = events.accept("strictly", "🍎");
    assert_eq!(events.submit("strictly", "🍎").conflict(true), closed.time);
    for round in 0..3 {
        match round {
            1 => server.restart(),
            _ => server.crash_and_restart(),
        }
        let events = server.events();
        let incubating = events.incubating("only");
        assert_eq!(incubating.events, BTreeMap::from([("🌮".to_owned(), only.time)]));
        assert_eq!(incubating.publishes_at["🌮"], only.publishes_at);
        assert_eq!(events.incubating("strictly").events, BTreeMap::from([("🌮".to_owned(), strictly.time)]));
        assert_eq!(events.submit("only", "🌮").conflict(false), only.time);
        // The key is closed, and there is no event to invalidate.
        events.submit("strictly", "🍎").conflict(false);
    }
    let events = server.events();
    assert_eq!(events.submit("strictly", "🌮").conflict(true), strictly.time);
    server.crash_and_restart();
    assert_eq!(server.events().incubating("strictly").events.len(), 0);
}

/// Events that fell due while the server was down are published once, in the order of their due times, at the next
/// start.
#[test]
fn events_due_during_downtime_are_published_in_order() {
    let mut server = Server::fresh();
    for round in 0..2 {
        let events = server.events();
        let stream = format!("s{round}");
        let topic = format!("/topic/{stream}");
        events.only_once(&stream, "1500ms");
        let mut stomp = Stomp::connect(&server);
        let mut follower = stomp.follow("0", &topic);
        let accepted: Vec<Submitted> = (0..40).map(|n| events.accept(&stream, &n.to_string())).collect();
        match round {
            0 => server.kill(),
            _ => server.stop(),
        }
        wait_until(accepted[39].publishes_at + 100);
        server.start_again();
        let events = server.events();
        let last = events.await_none(&stream);
        let mut again = Stomp::connect(&server);
        take(&mut stomp, &mut follower);
        again.resume("0", &topic, follower.clock);
        again.follow_to(&mut follower, last.clock);
        assert_eq!(follower.jumps, 0, "all of it was kept");
        check_ends(&follower, &accepted);
        let published: Vec<&str> = follower
            .changes
            .iter()
            .filter(|change| change.kind == Kind::Published)
            .map(|change| change.event.as_str())
            .collect();
        assert_eq!(published, accepted.iter().map(|event| event.event.as_str()).collect::<Vec<_>>());
        // The key is open again, and the event is not published a second time.
        assert!(events.accept(&stream, "0").clock > last.clock);
        server.crash_and_restart();
        assert!(server.events().clock(&stream) > last.clock);
    }
}

/// The server is killed repeatedly at about the time when events fall due.
#[test]
fn kills_while_events_fall_due_publish_each_once() {
    let mut server = Server::fresh();
    server.events().only_once("s", "400ms");
    let mut follower = Follower::default();
    let mut accepted = Vec::new();
    let mut stomp = Stomp::connect(&server);
    stomp.subscribe("0", "/topic/s");
    follower.fold(stomp.push());
    for round in 0..6 {
        let events = server.events();
        let batch: Vec<Submitted> = (0..30).map(|n| events.accept("s", &format!("{round}/{n}"))).collect();
        // Kills the server while it publishes these events.
        wait_until(batch[15].publishes_at);
        server.kill();
        accepted.extend(batch);
        take(&mut stomp, &mut follower);
        server.start_again();
        stomp = Stomp::connect(&server);
        stomp.resume("0", "/topic/s", follower.clock);
    }
    let last = server.events().await_none("s");
    stomp.follow_to(&mut follower, last.clock);
    assert_eq!(follower.jumps, 0);
    check_ends(&follower, &accepted);
}

/// Reads everything that the connection has received before the server ended.
fn take(stomp: &mut Stomp, follower: &mut Follower) {
    while let Some(frame) = stomp.receive_within(crate::harness::DEADLINE) {
        if frame.command == "MESSAGE" {
            follower.fold(frame.push());
        }
    }
}

/// The server is killed several times under load. Every answered submission is in the stream, and the stream has no
/// gap.
#[test]
fn kills_under_load_leave_a_gapless_stream() {
    let mut server = Server::fresh();
    for mode in ["only_once", "strictly_once"] {
        server.events().put(mode, &crate::events::setting(mode, "300ms")).created();
        let topic = format!("/topic/{mode}");
        let mut stomp = Stomp::connect(&server);
        let mut follower = stomp.follow("0", &topic);
        let (mut accepted, mut unknown, mut invalidated) = (Vec::new(), 0, 0);
        for round in 0..3 {
            let done = AtomicUsize::new(0);
            let events = server.events();
            let clients: Vec<Answers> = std::thread::scope(|scope| {
                let clients: Vec<_> = (0..6)
                    .map(|n| {
                        let (events, done) = (&events, &done);
                        scope.spawn(move || submit_until_the_end(events, mode, &format!("{round}/{n}"), done))
                    })
                    .collect();
                let reached = eventually(|| (done.load(Ordering::Relaxed) >= 200).then_some(()));
                match round {
                    1 => server.stop(),
                    _ => server.kill(),
                }
                assert!(reached.is_some(), "the load is stuck");
                clients.into_iter().map(|client| client.join().expect("a client")).collect()
            });
            for told in clients {
                accepted.extend(told.accepted);
                unknown += told.unknown;
                invalidated += told.invalidated;
            }
            take(&mut stomp, &mut follower);
            server.start_again();
            stomp = Stomp::connect(&server);
            stomp.resume("0", &topic, follower.clock);
        }
        let last = server.events().await_none(mode);
        stomp.follow_to(&mut follower, last.clock);
        assert_eq!(follower.jumps, 0);
        // Events without an answer may have been submitted.
        let told: BTreeMap<u64, &Submitted> = accepted.iter().map(|event| (event.clock, event)).collect();
        let mut all = accepted.clone();
        for change in follower.changes.iter().filter(|change| change.kind == Kind::Submitted) {
            if !told.contains_key(&change.clock) {
                let (event, time, clock) = (change.event.clone(), change.time, change.clock);
                all.push(Submitted { event, time, clock, publishes_at: 0 });
            }
        }
        assert!(all.len() - accepted.len() <= unknown, "{} events of nobody", all.len() - accepted.len());
        check_ends(&follower, &all);
        let seen = follower.changes.iter().filter(|change| change.kind == Kind::Invalidated).count();
        assert!((invalidated..=invalidated + unknown).contains(&seen), "{seen}, {invalidated} were told");
    }
}

#[derive(Default)]
struct Answers {
    accepted: Vec<Submitted>,
    invalidated: usize,
    unknown: usize,
}

fn submit_until_the_end(events: &Events, stream: &str, client: &str, done: &AtomicUsize) -> Answers {
    let mut told = Answers::default();
    for n in 0.. {
        // Each client submits each key twice in a row.
        let event = format!("{client}/{}", n / 2);
        match Reply::try_to(events.submission(stream, &event)) {
            Ok(reply) if reply.status == 201 => told.accepted.push(reply.submitted()),
            Ok(reply) if reply.status == 409 => {
                told.invalidated += usize::from(reply.body["invalidated"] == true)
            }
            Ok(reply) if reply.code() == "OutcomeUnknown" => {
                told.unknown += 1;
                return told;
            }
            Ok(reply) => {
                reply.refused(503, "ShuttingDown");
                return told;
            }
            Err(_) => {
                told.unknown += 1;
                return told;
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    told
}

/// A client that got no answer repeats its request with the same idempotency key, and so never invalidates its own
/// event.
#[test]
fn retries_with_a_key_after_a_kill_are_one_event() {
    let mut server = Server::fresh();
    server.events().strictly_once("s", LONG);
    for round in 0..4 {
        let done = AtomicUsize::new(0);
        let events = server.events();
        let keyed =
            |events: &Events, event: &str| events.submission("s", event).header("idempotency-key", event);
        let last: Vec<(String, Vec<Submitted>)> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8)
                .map(|client| {
                    let (events, done) = (&events, &done);
                    scope.spawn(move || {
                        let mut told = Vec::new();
                        for n in 0.. {
                            let event = format!("{round}/{client}/{n}");
                            match Reply::try_to(keyed(events, &event)) {
                                Ok(reply) => told.push(reply.submitted()),
                                Err(_) => return (event, told),
                            }
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        unreachable!("the server ends before")
                    })
                })
                .collect();
            let reached = eventually(|| (done.load(Ordering::Relaxed) >= 150).then_some(()));
            server.kill();
            assert!(reached.is_some(), "the load is stuck");
            clients.into_iter().map(|client| client.join().expect("a client")).collect()
        });
        server.start_again();
        let events = server.events();
        for (unknown, told) in &last {
            let first = Reply::to(keyed(&events, unknown)).submitted();
            assert_eq!(Reply::to(keyed(&events, unknown)).submitted(), first);
            let again = told.last().map(|event| (event, Reply::to(keyed(&events, &event.event)).submitted()));
            assert!(again.is_none_or(|(event, again)| *event == again), "the first reply again");
            let incubating = events.incubating("s");
            for event in told.iter().chain([&first]) {
                assert_eq!(
                    incubating.events.get(&event.event),
                    Some(&event.time),
                    "{event:?} was invalidated"
                );
            }
        }
    }
}

/// A closed key opens when its time has come, even if the server is down at that time.
#[test]
fn closed_keys_open_during_downtime() {
    let mut server = Server::fresh();
    let events = server.events();
    events.strictly_once("s", "1s");
    let first = events.accept("s", "x");
    let reply = events.submit("s", "x");
    let refused = now();
    if reply.status == 409 {
        assert_eq!(reply.conflict(true), first.time);
    }
    server.kill();
    wait_until(refused + 1000 + SLACK);
    server.start_again();
    let events = server.events();
    let again = if events.incubating("s").events.is_empty() { events.accept("s", "x") } else { return };
    assert!(again.time > first.publishes_at);
}

/// Several streams in several namespaces have events that fall due while the server is down.
#[test]
fn all_streams_catch_up_after_downtime() {
    let mut server = Server::fresh();
    let places = [("default", "a"), ("default", "b"), ("red", "a"), ("🌮", "c/d")];
    let mut last = 0;
    let mut clocks = Vec::new();
    for (namespace, stream) in places {
        let events = server.events_of(namespace);
        events.only_once(stream, "1s");
        for n in 0..5 {
            let event = events.accept(stream, &n.to_string());
            last = event.publishes_at;
        }
        clocks.push(events.clock(stream));
    }
    server.kill();
    wait_until(last + SLACK);
    server.start_again();
    for ((namespace, stream), clock) in places.into_iter().zip(clocks) {
        let end = server.events_of(namespace).await_none(stream);
        // The clock from before the kill contains the events that were published before it.
        assert!((clock..=clock + 5).contains(&end.clock), "{namespace} {stream}: {clock} → {}", end.clock);
        let follower =
            Stomp::connect(&server).follow("0", &format!("/topic/{}/{}", encode(namespace), encode(stream)));
        assert_eq!(follower.clock, end.clock);
    }
}

/// Nothing is pushed before it is durable: everything that any subscriber received is there after the kill.
#[test]
fn pushed_changes_survive_a_kill() {
    let mut server = Server::fresh();
    server.events().only_once("s", LONG);
    for round in 0..8 {
        let mut stomp = Stomp::connect(&server);
        let mut follower = stomp.follow("0", "/topic/s");
        let before = follower.clock;
        let events = server.events();
        let mut seen = 0;
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|client| {
                    let events = &events;
                    scope.spawn(move || {
                        let mut n = 0;
                        while Reply::try_to(events.submission("s", &format!("{round}/{client}/{n}"))).is_ok()
                        {
                            n += 1;
                        }
                    })
                })
                .collect();
            // Kills the server as soon as a subscriber has received a change.
            stomp.follow_to(&mut follower, before + 5 + round * 3);
            server.kill();
            take(&mut stomp, &mut follower);
            seen = follower.clock;
            for client in clients {
                client.join().expect("a client");
            }
        });
        server.start_again();
        let incubating = server.events().incubating("s");
        assert!(incubating.clock >= seen, "saw {seen}, but it is {} after the kill", incubating.clock);
        for (event, time) in &follower.incubating {
            assert_eq!(incubating.events.get(event), Some(time), "{event} was pushed");
        }
    }
}

/// A clean stop ends all subscriptions, and no client waits for the ended server.
#[test]
fn a_stop_ends_subscriptions() {
    let mut server = Server::fresh();
    server.events().only_once("s", LONG);
    let mut stomps: Vec<Stomp> = (0..10)
        .map(|_| {
            let mut stomp = Stomp::connect(&server);
            stomp.follow("0", "/topic/s");
            stomp
        })
        .collect();
    let mut sse = crate::sse::Sse::open(&server, "/v1/events/s/stream", None);
    sse.push();
    let stopped = now();
    server.stop();
    assert!(now() - stopped < 30_000, "the stop took {} ms", now() - stopped);
    for stomp in &mut stomps {
        stomp.expect_close();
    }
    while sse.next().is_some() {}
}
