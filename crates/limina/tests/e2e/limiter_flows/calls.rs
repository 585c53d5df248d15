//! Every request of the limiter, with its JSON.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::results;
use crate::limiter::{LONG, Lease, Limiter, check_denied, check_limits, checks, fixed};
use crate::reply::check_problem;

#[test]
fn every_call_and_its_json() {
    let server = Server::fresh();
    for limiter in [server.limiter(), server.limiter_of("a/b 🌮")] {
        rules(&limiter);
        overrides(&limiter);
        rule_sets(&limiter);
        verdicts(&limiter);
        counters(&limiter);
        leases(&limiter);
    }
}

/// Deletes the rules that it creates.
fn rules(limiter: &Limiter) {
    let rule = json!({
        "name": "per user", "group_by": ["user", "path"], "selection": {"plan": "free"}, "limit": 5,
        "window": {"type": "bucket", "per": "1m30s", "burst": 20}, "shadow": true, "durability": "durable",
        "description": "what it is for"
    });
    let made = limiter.post("/rules", rule.clone()).created();
    let expected = json!({
        "name": "per user", "group_by": ["user", "path"], "selection": {"plan": "free"}, "limit": 5,
        "window": {"type": "bucket", "per_ms": 90_000, "burst": 20}, "shadow": true, "durability": "durable",
        "description": "what it is for", "overrides": 0, "managed_by": null,
        "created_position": made.body["created_position"]
    });
    assert_eq!(made.body, expected);
    assert_eq!(limiter.get("/rules/per%20user").ok().body, expected);
    limiter.post("/rules", rule).refused(409, "RuleAlreadyExists");

    let plain = limiter.put("/rules/plain", json!({"limit": -1})).created();
    let expected = json!({"name": "plain", "group_by": [], "selection": {}, "limit": -1, "window": null,
        "shadow": false, "durability": "durable", "description": null, "overrides": 0, "managed_by": null,
        "created_position": plain.body["created_position"]});
    assert_eq!(plain.body, expected);
    limiter.put("/rules/plain", json!({"group_by": ["user"], "limit": 7})).ok().has("limit", 7);
    // Null removes a field. A field that is omitted stays.
    let patch = json!({"window": {"type": "sliding", "per_ms": 1000}, "durability": "relaxed", "limit": 8});
    let patched = limiter.patch("/rules/plain", patch).ok().has("limit", 8).has("durability", "relaxed");
    assert_eq!(patched.body["window"], json!({"type": "sliding", "per_ms": 1000, "burst": null}));
    let patch = json!({"window": null, "durability": null, "shadow": true, "selection": {"a": {"gt": 1}}});
    let patched = limiter.patch("/rules/plain", patch).ok().has("window", Value::Null).has("shadow", true);
    assert_eq!(patched.body["selection"], json!({"a": {"gt": 1}}));
    limiter.patch("/rules/none", json!({"limit": 1})).refused(404, "RuleNotFound");

    let page = limiter.get("/rules?limit=1").ok();
    assert_eq!((&page.items()[0]["name"], page.next()), (&json!("per user"), Some("per user")));
    let last = limiter.get("/rules?limit=1&after=per%20user").ok();
    assert_eq!((&last.items()[0]["name"], last.next()), (&json!("plain"), None));
    let query = json!({"min_keys": 1, "max_keys": 2, "any": [{"where": {"path": {"exists": true}}},
        {"all": [{"where": {"nobody": {"exists": true}}}]}]});
    assert_eq!(limiter.names("/rules/query", Some(&query), 10), ["per user"]);
    for name in ["per%20user", "plain"] {
        let deleted = limiter.delete(&format!("/rules/{name}")).is(204);
        assert_eq!(deleted.text, "");
    }
    limiter.get("/rules/plain").refused(404, "RuleNotFound");
}

