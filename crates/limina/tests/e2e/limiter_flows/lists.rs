//! Lists: everything exactly once, whatever the size of a page.

use std::collections::BTreeSet;

use serde_json::json;

use crate::harness::Server;
use crate::ledger::encode;

#[test]
fn rules_overrides_and_leases_come_once_each() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    let mut names: Vec<String> = (0..23).map(|n| format!("rule {n:02}")).collect();
    names.extend(["Ä".into(), "a/b".into(), "🌮".into(), "x".repeat(256)]);
    names.sort();
    for name in &names {
        limiter.rule(name, &["a"], -1);
    }
    for (n, name) in names.iter().enumerate() {
        limiter.override_of("rule 00", name, json!({"a": n}), 1000);
    }
    let leases: BTreeSet<String> =
        (0..27).map(|n| limiter.lease(json!({"a": n}), 1, "1h").created().lease_id()).collect();
    assert_eq!(leases.len(), 27);
    let check = |server: &Server| {
        let limiter = server.limiter();
        for page in [1, 5, 9, 26, 27, 28, 1000] {
            assert_eq!(limiter.names("/rules", None, page), names, "pages of {page}");
            assert_eq!(limiter.names("/rules/rule%2000/overrides", None, page), names, "pages of {page}");
            let found = limiter.all("/leases", None, page);
            let ids: BTreeSet<String> = found
                .iter()
                .map(|lease| lease["lease_id"].as_str().expect("`lease_id`").to_owned())
                .collect();
            assert_eq!((found.len(), &ids), (27, &leases), "pages of {page}");
        }
        assert_eq!(limiter.names("/rules/rule%2001/overrides", None, 5).len(), 0);
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
}

#[test]
fn a_page_has_a_hundred_unless_told() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &["a"], -1);
    for n in 0..101 {
        limiter.set(json!({"a": n}), 1).ok();
    }
    let page = limiter.post("/counters/query", json!({})).ok();
    assert_eq!(page.items().len(), 100);
    let next = encode(page.next().expect("more"));
    let last = limiter.post(&format!("/counters/query?after={next}"), json!({})).ok();
    assert_eq!((last.items().len(), last.next()), (1, None));
}

#[test]
fn a_list_that_changes_meanwhile_loses_nothing() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for n in 0..20 {
        limiter.rule(&format!("m{n:02}"), &[], -1);
    }
    let mut seen: Vec<String> = Vec::new();
    let mut path = "/rules?limit=3".to_owned();
    for round in 0.. {
        let page = limiter.get(&path).ok();
        seen.extend(page.items().iter().map(|rule| rule["name"].as_str().expect("`name`").to_owned()));
        let Some(next) = page.next() else { break };
        path = format!("/rules?limit=3&after={}", encode(next));
        if round < 8 {
            limiter.rule(&format!("a{round}"), &[], -1);
            limiter.rule(&format!("z{round}"), &[], -1);
            // Even the one that the last page ended with.
            let last = seen.last().expect("a rule").clone();
            limiter.delete(&format!("/rules/{last}")).is(204);
        }
    }
    for n in 0..20 {
        let name = format!("m{n:02}");
        assert_eq!(seen.iter().filter(|seen| **seen == name).count(), 1, "{name} in {seen:?}");
    }
}

#[test]
fn bad_pages_are_refused() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &[], -1);
    for limit in ["0", "1001", "-1", "ten", "", "1.5", "99999999999999999999"] {
        for path in ["/rules", "/leases", "/rules/r/overrides"] {
            limiter.get(&format!("{path}?limit={limit}")).invalid("limit");
        }
        for path in ["/rules/query", "/counters/query", "/rules/r/overrides/query"] {
            limiter.post(&format!("{path}?limit={limit}"), json!({})).invalid("limit");
        }
    }
    let long = "x".repeat(5000);
    for after in ["", "nonsense", "%00", "%FF%FE", "-1", "AAAA", "🌮", &long] {
        for path in ["/rules", "/leases", "/rules/r/overrides"] {
            let reply = limiter.get(&format!("{path}?after={after}"));
            assert!([200, 400].contains(&reply.status), "{path} after {after} → {}", reply.text);
        }
        for path in ["/rules/query", "/counters/query", "/rules/r/overrides/query"] {
            let reply = limiter.post(&format!("{path}?after={after}"), json!({}));
            assert!([200, 400].contains(&reply.status), "{path} after {after} → {}", reply.text);
        }
    }
}
