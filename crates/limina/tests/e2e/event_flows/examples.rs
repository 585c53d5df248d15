//! The two documented examples: duration 3, events at 1 🍎, 2 🌮, 3 🌮, 4 🌮, 7 🌮.

use crate::events::{Events, SLACK, Submitted, now, wait_until};
use crate::harness::Server;
use crate::reply::Reply;
use crate::stomp::{Follower, Kind, Stomp};

/// One unit of the examples' time, in milliseconds.
const UNIT: u64 = 400;
const DURATION: u64 = 3 * UNIT;

/// On a machine that stands still for a while an event comes too late for its place in the example.
const ATTEMPTS: usize = 20;

#[test]
fn only_once_allows_1_2_and_7() {
    let server = Server::fresh();
    let done = (0..ATTEMPTS).any(|attempt| only_once(&server, &format!("only {attempt}")));
    assert!(done, "the machine is too slow for the example");
}

fn only_once(server: &Server, stream: &str) -> bool {
    let events = server.events();
    events.only_once(stream, &format!("{DURATION}ms"));
    let mut stomp = Stomp::connect(server);
    let mut follower = stomp.follow("0", &format!("/topic/{}", crate::ledger::encode(stream)));

    let apple = events.accept(stream, "🍎");
    let begin = apple.time - UNIT;
    let taco = at(&events, stream, begin + 2 * UNIT).reply.submitted();
    for unit in [3, 4] {
        let asked = at(&events, stream, begin + unit * UNIT);
        if asked.after + SLACK >= taco.publishes_at {
            return false;
        }
        assert_eq!(asked.reply.conflict(false), taco.time, "at {unit}");
    }
    let last = at(&events, stream, (begin + 7 * UNIT).max(taco.publishes_at)).reply.submitted();
    assert!(last.time >= taco.publishes_at);

    stomp.follow_to(&mut follower, last.clock + 1);
    let ends = |event: &Submitted| {
        [
            (Kind::Submitted, event.event.clone(), event.time),
            (Kind::Published, event.event.clone(), event.time),
        ]
    };
    let mut expected: Vec<_> = [&apple, &taco, &last].into_iter().flat_map(ends).collect();
    if apple.publishes_at > taco.time {
        // Both are incubating at first.
        expected.swap(1, 2);
    }
    assert_eq!(told(&follower), expected);
    true
}

#[test]
fn strictly_once_allows_1_and_7() {
    let server = Server::fresh();
    let done = (0..ATTEMPTS).any(|attempt| strictly_once(&server, &format!("strictly {attempt}")));
    assert!(done, "the machine is too slow for the example");
}

fn strictly_once(server: &Server, stream: &str) -> bool {
    let events = server.events();
    events.strictly_once(stream, &format!("{DURATION}ms"));
    let mut stomp = Stomp::connect(server);
    let mut follower = stomp.follow("0", &format!("/topic/{}", crate::ledger::encode(stream)));

    let apple = events.accept(stream, "🍎");
    let begin = apple.time - UNIT;
    let second = at(&events, stream, begin + 2 * UNIT).reply.submitted();
    let third = at(&events, stream, begin + 3 * UNIT);
    if third.after + SLACK >= second.publishes_at || second.time + SLACK >= apple.publishes_at {
        return false;
    }
    assert_eq!(third.reply.conflict(true), second.time);
    let fourth = at(&events, stream, begin + 4 * UNIT);
    if fourth.after + SLACK >= third.before + DURATION || third.after + SLACK >= apple.publishes_at {
        return false;
    }
    // The refused one counts as the latest occurrence; and there is nothing left to invalidate.
    let conflicting = fourth.reply.conflict(false);
    assert!(
        (third.before - SLACK..=third.after + SLACK).contains(&conflicting),
        "the occurrence at {}–{} stands in the way, not {conflicting}",
        third.before,
        third.after
    );
    // The key would be open at 6 if the refused event at 4 did not keep it closed until 7.
    let last = at(&events, stream, fourth.after + DURATION + SLACK).reply.submitted();
    assert!(last.time >= fourth.before + DURATION);

    stomp.follow_to(&mut follower, last.clock + 1);
    let expected = [
        (Kind::Submitted, "🍎".to_owned(), apple.time),
        (Kind::Submitted, "🌮".to_owned(), second.time),
        (Kind::Invalidated, "🌮".to_owned(), second.time),
        (Kind::Published, "🍎".to_owned(), apple.time),
        (Kind::Submitted, "🌮".to_owned(), last.time),
        (Kind::Published, "🌮".to_owned(), last.time),
    ];
    assert_eq!(told(&follower), expected);
    true
}

/// As the example has it at 4, but asked at 6 instead of 7: the refused event still keeps the key closed.
#[test]
fn a_refused_event_keeps_the_key_closed() {
    let server = Server::fresh();
    let events = server.events();
    let done = (0..ATTEMPTS).any(|attempt| {
        let stream = format!("s {attempt}");
        events.strictly_once(&stream, &format!("{DURATION}ms"));
        let first = events.accept(&stream, "🌮");
        let second = at(&events, &stream, first.time + 2 * UNIT);
        if second.after + SLACK >= first.publishes_at {
            return false;
        }
        assert_eq!(second.reply.conflict(true), first.time);
        // After the first one's own duration, and before the second one's.
        let third = at(&events, &stream, first.publishes_at + UNIT);
        if third.after + SLACK >= second.before + DURATION {
            return false;
        }
        third.reply.conflict(false);
        let open = at(&events, &stream, third.after + DURATION + SLACK);
        open.reply.submitted();
        true
    });
    assert!(done, "the machine is too slow for the example");
}

struct Asked {
    reply: Reply,
    before: u64,
    after: u64,
}

/// 🌮, not before that instant.
#[track_caller]
fn at(events: &Events, stream: &str, instant: u64) -> Asked {
    wait_until(instant);
    let before = now();
    let reply = events.submit(stream, "🌮");
    Asked { reply, before, after: now() }
}

fn told(follower: &Follower) -> Vec<(Kind, String, u64)> {
    follower.changes.iter().map(|change| (change.kind, change.event.clone(), change.time)).collect()
}
