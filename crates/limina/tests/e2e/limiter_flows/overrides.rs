//! Overrides: another limit for exact values.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::limiter::{LONG, Limiter, bucket, fixed, sliding};

/// The rule `user`, of 2 for each user, over what is in use and in every kind of window.
#[track_caller]
fn each_kind(server: &Server, check: impl Fn(&Limiter)) {
    let kinds = [("in use", Value::Null), ("fixed", fixed(LONG)), ("sliding", sliding(LONG))];
    for (namespace, window) in kinds {
        let limiter = server.limiter_of(namespace);
        let mut rule = json!({"name": "user", "group_by": ["user"], "limit": 2});
        if !window.is_null() {
            rule["window"] = window;
        }
        limiter.post("/rules", rule).created();
        check(&limiter);
    }
}

#[test]
fn the_rules_own_limit_is_ignored_where_an_override_applies() {
    each_kind(&Server::fresh(), |limiter| {
        limiter.override_of("user", "more", json!({"user": "ann"}), 4);
        limiter.override_of("user", "less", json!({"user": "bob"}), 1);
        limiter.override_of("user", "free", json!({"user": "root"}), -1);
        limiter.override_of("user", "shut", json!({"user": "eve"}), 0);
        for used in 1..=4 {
            limiter.check(json!({"user": "ann"})).allowed().uses("user/more", used);
        }
        limiter.check(json!({"user": "ann"})).denied(&["user/more"]).uses("user/more", 4);
        limiter.check(json!({"user": "bob"})).allowed();
        limiter.check(json!({"user": "bob"})).denied(&["user/less"]);
        limiter.take(json!({"user": "root"}), 1000).allowed().uses("user/free", 1000);
        limiter.check(json!({"user": "eve"})).denied(&["user/shut"]).uses("user/shut", 0);
        limiter.take(json!({"user": "dan"}), 2).allowed();
        limiter.check(json!({"user": "dan"})).denied(&["user"]);
    });
}

#[test]
fn every_override_that_applies_is_checked() {
    each_kind(&Server::fresh(), |limiter| {
        limiter.override_of("user", "ann", json!({"user": "ann"}), 5);
        limiter.override_of("user", "slow", json!({"user": "ann", "path": "/slow"}), 1);
        limiter.override_of("user", "post", json!({"user": "ann", "method": "POST"}), 3);
        let slow = || json!({"user": "ann", "path": "/slow", "method": "POST"});
        limiter.check(slow()).allowed().uses("user/ann", 1).uses("user/slow", 1).uses("user/post", 1);
        // One refuses, and none moves.
        limiter.check(slow()).denied(&["user/slow"]).uses("user/ann", 1).uses("user/post", 1);
        let post = || json!({"user": "ann", "path": "/", "method": "POST"});
        limiter.take(post(), 2).allowed().uses("user/ann", 3).uses("user/post", 3);
        limiter.check(post()).denied(&["user/post"]);
        limiter.check(slow()).denied(&["user/post", "user/slow"]);
        limiter.take(json!({"user": "ann"}), 2).allowed().uses("user/ann", 5);
        limiter.check(json!({"user": "ann", "path": "/slow"})).denied(&["user/ann", "user/slow"]);
    });
}

#[test]
fn no_limit_in_one_override_does_not_lift_another() {
    each_kind(&Server::fresh(), |limiter| {
        limiter.override_of("user", "free", json!({"user": "ann"}), -1);
        limiter.override_of("user", "shut", json!({"user": "ann", "path": "/closed"}), 0);
        limiter.take(json!({"user": "ann", "path": "/open"}), 100).allowed();
        limiter
            .check(json!({"user": "ann", "path": "/closed"}))
            .denied(&["user/shut"])
            .uses("user/free", 100);
    });
}

