//! An owner is paused, and loses its shards meanwhile. When it continues, it can neither write nor answer from its
//! outdated memory.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{Cluster, SHORT, retry};
use crate::fail_over::at_work;
use crate::ledger::hold;
use crate::limiter::{self, fixed};
use crate::load;
use crate::locks::{Grant, exclusive};
use crate::raw::{self, Connection};
use crate::reply::Reply;

/// A request that is sent to the owner while it is paused, and answered after it continues.
struct Sent(Connection);

impl Sent {
    fn to(cluster: &Cluster, node: usize, method: &str, path: &str, body: &Value) -> Sent {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut connection = Connection::open(cluster[node].address());
        connection.send(raw::request(method, path, "", body.as_bytes()));
        Sent(connection)
    }

    /// Requires the correct answer or 503.
    #[track_caller]
    fn answered(mut self, truth: impl FnOnce(Reply)) {
        let reply = self.0.receive();
        if reply.status == 503 {
            let code = reply.code().to_owned();
            reply.refused(503, &code);
        } else {
            truth(reply);
        }
    }
}

/// A node that still believes its memory from before the pause would answer each of these requests differently.
#[test]
fn a_paused_owner_answers_nothing_outdated() {
    let cluster = Cluster::of(3, SHORT);
    let (old, other) = (1, 0);
    let namespace = cluster.namespace_of(old);
    let before = Before::make(&cluster, old, &namespace);

    cluster[old].signal(Signal::STOP);
    let path = |rest: &str| format!("/v1/ns/{namespace}{rest}");
    let send = |method: &str, rest: &str, body: Value| Sent::to(&cluster, old, method, &path(rest), &body);
    let values = send("POST", "/ledger/values", json!({"limit_names": ["a"]}));
    let full = send("POST", "/ledger/hold", hold("late", &[("a", 10)]));
    let free = send("POST", "/limiter/check", json!({"key_values": {"durable": 1}}));
    let lock = send("POST", "/locks", exclusive(json!({"k": 1})));
    let stream = send("GET", "/events/s", Value::Null);

    cluster.await_new_owner(&namespace, old, other);
    let clock = before.change(&cluster, other, &namespace);
    cluster[old].signal(Signal::CONT);

    values.answered(|reply| assert_eq!(reply.ok().body["values"][0]["commit_value"], 5));
    full.answered(|reply| drop(reply.ok().value("a", 5, 10)));
    free.answered(|reply| drop(reply.allowed().uses("durable", 1)));
    lock.answered(|reply| assert!(reply.granted().token > before.grant.token));
    stream.answered(|reply| drop(reply.ok().has("clock", clock)));

    cluster.settle(&[0, 1, 2]);
    for node in 0..3 {
        let reply = cluster[node].ledger_of(&namespace).values(&["a"]).ok();
        assert_eq!(reply.body["values"][0]["commit_value"], 5, "{}", reply.text);
        cluster[node].events_of(&namespace).read("s").ok().has("clock", clock);
    }
}

/// The state before the pause.
struct Before {
    grant: Grant,
}

impl Before {
    #[track_caller]
    fn make(cluster: &Cluster, node: usize, namespace: &str) -> Before {
        let node = &cluster[node];
        let ledger = node.ledger_of(namespace);
        ledger.create_with_ceiling("a", 15);
        ledger.hold("early", &[("a", 10)]).ok();
        let limiter = node.limiter_of(namespace);
        limiter.rule("durable", &["durable"], 1);
        limiter.check(json!({"durable": 1})).allowed();
        node.events_of(namespace).only_once("s", crate::events::LONG);
        Before { grant: node.locks_of(namespace).grant(exclusive(json!({"k": 1}))) }
    }

    /// Changes all of that state: what was full gets room, and what had room is filled. Returns the stream's clock.
    #[track_caller]
    fn change(&self, cluster: &Cluster, node: usize, namespace: &str) -> u64 {
        let node = &cluster[node];
        let ledger = node.ledger_of(namespace);
        let commit = hold("early", &[("a", 5)]);
        retry(|| ledger.request("POST", "/commit").json(&commit)).ok().value("a", 5, 0);
        let limiter = node.limiter_of(namespace);
        limiter.counters(json!({"durable": 1}), -1).ok();
        node.locks_of(namespace).let_go(&self.grant);
        node.events_of(namespace).accept("s", "event").clock
    }
}

/// A relaxed answer waits for neither an append nor a confirm, so only the expired tenure prevents an outdated answer.
#[test]
fn a_paused_owner_answers_nothing_outdated_about_relaxed_windows() {
    let cluster = Cluster::of(2, SHORT);
    for round in 0..5 {
        let (old, other) = (round % 2, (round + 1) % 2);
        let namespace = cluster.namespace_of(old);
        let rule = format!("rule-{round}");
        let at = |node: usize| cluster[node].limiter_of(&namespace);
        at(old).window(&rule, &[&rule], 3, fixed(limiter::LONG));
        at(old).check(json!({&rule: 1})).allowed();

        cluster[old].signal(Signal::STOP);
        let (path, body) = (format!("/v1/ns/{namespace}/limiter/check"), json!({"key_values": {&rule: 1}}));
        let sent: Vec<Sent> = (0..8).map(|_| Sent::to(&cluster, old, "POST", &path, &body)).collect();
        cluster.await_new_owner(&namespace, old, other);
        while retry(|| at(other).request("POST", "/check").json(&body)).status == 200 {}
        cluster[old].signal(Signal::CONT);

        for sent in sent {
            sent.answered(|reply| drop(reply.denied(&[&rule])));
        }
        cluster.settle(&[0, 1]);
    }
}

/// The owner is paused while it has requests of clients in progress. Each request gets a correct answer, or none.
#[test]
fn requests_in_a_paused_owner_are_executed_at_most_once() {
    let cluster = Cluster::of(3, SHORT);
    let old = 2;
    let namespace = cluster.namespace_of(old);
    load::make_limits(&cluster[0].ledger_of(&namespace));
    let clients = [&cluster[old], &cluster[0], &cluster[old], &cluster[1]];
    let mut operations = at_work(&clients, &namespace, "before", || {
        cluster[old].signal(Signal::STOP);
        cluster.await_new_owner(&namespace, old, 0);
        let ledger = cluster[0].ledger_of(&namespace);
        retry(|| ledger.request("GET", "/limits")).ok();
        cluster[old].signal(Signal::CONT);
    });
    cluster.settle(&[0, 1, 2]);
    operations.extend(at_work(&clients, &namespace, "after", || {}));
    load::verify(&cluster[old].ledger_of(&namespace), &mut operations);
}
