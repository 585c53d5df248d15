//! Invalid requests are refused, and the answer names the field.

use serde_json::{Value, json};

use crate::events::{LONG, setting};
use crate::harness::Server;
use crate::ledger::with;
use crate::reply::Reply;

#[test]
fn invalid_settings_name_the_field() {
    let server = Server::fresh();
    let events = server.events();
    let cases: &[(&str, Value)] = &[
        ("mode", json!("OnlyOnce")),
        ("mode", json!(1)),
        ("mode", Value::Null),
        ("duration", json!("9ms")),
        ("duration", json!(2_592_000_001_u64)),
        ("duration", json!("10")),
        ("duration", json!(true)),
        ("max_events", json!(0)),
        ("max_events", json!(1.5)),
        ("max_events", json!(1_000_001)),
        ("key_frame_every", json!("99ms")),
        ("key_frame_every", json!("soon")),
    ];
    for (field, value) in cases {
        let body = with(setting("only_once", LONG), json!({*field: value}));
        let reply = events.put("s", &body);
        assert_eq!(reply.status, 400, "{field}: {value} → {}", reply.text);
        reply.invalid(field);
    }
    events.put("s", &with(setting("only_once", LONG), json!({"max_event": 5}))).invalid("max_event");
    events.put("s", &with(setting("only_once", LONG), json!({"Duration": "5s"}))).invalid("Duration");
    events.read("s").refused(404, "StreamNotFound");
    // Invalid settings do not change an existing stream either.
    events.only_once("s", LONG);
    let before = events.read("s").ok().body;
    for (field, value) in cases {
        events.put("s", &with(setting("only_once", "5s"), json!({*field: value}))).invalid(field);
    }
    assert_eq!(events.read("s").ok().body, before);
}

/// If a field is omitted, the stream has the default of the API's table.
#[test]
fn omitted_fields_have_defaults() {
    let server = Server::fresh();
    let events = server.events();
    events.put("s", &json!({"mode": "only_once", "duration": "10s"})).created();
    let read = events.read("s").ok();
    read.has("max_events", 10_000).has("key_frame_every_ms", 10_000).has("duration_ms", 10_000);
}

#[test]
fn invalid_submissions_name_the_field() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("s", LONG);
    let clock = events.clock("s");
    let cases = [
        json!({}),
        json!({"event": null}),
        json!({"event": ""}),
        json!({"event": 1}),
        json!({"event": true}),
        json!({"event": ["x"]}),
        json!({"event": {"x": 1}}),
        json!({"event": "x".repeat(1025)}),
        json!({"event": "🌮".repeat(256) + "x"}),
    ];
    for case in cases {
        let reply = Reply::to(events.request("POST", "/s").json(&case));
        assert_eq!(reply.status, 400, "{case} → {}", reply.text);
        reply.invalid("event");
    }
    Reply::to(events.request("POST", "/s").json(&json!({"event": "x", "time": 1}))).invalid("time");
    assert_eq!(events.clock("s"), clock, "nothing happened");
}

#[test]
fn the_bounds_themselves_are_allowed() {
    let server = Server::fresh();
    let events = server.events();
    let cases = [
        json!({"duration": "10ms"}),
        json!({"duration": null, "duration_ms": 10}),
        json!({"duration": "30d"}),
        json!({"duration": null, "duration_ms": 2_592_000_000_u64}),
        json!({"max_events": 1}),
        json!({"max_events": 1_000_000}),
        json!({"key_frame_every": "100ms"}),
        json!({"key_frame_every": null, "key_frame_every_ms": 100}),
    ];
    for (n, case) in cases.into_iter().enumerate() {
        for mode in ["only_once", "strictly_once"] {
            events.put(&format!("{mode} {n}"), &with(setting(mode, LONG), case.clone())).created();
        }
    }
}
