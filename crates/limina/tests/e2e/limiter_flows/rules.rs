//! Rules: made, read, replaced, changed and deleted; and each change acts at once.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::encode;
use crate::limiter::{LONG, bucket, fixed, sliding};
use crate::reply::Reply;

/// How many overrides a rule says it has: the one number whose name speaks of them.
#[track_caller]
fn overrides_of(reply: &Reply) -> u64 {
    let fields = reply.body.as_object().expect("a rule");
    let count = fields.iter().find(|(name, value)| name.contains("override") && value.is_u64());
    count.and_then(|(_, value)| value.as_u64()).unwrap_or_else(|| panic!("no count: {}", reply.text))
}

#[test]
fn a_rule_is_made_and_read() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let rule = json!({
        "name": "per user", "group_by": ["user", "path"], "selection": {"plan": "free"}, "limit": 5,
        "window": {"type": "bucket", "per": "1m30s", "burst": 20}, "shadow": true, "durability": "durable",
        "description": "what it is for"
    });
    let made = limiter.post("/rules", rule).created();
    for reply in [&made, &limiter.get("/rules/per%20user").ok()] {
        let reply = reply.clone().has("name", "per user").has("limit", 5).has("shadow", true);
        let reply = reply.has("durability", "durable").has("description", "what it is for");
        assert_eq!(reply.body["group_by"], json!(["user", "path"]), "{}", reply.text);
        assert!(reply.body["selection"]["plan"].to_string().contains("free"), "{}", reply.text);
        let window = &reply.body["window"];
        assert_eq!((&window["type"], &window["burst"]), (&json!("bucket"), &json!(20)), "{}", reply.text);
        assert_eq!(window["per_ms"], 90_000, "{}", reply.text);
        assert_eq!(overrides_of(&reply), 0);
    }
    limiter.override_of("per user", "a", json!({"user": 1, "path": "/"}), 1);
    limiter.override_of("per user", "b", json!({"user": 2, "path": "/"}), 1);
    assert_eq!(overrides_of(&limiter.get("/rules/per%20user").ok()), 2);
}

#[test]
fn a_rule_has_defaults() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("in use", &[], 5);
    let rule = limiter.get("/rules/in%20use").ok().has("shadow", false).has("durability", "durable");
    assert_eq!(rule.body["selection"], json!({}), "{}", rule.text);
    for (name, window) in [("f", fixed("1m")), ("s", sliding("1m"))] {
        limiter.window(name, &[], 5, window);
        limiter.get(&format!("/rules/{name}")).ok().has("durability", "relaxed");
    }
    limiter.window("b", &[], 5, json!({"type": "bucket", "per": "1m"}));
    limiter.check(json!({})).allowed().uses("b", 1);
    assert_eq!(limiter.look(json!({})).limit("b")["limit"], 5, "the burst is the limit");
}

#[test]
fn a_name_is_used_once() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 1);
    let again = json!({"name": "r", "group_by": ["b"], "limit": 9});
    limiter.post("/rules", again.clone()).refused(409, "RuleAlreadyExists");
    limiter.get("/rules/r").ok().has("limit", 1);
    limiter.delete("/rules/r").is(204);
    limiter.get("/rules/r").refused(404, "RuleNotFound");
    limiter.post("/rules", again).created();
    limiter.get("/rules/r").ok().has("limit", 9);
}

#[test]
fn what_is_not_there_is_not_found() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let over = json!({"name": "o", "key_values": {"a": 1}, "limit": 1});
    limiter.get("/rules/none").refused(404, "RuleNotFound");
    limiter.patch("/rules/none", json!({"limit": 1})).refused(404, "RuleNotFound");
    limiter.delete("/rules/none").refused(404, "RuleNotFound");
    limiter.get("/rules/none/overrides").refused(404, "RuleNotFound");
    limiter.post("/rules/none/overrides", over).refused(404, "RuleNotFound");
    limiter.get("/rules/none/overrides/o").refused(404, "RuleNotFound");
    limiter.delete("/rules/none/overrides/o").refused(404, "RuleNotFound");
    limiter
        .put("/rules/none/overrides/o", json!({"key_values": {"a": 1}, "limit": 1}))
        .refused(404, "RuleNotFound");
    limiter.patch("/rules/none/overrides/o", json!({"limit": 1})).refused(404, "RuleNotFound");
    limiter.rule("r", &["a"], 1);
    limiter.get("/rules/r/overrides/none").refused(404, "OverrideNotFound");
    limiter.patch("/rules/r/overrides/none", json!({"limit": 1})).refused(404, "OverrideNotFound");
    limiter.delete("/rules/r/overrides/none").refused(404, "OverrideNotFound");
}

