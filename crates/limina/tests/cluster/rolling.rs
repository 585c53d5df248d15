//! All nodes are restarted one after another, while clients send requests to every node.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use reqwest::blocking::Client;
use rustix::process::Signal;

use crate::cluster::{Cluster, LONG, SHARDS, SOON, namespace_in};
use crate::harness::{client, eventually};
use crate::ledger::{Ledger, hold};
use crate::raw;
use crate::reply::Reply;

/// All clients together get this many answers before and after each restart.
const SOME: usize = 50;

/// What all clients together saw.
#[derive(Default)]
struct Seen {
    done: AtomicUsize,
    /// The number of requests that were answered with 503 and sent again.
    refused: AtomicUsize,
    /// The number of requests whose connection broke before the answer, and that were sent again.
    lost: AtomicUsize,
    stop: AtomicBool,
}

/// A client that asks the nodes in turn, goes to the next node if one does not accept its connection, and repeats a request that
/// was answered with 503 or not at all. A stopping node answers until it no longer listens.
#[test]
fn a_rolling_restart_loses_no_request() {
    let mut cluster = Cluster::of(3, LONG);
    let bases: Vec<String> = (0..3).map(|node| cluster[node].url("")).collect();
    let namespaces: Vec<String> = (0..SHARDS).map(|shard| namespace_in(&cluster[0], shard)).collect();
    let seen = Seen::default();
    std::thread::scope(|scope| {
        let (bases, seen) = (&bases, &seen);
        let work = |namespace| scope.spawn(move || work(bases, namespace, seen));
        let clients: Vec<_> = namespaces.iter().map(String::as_str).map(work).collect();
        let at_work = || {
            let target = seen.done.load(Ordering::Relaxed) + SOME;
            let is_over = || clients.iter().any(|client| client.is_finished());
            let done =
                eventually(|| (seen.done.load(Ordering::Relaxed) >= target || is_over()).then_some(()));
            assert!(done.is_some(), "the clients hang");
        };
        // Stops all clients when the test ends, even if it fails.
        let _stop = Stop(seen);
        at_work();
        for node in 0..3 {
            cluster.node(node).stop();
            cluster.node(node).start_again();
            cluster.settle_within(SOON, &[0, 1, 2]);
            at_work();
        }
        seen.stop.store(true, Ordering::Relaxed);
        let longest = clients.into_iter().map(|client| client.join().expect("a client")).max();
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let (done, refused, lost) = (count(&seen.done), count(&seen.refused), count(&seen.lost));
        let summary = format!(
            "{done} requests, {refused} answers were 503, {lost} were lost; the longest took {longest:?}"
        );
        println!("{summary}");
        // Normally no request fails. On a very busy machine a shard may move for longer than requests wait.
        assert!((refused + lost) * 100 <= done, "more than 1 % failed: {summary}");
    });
}

struct Stop<'a>(&'a Seen);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Holds one unit after another, each exactly once. Returns the longest time that one of them took.
fn work(bases: &[String], namespace: &str, seen: &Seen) -> Duration {
    let http = client();
    let ledgers: Vec<Ledger> = bases.iter().map(|base| ledger(&http, base, namespace)).collect();
    let (mut turn, mut longest, mut count) = (0, Duration::ZERO, 0);
    let mut send = |body: &serde_json::Value| loop {
        turn += 1;
        let request = ledgers[turn % ledgers.len()].request("POST", "/hold").json(body);
        match Reply::try_to(request) {
            Ok(reply) if reply.status == 503 => {
                let code = reply.body["code"].as_str().map(str::to_owned);
                assert_ne!(code.as_deref(), Some("ShuttingDown"), "a stopping node forwards: {reply:?}");
                seen.refused.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_secs(1));
            }
            Ok(reply) => return reply,
            Err(error) if error.is_connect() => {}
            Err(_) => {
                seen.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    while !seen.stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        count += 1;
        let mut body = hold(&format!("{count}"), &[("rolling", 1)]);
        body["create_missing"] = true.into();
        let reply = send(&body);
        // A request that was executed, and whose answer was lost, is not executed a second time.
        assert!(reply.status == 200 || reply.body["code"] == "DuplicateOperation", "{reply:?}");
        longest = longest.max(start.elapsed());
        seen.done.fetch_add(1, Ordering::Relaxed);
    }
    let mut body = hold("last", &[("rolling", 1)]);
    body["create_missing"] = true.into();
    send(&body).ok().value("rolling", 0, count + 1);
    longest
}

fn ledger(http: &Client, base: &str, namespace: &str) -> Ledger {
    Ledger::new(http.clone(), format!("{base}/v1/ns/{namespace}/ledger"))
}

/// A client that sends its request slowly keeps a stopping node alive. Meanwhile other clients connect and are
/// answered, because the node forwards their requests.
#[test]
fn a_stopping_node_accepts_connections_until_its_end() {
    let cluster = Cluster::of(2, LONG);
    let namespace = cluster.namespace_of(1);
    let path = format!("/v1/ns/{namespace}/ledger/limits");
    let slow = raw::request("POST", &path, "", br#"{"name": "slow"}"#);
    let (begin, end) = slow.split_at(slow.len() - 1);
    let mut late = raw::Connection::open(cluster[0].address());
    late.send(begin);
    cluster[0].signal(Signal::TERM);
    // Longer than an idle node continues to serve while it stops.
    let stopping = Instant::now();
    let mut answered = 0;
    while stopping.elapsed() < Duration::from_secs(4) {
        let reply = raw::ask(cluster[0].address(), raw::request("GET", &path, "", b""));
        assert_eq!(reply.status, 200, "after {:?}: {}", stopping.elapsed(), reply.text);
        answered += 1;
    }
    assert!(answered > 0);
    late.send(end);
    assert_eq!(late.receive().status, 201);
    cluster[1].ledger_of(&namespace).limit("slow").ok();
}
