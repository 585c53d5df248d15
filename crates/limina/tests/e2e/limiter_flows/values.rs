//! Typed values: the type is part of the value.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::limiter::{LONG, Limiter, fixed};

/// Each of these is a group of its own, and the others' checks do not touch it.
#[track_caller]
fn all_different(limiter: &Limiter, values: &[&str]) {
    let check =
        |value: &str| limiter.text("POST", "/check", &format!(r#"{{"key_values": {{"v": {value}}}}}"#));
    for value in values {
        check(value).allowed().uses("in use", 1).uses("window", 1);
    }
    for value in values {
        check(value).denied(&["in use", "window"]);
    }
    assert_eq!(limiter.in_use().len(), values.len());
}

/// The second is the group of the first.
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
fn values_of_different_types_are_different_groups() {
    let server = Server::fresh();
    let limiter = limiter_of_one(&server, "types");
    all_different(
        &limiter,
        &[
            "1",
            "1.0",
            "\"1\"",
            "true",
            "\"true\"",
            "false",
            "0",
            "0.0",
            "\"0\"",
            "\"\"",
            "-1",
            "-1.0",
            "1.5",
            "\"1.5\"",
            "\"1.0\"",
            "9223372036854775807",
            "-9223372036854775808",
            "9007199254740993",
            "9007199254740992",
            "9007199254740992.0",
            "\"A\"",
            "\"a\"",
            "\"é\"",
            "\"e\u{301}\"",
        ],
    );
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
fn a_typed_value_fits_its_width() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("all", &["v"], -1);
    let check =
        |data_type: i64, value: &Value| limiter.check(json!({"v": {"DataType": data_type, "Value": value}}));
    // (type, least, most, too little, too much)
    let i64_max = "9223372036854775807";
    let (i64_min, under, over) = ("-9223372036854775808", "-9223372036854775809", "9223372036854775808");
    let cases = [
        (0, "0", "255", "-1", "256"),
        (1, "0", "65535", "-1", "65536"),
        (2, "0", "4294967295", "-1", "4294967296"),
        (3, "0", i64_max, "-1", over),
        (4, "0", i64_max, "-1", over),
        (5, "-128", "127", "-129", "128"),
        (6, "-32768", "32767", "-32769", "32768"),
        (7, "-2147483648", "2147483647", "-2147483649", "2147483648"),
        (8, i64_min, i64_max, under, over),
        (9, i64_min, i64_max, under, over),
    ];
    for (data_type, least, most, too_little, too_much) in cases {
        for text in [least, most, too_little, too_much] {
            // As text, and as a JSON number.
            for value in [json!(text), serde_json::from_str(text).expect("a number")] {
                let reply = check(data_type, &value);
                if [least, most].contains(&text) {
                    assert_eq!(reply.status, 200, "DataType {data_type}, {value}: {}", reply.text);
                } else {
                    assert_eq!(reply.status, 400, "DataType {data_type}, {value}: {}", reply.text);
                    reply.invalid("key_values");
                }
            }
        }
    }
}

#[test]
fn bad_values_are_refused() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("all", &[], -1);
    let long = format!("\"{}\"", "x".repeat(1025));
    let longest = format!("\"{}\"", "x".repeat(1024));
    let check =
        |value: &str| limiter.text("POST", "/check", &format!(r#"{{"key_values": {{"v": {value}}}}}"#));
    check(&longest).allowed();
    for value in [
        "null",
        "[]",
        "[1]",
        "{}",
        r#"{"a": 1}"#,
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "99999999999999999999999999",
        long.as_str(),
        r#"{"DataType": 13, "Value": "s"}"#,
        r#"{"DataType": -1, "Value": "s"}"#,
        r#"{"DataType": "12", "Value": "s"}"#,
        r#"{"DataType": 12.5, "Value": "s"}"#,
        r#"{"DataType": 12}"#,
        r#"{"Value": "s"}"#,
        r#"{"DataType": 12, "Value": "s", "More": 1}"#,
        r#"{"DataType": 12, "Value": null}"#,
        r#"{"DataType": 12, "Value": ["s"]}"#,
        r#"{"DataType": 12, "Value": true}"#,
        r#"{"DataType": 7, "Value": "seven"}"#,
        r#"{"DataType": 7, "Value": ""}"#,
        r#"{"DataType": 7, "Value": 1.5}"#,
        r#"{"DataType": 7, "Value": "1.5"}"#,
        r#"{"DataType": 11, "Value": "NaN"}"#,
        r#"{"DataType": 11, "Value": "inf"}"#,
        r#"{"DataType": 11, "Value": "-Infinity"}"#,
        r#"{"DataType": 11, "Value": "1e999"}"#,
        r#"{"DataType": 10, "Value": "1e39"}"#,
        r#"{"DataType": 10, "Value": 1e39}"#,
        r#"{"DataType": 11, "Value": "a"}"#,
    ] {
        let reply = check(value);
        assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{value} → {}", reply.text);
        assert!(reply.body["field"].is_string(), "{value} → {}", reply.text);
    }
    // Not even JSON, or a number that no float holds.
    for value in ["NaN", "Infinity", "1e999", "-1e999", "01", "1.", "'s'"] {
        check(value).refused(400, "InvalidRequest");
    }
    limiter.look(json!({})).uses("all", 1);
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

/// What comes back is the value that was sent, with its type.
#[test]
fn values_come_back_as_they_were() {
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
