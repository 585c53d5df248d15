//! `GET /v1/refusals/stream`: the requests that are refused, in all namespaces or in one.

use serde_json::{Value, json};

use crate::events::LONG;
use crate::harness::Server;
use crate::limiter::fixed;
use crate::locks::exclusive;
use crate::sse::Sse;

#[track_caller]
fn next(sse: &mut Sse) -> Value {
    let sent = sse.next().expect("the stream goes on");
    let refused: Value = serde_json::from_str(&sent.data).expect("JSON");
    assert!(refused["time"].as_u64() > Some(1_600_000_000_000), "{refused}");
    refused
}

/// The fields that are not null, without the time.
fn fields(mut refused: Value) -> Value {
    let fields = refused.as_object_mut().expect("an object");
    fields.retain(|field, value| field != "time" && !value.is_null());
    refused
}

#[test]
fn all_families_are_in_the_stream_and_a_namespace_has_its_own() {
    let server = Server::fresh();
    let ledger = server.ledger_of("a%2Fb");
    ledger.create_with_ceiling("daily", 5);
    ledger.hold("op", &[("daily", 6)]).refused(409, "LimitExceeded");
    // Earlier refusals come first.
    let mut all = Sse::open(&server, "/v1/refusals/stream", None);
    let mut of_one = Sse::open(&server, "/v1/ns/a%2Fb/refusals/stream", None);
    let first = json!({"namespace": "a/b", "family": "ledger", "code": "LimitExceeded", "limit_name": "daily",
        "operation_id": "op"});
    assert_eq!(fields(next(&mut all)), first);
    assert_eq!(fields(next(&mut of_one)), first);

    server.limiter().window("none", &["user"], 0, fixed(LONG));
    server.limiter().check(json!({"user": "ann", "path": "/"})).denied(&["none"]);
    let expected = json!({"namespace": "default", "family": "limiter", "code": "LimitReached", "rule": "none",
        "key_values": {"user": "ann"}});
    assert_eq!(fields(next(&mut all)), expected);

    server.locks().grant(exclusive(json!({"order": 7})));
    server.locks().ask(&exclusive(json!({"order": 7}))).refused(409, "LockHeld");
    let expected =
        json!({"namespace": "default", "family": "locks", "code": "LockHeld", "key_values": {"order": 7}});
    assert_eq!(fields(next(&mut all)), expected);

    server.events().only_once("mails", LONG);
    server.events().accept("mails", "x");
    server.events().submit("mails", "x").refused(409, "EventConflict");
    let expected =
        json!({"namespace": "default", "family": "events", "code": "EventConflict", "stream": "mails"});
    assert_eq!(fields(next(&mut all)), expected);

    // This stream has no refusals of other namespaces.
    ledger.commit_all("op").refused(404, "OperationNotFound");
    let expected =
        json!({"namespace": "a/b", "family": "ledger", "code": "OperationNotFound", "operation_id": "op"});
    assert_eq!(fields(next(&mut of_one)), expected);
    assert_eq!(fields(next(&mut all)), expected);
    server.get("/v1/refusals/stream?x=1").invalid("x");
}
