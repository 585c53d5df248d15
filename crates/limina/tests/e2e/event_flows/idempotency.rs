//! `Idempotency-Key`: without it, a retry of a strictly-once event would invalidate the client's own event.

use std::thread::scope;

use crate::events::LONG;
use crate::harness::Server;
use crate::reply::Reply;

/// Many concurrent retries submit one event, and all get the same answer.
#[test]
fn concurrent_retries_are_one_event() {
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

/// The two plain paths also accept idempotency keys.
#[test]
fn plain_paths_accept_idempotency_keys() {
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