#[test]
fn what_an_override_passes_is_counted_in_the_rules_group() {
    each_kind(&Server::fresh(), |limiter| {
        limiter.override_of("user", "batch", json!({"user": "ann", "path": "/batch"}), 10);
        limiter.take(json!({"user": "ann", "path": "/batch"}), 3).allowed().uses("user/batch", 3);
        // No override applies here: the rule's own limit does, and its group is over it.
        limiter.check(json!({"user": "ann"})).denied(&["user"]).uses("user", 3);
        limiter.take(json!({"user": "ann", "path": "/batch"}), 7).allowed().uses("user/batch", 10);
        limiter.delete("/rules/user/overrides/batch").is(204);
        limiter.look(json!({"user": "ann", "path": "/batch"})).uses("user", 10);
        limiter.check(json!({"user": "ann", "path": "/batch"})).denied(&["user"]);
    });
}

#[test]
fn an_override_over_the_group_continues_its_count() {
    each_kind(&Server::fresh(), |limiter| {
        limiter.take(json!({"user": "ann"}), 2).allowed();
        limiter.override_of("user", "ann", json!({"user": "ann"}), 3);
        limiter.check(json!({"user": "ann"})).allowed().uses("user/ann", 3);
        limiter.check(json!({"user": "ann"})).denied(&["user/ann"]);
        limiter.delete("/rules/user/overrides/ann").is(204);
        limiter.check(json!({"user": "ann"})).denied(&["user"]).uses("user", 3);
        limiter.set_limit("user", 4);
        limiter.check(json!({"user": "ann"})).allowed().uses("user", 4);
    });
}

#[test]
fn an_override_made_later_counts_what_is_in_use() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("user", &["user"], -1);
    limiter.take(json!({"user": "ann", "path": "/x"}), 3).allowed();
    limiter.take(json!({"user": "ann", "path": "/x", "n": 1}), 4).allowed();
    limiter.take(json!({"user": "ann"}), 2).allowed();
    limiter.override_of("user", "x", json!({"user": "ann", "path": "/x"}), 8);
    limiter.override_of("user", "all", json!({"user": "ann"}), 100);
    let reply = limiter.check(json!({"user": "ann", "path": "/x"})).allowed();
    reply.uses("user/x", 8).uses("user/all", 10);
    limiter.check(json!({"user": "ann", "path": "/x", "n": 2})).denied(&["user/x"]);
    limiter.counters(json!({"user": "ann", "path": "/x", "n": 1}), -4).ok();
    limiter.look(json!({"user": "ann", "path": "/x"})).uses("user/x", 4).uses("user/all", 6);
}

#[test]
fn a_changed_override_acts_at_once() {
    each_kind(&Server::fresh(), |limiter| {
        limiter.override_of("user", "ann", json!({"user": "ann"}), 1);
        limiter.check(json!({"user": "ann"})).allowed();
        limiter.check(json!({"user": "ann"})).denied(&["user/ann"]);
        limiter.patch("/rules/user/overrides/ann", json!({"limit": 3})).ok().has("limit", 3);
        limiter.take(json!({"user": "ann"}), 2).allowed().uses("user/ann", 3);
        limiter.patch("/rules/user/overrides/ann", json!({"limit": 0})).ok();
        limiter.check(json!({"user": "ann"})).denied(&["user/ann"]);
        // For somebody else from now on: back to the rule's own limit for ann.
        limiter.put("/rules/user/overrides/ann", json!({"key_values": {"user": "bob"}, "limit": 9})).ok();
        limiter.check(json!({"user": "ann"})).denied(&["user"]).uses("user", 3);
        limiter.take(json!({"user": "bob"}), 9).allowed().uses("user/ann", 9);
    });
}

