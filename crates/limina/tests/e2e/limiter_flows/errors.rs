//! Requests that do not validate: 400 `InvalidRequest`, the field named, and nothing done. Never a 500.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::with;
use crate::limiter::{LONG, Limiter, fixed};
use crate::reply::Reply;

/// (body, the field that must be named)
type Case = (Value, &'static str);

#[track_caller]
fn check(limiter: &Limiter, method: &str, path: &str, cases: Vec<Case>) {
    for (body, field) in cases {
        let text = body.to_string();
        let said = format!("{method} {path} {}", text.chars().take(300).collect::<String>());
        refused(&said, limiter.send(method, path, &body), field);
    }
}

#[track_caller]
fn refused(said: &str, reply: Reply, field: &str) {
    assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{said} → {}", reply.text);
    let named = reply.body["field"].as_str().unwrap_or_default();
    assert!(named.contains(field), "{said}: `field` should name {field:?} → {}", reply.text);
    reply.refused(400, "InvalidRequest");
}

fn bad_names() -> Vec<Value> {
    let long = "x".repeat(257);
    ["", &long, ".", "..", "a\u{0}b", "tab\there", "\u{7f}"]
        .map(|name| json!(name))
        .into_iter()
        .chain([json!(5), json!(true), json!(null), json!(["a"]), json!({})])
        .collect()
}

/// What is wrong with the fields of a rule, whichever call bears them.
fn bad_rule_fields() -> Vec<Case> {
    let mut cases = Vec::new();
    for limit in [
        json!(-2),
        json!(1.5),
        json!("5"),
        json!(true),
        json!([]),
        json!(9_007_199_254_740_992_u64),
        json!(1e300),
    ] {
        cases.push((json!({"limit": limit}), "limit"));
    }
    for window in [
        json!("1m"),
        json!({}),
        json!({"type": "fixed"}),
        json!({"per": "1m"}),
        json!({"type": "rolling", "per": "1m"}),
        json!({"type": "Fixed", "per": "1m"}),
        json!({"type": "fixed", "per": "0ms"}),
        json!({"type": "fixed", "per": 0}),
        json!({"type": "fixed", "per": -1}),
        json!({"type": "fixed", "per": "367d"}),
        json!({"type": "fixed", "per": "1 fortnight"}),
        json!({"type": "fixed", "per": "60"}),
        json!({"type": "fixed", "per": ""}),
        json!({"type": "fixed", "per": "-1m"}),
        json!({"type": "fixed", "per": "99999999999999999999d"}),
        json!({"type": "fixed", "per": null}),
        json!({"type": "fixed", "per": "1m", "burst": 5}),
        json!({"type": "sliding", "per": "1m", "burst": 5}),
        json!({"type": "bucket", "per": "1m", "burst": -1}),
        json!({"type": "bucket", "per": "1m", "burst": "5"}),
        json!({"type": "bucket", "per": "1m", "burst": 9_007_199_254_740_992_u64}),
        json!({"type": "bucket", "per": "1m", "brust": 5}),
    ] {
        cases.push((json!({"window": window}), "window"));
    }
    for selection in [
        json!("a"),
        json!([]),
        json!({"": 1}),
        json!({"a": null}),
        json!({"a": []}),
        json!({"a": {}}),
        json!({"a": {"like": "x"}}),
        json!({"a": {"eq": 1, "like": "x"}}),
        json!({"a": {"eq": null}}),
        json!({"a": {"in": 1}}),
        json!({"a": {"in": [null]}}),
        json!({"a": {"prefix": 1}}),
        json!({"a": {"exists": 1}}),
        json!({"a": {"lt": [1]}}),
        json!({"a": {"DataType": 99, "Value": 1}}),
        json!({"a": "x".repeat(1025)}),
        json!({"k".repeat(257): 1}),
    ] {
        cases.push((json!({"selection": selection}), "selection"));
    }
    for shadow in [json!(1), json!("true"), json!([])] {
        cases.push((json!({"shadow": shadow}), "shadow"));
    }
    for durability in [json!("none"), json!("Durable"), json!(1), json!(true)] {
        cases.push((json!({"durability": durability}), "durability"));
    }
    cases.push((json!({"description": 5}), "description"));
    cases.push((json!({"descripton": "typo"}), "descripton"));
    cases
}

#[test]
fn rules_refuse_bad_input() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let good = || json!({"name": "r", "group_by": ["a"], "limit": 1});
    let mut cases: Vec<Case> =
        bad_names().into_iter().map(|name| (with(good(), json!({"name": name})), "name")).collect();
    cases.extend(bad_rule_fields().into_iter().map(|(fields, field)| (with(good(), fields), field)));
    let too_many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    for group_by in [
        json!("a"),
        json!(["a", "a"]),
        json!([1]),
        json!([""]),
        json!([null]),
        json!({"a": 1}),
        json!(["k".repeat(257)]),
        json!(too_many),
    ] {
        cases.push((with(good(), json!({"group_by": group_by})), "group_by"));
    }
    cases.push((json!({"group_by": [], "limit": 1}), "name"));
    cases.push((json!({"name": "r", "group_by": []}), "limit"));
    check(&limiter, "POST", "/rules", cases);
    assert_eq!(limiter.names("/rules", None, 10).len(), 0, "nothing was made");
}

