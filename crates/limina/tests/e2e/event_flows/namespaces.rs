//! Namespaces: nothing is shared between two, and topics name them.

use crate::events::LONG;
use crate::harness::Server;
use crate::ledger::encode;
use crate::shape;
use crate::stomp::Stomp;

#[test]
fn two_namespaces_share_nothing() {
    let mut server = Server::fresh();
    let (red, blue) = (server.events_of("red"), server.events_of("blue"));
    red.only_once("s", LONG);
    blue.strictly_once("s", LONG);
    let mine = red.accept("s", "x");
    let other = blue.accept("s", "x");
    assert_eq!(blue.submit("s", "x").conflict(true), other.time);
    assert_eq!(red.submit("s", "x").conflict(false), mine.time);
    server.events().read("s").refused(404, "StreamNotFound");
    red.only_once("only red", LONG);
    assert_eq!((red.names(10).len(), blue.names(10).len(), server.events().names(10).len()), (2, 1, 0));
    blue.delete("s").is(204);
    server.crash_and_restart();
    assert_eq!(server.events_of("red").incubating("s").events["x"], mine.time);
    server.events_of("blue").read("s").refused(404, "StreamNotFound");
}

#[test]
fn reading_never_creates_one() {
    let server = Server::fresh();
    let events = server.events_of("new");
    let listed = || shape::namespaces(&server.get("/v1/ns").ok().body).iter().any(|name| name == "new");
    assert_eq!(events.names(10), [""; 0]);
    events.read("s").refused(404, "StreamNotFound");
    events.submit("s", "x").refused(404, "StreamNotFound");
    let mut stomp = Stomp::connect(&server);
    stomp.subscribe("0", "/topic/new/s");
    stomp.receive().error_naming("StreamNotFound");
    assert!(!listed());
    events.only_once("s", LONG);
    assert!(listed());
}

#[test]
fn topics_name_streams_and_namespaces_percent_encoded() {
    let server = Server::fresh();
    for (namespace, stream) in [
        ("default", "s"),
        ("default", "a/b"),
        ("red", "s"),
        ("a/b 🌮", "c/d 🍎"),
        ("red", "100%"),
        ("x", "with:colon\\"),
        ("s", "s"),
    ] {
        let events = server.events_of(namespace);
        events.only_once(stream, LONG);
        let mut topics = vec![format!("/topic/{}/{}", encode(namespace), encode(stream))];
        if namespace == "default" {
            topics.push(format!("/topic/{}", encode(stream)));
        }
        let mut stomp = Stomp::connect(&server);
        for (n, topic) in topics.iter().enumerate() {
            let id = format!("sub {n}");
            stomp.subscribe(&id, topic);
            let key_frame = stomp.receive().is("MESSAGE").has("subscription", &id).has("destination", topic);
            assert!(key_frame.push().is_key_frame());
        }
        let clock = events.accept(stream, "x").clock;
        for _ in &topics {
            assert_eq!(stomp.push().clock(), clock, "{topics:?}");
        }
    }
}