#[test]
fn put_creates_and_replaces() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let first = json!({"group_by": ["user"], "limit": 2, "description": "first", "shadow": true});
    limiter.put("/rules/r", first).created().has("name", "r").has("limit", 2);
    let second = json!({"group_by": ["user"], "limit": 3, "selection": {"plan": "free"}});
    limiter.put("/rules/r", second).ok().has("limit", 3).has("shadow", false);
    let rule = limiter.get("/rules/r").ok();
    assert!(rule.body.get("description").is_none_or(Value::is_null), "{}", rule.text);
    limiter.check(json!({"user": 1})).allowed().applied(&[]);
    limiter.check(json!({"user": 1, "plan": "free"})).allowed().applied(&["r"]);
    assert_eq!(limiter.names("/rules", None, 10), ["r"]);
}

#[test]
fn patch_changes_only_what_it_names() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let rule = json!({"name": "r", "group_by": ["user"], "limit": 2, "selection": {"plan": "free"},
        "window": fixed(LONG), "description": "words"});
    limiter.post("/rules", rule).created();
    let free = json!({"user": 1, "plan": "free"});
    limiter.take(free.clone(), 2).allowed().uses("r", 2);

    limiter.patch("/rules/r", json!({"limit": 4})).ok().has("limit", 4).has("description", "words");
    limiter.check(free.clone()).allowed().uses("r", 3);
    limiter.patch("/rules/r", json!({"description": null})).ok().has("limit", 4);
    let now = limiter.get("/rules/r").ok();
    assert!(now.body.get("description").is_none_or(Value::is_null), "{}", now.text);
    limiter.patch("/rules/r", json!({"shadow": true})).ok().has("shadow", true);
    limiter.take(free.clone(), 5).allowed();
    limiter
        .patch("/rules/r", json!({"shadow": false, "durability": "durable"}))
        .ok()
        .has("durability", "durable");
    limiter.check(free.clone()).denied(&["r"]).uses("r", 8);
    limiter.patch("/rules/r", json!({"selection": {}})).ok();
    limiter.check(json!({"user": 2})).allowed().applied(&["r"]);
    // Without its window it is a rule over what is in use; nothing was counted as such.
    limiter.patch("/rules/r", json!({"window": null})).ok();
    limiter.check(free).allowed().uses("r", 1);
    limiter.patch("/rules/r", json!({})).ok().has("limit", 4);
}

#[test]
fn a_changed_limit_acts_at_once() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("in use", &["a"], 3);
    limiter.window("fixed", &["b"], 3, fixed(LONG));
    limiter.window("sliding", &["c"], 3, sliding(LONG));
    for (rule, key) in [("in use", "a"), ("fixed", "b"), ("sliding", "c")] {
        let key_values = || json!({key: 1});
        limiter.take(key_values(), 3).allowed();
        limiter.check(key_values()).denied(&[rule]);
        limiter.set_limit(rule, 4);
        limiter.check(key_values()).allowed().uses(rule, 4);
        limiter.set_limit(rule, 2);
        let denied = limiter.check(key_values()).denied(&[rule]).uses(rule, 4);
        assert_eq!((&denied.limit(rule)["limit"], &denied.limit(rule)["remaining"]), (&json!(2), &json!(0)));
        limiter.set_limit(rule, -1);
        limiter.take(key_values(), 1_000_000).allowed().uses(rule, 1_000_004);
        limiter.set_limit(rule, 0);
        limiter.check(key_values()).denied(&[rule]);
    }
}

#[test]
fn no_limit_and_nothing_passes() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("free", &["a"], -1);
    limiter.rule("shut", &["b"], 0);
    limiter.window("shut window", &["c"], 0, fixed(LONG));
    let reply = limiter.take(json!({"a": 1}), 1 << 50).allowed().uses("free", 1 << 50);
    assert_eq!(
        (&reply.limit("free")["limit"], &reply.limit("free")["remaining"]),
        (&json!(-1), &Value::Null)
    );
    limiter.check(json!({"b": 1})).denied(&["shut"]).uses("shut", 0);
    let never = limiter.check(json!({"c": 1})).denied(&["shut window"]);
    assert_eq!(never.retry_after_ms(), None, "never: {}", never.text);
    // All or nothing: what is unlimited does not move when another refuses.
    limiter.check(json!({"a": 1, "b": 1})).denied(&["shut"]).uses("free", 1 << 50);
}