/// Creates the rule `user`, with a limit of 2 for each user, and its override `vip`.
fn overrides(limiter: &Limiter) {
    limiter.rule("user", &["user"], 2);
    let new = json!({"name": "vip", "key_values": {"user": "ann", "vip": true}, "limit": 3});
    let made = limiter.post("/rules/user/overrides", new.clone()).created();
    let expected = json!({"rule": "user", "name": "vip", "key_values": {"user": "ann", "vip": true},
        "limit": 3, "burst": null, "created_position": made.body["created_position"]});
    assert_eq!(made.body, expected);
    assert_eq!(limiter.get("/rules/user/overrides/vip").ok().body, expected);
    limiter.post("/rules/user/overrides", new).refused(409, "OverrideAlreadyExists");
    let lost = json!({"key_values": {"vip": true}, "limit": 1});
    limiter.put("/rules/user/overrides/lost", lost).invalid("key_values");
    let put = json!({"key_values": {"user": "bob"}, "limit": 1});
    limiter.put("/rules/user/overrides/bob", put.clone()).created();
    limiter.put("/rules/user/overrides/bob", put).ok();
    limiter.patch("/rules/user/overrides/bob", json!({"burst": 5})).invalid("burst");
    limiter.patch("/rules/user/overrides/bob", json!({"limit": 2})).ok().has("limit", 2);
    limiter.get("/rules/user").ok().has("overrides", 2);
    limiter.put("/rules/user", json!({"group_by": ["vip"], "limit": 2})).refused(409, "OverridesConflict");
    assert_eq!(limiter.names("/rules/user/overrides", None, 1), ["bob", "vip"]);
    let query = json!({"where": {"vip": true}});
    assert_eq!(limiter.names("/rules/user/overrides/query", Some(&query), 10), ["vip"]);
    limiter.delete("/rules/user/overrides/bob").is(204);
    limiter.get("/rules/user/overrides/bob").refused(404, "OverrideNotFound");

    let matches = limiter.post("/rules/match", json!({"key_values": {"user": "ann", "vip": true}})).ok();
    let found = &matches.body["rules"][0];
    assert_eq!((&found["name"], &found["group"]), (&json!("user"), &json!({"user": "ann"})));
    assert_eq!(found["matching_overrides"], json!([expected]));
}

/// A check, a dry run, a batch, and refusals of each. Deletes the rules and sets that it creates.
fn rule_sets(limiter: &Limiter) {
    let rule = |limit: u64| {
        json!({"name": "a", "group_by": ["user"], "limit": limit, "window": {"type": "fixed", "per": LONG},
            "overrides": [{"name": "vip", "key_values": {"user": 1}, "limit": 9}]})
    };
    let set = |rules: Value| json!({"rules": rules, "overrides": "open"});
    let changes = json!({"created": ["a", "b"], "changed": [], "deleted": [], "conflicts": []});
    let both = set(json!([rule(5), {"name": "b", "limit": 1}]));
    assert_eq!(limiter.put("/rule-sets/my%20set?dry_run=true", both.clone()).ok().body, changes);
    limiter.get("/rule-sets/my%20set").refused(404, "RuleSetNotFound").has("rule_set", "my set");
    assert_eq!(limiter.put("/rule-sets/my%20set", both).created().body, changes);
    limiter.get("/rules/a").ok().has("managed_by", "my set").has("overrides", 1);
    let refused = limiter.patch("/rules/a", json!({"limit": 6})).refused(409, "RuleManagedBySet");
    refused.has("rule", "a").has("rules", json!([{"rule": "a", "managed_by": "my set"}]));
    limiter.override_as("a", "own", json!({"user": 2}), 3).created();

    // A set that was read can be put again, which changes nothing.
    let read = limiter.get("/rule-sets/my%20set").ok().has("overrides", "open");
    let nothing = json!({"created": [], "changed": [], "deleted": [], "conflicts": []});
    assert_eq!(limiter.put("/rule-sets/my%20set", read.body.clone()).ok().body, nothing);
    let overrides = &read.body["rules"][0]["overrides"];
    assert_eq!((overrides.as_array().map(Vec::len), &overrides[0]["name"]), (Some(1), &json!("vip")));
    let position = &read.body["created_position"];
    let listed = json!({"items": [{"name": "my set", "rules": 2, "overrides": "open",
        "created_position": position}], "next": null});
    assert_eq!(limiter.get("/rule-sets").ok().body, listed);

    let mut changed = rule(6);
    changed["window"] = json!({"type": "sliding", "per": LONG});
    let expected = json!({"created": [], "deleted": ["b"], "conflicts": [],
        "changed": [{"rule": "a", "fields": ["limit", "window"], "starts_empty": true}]});
    assert_eq!(limiter.put("/rule-sets/my%20set", set(json!([changed]))).ok().body, expected);
    let conflict = set(json!([{"name": "a", "limit": 1}]));
    let planned = limiter.put("/rule-sets/other?dry_run=true", conflict.clone()).ok();
    let told = json!([{"rule": "a", "code": "RuleManagedBySet", "managed_by": "my set", "override": null}]);
    assert_eq!(planned.body["conflicts"], told);
    limiter.put("/rule-sets/other", conflict).refused(409, "RuleManagedBySet").has("rule", "a");
    limiter.put("/rule-sets/my%20set?dry_run=1", set(json!([]))).invalid("dry_run");
    limiter.put("/rule-sets/my%20set", json!({"rules": [{"name": "x"}]})).invalid("rules[0].limit");
    limiter.delete("/rule-sets/my%20set").is(204);
    limiter.delete("/rule-sets/my%20set").refused(404, "RuleSetNotFound");
    limiter.get("/rules/a").refused(404, "RuleNotFound");
}