#[test]
fn an_override_of_a_bucket_may_have_its_own_burst() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("user", &["user"], 10, bucket(LONG, 2));
    let over = json!({"name": "ann", "key_values": {"user": "ann"}, "limit": 10, "burst": 6});
    let made = limiter.post("/rules/user/overrides", over).created();
    made.has("name", "ann").has("limit", 10).has("burst", 6);
    limiter.take(json!({"user": "bob"}), 2).allowed();
    limiter.check(json!({"user": "bob"})).denied(&["user"]);
    let reply = limiter.take(json!({"user": "ann"}), 6).allowed().uses("user/ann", 6);
    assert_eq!(reply.limit("user/ann")["limit"], 6, "a bucket's limit is its burst: {}", reply.text);
    limiter.check(json!({"user": "ann"})).denied(&["user/ann"]);
}

#[test]
fn overrides_are_made_once_and_found() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["user"], 5);
    limiter.override_of("r", "a", json!({"user": 1}), 7);
    limiter.override_as("r", "a", json!({"user": 2}), 7).refused(409, "OverrideAlreadyExists");
    limiter.override_as("r", "b", json!({"user": 1}), 7).refused(409, "OverrideAlreadyExists");
    let typed = json!({"user": {"DataType": 7, "Value": 1}});
    limiter.override_as("r", "b", typed, 7).refused(409, "OverrideAlreadyExists");
    // Another type is another value, and more keys are other key-values.
    limiter.override_of("r", "text", json!({"user": "1"}), 7);
    limiter.override_of("r", "float", json!({"user": 1.0}), 7);
    limiter.override_of("r", "wider", json!({"user": 1, "path": "/"}), 7);
    // The same names and values in another rule are its own.
    limiter.rule("s", &["user"], 5);
    limiter.override_of("s", "a", json!({"user": 1}), 7);

    let one = limiter.get("/rules/r/overrides/a").ok().has("name", "a").has("limit", 7);
    assert_eq!(one.body["key_values"], json!({"user": 1}));
    assert_eq!(limiter.names("/rules/r/overrides", None, 2), ["a", "float", "text", "wider"]);
    limiter.delete("/rules/r/overrides/a").is(204);
    limiter.get("/rules/r/overrides/a").refused(404, "OverrideNotFound");
    limiter.get("/rules/s/overrides/a").ok();
    limiter.override_of("r", "b", json!({"user": 1}), 7);
}

#[test]
fn put_creates_and_replaces_an_override() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["user"], 5);
    let put = |name: &str, key_values: Value| {
        limiter.put(&format!("/rules/r/overrides/{name}"), json!({"key_values": key_values, "limit": 1}))
    };
    put("a", json!({"user": 1})).created().has("name", "a");
    put("a", json!({"user": 1})).ok();
    put("a", json!({"user": 2, "path": "/"})).ok();
    put("b", json!({"user": 1})).created();
    put("b", json!({"user": 2, "path": "/"})).refused(409, "OverrideAlreadyExists");
    put("b", json!({"path": "/"})).invalid("key_values");
    let b = limiter.get("/rules/r/overrides/b").ok();
    assert_eq!(b.body["key_values"], json!({"user": 1}), "unchanged");
}

#[test]
fn an_override_has_every_key_of_the_group() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["user", "path"], 5);
    for key_values in [json!({}), json!({"user": 1}), json!({"path": 1}), json!({"user": 1, "Path": 1})] {
        limiter.override_as("r", "o", key_values, 1).invalid("key_values");
    }
    assert_eq!(limiter.names("/rules/r/overrides", None, 10).len(), 0);
    // With no keys to have, even an empty set is one.
    limiter.rule("all", &[], 0);
    limiter.override_of("all", "at night", json!({"night": true}), 1);
    limiter.check(json!({"night": true})).allowed();
    limiter.check(json!({"night": false})).denied(&["all"]);
}

#[test]
fn an_override_applies_only_where_its_rule_does() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let rule = json!({"name": "r", "group_by": ["user"], "limit": 1, "selection": {"plan": "free"}});
    limiter.post("/rules", rule).created();
    limiter.override_of("r", "ann", json!({"user": "ann"}), 0);
    limiter.check(json!({"user": "ann"})).allowed().applied(&[]);
    limiter.check(json!({"user": "ann", "plan": "free"})).denied(&["r/ann"]);
}