#[test]
fn a_rule_made_later_counts_what_is_in_use() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("all", &[], -1);
    limiter.take(json!({"user": "ann", "path": "/a"}), 2).allowed();
    limiter.take(json!({"user": "ann", "path": "/b"}), 3).allowed();
    limiter.take(json!({"user": "bob", "path": "/a"}), 5).allowed();
    limiter.take(json!({"path": "/a"}), 7).allowed();

    limiter.rule("user", &["user"], 6);
    limiter.rule("path", &["path"], 100);
    limiter
        .post("/rules", json!({"name": "a only", "group_by": [], "selection": {"path": "/a"}, "limit": 99}))
        .created();
    let reply = limiter.check(json!({"user": "ann", "path": "/a"})).allowed();
    reply.uses("all", 18).uses("user", 6).uses("path", 15).uses("a only", 15);
    limiter.check(json!({"user": "ann"})).denied(&["user"]).uses("user", 6);
    limiter.check(json!({"user": "bob"})).allowed().uses("user", 6);
    // Another selection: another sum.
    limiter.patch("/rules/a%20only", json!({"selection": {"user": {"exists": true}}})).ok();
    limiter.look(json!({"user": "x"})).uses("a only", 12);
    limiter.put("/rules/path", json!({"group_by": ["user", "path"], "limit": 100})).ok();
    limiter.look(json!({"user": "ann", "path": "/b"})).uses("path", 3);
}

#[test]
fn nothing_of_a_deleted_rule_comes_back() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    for window in [fixed(LONG), sliding(LONG), bucket(LONG, 2)] {
        limiter.window("r", &["a"], 2, window.clone());
        limiter.override_of("r", "o", json!({"a": 2}), 50);
        limiter.take(json!({"a": 1}), 2).allowed();
        limiter.take(json!({"a": 2}), 2).allowed().uses("r/o", 2);
        limiter.delete("/rules/r").is(204);
        limiter.check(json!({"a": 1})).allowed().applied(&[]);

        limiter.window("r", &["a"], 2, window);
        assert_eq!(limiter.names("/rules/r/overrides", None, 10).len(), 0);
        limiter.get("/rules/r/overrides/o").refused(404, "OverrideNotFound");
        limiter.take(json!({"a": 1}), 2).allowed().uses("r", 2);
        limiter.take(json!({"a": 2}), 3).denied(&["r"]).uses("r", 0);
        limiter.delete("/rules/r").is(204);
    }
    // Counters are nobody's, and stay.
    limiter.rule("r", &["a"], 5);
    limiter.override_of("r", "o", json!({"a": 1}), 1);
    limiter.check(json!({"a": 1})).allowed();
    limiter.delete("/rules/r").is(204);
    limiter.rule("r", &["a"], 5);
    limiter.look(json!({"a": 1})).uses("r", 1);

    server.crash_and_restart();
    let limiter = server.limiter();
    limiter.look(json!({"a": 1})).uses("r", 1);
    limiter.get("/rules/r/overrides/o").refused(404, "OverrideNotFound");
}

#[test]
fn another_window_starts_empty_and_the_same_goes_on() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("r", &[], 5, fixed(LONG));
    let used = |window: Value| {
        limiter.patch("/rules/r", json!({"window": window})).ok();
        let used = limiter.used("r", json!({}));
        limiter.check(json!({})).allowed();
        used
    };
    limiter.check(json!({})).allowed();
    assert_eq!(used(fixed(LONG)), 1, "the same");
    assert_eq!(used(fixed("350d")), 0, "another `per`");
    assert_eq!(used(sliding("350d")), 0, "another type");
    assert_eq!(used(sliding("350d")), 1, "the same");
    assert_eq!(used(bucket("350d", 5)), 0, "another type");
    assert_eq!(used(bucket("300d", 5)), 0, "another `per`");
    limiter.put("/rules/r", json!({"group_by": [], "limit": 7, "window": fixed(LONG)})).ok();
    limiter.take(json!({}), 3).allowed().uses("r", 3);
    limiter.put("/rules/r", json!({"group_by": [], "limit": 9, "window": fixed(LONG)})).ok();
    limiter.look(json!({})).uses("r", 3);
}

