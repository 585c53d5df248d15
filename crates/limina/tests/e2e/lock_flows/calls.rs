//! Every request of the API's table of locks: its path in both forms, its fields, its answers. The semantics are tested
//! by the scripts in `crates/engine/tests/testdata/locks`.

use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::{encode, with};
use crate::locks::{Locks, PATIENT, exclusive, lasting, locks_in, several, shared, waiting, waiting_in};

#[test]
fn a_lock_is_acquired_read_extended_and_released() {
    let server = Server::fresh();
    for locks in [server.locks(), server.locks_of("default"), server.locks_of("a/b 🌮")] {
        let asked = Instant::now();
        let request = json!({"key_values": {"door": "front", "floor": 3}, "mode": "exclusive", "ttl": "10m",
            "wait": "30s", "owner": "ann 🌮"});
        let grant = locks.grant(request);
        let expected = (json!({"door": "front", "floor": 3}).to_string(), "exclusive".to_owned());
        assert_eq!(grant.locks, std::slice::from_ref(&expected));
        let passed = asked.elapsed().as_millis() as u64 + 10;
        assert!((600_000 - passed..=600_000).contains(&grant.expires_in_ms), "{grant:?}");

        let all = locks.all(10);
        let queried = locks.query(&json!({"where": {"door": "front"}}), 10);
        assert_eq!((all.len(), queried.len()), (1, 1), "{all:?} {queried:?}");
        for item in [&all[0], &queried[0], &locks.get(&grant.lock_id).ok().body] {
            assert_eq!(item["lock_id"], grant.lock_id.as_str(), "{item}");
            assert_eq!(item["owner"], "ann 🌮", "{item}");
            assert_eq!(locks_in(item), std::slice::from_ref(&expected), "{item}");
            assert_eq!(item["fencing_token"], grant.token, "{item}");
            assert_eq!(waiting_in(item), 0, "{item}");
            let left = item["expires_in_ms"].as_u64().unwrap_or_else(|| panic!("until when? {item}"));
            let held = item["held_ms"].as_u64().unwrap_or_else(|| panic!("since when? {item}"));
            let passed = asked.elapsed().as_millis() as u64 + 10;
            assert!(left <= 600_000 && held <= passed && left + held >= 599_990, "{item} after {passed} ms");
        }
        locks.heartbeat(&grant).ok();
        locks.taken(exclusive(json!({"floor": 3, "door": "front"})));
        let session = "somebody else";
        for reply in [locks.heartbeat_as(&grant.lock_id, session), locks.release_as(&grant.lock_id, session)]
        {
            reply.refused(409, "SessionMismatch").not_naming(&[&grant.session_id]);
        }
        let released = locks.release(&grant).is(204);
        assert_eq!(released.text, "");
        assert_eq!(locks.all(10), [Value::Null; 0]);
        for reply in [
            locks.get(&grant.lock_id),
            locks.heartbeat(&grant),
            locks.release(&grant),
            locks.force(&grant.lock_id),
            locks.get("a/b 🌮"),
        ] {
            reply.refused(404, "LockNotFound");
        }
        // An operator can release any lock, and the next waiting request gets it.
        let held = locks.grant(exclusive(json!({"door": "front", "floor": 3})));
        let next = locks.wait(waiting(exclusive(json!({"door": "front", "floor": 3})), PATIENT));
        locks.await_queue(&held, 1);
        locks.force(&held.lock_id).is(204);
        locks.let_go(&next.granted());
        // The same idempotency key returns the same grant, with its session.
        let request = exclusive(json!({"door": "back"}));
        let first = locks.ask_keyed("key", &request).granted();
        let again = locks.ask_keyed("key", &request).granted();
        assert_eq!((&again.lock_id, &again.session_id), (&first.lock_id, &first.session_id));
        locks.let_go(&first);
    }
}

#[test]
fn paths_without_a_namespace_use_default() {
    let server = Server::fresh();
    let (plain, default) = (server.locks(), server.locks_of("default"));
    let grant = plain.grant(exclusive(json!({"a": 1})));
    default.taken(exclusive(json!({"a": 1})));
    default.get(&grant.lock_id).ok();
    default.heartbeat(&grant).ok();
    default.let_go(&grant);
    plain.get(&grant.lock_id).refused(404, "LockNotFound");
}

#[test]
fn several_locks_are_one_grant() {
    let server = Server::fresh();
    let locks = server.locks();
    let request = several(&[(json!({"a": 1}), "exclusive"), (json!({"b": "x", "c": true}), "shared")]);
    let grant = locks.grant(with(request, json!({"owner": "both"})));
    let expected = [
        (json!({"a": 1}).to_string(), "exclusive".to_owned()),
        (json!({"b": "x", "c": true}).to_string(), "shared".to_owned()),
    ];
    assert_eq!(grant.locks, expected);
    let all = locks.all(10);
    assert_eq!(all.len(), 1, "one item a grant: {all:?}");
    assert_eq!((locks_in(&all[0]), &all[0]["owner"]), (expected.to_vec(), &json!("both")));
    locks.taken(shared(json!({"a": 1})));
    locks.taken(exclusive(json!({"b": "x", "c": true})));
    locks.free(shared(json!({"b": "x", "c": true})));
    locks.heartbeat(&grant).ok();
    locks.let_go(&grant);
    locks.free(exclusive(json!({"a": 1})));
    locks.free(exclusive(json!({"b": "x", "c": true})));
}

