//! `RateLimit-Policy`, `RateLimit` and `Retry-After`.

use std::collections::BTreeMap;

use serde_json::json;

use crate::harness::Server;
use crate::limiter::{LONG, bucket, fixed};
use crate::reply::Reply;

/// An item of a structured-field list: a string, and its parameters as text.
type Item = (String, BTreeMap<String, String>);

/// Parses a list of strings with parameters as strictly as RFC 9651 requires.
#[track_caller]
fn items(field: &str) -> Vec<Item> {
    let mut found = Vec::new();
    let mut rest = field;
    while !rest.is_empty() {
        let (name, after) = string(rest);
        let mut parameters = BTreeMap::new();
        rest = after;
        while let Some(after) = rest.strip_prefix(';') {
            let (key, after) = after.trim_start_matches(' ').split_once('=').expect("a parameter's value");
            assert!(
                key.chars().all(|c| c.is_ascii_lowercase() || "-_*.".contains(c) || c.is_ascii_digit()),
                "{key:?}"
            );
            let (value, after) = match after.starts_with('"') {
                true => string(after),
                false => {
                    let end = after.find([';', ',']).unwrap_or(after.len());
                    let value = after[..end].trim_end_matches(' ');
                    value
                        .parse::<i64>()
                        .unwrap_or_else(|_| panic!("{value:?} is not an integer in {field:?}"));
                    (value.to_owned(), &after[end..])
                }
            };
            parameters.insert(key.to_owned(), value);
            rest = after;
        }
        found.push((name, parameters));
        rest = rest.trim_start_matches([' ', '\t']);
        if !rest.is_empty() {
            rest = rest.strip_prefix(',').unwrap_or_else(|| panic!("no comma at {rest:?} in {field:?}"));
            rest = rest.trim_start_matches([' ', '\t']);
            assert!(!rest.is_empty(), "a comma at the end of {field:?}");
        }
    }
    found
}

/// Parses a quoted string at the beginning. Returns it without escapes, and the rest of the text.
#[track_caller]
fn string(text: &str) -> (String, &str) {
    let mut chars = text.char_indices();
    assert_eq!(chars.next(), Some((0, '"')), "not a string: {text:?}");
    let mut value = String::new();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(chars.next().filter(|(_, c)| "\"\\".contains(*c)).expect("an escape").1),
            ' '..='~' => value.push(c),
            _ => panic!("{c:?} in a structured field: {text:?}"),
        }
    }
    panic!("a string without an end: {text:?}")
}

#[track_caller]
fn both(reply: &Reply) -> (Vec<Item>, Vec<Item>) {
    let (policies, limits) = (items(reply.header("ratelimit-policy")), items(reply.header("ratelimit")));
    let names = |items: &[Item]| items.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&policies), names(&limits), "both name the same limits");
    assert!(policies.iter().all(|(_, parameters)| parameters.contains_key("q")), "{policies:?}");
    assert!(limits.iter().all(|(_, parameters)| parameters.contains_key("r")), "{limits:?}");
    (policies, limits)
}

fn number(item: &Item, key: &str) -> i64 {
    item.1.get(key).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key} in {item:?}"))
}

#[test]
fn headers_agree_with_the_body() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("burst", &[], 3, fixed("24h"));
    for remaining in [2, 1, 0, 0] {
        let reply = limiter.check(json!({}));
        let limit = reply.limit("burst").clone();
        if limit["remaining"] != remaining {
            // Midnight has just passed, so the window has changed.
            return;
        }
        let (policies, limits) = both(&reply);
        assert_eq!((policies.len(), policies[0].0.as_str()), (1, "burst"));
        assert_eq!((number(&policies[0], "q"), number(&policies[0], "w")), (3, 86_400));
        assert_eq!(number(&limits[0], "r"), remaining);
        let (t, reset) = (number(&limits[0], "t"), limit["reset_ms"].as_i64().expect("`reset_ms`"));
        assert!((reset / 1000..=reset / 1000 + 1).contains(&t), "t={t} of {reset} ms");
    }
    let refused = limiter.check(json!({})).denied(&["burst"]);
    let after: u64 = refused.header("retry-after").parse().expect("whole seconds");
    let known = refused.retry_after_ms().expect("known");
    assert!(after >= known.div_ceil(1000) && after <= known / 1000 + 1, "{after} s of {known} ms");
    assert!(after as i64 >= number(&both(&refused).1[0], "t"), "not earlier than t");
}