#[test]
fn changes_of_rules_refuse_bad_input() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter
        .post("/rules", json!({"name": "r", "group_by": ["a"], "limit": 1, "window": fixed(LONG)}))
        .created();
    let before = limiter.get("/rules/r").ok().body;
    let put = bad_rule_fields()
        .into_iter()
        .map(|(fields, field)| (with(json!({"group_by": ["a"], "limit": 1}), fields), field))
        .collect();
    check(&limiter, "PUT", "/rules/r", put);
    check(&limiter, "PUT", "/rules/r", vec![(json!({"group_by": ["a"]}), "limit")]);
    let mut patch = bad_rule_fields();
    patch.push((json!({"group_by": ["b"]}), "group_by"));
    patch.push((json!({"name": "s"}), "name"));
    patch.push((json!({"limit": null}), "limit"));
    check(&limiter, "PATCH", "/rules/r", patch);
    assert_eq!(limiter.get("/rules/r").ok().body, before);
}

#[test]
fn overrides_refuse_bad_input() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 1);
    let good = || json!({"name": "o", "key_values": {"a": 1}, "limit": 1});
    let mut cases: Vec<Case> =
        bad_names().into_iter().map(|name| (with(good(), json!({"name": name})), "name")).collect();
    for limit in [json!(-2), json!(1.5), json!("5"), json!(null), json!(9_007_199_254_740_992_u64)] {
        cases.push((with(good(), json!({"limit": limit})), "limit"));
    }
    for key_values in [
        json!(null),
        json!([]),
        json!("a"),
        json!({}),
        json!({"b": 1}),
        json!({"a": null}),
        json!({"a": 1, "": 1}),
    ] {
        cases.push((with(good(), json!({"key_values": key_values})), "key_values"));
    }
    cases.push((with(good(), json!({"burst": "many"})), "burst"));
    cases.push((with(good(), json!({"burst": -1})), "burst"));
    cases.push((with(good(), json!({"window": fixed(LONG)})), "window"));
    cases.push((json!({"name": "o", "key_values": {"a": 1}}), "limit"));
    cases.push((json!({"name": "o", "limit": 1}), "key_values"));
    check(&limiter, "POST", "/rules/r/overrides", cases);
    assert_eq!(limiter.names("/rules/r/overrides", None, 10).len(), 0, "nothing was made");
    limiter.override_of("r", "o", json!({"a": 1}), 1);
    check(
        &limiter,
        "PATCH",
        "/rules/r/overrides/o",
        vec![
            (json!({"limit": -2}), "limit"),
            (json!({"limit": null}), "limit"),
            (json!({"name": "p"}), "name"),
            (json!({"limti": 1}), "limti"),
        ],
    );
}

fn bad_key_values() -> Vec<Value> {
    vec![
        json!(null),
        json!([]),
        json!("a"),
        json!(1),
        json!({"a": null}),
        json!({"a": [1]}),
        json!({"a": {}}),
        json!({"": 1}),
    ]
}