#[test]
fn group_by_may_change_only_if_every_override_has_the_keys() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["user"], 5);
    limiter.override_of("r", "wide", json!({"user": 1, "path": "/"}), 1);
    let replace = |keys: &[&str]| limiter.put("/rules/r", json!({"group_by": keys, "limit": 6}));
    replace(&["user", "path"]).ok();
    replace(&["path"]).ok();
    limiter.override_of("r", "narrow", json!({"path": "/x"}), 1);
    replace(&["user", "path"]).refused(409, "OverridesConflict");
    replace(&["other"]).refused(409, "OverridesConflict");
    let rule = limiter.get("/rules/r").ok();
    assert_eq!(rule.body["group_by"], json!(["path"]), "unchanged");
    replace(&[]).ok();
    limiter.delete("/rules/r/overrides/narrow").is(204);
    replace(&["user", "path"]).ok();
}

#[test]
fn a_shadow_counts_and_never_refuses() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter
        .post("/rules", json!({"name": "shadow", "group_by": ["a"], "limit": 1, "shadow": true}))
        .created();
    limiter
        .post(
            "/rules",
            json!({"name": "window", "group_by": ["a"], "limit": 1, "shadow": true, "window": fixed(LONG)}),
        )
        .created();
    limiter.check(json!({"a": 1})).allowed();
    for used in 2..5 {
        let reply = limiter.check(json!({"a": 1})).allowed().uses("shadow", used).uses("window", used);
        for name in ["shadow", "window"] {
            let limit = reply.limit(name);
            assert_eq!(
                (&limit["shadow"], &limit["exceeded"]),
                (&json!(true), &json!(true)),
                "{}",
                reply.text
            );
        }
    }
    // Beside a rule that refuses it moves no more than any other.
    limiter.rule("shut", &["a", "b"], 0);
    limiter.check(json!({"a": 1, "b": 1})).denied(&["shut"]).uses("shadow", 4).uses("window", 4);
}

#[test]
fn match_tells_what_applies_and_takes_nothing() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("rule-user", &["user"], 1);
    limiter.rule("rule-path", &["path"], 1);
    limiter
        .post("/rules", json!({"name": "rule-pro", "group_by": [], "selection": {"plan": "pro"}, "limit": 1}))
        .created();
    limiter.override_of("rule-user", "over-ann", json!({"user": "ann"}), 5);
    limiter.override_of("rule-user", "over-bob", json!({"user": "bob"}), 5);
    let matching = |key_values: Value| limiter.post("/rules/match", json!({"key_values": key_values})).ok();
    for _ in 0..3 {
        matching(json!({"user": "ann"})).naming(&["rule-user", "over-ann"]).not_naming(&[
            "rule-path",
            "rule-pro",
            "over-bob",
        ]);
        matching(json!({"path": "/", "plan": "pro"})).naming(&["rule-path", "rule-pro"]).not_naming(&[
            "rule-user",
            "over-ann",
            "over-bob",
        ]);
    }
    matching(json!({"else": 1})).not_naming(&["rule-user", "rule-path", "rule-pro"]);
    limiter.check(json!({"path": "/", "plan": "pro"})).allowed();
    matching(json!({"path": "/"})).naming(&["rule-path"]);
}

#[test]
fn a_rule_has_any_name() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    let names = [
        "a b",
        "a/b",
        "ünï🌮",
        "100%",
        "check",
        "query",
        "match",
        "overrides",
        "\"quoted\\\"",
        &"x".repeat(256),
    ];
    for (n, name) in names.iter().enumerate() {
        limiter.rule(name, &["n"], n as i64);
        limiter.override_of(name, name, json!({"n": "o"}), 1);
    }
    server.crash_and_restart();
    let limiter = server.limiter();
    for (n, name) in names.iter().enumerate() {
        limiter.get(&format!("/rules/{}", encode(name))).ok().has("name", *name).has("limit", n);
        limiter.get(&format!("/rules/{0}/overrides/{0}", encode(name))).ok().has("name", *name);
    }
    let reply = limiter.check(json!({"n": 1})).refused(429, "LimitReached");
    let reply = reply.uses("ünï🌮", 0);
    assert_eq!(crate::limiter::limits_of(&reply.body).len(), names.len());
}

#[test]
fn sixteen_keys_and_none() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let keys: Vec<String> = (0..16).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    limiter.rule("sixteen", &keys, 1);
    limiter.rule("none", &[], 3);
    let whole: serde_json::Map<String, Value> = keys.iter().map(|key| (key.to_string(), json!(1))).collect();
    limiter.check(Value::Object(whole.clone())).allowed().applied(&["none", "sixteen"]);
    limiter.check(Value::Object(whole.clone())).denied(&["sixteen"]);
    let mut less = whole;
    less.remove("k7");
    limiter.check(Value::Object(less)).allowed().applied(&["none"]);
    limiter.check(json!({})).allowed().uses("none", 3);
    limiter.check(json!({"anything": "else"})).denied(&["none"]);
}
