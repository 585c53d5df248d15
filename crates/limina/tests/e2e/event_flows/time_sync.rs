//! `/topic/time`: the server sends its time twenty times, so that clients can compare their clocks.

use std::time::{Duration, Instant};

use crate::events::{LONG, now};
use crate::harness::Server;
use crate::stomp::Stomp;

/// One of the twenty messages, and when it arrived.
struct Tick {
    told: u64,
    came: Instant,
}

#[track_caller]
fn ticks(stomp: &mut Stomp, count: usize) -> Vec<Tick> {
    (0..count)
        .map(|_| {
            let frame = stomp.receive().is("MESSAGE").has("destination", "/topic/time");
            let told = frame.body.parse().unwrap_or_else(|_| panic!("not a bare number: {frame:?}"));
            let apart = now().abs_diff(told);
            assert!(apart < 30_000, "{apart} ms from the time here");
            Tick { told, came: Instant::now() }
        })
        .collect()
}

/// Checks that there are exactly twenty messages, about 50 ms apart, and that the first comes after 50 ms.
#[track_caller]
fn check_twenty(stomp: &mut Stomp, begun: u64, asked: Instant) {
    let ticks = ticks(stomp, 20);
    assert!(ticks[0].told + 10 >= begun + 50, "the first was told at {}, begun at {begun}", ticks[0].told);
    assert!(ticks.is_sorted_by_key(|tick| tick.told));
    // On a slow machine messages may be late, but they are never early.
    let last = &ticks[19];
    assert!(last.told + 50 >= begun + 20 * 50, "the last was told at {}, begun at {begun}", last.told);
    assert!(last.came - asked >= Duration::from_millis(19 * 50), "{:?}", last.came - asked);
    assert_eq!(stomp.receive_within(Duration::from_millis(400)), None, "a twenty-first");
}

#[test]
fn a_send_starts_twenty_messages() {
    let server = Server::fresh();
    let mut stomp = Stomp::connect(&server);
    stomp.subscribe("t", "/topic/time");
    for _ in 0..2 {
        let (begun, asked) = (now(), Instant::now());
        stomp.send("SEND", &[("destination", "/app/time")], "");
        check_twenty(&mut stomp, begun, asked);
    }
}

#[test]
fn a_post_starts_twenty_messages_for_all() {
    let server = Server::fresh();
    let mut stomps: Vec<Stomp> = (0..3).map(|_| Stomp::connect(&server)).collect();
    for stomp in &mut stomps {
        stomp.send("SUBSCRIBE", &[("id", "t"), ("destination", "/topic/time"), ("receipt", "r")], "");
        stomp.receive().is("RECEIPT").has("receipt-id", "r");
        assert_eq!(stomp.receive_within(Duration::from_millis(100)), None, "nobody has asked yet");
    }
    let (begun, asked) = (now(), Instant::now());
    let reply = server.post_plain("/time-sync", "");
    assert!((200..300).contains(&reply.status), "{} {}", reply.status, reply.text);
    for stomp in &mut stomps {
        check_twenty(stomp, begun, asked);
    }
}

/// A connection that has not subscribed receives no time.
#[test]
fn only_subscribers_receive_the_time() {
    let server = Server::fresh();
    let mut stomp = Stomp::connect(&server);
    let mut bystander = Stomp::connect(&server);
    server.events().only_once("s", LONG);
    bystander.follow("0", "/topic/s");
    stomp.subscribe("t", "/topic/time");
    stomp.send("SEND", &[("destination", "/app/time"), ("receipt", "r")], "");
    stomp.receive().is("RECEIPT");
    ticks(&mut stomp, 20);
    stomp.send("UNSUBSCRIBE", &[("id", "t"), ("receipt", "u")], "");
    stomp.receive().is("RECEIPT").has("receipt-id", "u");
    stomp.send("SEND", &[("destination", "/app/time")], "");
    assert_eq!(stomp.receive_within(Duration::from_millis(600)), None, "unsubscribed");
    assert_eq!(bystander.receive_within(Duration::from_millis(10)), None);
}