#[test]
fn checks_counters_and_leases_refuse_bad_input() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("all", &[], -1);
    let good = [
        ("POST", "/check", json!({"key_values": {"a": 1}})),
        ("POST", "/counters", json!({"key_values": {"a": 1}, "counters": 1})),
        ("PUT", "/counters", json!({"key_values": {"a": 1}, "counters": 1})),
        ("PUT", "/counters/set", json!({"key_values": {"a": 1}, "counters": 1})),
        ("POST", "/leases", json!({"key_values": {"a": 1}, "hits": 1, "ttl": "1m"})),
        ("POST", "/rules/match", json!({"key_values": {"a": 1}})),
    ];
    for (method, path, body) in &good {
        let mut cases: Vec<Case> = Vec::new();
        for key_values in bad_key_values() {
            cases.push((with(body.clone(), json!({"key_values": key_values})), "key_values"));
        }
        let mut missing = body.clone();
        missing.as_object_mut().expect("an object").remove("key_values");
        cases.push((missing, "key_values"));
        cases.push((with(body.clone(), json!({"keyvalues": {}})), "keyvalues"));
        if path.starts_with("/counters") {
            for n in [
                json!("1"),
                json!(1.5),
                json!(null),
                json!(true),
                json!(9_007_199_254_740_992_u64),
                json!(-9_007_199_254_740_992_i64),
                json!(1e300),
            ] {
                cases.push((with(body.clone(), json!({"counters": n})), "counters"));
            }
            cases.push((json!({"key_values": {"a": 1}}), "counters"));
        } else if *path != "/rules/match" {
            for n in [
                json!(-1),
                json!("1"),
                json!(1.5),
                json!(true),
                json!(9_007_199_254_740_992_u64),
                json!(1e300),
            ] {
                cases.push((with(body.clone(), json!({"hits": n})), "hits"));
            }
        }
        match *path {
            "/check" => {
                cases.push((with(body.clone(), json!({"dry_run": 1})), "dry_run"));
                cases.push((with(body.clone(), json!({"dry_run": "yes"})), "dry_run"));
            }
            "/leases" => {
                for ttl in [
                    json!("0s"),
                    json!(0),
                    json!(-5),
                    json!("soon"),
                    json!(null),
                    json!(true),
                    json!("9999999d"),
                ] {
                    cases.push((with(body.clone(), json!({"ttl": ttl})), "ttl"));
                }
                cases.push((json!({"key_values": {"a": 1}, "hits": 1}), "ttl"));
                cases.push((with(body.clone(), json!({"owner": 5})), "owner"));
                cases.push((with(body.clone(), json!({"owner": "x".repeat(257)})), "owner"));
            }
            _ => {}
        }
        check(&limiter, method, path, cases);
    }
    check(
        &limiter,
        "POST",
        "/check/batch",
        vec![
            (json!({}), "checks"),
            (json!({"checks": null}), "checks"),
            (json!({"checks": {}}), "checks"),
            (json!({"checks": [], "atomic": true}), "atomic"),
        ],
    );
    limiter.look(json!({})).uses("all", 0);
    assert_eq!(limiter.all("/leases", None, 10).len(), 0);
    // And the good ones are good.
    for (method, path, body) in &good {
        let reply = limiter.send(method, path, body);
        assert!([200, 201].contains(&reply.status), "{method} {path} → {}", reply.text);
    }
}

/// Bodies that are no JSON object at all, at every path that takes one.
#[test]
fn junk_is_refused_everywhere() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 1);
    limiter.override_of("r", "o", json!({"a": 1}), 1);
    let paths = [
        ("POST", "/rules"),
        ("PUT", "/rules/r"),
        ("PATCH", "/rules/r"),
        ("POST", "/rules/r/overrides"),
        ("PUT", "/rules/r/overrides/o"),
        ("PATCH", "/rules/r/overrides/o"),
        ("POST", "/rules/match"),
        ("POST", "/check"),
        ("POST", "/check/batch"),
        ("POST", "/counters"),
        ("PUT", "/counters"),
        ("PUT", "/counters/set"),
        ("POST", "/leases"),
        ("POST", "/rules/query"),
        ("POST", "/counters/query"),
        ("POST", "/rules/r/overrides/query"),
    ];
    let deep = "[".repeat(100_000);
    let nested = format!("{}1{}", r#"{"key_values":"#.repeat(5000), "}".repeat(5000));
    let junk: [&[u8]; 16] = [
        b"{",
        b"}",
        b"null",
        b"[]",
        b"1",
        b"\"text\"",
        b"{}{}",
        b"{\"a\"}",
        b"{'key_values': {}}",
        b"{\"key_values\": {\"a\": \"\xff\xfe\"}}",
        b"{\"key_values\": {\"a\": \"\\ud800\"}}",
        b"\x00\x01\x02",
        b"{\"unknown\": 1}",
        b"{\"key_values\": {}, \"key_values\": ",
        deep.as_bytes(),
        nested.as_bytes(),
    ];
    for (method, path) in paths {
        for bytes in junk {
            let request = limiter.request(method, path).header("content-type", "application/json");
            let reply = Reply::to(request.body(bytes.to_vec()));
            let said = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            assert_eq!(
                (reply.status, reply.code()),
                (400, "InvalidRequest"),
                "{method} {path} {said} → {}",
                reply.text
            );
        }
        // Twice the same, by its name and its alias, must not confuse anyone.
        let twice = r#"{"key_values": {"a": 1, "a": 2}, "KeyValues": {"a": 1}, "limit": 1, "Limit": 1}"#;
        let reply = limiter.text(method, path, twice);
        assert!(reply.status == 400, "{method} {path} → {} {}", reply.status, reply.text);
        let reply = Reply::to(limiter.request(method, path).header("content-type", "text/plain").body("{}"));
        reply.refused(415, "UnsupportedMediaType");
        let reply = Reply::to(limiter.request(method, path).body(vec![b' '; (1 << 20) + 1]));
        if path == "/check/batch" {
            reply.refused(400, "InvalidRequest");
        } else {
            reply.refused(413, "PayloadTooLarge");
        }
    }
    limiter.get("/rules/r").ok().has("limit", 1);
}