#[test]
fn limits_without_a_window_have_no_reset_time() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("slots", &[], 2);
    let (policies, limits) = both(&limiter.check(json!({})).allowed());
    assert_eq!((number(&policies[0], "q"), number(&limits[0], "r")), (2, 1));
    assert!(!policies[0].1.contains_key("w") && !limits[0].1.contains_key("t"), "{policies:?} {limits:?}");
    let refused = limiter.take(json!({}), 2).denied(&["slots"]);
    assert_eq!(number(&both(&refused).1[0], "r"), 1);
    assert_eq!(refused.header("retry-after"), "", "nobody knows when");
}

#[test]
fn a_bucket_reports_its_quota() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("b", &[], 60, bucket("1h", 5));
    let (policies, limits) = both(&limiter.take(json!({}), 5).allowed());
    assert_eq!(["q", "w", "burst"].map(|name| number(&policies[0], name)), [60, 3_600, 5]);
    assert_eq!(number(&limits[0], "r"), 0);
    let refused = limiter.check(json!({})).denied(&["b"]);
    let after: u64 = refused.header("retry-after").parse().expect("whole seconds");
    assert!((1..=60).contains(&after), "one token a minute, after {after} s");
}

#[test]
fn no_headers_if_no_limit_applies() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("other", &["other"], 1);
    limiter
        .post("/rules", json!({"name": "shadow", "group_by": ["a"], "limit": 1, "shadow": true}))
        .created();
    let reply = limiter.check(json!({})).allowed();
    assert!(!reply.headers.contains_key("ratelimit") && !reply.headers.contains_key("ratelimit-policy"));
    // A shadow limit is not enforced.
    for _ in 0..3 {
        let reply = limiter.check(json!({"a": 1})).allowed();
        assert!(!reply.header("ratelimit").contains("shadow"), "{}", reply.header("ratelimit"));
        assert!(!reply.headers.contains_key("retry-after"));
    }
}

#[test]
fn only_the_eight_tightest_limits_have_headers() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for n in 1..=12 {
        // The order of the names differs from that of the limits.
        limiter.rule(&format!("r{:02}", (n * 7) % 13), &[], n);
    }
    let reply = limiter.check(json!({})).allowed();
    let (policies, limits) = both(&reply);
    let mut quotas: Vec<i64> = policies.iter().map(|item| number(item, "q")).collect();
    quotas.sort();
    assert_eq!(quotas, (1..=8).collect::<Vec<i64>>(), "{}", reply.header("ratelimit-policy"));
    let mut left: Vec<i64> = limits.iter().map(|item| number(item, "r")).collect();
    left.sort();
    assert_eq!(left, (0..8).collect::<Vec<i64>>());
    assert_eq!(crate::limiter::limits_of(&reply.body).len(), 12, "the body has them all");
    limiter.check(json!({})).denied(&[format!("r{:02}", 7).as_str()]);
}

#[test]
fn names_are_printable() {
    let server = Server::fresh();
    for (n, (name, expected)) in
        [("plain", "plain"), ("ünï", "%C3%BCn%C3%AF"), ("🌮", "%F0%9F%8C%AE"), ("a b, c;d=e", "a b, c;d=e")]
            .into_iter()
            .enumerate()
    {
        let limiter = server.limiter_of(&n.to_string());
        limiter.rule(name, &[], 1);
        for _ in 0..2 {
            let (policies, _) = both(&limiter.check(json!({})));
            assert_eq!(policies[0].0, expected);
        }
    }
    // A quote in a name is escaped or encoded. In both cases the field must stay valid.
    for (n, name) in ["\"quoted\"", "back\\slash", "100%", "line\u{2028}"].into_iter().enumerate() {
        let limiter = server.limiter_of(&format!("odd {n}"));
        limiter.rule(name, &[], 1);
        limiter.override_of(name, name, json!({"o": 1}), 1);
        assert_eq!(both(&limiter.check(json!({}))).0.len(), 1);
        assert!(!both(&limiter.check(json!({"o": 1}))).0.is_empty());
    }
}

#[test]
fn a_refusal_has_a_complete_problem_document() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("first", &[], 1, fixed(LONG));
    limiter.window("second", &[], 1, fixed(LONG));
    limiter.rule("third", &[], 2);
    limiter.check(json!({})).allowed();
    let refused = limiter.check(json!({})).denied(&["first", "second"]).has("status", 429);
    assert_eq!(refused.body["violated-policies"], json!(["first", "second"]));
    let refused = limiter.counters(json!({}), 1).not_counted(&["first", "second"]).has("status", 409);
    assert_eq!(refused.body["violated-policies"], json!(["first", "second"]));
}