fn verdicts(limiter: &Limiter) {
    limiter.window("window", &["window"], 1, fixed(LONG));
    let check = json!({"key_values": {"user": "ann", "vip": true, "window": 1}, "hits": 1});
    let reply = limiter.post("/check", check.clone()).ok();
    let reset = reply.limit("window")["reset_ms"].clone();
    assert!(reset.as_u64().is_some_and(|ms| ms > 0), "{}", reply.text);
    let vip = |used: u64| {
        json!({"rule": "user", "override": "vip", "group": {"user": "ann", "vip": true}, "limit": 3,
            "used": used, "remaining": 3 - used, "reset_ms": null, "shadow": false, "exceeded": false, "waiting": 0})
    };
    let window = |reset: &Value, exceeded: bool| {
        json!({"rule": "window", "override": null, "group": {"window": 1}, "limit": 1, "used": 1,
            "remaining": 0, "reset_ms": reset, "shadow": false, "exceeded": exceeded, "waiting": 0})
    };
    assert_eq!(
        reply.body,
        json!({"allowed": true, "limits": [vip(1), window(&reset, false)], "retry_after_ms": null})
    );

    let refused = limiter.post("/check", check).denied(&["window"]);
    let reset = refused.limit("window")["reset_ms"].clone();
    assert_eq!(refused.body["limits"], json!([vip(1), window(&reset, true)]));
    assert_eq!(refused.body["retry_after_ms"], reset);
    assert_eq!(refused.body["violated-policies"], json!(["window"]));
    let dry = json!({"key_values": {"user": "dan"}, "hits": 3, "dry_run": true});
    limiter.post("/check", dry).denied(&["user"]).uses("user", 0);
    limiter.post("/counters", json!({"key_values": {"user": "dan"}, "counters": 3})).not_counted(&["user"]);

    let reply = limiter.post(
        "/check/batch",
        checks(vec![
            json!({"key_values": {"user": "dan"}}),
            json!({"key_values": {"user": "dan"}, "hits": 2}),
            json!({"key_values": {"user": null}}),
            json!({"key_values": {"user": "dan"}, "hitz": 1}),
            json!({"KeyValues": {"user": {"DataType": 12, "Value": "dan"}}, "dry_run": true}),
            json!({"key_values": {"none": 1}}),
        ]),
    );
    let reply = reply.ok();
    let results = results(&reply);
    let statuses: Vec<_> = results.iter().map(|result| result["status"].clone()).collect();
    assert_eq!(statuses, [200, 429, 400, 400, 200, 200], "{}", reply.text);
    for n in [0, 4, 5] {
        assert_eq!(results[n]["allowed"], true, "{}", results[n]);
        check_limits(&results[n]);
    }
    check_problem(&results[1], 429, "LimitReached");
    check_denied(&results[1], &["user"]);
    for n in [2, 3] {
        check_problem(&results[n], 400, "InvalidRequest");
    }
}

fn counters(limiter: &Limiter) {
    let counter = |key_values: Value, counters: i64| json!({"key_values": key_values, "counters": counters});
    let moved = limiter.post("/counters", counter(json!({"user": "eve"}), 2)).ok();
    let limit = json!({"rule": "user", "override": null, "group": {"user": "eve"}, "limit": 2, "used": 2,
        "remaining": 0, "reset_ms": null, "shadow": false, "exceeded": false, "waiting": 0});
    assert_eq!(
        moved.body,
        json!({"key_values": {"user": "eve"}, "counters": 2, "leased": 0, "allowed": true,
            "limits": [limit], "retry_after_ms": null})
    );
    // PUT is the same call.
    limiter.put("/counters", counter(json!({"user": "eve"}), 1)).not_counted(&["user"]);
    limiter.put("/counters", counter(json!({"user": "eve"}), -1)).ok().has("counters", 1);
    let set = limiter.put("/counters/set", counter(json!({"user": "fay"}), 9)).ok();
    let expected = json!({"key_values": {"user": "fay"}, "counters": 9, "leased": 0});
    assert_eq!(set.body, expected);
    let query = json!({"where": {"user": {"gte": "f"}}});
    assert_eq!(limiter.post("/counters/query", query).ok().body, json!({"items": [expected], "next": null}));
}

