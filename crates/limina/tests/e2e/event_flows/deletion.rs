//! Subscriptions to a stream that is deleted.

use crate::events::LONG;
use crate::harness::Server;
use crate::sse::Sse;
use crate::stomp::Stomp;

#[test]
fn deleting_a_stream_ends_its_subscriptions() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    events.only_once("other", LONG);
    let mut subscribers: Vec<Stomp> = (0..3).map(|_| Stomp::connect(&server)).collect();
    for stomp in &mut subscribers {
        stomp.follow("0", "/topic/s");
    }
    let mut other = Stomp::connect(&server);
    let follower = other.follow("0", "/topic/other");
    let mut sse = Sse::open(&server, "/v1/events/s/stream", None);
    sse.push();
    events.accept("s", "🌮");
    events.delete("s").is(204);
    for stomp in &mut subscribers {
        let submitted = stomp.push().change();
        assert_eq!(submitted.event, "🌮", "what was before is told before");
        stomp.receive().error_naming("StreamNotFound");
        stomp.expect_close();
    }
    while sse.next().is_some() {}
    // Subscribers of other streams notice nothing.
    events.accept("other", "🌮");
    assert_eq!(other.push().clock(), follower.clock + 1);
}

/// A resumed subscription does not mistake a new stream for the deleted one of the same name.
#[test]
fn a_clock_of_a_deleted_stream_gets_a_key_frame() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let old = (0..10).map(|n| events.accept("s", &n.to_string()).clock).max().expect("ten");
    events.delete("s").is(204);
    events.only_once("s", LONG);
    let mut stomp = Stomp::connect(&server);
    let new = events.accept("s", "new");
    for (n, after) in [old - 5, old].into_iter().enumerate() {
        stomp.resume(&n.to_string(), "/topic/s", after);
        let push = stomp.push();
        // The subscriber gets a key frame of the new stream, unless the new stream begins at exactly the next clock.
        if after < new.clock - 1 {
            assert!(push.is_key_frame(), "{push:?}");
        }
        assert_eq!(push.clock(), new.clock);
    }
}

#[test]
fn deleting_a_namespace_deletes_its_streams() {
    let mut server = Server::fresh();
    let events = server.events_of("red");
    events.only_once("s", LONG);
    let highest = events.accept("s", "x").clock;
    let mut stomp = Stomp::connect(&server);
    stomp.follow("0", "/topic/red/s");
    let reply = server.delete("/v1/ns/red");
    assert!([200, 204].contains(&reply.status), "{}", reply.text);
    stomp.receive().error_naming("StreamNotFound");
    stomp.expect_close();
    for _ in 0..2 {
        let events = server.events_of("red");
        events.read("s").refused(404, "StreamNotFound");
        assert_eq!(events.names(10), [""; 0]);
        server.crash_and_restart();
    }
    let events = server.events_of("red");
    events.only_once("s", LONG);
    assert!(events.accept("s", "x").clock > highest, "a clock never repeats");
}
