//! Decisions in a cluster, while one of its nodes dies.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::cluster::{Cluster, SHORT, retry};
use crate::common::decisions::Decisions;
use crate::harness::eventually;
use crate::ledger::with;
use crate::limiter::{self, fixed};
use crate::reply::Reply;

/// The number of requests that are answered before the owner dies.
const SOME: usize = 60;

fn call(id: &str) -> Value {
    json!({
        "operation_id": id,
        "ttl": "1h",
        "checks": [
            {"name": "tokens", "key_values": {"tokens": "acme"}, "hits": 100, "estimate": true},
            {"key_values": {"slots": "acme"}},
        ],
        "holds": [{"limit_name": "budget", "value": 10}],
        "locks": [{"key_values": {"id": id}}],
    })
}

fn actual(n: usize) -> Value {
    let (hits, value) = (50 + n as u64 % 70, n as i64 % 11);
    json!({"checks": [{"name": "tokens", "hits": hits}], "holds": [{"limit_name": "budget", "value": value}]})
}

/// Clients decide and commit through the two surviving nodes while the owner of the namespace dies. A client that gets
/// no answer repeats its request under the same id. Every amount is booked once.
#[test]
fn decisions_survive_the_death_of_the_owner() {
    let mut cluster = Cluster::of(3, SHORT);
    let namespace = cluster.namespace_of(1);
    let limiter = cluster[0].limiter_of(&namespace);
    limiter.window("tokens", &["tokens"], 1_000_000, fixed(limiter::LONG));
    limiter.rule("slots", &["slots"], 1_000);
    cluster[0].ledger_of(&namespace).create_with_ceiling("budget", 1_000_000);
    let (owner, rest) = cluster.apart(1);
    let before = rest[0].decisions_of(&namespace);
    before.decide(&call("open")).ok();

    let done = AtomicUsize::new(0);
    let work = |decisions: Decisions, client: usize| {
        for n in 0..40 {
            let (id, number) = (format!("{client}-{n}"), client * 40 + n);
            retry(|| decisions.sending("", &call(&id))).ok().has("state", "open");
            retry(|| decisions.sending(&format!("/{id}/commit"), &actual(number)))
                .ok()
                .has("state", "committed");
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let decisions = rest[client % 2].decisions_of(&namespace);
                scope.spawn(move || work(decisions, client))
            })
            .collect();
        assert!(eventually(|| (done.load(Ordering::Relaxed) >= SOME).then_some(())).is_some(), "no progress");
        owner.kill();
        clients.into_iter().for_each(|client| client.join().expect("a client"));
    });

    let (tokens, money) = (0..160).fold((0, 0), |sum, n| (sum.0 + 50 + n % 70, sum.1 + n % 11));
    for node in rest {
        let decisions = node.decisions_of(&namespace);
        assert_eq!(decisions.open(""), ["open"]);
        // The new owner has given the open decision its full `ttl` again.
        let left = decisions.get("open").ok().body["expires_in_ms"].as_u64().unwrap();
        assert!(left > 3_000_000, "{left} ms left of an hour");
        decisions.decide(&with(call("open"), json!({"explain": true}))).ok().has("repeated", true);
        let limiter = node.limiter_of(&namespace);
        assert_eq!(limiter.used("tokens", json!({"tokens": "acme"})), tokens + 100);
        assert_eq!(limiter.used("slots", json!({"slots": "acme"})), 1);
        let budget: Reply = node.ledger_of(&namespace).limit("budget").ok();
        budget.has("commit_value", money).has("hold_value", 10);
    }
}

/// A decision that was requested through another node than the owner waits, and is made. If its client hangs up, it
/// stops waiting.
#[test]
fn a_decision_can_wait_through_another_node() {
    let cluster = Cluster::of(2, crate::cluster::LONG);
    let namespace = cluster.namespace_of(0);
    let (here, there) = (cluster[0].decisions_of(&namespace), cluster[1].decisions_of(&namespace));
    let locked = |id: &str| json!({"operation_id": id, "locks": [{"key_values": {"k": 1}}], "wait": "5m"});
    there.decide(&locked("a")).ok();
    let state = |id: &str| here.heartbeat(id).body["state"].clone();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| there.decide(&locked("b")));
        assert!(eventually(|| (state("b") == "waiting").then_some(())).is_some(), "it does not wait");
        let mut connection = crate::raw::Connection::open(cluster[1].address());
        let path = format!("/v1/ns/{namespace}/decisions");
        connection.send(crate::raw::request("POST", &path, "", locked("c").to_string().as_bytes()));
        assert!(eventually(|| (state("c") == "waiting").then_some(())).is_some(), "it does not wait");
        drop(connection);
        assert!(eventually(|| state("c").is_null().then_some(())).is_some(), "it still waits");
        here.commit("a", &json!({})).ok();
        waiter.join().expect("a client").ok().has("state", "open");
    });
    there.rollback("b").ok();
}
