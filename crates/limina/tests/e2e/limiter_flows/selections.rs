//! Selections: to which key-values a rule applies.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::limiter::Limiter;

/// A rule with this selection applies to all of `yes` and to none of `no`; `-` stands for an absent key `v`.
#[track_caller]
fn selects(limiter: &Limiter, condition: &str, yes: &[&str], no: &[&str]) {
    let body = format!(r#"{{"group_by": [], "limit": -1, "selection": {{"v": {condition}}}}}"#);
    let made = limiter.text("PUT", "/rules/r", &body);
    assert!([200, 201].contains(&made.status), "{condition}: {}", made.text);
    for (values, expected) in [(yes, true), (no, false)] {
        for value in values {
            let key_values = match *value {
                "-" => r#"{"else": 1}"#.to_owned(),
                value => format!(r#"{{"v": {value}, "else": 1}}"#),
            };
            let body = format!(r#"{{"key_values": {key_values}, "hits": 0}}"#);
            let reply = limiter.text("POST", "/check", &body).ok();
            let applies = !crate::limiter::limits_of(&reply.body).is_empty();
            assert_eq!(applies, expected, "{condition} of {value}");
        }
    }
}

#[test]
fn equality() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for one in
        ["1", r#"{"eq": 1}"#, r#"{"DataType": 7, "Value": "1"}"#, r#"{"eq": {"DataType": 0, "Value": 1}}"#]
    {
        selects(&limiter, one, &["1"], &["-", "1.0", "\"1\"", "true", "2", "0"]);
    }
    selects(&limiter, "true", &["true"], &["-", "false", "1", "\"true\""]);
    selects(&limiter, "\"s\"", &["\"s\""], &["-", "\"S\"", "\"s \"", "\"\"", "1"]);
    selects(&limiter, "\"\"", &["\"\""], &["-", "\" \"", "0", "false"]);
    selects(&limiter, "0.0", &["0.0", "-0.0"], &["-", "0", "\"\""]);
    selects(&limiter, "-0.0", &["0.0", "-0.0"], &["-", "0"]);
    // Another type is another value; an absent key has none.
    selects(&limiter, r#"{"ne": 1}"#, &["2", "1.0", "\"1\"", "true"], &["1", "-"]);
    selects(&limiter, r#"{"ne": "s"}"#, &["\"t\"", "1", "true", "\"\""], &["\"s\"", "-"]);
}

#[test]
fn order() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let others = ["-", "\"2\"", "true", "false", "\"\""];
    let and = |more: &[&'static str]| -> Vec<&'static str> { others.iter().chain(more).copied().collect() };
    selects(
        &limiter,
        r#"{"lt": 2}"#,
        &["1", "1.9", "-5", "-1e300", "1.9999999999999998"],
        &and(&["2", "2.0", "3"]),
    );
    selects(&limiter, r#"{"lte": 2}"#, &["1", "2", "2.0", "-0.0"], &and(&["2.1", "3"]));
    selects(&limiter, r#"{"gt": 2}"#, &["3", "2.1", "1e300"], &and(&["2", "2.0", "1"]));
    selects(&limiter, r#"{"gte": 2}"#, &["2", "2.0", "9223372036854775807"], &and(&["1.9", "-3"]));
    selects(&limiter, r#"{"gt": 1.5}"#, &["2", "1.6"], &and(&["1", "1.5"]));
    selects(&limiter, r#"{"lt": 0.0}"#, &["-1", "-0.1"], &and(&["0", "0.0", "-0.0"]));
    // By number even where a float cannot hold the integer.
    selects(&limiter, r#"{"gt": 9007199254740992.0}"#, &["9007199254740993"], &["9007199254740992"]);
    selects(&limiter, r#"{"lt": 9223372036854775807}"#, &["9223372036854775806"], &["9223372036854775808.0"]);
    // Strings by bytes.
    let others = ["-", "1", "1.5", "true"];
    let and = |more: &[&'static str]| -> Vec<&'static str> { others.iter().chain(more).copied().collect() };
    selects(
        &limiter,
        r#"{"lt": "b"}"#,
        &["\"a\"", "\"B\"", "\"\"", "\"azz\"", "\"10\""],
        &and(&["\"b\"", "\"ba\"", "\"é\""]),
    );
    selects(&limiter, r#"{"gte": "b"}"#, &["\"b\"", "\"ba\"", "\"é\"", "\"🌮\""], &and(&["\"a\"", "\"\""]));
    selects(&limiter, r#"{"gt": "9"}"#, &["\"91\"", "\"a\""], &and(&["\"9\"", "\"10\""]));
    selects(&limiter, r#"{"lte": ""}"#, &["\"\""], &and(&["\"a\""]));
    // Between booleans there is no order.
    for operator in ["lt", "lte", "gt", "gte"] {
        selects(
            &limiter,
            &format!(r#"{{"{operator}": true}}"#),
            &[],
            &["-", "1", "\"a\"", "0", "true", "false"],
        );
    }
}

#[test]
fn lists_prefixes_and_existence() {
    let server = Server::fresh();
    let limiter = server.limiter();
    selects(
        &limiter,
        r#"{"in": [1, "a", true, 2.5, {"DataType": 12, "Value": "t"}]}"#,
        &["1", "\"a\"", "true", "2.5", "\"t\""],
        &["-", "\"1\"", "1.0", "false", "2", "\"b\""],
    );
    selects(
        &limiter,
        r#"{"prefix": "/api/"}"#,
        &["\"/api/\"", "\"/api/x\""],
        &["-", "\"/api\"", "\"/\"", "1", "true", "\"x/api/\""],
    );
    selects(&limiter, r#"{"prefix": "é"}"#, &["\"éa\""], &["\"e\"", "\"\u{c3}\""]);
    selects(&limiter, r#"{"prefix": ""}"#, &["\"\"", "\"a\""], &["-", "1", "true"]);
    selects(&limiter, r#"{"exists": true}"#, &["1", "\"\"", "false", "0.0"], &["-"]);
    selects(&limiter, r#"{"exists": false}"#, &["-"], &["1", "\"\"", "false", "0.0"]);
}

#[test]
fn all_conditions_must_hold() {
    let server = Server::fresh();
    let limiter = server.limiter();
    selects(&limiter, r#"{"gte": 1, "lt": 3}"#, &["1", "2", "2.9"], &["-", "0", "3", "\"2\""]);
    selects(
        &limiter,
        r#"{"prefix": "a", "ne": "ab", "lt": "ax"}"#,
        &["\"aa\"", "\"a\""],
        &["-", "\"ab\"", "\"ax\"", "\"b\""],
    );
    selects(&limiter, r#"{"in": [1, 2, 3], "gt": 1, "exists": true}"#, &["2", "3"], &["-", "1", "4"]);
    selects(&limiter, r#"{"exists": false, "eq": 1}"#, &[], &["-", "1", "2"]);

    let rule = json!({"name": "two", "group_by": ["user"], "limit": -1,
        "selection": {"plan": {"in": ["free", "trial"]}, "age": {"lt": 30}, "banned": {"exists": false}}});
    limiter.post("/rules", rule).created();
    let applies = |key_values: Value| {
        let reply = limiter.look(key_values);
        crate::limiter::limits_of(&reply.body).iter().any(|limit| limit["rule"] == "two")
    };
    assert!(applies(json!({"user": 1, "plan": "free", "age": 3})));
    assert!(applies(json!({"user": 1, "plan": "trial", "age": 29.5, "more": true})));
    for no in [
        json!({"plan": "free", "age": 3}),
        json!({"user": 1, "plan": "pro", "age": 3}),
        json!({"user": 1, "plan": "free", "age": 30}),
        json!({"user": 1, "plan": "free"}),
        json!({"user": 1, "plan": "free", "age": 3, "banned": false}),
    ] {
        assert!(!applies(no.clone()), "{no}");
    }
}

#[test]
fn many_rules_select_their_own() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for n in 0..60 {
        let rule =
            json!({"name": format!("r{n:02}"), "group_by": [], "selection": {"tenant": n / 2}, "limit": 1});
        limiter.post("/rules", rule).created();
    }
    for tenant in 0..30 {
        let names = [format!("r{:02}", tenant * 2), format!("r{:02}", tenant * 2 + 1)];
        let names = [names[0].as_str(), names[1].as_str()];
        limiter.check(json!({"tenant": tenant})).allowed().applied(&names);
        limiter.check(json!({"tenant": tenant, "more": 1})).denied(&names);
    }
    limiter.check(json!({"tenant": 30})).allowed().applied(&[]);
}
