//! Values in JSON: their spellings, their bounds, and invalid values.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::limiter::{LONG, Limiter, fixed};

/// The second key-values belong to the group of the first.
#[track_caller]
fn same(limiter: &Limiter, first: &str, second: &str) {
    let check =
        |value: &str| limiter.text("POST", "/check", &format!(r#"{{"key_values": {{"v": {value}}}}}"#));
    let reply = check(first);
    assert_eq!(reply.status, 200, "{first}: {}", reply.text);
    let reply = check(second);
    assert_eq!(reply.status, 429, "{second} should be {first}: {}", reply.text);
}

fn limiter_of_one(server: &Server, namespace: &str) -> Limiter {
    let limiter = server.limiter_of(namespace);
    limiter.rule("in use", &["v"], 1);
    limiter.window("window", &["v"], 1, fixed(LONG));
    limiter
}

#[test]
fn one_value_has_several_spellings() {
    let server = Server::fresh();
    let cases = [
        ("0.0", "-0.0"),
        ("1.0", "1e0"),
        ("1.5", "15e-1"),
        (r#""a""#, r#""\u0061""#),
        (r#""🌮""#, r#""\ud83c\udf2e""#),
        (r#""s""#, r#"{"DataType": 12, "Value": "s"}"#),
        ("7", r#"{"DataType": 7, "Value": 7}"#),
        ("8", r#"{"DataType": 0, "Value": "8"}"#),
        ("9", r#"{"DataType": 4, "Value": 9}"#),
        (r#"{"DataType": 1, "Value": 10}"#, r#"{"DataType": 8, "Value": "10"}"#),
        ("-11", r#"{"DataType": 9, "Value": "-11"}"#),
        ("2.5", r#"{"DataType": 10, "Value": "2.5"}"#),
        ("3.5", r#"{"DataType": 11, "Value": 3.5}"#),
        ("4.0", r#"{"DataType": 11, "Value": 4}"#),
        ("5.0", r#"{"DataType": 10, "Value": "5"}"#),
        (r#""6""#, r#"{"Value": "6", "DataType": 12}"#),
        ("0.0", r#"{"DataType": 11, "Value": "-0.0"}"#),
    ];
    for (n, (first, second)) in cases.into_iter().enumerate() {
        let limiter = limiter_of_one(&server, &format!("spelling {n}"));
        same(&limiter, first, second);
    }
}

#[test]
fn there_are_at_most_64_keys_of_256_bytes() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("all", &[], -1);
    let keys = |count: usize| -> Value {
        (0..count).map(|n| (format!("k{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into()
    };
    limiter.check(keys(64)).allowed();
    limiter.check(keys(65)).invalid("key_values");
    for key in ["k".repeat(256), "ж".repeat(128), "other key".into(), "🌮".into(), "a.b/c\"d\\".into()] {
        limiter.check(json!({key: 1})).allowed();
    }
    for key in [String::new(), "k".repeat(257), "ж".repeat(129)] {
        limiter.check(json!({key: 1})).invalid("key_values");
    }
    limiter.look(json!({})).uses("all", 6);
}

/// The answer contains the value that was sent, with its type.
#[test]
fn values_are_returned_unchanged() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    let values = r#"{"b": true, "f": 1.0, "i": 1, "l": 9223372036854775807, "n": -0.5, "s": "1"}"#;
    limiter.rule("all", &["f"], -1);
    limiter.text("POST", "/counters", &format!(r#"{{"key_values": {values}, "counters": 3}}"#)).ok();
    let expected: Value = serde_json::from_str(values).expect("JSON");
    let check = |server: &Server| {
        let found = server.limiter().all("/counters/query", Some(&json!({})), 10);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["key_values"].to_string(), expected.to_string());
        let reply = server.limiter().look(expected.clone());
        assert_eq!(reply.limit("all")["group"].to_string(), r#"{"f":1.0}"#);
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
}
