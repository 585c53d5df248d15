//! Invalid requests get 400 `InvalidRequest` with the name of the field, and change nothing. None of them gets a 500.

use serde_json::{Map, Value, json};

use crate::harness::Server;
use crate::ledger::{encode, with};
use crate::locks::{Locks, exclusive, several};
use crate::raw;

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

#[test]
fn invalid_requests_name_the_field() {
    let server = Server::fresh();
    let locks = server.locks();
    let keys = |count: usize| (0..count).map(|n| (n.to_string(), json!(n))).collect::<Map<_, _>>();
    for key_values in [json!({}), json!(null), json!([]), json!({"a": null}), json!({"": 1}), json!(keys(65))]
    {
        check(&locks, &exclusive(key_values.clone()), "key_values");
        check(&locks, &several(&[(json!({"a": 1}), "shared"), (key_values, "exclusive")]), "locks");
    }
    let mut cases = vec![("mode", json!("Exclusive")), ("mode", json!(1))];
    for duration in [json!(99), json!("24h1ms"), json!("10"), json!(-1), json!(true)] {
        cases.push(("ttl", duration));
    }
    for duration in [json!("5m1ms"), json!("10"), json!(-1), json!(true)] {
        cases.push(("wait", duration));
    }
    for owner in [json!(5), json!(""), json!("x".repeat(257))] {
        cases.push(("owner", owner));
    }
    for field in ["tll", "Wait", "session_id", "key_value", "lock_id"] {
        cases.push((field, json!("1s")));
    }
    for (field, value) in cases {
        check(&locks, &with(exclusive(json!({"a": 1})), json!({field: value})), field);
        if field != "mode" {
            check(&locks, &with(several(&[(json!({"a": 1}), "shared")]), json!({field: value})), field);
        }
    }
    assert_eq!(locks.ids().len(), 0, "nothing was granted");
}

#[test]
fn invalid_lists_of_locks_are_refused() {
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
    // The same lock twice.
    check(&locks, &several(&[(json!({"a": 1}), "shared"), (json!({"a": 1}), "exclusive")]), "locks");
    let bad_mode = json!({"key_values": {"a": 1}, "mode": "write"});
    check(&locks, &json!({"locks": [bad_mode], "ttl": "1h"}), "mode");
    // A request must have `key_values` or `locks`, not both, and not neither.
    let lock = json!([{"key_values": {"b": 1}, "mode": "shared"}]);
    let both = locks.ask(&with(exclusive(json!({"a": 1})), json!({"locks": lock})));
    both.refused(400, "InvalidRequest");
    locks.ask(&json!({"mode": "exclusive", "ttl": "1h"})).refused(400, "InvalidRequest");
    assert_eq!(locks.ids().len(), 0, "nothing was granted");
}

#[test]
fn invalid_heartbeats_are_refused() {
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
fn invalid_ids_are_refused() {
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
