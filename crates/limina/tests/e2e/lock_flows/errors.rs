//! Requests that do not validate: 400 `InvalidRequest`, the field named, and nothing done. Never a 500.

use serde_json::{Map, Value, json};

use crate::harness::Server;
use crate::ledger::{encode, with};
use crate::locks::{Locks, exclusive, several};
use crate::raw;
use crate::reply::Reply;

#[track_caller]
fn check(locks: &Locks, body: &Value, field: &str) {
    let text = body.to_string();
    let said: String = text.chars().take(300).collect();
    let reply = locks.ask_text("", &text);
    assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{said} → {}", reply.text);
    let named = reply.body["field"].as_str().unwrap_or_default();
    assert!(named.contains(field), "{said}: `field` should name {field:?} → {}", reply.text);
    reply.refused(400, "InvalidRequest");
}

fn bad_key_values() -> Vec<Value> {
    let keys = |count: usize| (0..count).map(|n| (n.to_string(), json!(n))).collect::<Map<_, _>>();
    vec![
        json!({}),
        json!(null),
        json!("a"),
        json!(1),
        json!([]),
        json!([{"a": 1}]),
        json!({"": 1}),
        json!({"k".repeat(257): 1}),
        json!({"a": null}),
        json!({"a": []}),
        json!({"a": {}}),
        json!({"a": {"eq": 1}}),
        json!({"a": "x".repeat(1025)}),
        json!({"a": 9_223_372_036_854_775_808_u64}),
        json!({"a": {"DataType": 99, "Value": 1}}),
        json!({"a": {"DataType": 5, "Value": 128}}),
        json!({"a": {"DataType": 12}}),
        json!(keys(65)),
    ]
}

