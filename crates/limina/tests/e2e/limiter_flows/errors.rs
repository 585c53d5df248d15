//! Invalid requests get 400 `InvalidRequest` with the name of the field, and change nothing. None of them gets a 500.

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

/// The errors that the fields of a rule can have, whichever request contains the rule.
fn bad_rule_fields() -> Vec<Case> {
    let mut cases = Vec::new();
    for limit in [json!(-2), json!(1.5), json!("5"), json!(9_007_199_254_740_992_u64)] {
        cases.push((json!({"limit": limit}), "limit"));
    }
    for window in [
        json!("1m"),
        json!({"type": "fixed"}),
        json!({"type": "Fixed", "per": "1m"}),
        json!({"type": "fixed", "per": 0}),
        json!({"type": "fixed", "per": 60}),
        json!({"type": "fixed", "per": "1m", "per_ms": 60_000}),
        json!({"type": "fixed", "per": "367d"}),
        json!({"type": "fixed", "per": "60"}),
        json!({"type": "sliding", "per": "1m", "burst": 5}),
        json!({"type": "bucket", "per": "1m", "burst": -1}),
        json!({"type": "bucket", "per": "1m", "brust": 5}),
    ] {
        cases.push((json!({"window": window}), "window"));
    }
    for selection in [
        json!([]),
        json!({"": 1}),
        json!({"a": null}),
        json!({"a": {"like": "x"}}),
        json!({"a": {"in": 1}}),
        json!({"a": "x".repeat(1025)}),
    ] {
        cases.push((json!({"selection": selection}), "selection"));
    }
    cases.extend([
        (json!({"shadow": 1}), "shadow"),
        (json!({"durability": "Durable"}), "durability"),
        (json!({"description": 5}), "description"),
        (json!({"descripton": "typo"}), "descripton"),
    ]);
    cases
}

#[test]
fn rules_refuse_bad_input() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let good = || json!({"name": "r", "group_by": ["a"], "limit": 1});
    let mut cases: Vec<Case> =
        bad_rule_fields().into_iter().map(|(fields, field)| (with(good(), fields), field)).collect();
    for name in [json!(""), json!("a\u{0}b"), json!(5), json!(null)] {
        cases.push((with(good(), json!({"name": name})), "name"));
    }
    let too_many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    for group_by in [json!("a"), json!(["a", "a"]), json!([1]), json!([""]), json!(too_many)] {
        cases.push((with(good(), json!({"group_by": group_by})), "group_by"));
    }
    cases.push((json!({"group_by": [], "limit": 1}), "name"));
    cases.push((json!({"name": "r", "group_by": []}), "limit"));
    check(&limiter, "POST", "/rules", cases);
    assert_eq!(limiter.names("/rules", None, 10).len(), 0, "nothing was made");

    limiter
        .post("/rules", json!({"name": "r", "group_by": ["a"], "limit": 1, "window": fixed(LONG)}))
        .created();
    let before = limiter.get("/rules/r").ok().body;
    let put = bad_rule_fields()
        .into_iter()
        .map(|(fields, field)| (with(json!({"group_by": ["a"], "limit": 1}), fields), field))
        .collect();
    check(&limiter, "PUT", "/rules/r", put);
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
    let cases = vec![
        (with(good(), json!({"name": ""})), "name"),
        (with(good(), json!({"limit": -2})), "limit"),
        (with(good(), json!({"limit": null})), "limit"),
        (with(good(), json!({"key_values": []})), "key_values"),
        (with(good(), json!({"key_values": {}})), "key_values"),
        (with(good(), json!({"key_values": {"b": 1}})), "key_values"),
        (with(good(), json!({"key_values": {"a": null}})), "key_values"),
        (with(good(), json!({"burst": "many"})), "burst"),
        (with(good(), json!({"burst": -1})), "burst"),
        (with(good(), json!({"window": fixed(LONG)})), "window"),
        (json!({"name": "o", "key_values": {"a": 1}}), "limit"),
        (json!({"name": "o", "limit": 1}), "key_values"),
    ];
    check(&limiter, "POST", "/rules/r/overrides", cases);
    assert_eq!(limiter.names("/rules/r/overrides", None, 10).len(), 0, "nothing was made");
    limiter.override_of("r", "o", json!({"a": 1}), 1);
    let cases = vec![
        (json!({"limit": -2}), "limit"),
        (json!({"limit": null}), "limit"),
        (json!({"name": "p"}), "name"),
        (json!({"limti": 1}), "limti"),
    ];
    check(&limiter, "PATCH", "/rules/r/overrides/o", cases);
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
        for key_values in [json!(null), json!([]), json!({"a": null}), json!({"a": [1]}), json!({"": 1})] {
            cases.push((with(body.clone(), json!({"key_values": key_values})), "key_values"));
        }
        let mut missing = body.clone();
        missing.as_object_mut().expect("an object").remove("key_values");
        cases.push((missing, "key_values"));
        cases.push((with(body.clone(), json!({"keyvalues": {}})), "keyvalues"));
        let number = match *path {
            "/rules/match" => None,
            "/check" | "/leases" => Some("hits"),
            _ => Some("counters"),
        };
        if let Some(field) = number {
            for n in [json!("1"), json!(1.5), json!(9_007_199_254_740_992_u64), json!(1e300)] {
                cases.push((with(body.clone(), json!({field: n})), field));
            }
        }
        match *path {
            "/check" => {
                cases.push((with(body.clone(), json!({"hits": -1})), "hits"));
                cases.push((with(body.clone(), json!({"dry_run": 1})), "dry_run"));
            }
            "/leases" => {
                for ttl in [json!(0), json!(60), json!("soon"), json!(null), json!("9999999d")] {
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
    let cases = vec![
        (json!({}), "checks"),
        (json!({"checks": {}}), "checks"),
        (json!({"checks": [], "atomic": true}), "atomic"),
    ];
    check(&limiter, "POST", "/check/batch", cases);
    limiter.look(json!({})).uses("all", 0);
    assert_eq!(limiter.all("/leases", None, 10).len(), 0);
    // The valid requests are accepted.
    for (method, path, body) in &good {
        let reply = limiter.send(method, path, body);
        assert!([200, 201].contains(&reply.status), "{method} {path} → {}", reply.text);
    }
}

/// Pseudo-random bodies, composed of the limiter's own words: each of them is answered, whatever it means.
#[test]
fn random_bodies_never_get_a_500() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], 5);
    let mut random = crate::load::Random::new(20_260_101);
    let mut pick = |from: &[&str]| from[random.below(from.len() as u64) as usize].to_owned();
    let keys: Vec<&str> =
        "a key_values name group_by selection limit window hits counters ttl type per burst DataType \
        Value where any all min_keys exists in prefix lt checks dry_run shadow KeyValues Limit \\u0000"
            .split(' ')
            .chain([""])
            .collect();
    let leaves: Vec<&str> = r#"1 0 -1 1.5 -0.0 1e308 9223372036854775807 9007199254740991 12 "" "a" "1ms" "fixed" "bucket" "sliding" true false null [] {} "\u0000" "366d""#
        .split(' ')
        .collect();
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

/// A JSON object with some of these keys, whose values are leaves, lists and objects.
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
