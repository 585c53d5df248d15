//! Topics contain the names of namespaces and streams.

use crate::events::LONG;
use crate::harness::Server;
use crate::ledger::encode;
use crate::stomp::Stomp;

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