fn leases(limiter: &Limiter) {
    let request = json!({"key_values": {"user": "gus"}, "hits": 2, "ttl": "10m", "owner": "worker 🌮"});
    let taken = limiter.post("/leases", request).created().uses("user", 2);
    let lease = taken.lease();
    let keys: Vec<&String> = taken.body.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["expires_in_ms", "fencing_token", "lease_id", "limits", "session_id"]);
    limiter.lease(json!({"user": "gus"}), 1, "1h").denied(&["user"]);
    let listed = limiter.all("/leases", None, 1);
    assert_eq!(listed.len(), 1);
    assert_eq!(limiter.all("/leases?owner=worker%20🌮", None, 1).len(), 1);
    assert_eq!(limiter.all("/leases?owner=other", None, 1).len(), 0);
    for item in [listed[0].clone(), limiter.held(&lease).ok().body, limiter.heartbeat(&lease).ok().body] {
        let (left, held) = (item["expires_in_ms"].as_u64(), item["held_ms"].as_u64());
        assert!(left.is_some_and(|ms| ms <= 600_000) && held.is_some_and(|ms| ms < 600_000), "{item}");
        let expected = json!({"lease_id": lease.id, "fencing_token": taken.body["fencing_token"],
            "key_values": {"user": "gus"}, "hits": 2, "owner": "worker 🌮", "held_ms": held,
            "expires_in_ms": left, "ttl_ms": 600_000, "operation_id": null});
        assert_eq!(item, expected);
    }
    let stranger = Lease { session: "another".into(), ..lease.clone() };
    limiter.heartbeat(&stranger).refused(409, "SessionMismatch");
    limiter.release(&stranger).refused(409, "SessionMismatch");
    limiter.release(&lease).is(204);
    limiter.held(&lease).refused(404, "LeaseNotFound");
    limiter.heartbeat(&lease).refused(404, "LeaseNotFound");
    limiter.release(&lease).refused(404, "LeaseNotFound");
    let forced = limiter.lease(json!({"user": "gus"}), 1, "1h").created().lease();
    limiter.delete(&format!("/leases/{}?force=true", forced.id)).is(204);
}

/// Each form of a condition as JSON, with a value that it selects and one that it does not. The meaning of conditions
/// is tested by `selections.txt` of the engine.
#[test]
fn every_condition_and_its_json() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for (condition, selected, other) in [
        (json!(1), json!(1), json!(1.0)),
        (json!("s"), json!("s"), json!("t")),
        (json!(true), json!(true), json!("true")),
        (json!({"DataType": 7, "Value": "1"}), json!(1), json!("1")),
        (json!({"eq": {"DataType": 0, "Value": 1}}), json!(1), json!(2)),
        (json!({"eq": 1}), json!(1), json!(2)),
        (json!({"ne": 1}), json!(2), json!(1)),
        (json!({"lt": 2}), json!(1), json!(2)),
        (json!({"lte": 2}), json!(2), json!(3)),
        (json!({"gt": 2}), json!(3), json!(2)),
        (json!({"gte": 2}), json!(2), json!(1)),
        (json!({"in": [1, "a", {"DataType": 12, "Value": "t"}]}), json!("t"), json!("1")),
        (json!({"prefix": "/api/"}), json!("/api/x"), json!("/api")),
        (json!({"exists": true}), json!(0), Value::Null),
        (json!({"exists": false}), Value::Null, json!(0)),
        (json!({"gte": 1, "lt": 3}), json!(2), json!(3)),
    ] {
        let rule = json!({"group_by": [], "limit": -1, "selection": {"v": condition}});
        let put = limiter.put("/rules/r", rule);
        assert!([200, 201].contains(&put.status), "{condition}: {}", put.text);
        for (value, applies) in [(selected, true), (other, false)] {
            let key_values = if value.is_null() { json!({}) } else { json!({"v": value}) };
            let limits = limiter.look(key_values).body["limits"].as_array().map(Vec::len);
            assert_eq!(limits, Some(usize::from(applies)), "{condition} of {value}");
        }
    }
}