#[test]
fn key_values_must_be_right() {
    let server = Server::fresh();
    let locks = server.locks();
    for key_values in bad_key_values() {
        check(&locks, &exclusive(key_values.clone()), "key_values");
        check(&locks, &several(&[(key_values.clone(), "shared")]), "locks");
        check(&locks, &several(&[(json!({"a": 1}), "shared"), (key_values, "exclusive")]), "locks");
    }
    locks
        .ask_text("", r#"{"key_values": {"a": 1e999}, "mode": "exclusive", "ttl": "1h"}"#)
        .refused(400, "InvalidRequest");
    assert_eq!(locks.ids().len(), 0, "nothing was granted");
}

#[test]
fn modes_must_be_right() {
    let server = Server::fresh();
    let locks = server.locks();
    for mode in
        [json!(""), json!("Exclusive"), json!("write"), json!("SHARED"), json!(1), json!(true), json!([])]
    {
        check(&locks, &with(exclusive(json!({"a": 1})), json!({"mode": mode})), "mode");
        let lock = json!({"key_values": {"a": 1}, "mode": mode});
        check(&locks, &json!({"locks": [lock], "ttl": "1h"}), "mode");
    }
    assert_eq!(locks.ids().len(), 0, "nothing was granted");
}

#[test]
fn durations_must_be_right() {
    let server = Server::fresh();
    let locks = server.locks();
    let never = [
        json!(""),
        json!("10"),
        json!("ten seconds"),
        json!("10x"),
        json!("-1s"),
        json!(-1),
        json!("99999999999999999999d"),
        json!(1e300),
        json!(true),
        json!(["1s"]),
        json!({"s": 1}),
    ];
    let ttls =
        [json!(0), json!(99), json!("99ms"), json!("0s"), json!("24h1ms"), json!(86_400_001), json!("2d")];
    let waits = [json!("5m1ms"), json!(300_001), json!("6m"), json!("1h")];
    for (field, bad) in [("ttl", &ttls[..]), ("wait", &waits[..])] {
        for duration in bad.iter().chain(&never) {
            check(&locks, &with(exclusive(json!({"a": 1})), json!({field: duration})), field);
            check(&locks, &with(several(&[(json!({"a": 1}), "shared")]), json!({field: duration})), field);
        }
    }
    assert_eq!(locks.ids().len(), 0, "nothing was granted");
}

#[test]
fn lists_of_locks_must_be_right() {
    let server = Server::fresh();
    let locks = server.locks();
    let many: Vec<(Value, &str)> = (0..65).map(|n| (json!({"n": n}), "exclusive")).collect();
    check(&locks, &several(&many), "locks");
    check(&locks, &several(&[]), "locks");
    for bad in [json!({}), json!("a"), json!(1), json!([1]), json!(["a"]), json!([null]), json!([[]])] {
        check(&locks, &json!({"locks": bad, "ttl": "1h"}), "locks");
    }
    for (lock, field) in [
        (json!({"mode": "shared"}), "locks"),
        (json!({"key_values": {"a": 1}, "mode": "shared", "ttl": "1h"}), "ttl"),
        (json!({"key_values": {"a": 1}, "mod": "shared"}), "mod"),
    ] {
        check(&locks, &json!({"locks": [lock], "ttl": "1h"}), field);
    }
    // One way or the other, not both and not neither.
    let lock = json!([{"key_values": {"b": 1}, "mode": "shared"}]);
    let both = locks.ask(&with(exclusive(json!({"a": 1})), json!({"locks": lock})));
    both.refused(400, "InvalidRequest");
    locks.ask(&json!({"mode": "exclusive", "ttl": "1h"})).refused(400, "InvalidRequest");
    assert_eq!(locks.ids().len(), 0, "nothing was granted");
}

/// The same lock twice in one request: it is answered, and does not wait for itself.
#[test]
fn a_lock_named_twice_is_answered() {
    let server = Server::fresh();
    let locks = server.locks();
    for modes in [["exclusive", "exclusive"], ["shared", "exclusive"], ["shared", "shared"]] {
        let twice = modes.map(|mode| (json!({"a": 1}), mode));
        let reply = locks.ask(&with(several(&twice), json!({"wait": "1s"})));
        match reply.status {
            200 => locks.let_go(&reply.granted()),
            _ => drop(reply.invalid("locks")),
        }
    }
    locks.free(exclusive(json!({"a": 1})));
}

#[test]
fn unknown_fields_are_refused() {
    let server = Server::fresh();
    let locks = server.locks();
    for field in ["tll", "Wait", "session_id", "key_value", "lock_id"] {
        check(&locks, &with(exclusive(json!({"a": 1})), json!({field: "1s"})), field);
    }
    for owner in [json!(5), json!(true), json!({}), json!(["ann"])] {
        check(&locks, &with(exclusive(json!({"a": 1})), json!({"owner": owner})), "owner");
    }
    assert_eq!(locks.ids().len(), 0, "nothing was granted");
}

#[test]
fn heartbeats_must_be_right() {
    let server = Server::fresh();
    let locks = server.locks();
    let grant = locks.grant(exclusive(json!({"a": 1})));
    let path = format!("/{}/heartbeat", encode(&grant.lock_id));
    for (body, field) in [
        (json!({}), "session_id"),
        (json!({"session_id": null}), "session_id"),
        (json!({"session_id": 5}), "session_id"),
        (json!({"session_id": ["x"]}), "session_id"),
        (json!({"session_id": grant.session_id, "ttl": "1h"}), "ttl"),
        (json!({"session": grant.session_id}), "session"),
    ] {
        let reply = locks.ask_text(&path, &body.to_string());
        assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{body} → {}", reply.text);
        reply.invalid(field);
    }
    for text in ["", "{", "[]", "null", "\"x\"", "{\"session_id\": \"x\"} x"] {
        locks.ask_text(&path, text).refused(400, "InvalidRequest");
    }
    locks.heartbeat(&grant).ok();
}

#[test]
fn what_is_not_a_request_is_refused() {
    let server = Server::fresh();
    let locks = server.locks();
    for text in ["", " ", "{", "[]", "null", "5", "\"lock\"", "{} {}", "{\"ttl\": }", "\u{feff}{}"] {
        locks.ask_text("", text).refused(400, "InvalidRequest");
    }
    let good = exclusive(json!({"a": 1})).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/xml"] {
        let request = locks.request("POST", "").header("content-type", kind).body(good.clone());
        Reply::to(request).refused(415, "UnsupportedMediaType");
    }
    let long = format!("{{\"owner\": \"{}\"}}", "x".repeat(1 << 20));
    locks.ask_text("", &long).refused(413, "PayloadTooLarge");
    for path in ["", "/query"] {
        let request = raw::request("POST", &format!("/v1/locks{path}"), "", b"{\"a\": \"\xff\xfe\"}");
        raw::ask(server.address(), request).refused(400, "InvalidRequest");
    }
    assert_eq!(locks.ids().len(), 0, "nothing was granted");
    // Without a Content-Type it is JSON.
    let reply = raw::ask(server.address(), raw::request("POST", "/v1/locks", "", good.as_bytes()));
    locks.let_go(&reply.granted());
}

#[test]
fn ids_must_be_names() {
    let server = Server::fresh();
    let locks = server.locks();
    for id in ["%00", "a%0Ab", "%FF", &"x".repeat(257)] {
        for (method, path) in [
            ("GET", format!("/v1/locks/{id}")),
            ("DELETE", format!("/v1/locks/{id}?force=true")),
            ("POST", format!("/v1/locks/{id}/heartbeat")),
        ] {
            let request = raw::request(method, &path, "", b"{\"session_id\": \"x\"}");
            let reply = raw::ask(server.address(), request);
            assert!([400, 404].contains(&reply.status), "{method} {path} → {} {}", reply.status, reply.text);
        }
    }
    for namespace in ["%00", ".", "..", &"x".repeat(257)] {
        let body = exclusive(json!({"a": 1})).to_string();
        let request = raw::request("POST", &format!("/v1/ns/{namespace}/locks"), "", body.as_bytes());
        let reply = raw::ask(server.address(), request);
        assert!([400, 404].contains(&reply.status), "{namespace} → {} {}", reply.status, reply.text);
    }
    assert_eq!(locks.ids().len(), 0);
}
