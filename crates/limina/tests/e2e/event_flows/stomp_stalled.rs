//! A subscriber that does not read costs little memory, delays no other client, and has the current state again after
//! its next key frame.

use serde_json::json;

use crate::events::{LONG, setting};
use crate::harness::Server;
use crate::ledger::with;
use crate::sse::Sse;
use crate::stomp::{Follower, Stomp};

/// The most that the server's memory may grow: far more than the kept changes of one stream, and far less than a copy
/// for each subscriber.
const GROWTH: u64 = 128 << 20;

/// So many events that their changes fit neither into the buffers of the sockets nor into the kept changes.
const EVENTS: usize = 8_000;

#[test]
fn a_stalled_subscriber_recovers_and_delays_no_other() {
    let mut server = Server::fresh();
    let events = server.events();
    let body = json!({"max_events": 1_000_000, "key_frame_every": "30s"});
    events.put("s", &with(setting("only_once", "20ms"), body)).created();
    // These subscribers do not read any further.
    let mut stalled: Vec<(Stomp, Follower)> = (0..20)
        .map(|_| {
            let mut stomp = Stomp::connect(&server);
            let follower = stomp.follow("0", "/topic/s");
            (stomp, follower)
        })
        .collect();
    let mut stalled_sse = Sse::open(&server, "/v1/events/s/stream", None);
    let mut reader = Stomp::connect(&server);
    let mut reading = reader.follow("0", "/topic/s");
    let start = reading.clock;
    let before = resident(&mut server);

    let reader = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            // Each event has two changes: submitted and published.
            reader.follow_to(&mut reading, start + 2 * EVENTS as u64);
            (reader, reading)
        });
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let events = events.clone();
                let padding = "x".repeat(1000);
                scope.spawn(move || {
                    for n in 0..EVENTS / 8 {
                        events.accept("s", &format!("{writer}/{n}/{padding}"));
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("a writer");
        }
        reader.join().expect("the reader")
    });
    let (mut reader, mut reading) = reader;
    assert_eq!((reading.changes.len(), reading.jumps), (2 * EVENTS, 0), "who reads misses nothing");
    let grown = resident(&mut server).saturating_sub(before);
    assert!(grown < GROWTH, "grown by {} MiB with 21 stalled subscribers", grown >> 20);

    events.put("s", &with(setting("only_once", LONG), json!({"max_events": 1_000_000}))).ok();
    events.accept("s", "the end");
    let end = events.incubating("s");
    reader.follow_to(&mut reading, end.clock);
    assert_eq!(reading.incubating, end.events);
    // The subscribers read on. Key frames replace the changes that they missed, and then they have the current state.
    for (stomp, follower) in &mut stalled {
        stomp.follow_to(follower, end.clock);
        assert_eq!((follower.clock, &follower.incubating), (end.clock, &end.events));
    }
    let mut follower = Follower::default();
    while follower.clock < end.clock {
        follower.fold(stalled_sse.push());
    }
    assert_eq!(follower.incubating, end.events);
    // They also receive the changes that follow.
    let next = events.accept("s", "next");
    for (stomp, follower) in &mut stalled {
        stomp.follow_to(follower, next.clock);
        assert_eq!(follower.changes.last().map(|change| change.clock), Some(next.clock));
    }

    // At least the last 10,000 changes are kept for clients that resume, also after a crash.
    let check_kept = |server: &Server| {
        let mut back = Stomp::connect(server);
        let mut clock = next.clock - 10_000;
        back.resume("0", "/topic/s", clock);
        while clock < next.clock {
            let change = back.push().change();
            assert_eq!(change.clock, clock + 1);
            clock = change.clock;
        }
    };
    check_kept(&server);
    // For an older clock, the client may get the changes or a key frame. The resulting state is the same.
    let mut far = Stomp::connect(&server);
    far.resume("0", "/topic/s", start);
    let mut follower = Follower { clock: start, ..Follower::default() };
    far.follow_to(&mut follower, next.clock);
    assert_eq!(follower.incubating, events.incubating("s").events);
    drop((stalled, stalled_sse, reader, far));
    server.crash_and_restart();
    check_kept(&server);
}

/// A key frame of several megabytes is one message.
#[test]
fn a_large_key_frame_is_delivered_whole() {
    let mut server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let events = events.clone();
            scope.spawn(move || {
                for n in 0..500 {
                    events.accept("s", &format!("{writer}/{n}/{}", "x".repeat(1000)));
                }
            });
        }
    });
    for _ in 0..2 {
        let incubating = server.events().incubating("s");
        assert_eq!(incubating.events.len(), 4000);
        let mut stomp = Stomp::connect(&server);
        // A subscriber that does not read the key frame does not delay another one.
        let mut stalled = Stomp::connect(&server);
        stalled.subscribe("0", "/topic/s");
        let follower = stomp.follow("0", "/topic/s");
        assert_eq!((follower.clock, &follower.incubating), (incubating.clock, &incubating.events));
        let mut sse = Sse::open(&server, "/v1/events/s/stream", None);
        let mut other = Follower::default();
        other.fold(sse.push());
        assert_eq!((other.clock, other.incubating), (incubating.clock, incubating.events));
        drop((stomp, stalled, sse));
        server.crash_and_restart();
    }
}

/// An idle subscriber costs its connection's task, and small buffers.
#[test]
fn a_subscriber_costs_little_memory() {
    const SUBSCRIBERS: u64 = 300;
    let mut server = Server::fresh();
    server.events().only_once("s", LONG);
    let subscribe = |server: &Server| {
        let mut stomp = Stomp::connect(server);
        stomp.follow("0", "/topic/s");
        stomp
    };
    // The first subscribers allocate memory that all of them share.
    let _first: Vec<Stomp> = (0..50).map(|_| subscribe(&server)).collect();
    let before = resident(&mut server);
    let _subscribers: Vec<Stomp> = (0..SUBSCRIBERS).map(|_| subscribe(&server)).collect();
    let each = resident(&mut server).saturating_sub(before) / SUBSCRIBERS;
    println!("{} KiB for each subscriber", each >> 10);
    assert!(each < 69 << 10, "{} KiB for each subscriber", each >> 10);
}

/// Followers that resume far back share the pages that they read, and read only as fast as their clients do.
#[test]
fn many_followers_resuming_far_back_cost_little_memory() {
    let mut server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let start = events.clock("s");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let events = events.clone();
            scope.spawn(move || {
                for n in 0..500 {
                    events.accept("s", &format!("{writer}/{n}/{}", "x".repeat(1000)));
                }
            });
        }
    });
    let before = resident(&mut server);
    // These clients read one change and no more.
    let mut resumed: Vec<Stomp> = (0..64).map(|_| Stomp::connect(&server)).collect();
    resumed.iter_mut().for_each(|stomp| stomp.resume("0", "/topic/s", start));
    for stomp in &mut resumed {
        assert_eq!(stomp.push().change().clock, start + 1);
    }
    let grown = resident(&mut server).saturating_sub(before);
    println!("{} MiB for 64 subscribers that are 4,000 changes behind", grown >> 20);
    assert!(grown < 64 << 20, "{} MiB for 64 subscribers that are 4,000 changes behind", grown >> 20);
}

/// The server's resident memory, in bytes.
pub(crate) fn resident(server: &mut Server) -> u64 {
    let path = format!("/proc/{}/status", server.process().id());
    let status = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}
