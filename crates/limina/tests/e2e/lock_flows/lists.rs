//! Lists: every grant exactly once, what waits for it, and never a session.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::encode;
use crate::locks::{Grant, PATIENT, exclusive, ids, locks_in, several, shared, waiting};
use crate::reply::Reply;

#[test]
fn grants_come_once_each() {
    let mut server = Server::fresh();
    let locks = server.locks();
    let mut grants: Vec<Grant> = (0..23).map(|n| locks.grant(exclusive(json!({"n": n})))).collect();
    grants.extend((0..3).map(|_| locks.grant(shared(json!({"n": "shared"})))));
    grants.push(locks.grant(several(&[(json!({"x": 1}), "shared"), (json!({"y": 1}), "exclusive")])));
    let expected: BTreeSet<String> = grants.iter().map(|grant| grant.lock_id.clone()).collect();
    assert_eq!(expected.len(), 27);
    let check = |server: &Server| {
        let locks = server.locks();
        for page in [1, 5, 9, 26, 27, 28, 1000] {
            let items = locks.all(page);
            assert_eq!(ids(&items), expected, "pages of {page}");
            assert_eq!(ids(&locks.query(&json!({}), page)), expected, "pages of {page}");
            for grant in &grants {
                let item = items.iter().find(|item| item["lock_id"] == grant.lock_id.as_str());
                let item = item.unwrap_or_else(|| panic!("{grant:?} is not listed"));
                assert_eq!(item["fencing_token"], grant.token, "{item}");
                assert_eq!(locks_in(item), grant.locks, "{item}");
                assert!(!item.to_string().contains("session"), "{item}");
                assert!(!item.to_string().contains(&grant.session_id), "{item}");
            }
        }
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
    server.restart();
    check(&server);
}

#[test]
fn a_page_has_a_hundred_unless_told() {
    let server = Server::fresh();
    let locks = server.locks();
    for n in 0..101 {
        locks.grant(exclusive(json!({"n": n})));
    }
    let get = |path: &str| Reply::to(locks.request("GET", path)).ok();
    let page = get("");
    assert_eq!(page.items().len(), 100);
    let last = get(&format!("?after={}", encode(page.next().expect("more"))));
    assert_eq!((last.items().len(), last.next()), (1, None));
    let page = locks.ask_text("/query", "{}").ok();
    assert_eq!(page.items().len(), 100);
    let last = locks.ask_text(&format!("/query?after={}", encode(page.next().expect("more"))), "{}").ok();
    assert_eq!((last.items().len(), last.next()), (1, None));
}

/// What is held all the while is found once, though others come and go between the pages.
#[test]
fn a_list_that_changes_meanwhile_loses_nothing() {
    let server = Server::fresh();
    let locks = server.locks();
    let mut grants: Vec<Grant> = (0..40).map(|n| locks.grant(exclusive(json!({"n": n})))).collect();
    let goers = grants.split_off(20);
    let (mut goers, stayers) = (goers.into_iter(), ids_of(&grants));
    let mut seen: Vec<String> = Vec::new();
    let mut path = "?limit=3".to_owned();
    for round in 0.. {
        let page = Reply::to(locks.request("GET", &path)).ok();
        seen.extend(page.items().iter().map(|item| item["lock_id"].as_str().expect("`lock_id`").to_owned()));
        let Some(next) = page.next() else { break };
        path = format!("?limit=3&after={}", encode(next));
        if round < 8 {
            locks.grant(exclusive(json!({"new": round})));
            for goer in goers.by_ref().take(2) {
                locks.let_go(&goer);
            }
        }
    }
    for id in stayers {
        assert_eq!(seen.iter().filter(|seen| **seen == id).count(), 1, "{id} in {seen:?}");
    }
}

fn ids_of(grants: &[Grant]) -> BTreeSet<String> {
    grants.iter().map(|grant| grant.lock_id.clone()).collect()
}

#[test]
fn an_item_says_how_many_wait() {
    let server = Server::fresh();
    let locks = server.locks();
    let held = locks.grant(exclusive(json!({"a": 1})));
    let other = locks.grant(exclusive(json!({"b": 1})));
    let mut waiters = Vec::new();
    for n in 0..5 {
        locks.await_queue(&held, n);
        waiters.push(locks.wait(waiting(exclusive(json!({"a": 1})), PATIENT)));
    }
    locks.await_queue(&held, 5);
    locks.await_queue(&other, 0);
    // Who only waits holds nothing, and is no item.
    assert_eq!(locks.ids(), ids_of(&[held.clone(), other]));
    let mut held = held;
    for (n, waiter) in waiters.into_iter().enumerate() {
        locks.let_go(&held);
        held = waiter.granted();
        locks.await_queue(&held, 4 - n as u64);
    }
}

/// The owner is told if there is one.
#[test]
fn an_item_says_who_holds_it() {
    let server = Server::fresh();
    let locks = server.locks();
    let owned = json!({"key_values": {"a": 1}, "mode": "shared", "ttl": "1h", "owner": "worker 🌮 7"});
    let owned = locks.grant(owned);
    let nobody = locks.grant(exclusive(json!({"b": 1})));
    assert_eq!(locks.get(&owned.lock_id).ok().body["owner"], "worker 🌮 7");
    assert_eq!(locks.get(&nobody.lock_id).ok().body["owner"], Value::Null);
}

#[test]
fn bad_pages_are_refused() {
    let server = Server::fresh();
    let locks = server.locks();
    locks.grant(exclusive(json!({"a": 1})));
    for limit in ["0", "1001", "-1", "ten", "", "1.5", "99999999999999999999"] {
        Reply::to(locks.request("GET", &format!("?limit={limit}"))).invalid("limit");
        locks.ask_text(&format!("/query?limit={limit}"), "{}").invalid("limit");
    }
    let long = "x".repeat(5000);
    for after in ["", "nonsense", "%00", "%FF%FE", "-1", "AAAA", "🌮", &long] {
        let reply = Reply::to(locks.request("GET", &format!("?after={after}")));
        assert!([200, 400].contains(&reply.status), "after {after} → {}", reply.text);
        let reply = locks.ask_text(&format!("/query?after={after}"), "{}");
        assert!([200, 400].contains(&reply.status), "after {after} → {}", reply.text);
    }
}