#[test]
fn other_methods_and_paths_are_refused() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for (method, path) in [
        ("DELETE", "/rules"),
        ("PUT", "/rules"),
        ("POST", "/rules/r"),
        ("GET", "/check"),
        ("PUT", "/check"),
        ("GET", "/check/batch"),
        ("DELETE", "/counters"),
        ("POST", "/counters/set"),
        ("PUT", "/leases"),
        ("PUT", "/leases/x"),
        ("GET", "/leases/x/heartbeat"),
        ("GET", "/counters/query"),
    ] {
        let reply = Reply::to(limiter.request(method, path));
        assert_eq!(
            (reply.status, reply.code()),
            (405, "MethodNotAllowed"),
            "{method} {path} → {}",
            reply.text
        );
    }
    for path in ["/nowhere", "/rules/r/other", "/leases/x/other", "/check/other"] {
        let reply = limiter.get(path);
        assert_eq!((reply.status, reply.code()), (404, "NotFound"), "{path} → {}", reply.text);
    }
}

/// Pseudo-random bodies, put together from what the limiter knows: answered, whatever they mean.
#[test]
fn nothing_that_can_be_sent_is_a_fault() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 5);
    let mut random = crate::load::Random::new(20_260_101);
    let mut pick = |from: &[&str]| from[random.below(from.len() as u64) as usize].to_owned();
    let keys = [
        "a",
        "key_values",
        "name",
        "group_by",
        "selection",
        "limit",
        "window",
        "hits",
        "counters",
        "ttl",
        "type",
        "per",
        "burst",
        "DataType",
        "Value",
        "where",
        "any",
        "all",
        "min_keys",
        "exists",
        "in",
        "prefix",
        "lt",
        "checks",
        "dry_run",
        "shadow",
        "KeyValues",
        "Limit",
        "",
        "\\u0000",
    ];
    let leaves = [
        "1",
        "0",
        "-1",
        "1.5",
        "-0.0",
        "1e308",
        "9223372036854775807",
        "9007199254740991",
        "12",
        "\"\"",
        "\"a\"",
        "\"1ms\"",
        "\"fixed\"",
        "\"bucket\"",
        "\"sliding\"",
        "true",
        "false",
        "null",
        "[]",
        "{}",
        "\"\\u0000\"",
        "\"366d\"",
    ];
    let paths = [
        ("POST", "/rules"),
        ("PUT", "/rules/r"),
        ("PATCH", "/rules/r"),
        ("POST", "/rules/r/overrides"),
        ("POST", "/check"),
        ("POST", "/check/batch"),
        ("POST", "/counters"),
        ("PUT", "/counters/set"),
        ("POST", "/leases"),
        ("POST", "/rules/query"),
        ("POST", "/counters/query"),
        ("POST", "/rules/match"),
    ];
    for round in 0..600 {
        let body = compose(&mut pick, &keys, &leaves, 3);
        let (method, path) = paths[round % paths.len()];
        let reply = limiter.text(method, path, &body);
        assert!(reply.status < 500, "{method} {path} {body} → {} {}", reply.status, reply.text);
    }
    server.get("/healthz").ok();
    limiter.get("/rules").ok();
}

/// An object of some keys, with leaves, lists and objects in it.
fn compose(pick: &mut dyn FnMut(&[&str]) -> String, keys: &[&str], leaves: &[&str], depth: u32) -> String {
    let kind = pick(&["leaf", "list", "object", "object"]);
    match kind.as_str() {
        _ if depth == 0 => pick(leaves),
        "leaf" if depth < 3 => pick(leaves),
        "list" if depth < 3 => {
            format!("[{},{}]", compose(pick, keys, leaves, depth - 1), compose(pick, keys, leaves, depth - 1))
        }
        _ => {
            let mut fields: Vec<String> = Vec::new();
            for _ in 0..pick(&["1", "2", "3", "4"]).parse().unwrap_or(1) {
                let key = pick(keys);
                fields.push(format!("\"{key}\": {}", compose(pick, keys, leaves, depth - 1)));
            }
            format!("{{{}}}", fields.join(", "))
        }
    }
}