/// Without a session and without `force`, no release succeeds, whatever its parameters are called.
#[test]
fn a_release_needs_a_session_or_explicit_force() {
    let server = Server::fresh();
    let locks = server.locks();
    let grant = locks.grant(exclusive(json!({"a": 1})));
    for query in
        ["", "?", "?force=false", "?force=", "?force=maybe", "?session_id=", "?session_id=x&force=false"]
    {
        let path = format!("/{}{query}", encode(&grant.lock_id));
        let reply = crate::reply::Reply::to(locks.request("DELETE", &path));
        assert!([400, 409].contains(&reply.status), "{query:?} → {} {}", reply.status, reply.text);
    }
    locks.taken(exclusive(json!({"a": 1})));
    locks.let_go(&grant);
}

/// Only the holder ever sees the session, because it is the holder's proof.
#[test]
fn only_the_grant_shows_the_session() {
    let server = Server::fresh();
    let locks = server.locks();
    let grant = locks.grant(with(exclusive(json!({"a": 1})), json!({"owner": "me"})));
    let waiter = locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT));
    locks.await_queue(&grant, 1);
    let get = |path: &str| crate::reply::Reply::to(locks.request("GET", path));
    let replies = [
        get(""),
        get(&format!("/{}", encode(&grant.lock_id))),
        locks.ask_text("/query", "{}"),
        locks.heartbeat(&grant),
        locks.heartbeat_as(&grant.lock_id, "wrong"),
        locks.release_as(&grant.lock_id, "wrong"),
        locks.ask(&exclusive(json!({"a": 1}))),
        locks.ask(&waiting(exclusive(json!({"a": 1})), "1ms")),
        get("?limit=0"),
        server.get("/metrics"),
    ];
    for reply in replies {
        assert!(!reply.text.contains(&grant.session_id), "{}", reply.text);
    }
    for item in [&get("").body["items"][0], &get(&format!("/{}", encode(&grant.lock_id))).body] {
        assert_eq!(item.get("session_id"), None, "{item}");
    }
    locks.let_go(&grant);
    let next = waiter.granted();
    assert_ne!(next.session_id, grant.session_id);
    assert!(!get("").text.contains(&next.session_id));
    assert!(!server.log().contains(&grant.session_id), "the log is read by many");
}

/// The spelling of key-values in the original documents works here too, and names the same lock.
#[test]
fn typed_key_values_name_the_same_lock() {
    let server = Server::fresh();
    let locks: Locks = server.locks();
    let typed = json!({"user": {"DataType": 12, "Value": "ann"}, "n": {"DataType": 8, "Value": "7"}});
    let grant = locks.grant(json!({"KeyValues": typed, "mode": "exclusive", "ttl": "1h"}));
    assert_eq!(grant.locks[0].0, json!({"n": 7, "user": "ann"}).to_string());
    locks.taken(exclusive(json!({"user": "ann", "n": 7})));
    locks.let_go(&grant);
    let grant = locks.grant(exclusive(json!({"user": "ann", "n": 7})));
    locks.taken(exclusive(typed));
    locks.let_go(&grant);
}

/// Different spellings in JSON of the same key-values name the same lock.
#[test]
fn equal_key_values_name_the_same_lock() {
    let server = Server::fresh();
    let locks = server.locks();
    for (first, second) in [
        (r#"{"a": 1, "b": "x"}"#, r#"{"b": "x", "a": 1}"#),
        (r#"{"a": "taco"}"#, r#"{"\u0061": "\u0074aco"}"#),
        (r#"{"a": 0.0}"#, r#"{"a": -0.0}"#),
        (r#"{"a": 1.5}"#, r#"{"a": 15e-1}"#),
    ] {
        let body = |set: &str| format!(r#"{{"key_values": {set}, "mode": "exclusive", "ttl": "1h"}}"#);
        let grant = locks.ask_text("", &body(first)).granted();
        locks.ask_text("", &body(second)).refused(409, "LockHeld");
        locks.let_go(&grant);
        let grant = locks.ask_text("", &body(second)).granted();
        locks.ask_text("", &body(first)).refused(409, "LockHeld");
        locks.let_go(&grant);
    }
}

#[test]
fn durations_have_a_minimum_and_a_maximum() {
    let server = Server::fresh();
    let locks = server.locks();
    for (ttl, ms) in [
        (json!({"ttl": "100ms"}), 100),
        (json!({"ttl": null, "ttl_ms": 100}), 100),
        (json!({"ttl": "24h"}), 86_400_000),
        (json!({"ttl": null, "ttl_ms": 86_400_000}), 86_400_000),
        (json!({"ttl": "1m30s"}), 90_000),
    ] {
        for wait in
            [json!({"wait": 0}), json!({"wait_ms": 1}), json!({"wait": "5m"}), json!({"wait_ms": 300_000})]
        {
            let key_values = json!({"ttl": ttl.to_string(), "wait": wait.to_string()});
            let request = with(with(exclusive(key_values), ttl.clone()), wait);
            let grant = locks.grant(request);
            assert!(grant.expires_in_ms <= ms, "{ttl}: {grant:?}");
        }
    }
    let grant = locks.grant(lasting(exclusive(json!({"a": 1})), "24h"));
    assert!(grant.expires_in_ms > 86_000_000, "{grant:?}");
}
