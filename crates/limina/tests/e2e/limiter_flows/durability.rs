//! Everything acknowledged survives `kill -9`, and a clean stop loses nothing at all.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use serde_json::{Value, json};

use crate::harness::{Server, eventually};
use crate::limiter::{LONG, bucket, checks, fixed, sliding};
use crate::reply::Reply;

fn durable(name: &str, limit: i64, window: Value) -> Value {
    json!({"name": name, "group_by": ["a"], "limit": limit, "window": window, "durability": "durable"})
}

#[test]
fn everything_acknowledged_survives_a_crash() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("in use", &["a"], 50);
    for (name, window) in [("fixed", fixed(LONG)), ("sliding", sliding(LONG)), ("bucket", bucket(LONG, 50))] {
        limiter.post("/rules", durable(name, 50, window)).created();
    }
    limiter.override_of("in use", "vip", json!({"a": "vip"}), 99);
    limiter.patch("/rules/fixed", json!({"description": "kept"})).ok();
    limiter.check(json!({"a": 1})).allowed();
    limiter.take(json!({"a": 1}), 4).allowed();
    limiter.counters(json!({"a": 1}), 3).ok();
    limiter.counters(json!({"a": 1}), -2).ok();
    limiter.set(json!({"a": 2}), 11).ok();
    let lease = limiter.lease(json!({"a": 1}), 5, "1h").created();
    limiter
        .post("/check/batch", checks((0..100).map(|_| json!({"key_values": {"a": "vip"}})).collect()))
        .ok();
    let in_use = limiter.in_use();
    let rules = limiter.all("/rules", None, 100);

    let verify = |server: &Server| {
        let limiter = server.limiter();
        let reply = limiter.look(json!({"a": 1})).uses("in use", 11);
        reply.uses("fixed", 13).uses("sliding", 13).uses("bucket", 13);
        limiter.look(json!({"a": 2})).uses("in use", 11).uses("fixed", 0);
        // The windows let fifty of the hundred checks pass.
        limiter.look(json!({"a": "vip"})).uses("in use/vip", 50).uses("fixed", 50);
        let held = limiter.held(&lease.lease()).ok();
        assert_eq!((&held.body["hits"], &held.body["key_values"]), (&json!(5), &json!({"a": 1})));
        assert_eq!(limiter.in_use(), in_use);
        assert_eq!(limiter.all("/rules", None, 100), rules);
        limiter.get("/rules/fixed").ok().has("description", "kept");
    };
    verify(&server);
    for _ in 0..2 {
        server.crash_and_restart();
        verify(&server);
    }
    server.restart();
    verify(&server);
    let limiter = server.limiter();
    limiter.release(&lease.lease()).is(204);
    limiter.delete("/rules/sliding").is(204);
    server.crash_and_restart();
    let limiter = server.limiter();
    limiter.look(json!({"a": 1})).applied(&["bucket", "fixed", "in use"]).uses("in use", 6);
    limiter.held(&lease.lease()).refused(404, "LeaseNotFound");
}

#[test]
fn a_stop_stores_relaxed_windows_completely() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    for (name, window) in [("fixed", fixed(LONG)), ("sliding", sliding(LONG)), ("bucket", bucket(LONG, 500))]
    {
        limiter.window(name, &["a"], 500, window);
    }
    for n in 0..50 {
        limiter.check(json!({"a": n % 2})).allowed();
    }
    server.restart();
    for a in 0..2 {
        server.limiter().look(json!({"a": a})).uses("fixed", 25).uses("sliding", 25).uses("bucket", 25);
    }
}

/// After a crash, a relaxed window may lack its last checks, but it never counts a check that did not happen.
#[test]
fn a_crash_loses_only_the_latest_relaxed_checks() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("relaxed", &["a"], 1000, fixed(LONG));
    limiter.rule("durable", &["b"], 1000);
    for _ in 0..30 {
        limiter.check(json!({"a": 1})).allowed();
    }
    // If one limit that applies is durable, the whole reply is durable, and so is everything before it.
    limiter.check(json!({"a": 1, "b": 1})).allowed().uses("relaxed", 31);
    for _ in 0..10 {
        limiter.check(json!({"a": 1})).allowed();
    }
    server.crash_and_restart();
    let used = server.limiter().used("relaxed", json!({"a": 1}));
    assert!((31..=41).contains(&used), "{used} of 31 durable and 10 relaxed");
    server.limiter().look(json!({"b": 1})).uses("durable", 1);
}

#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Done,
    Not,
    Unknown,
}

impl Outcome {
    fn of(answer: reqwest::Result<Reply>) -> Outcome {
        match answer {
            Ok(reply) if reply.status == 200 => Outcome::Done,
            Ok(reply) if reply.code() == "OutcomeUnknown" => Outcome::Unknown,
            Ok(reply) if reply.status == 503 => Outcome::Not,
            Ok(reply) => panic!("the load does nothing that could be refused: {}", reply.text),
            Err(_) => Outcome::Unknown,
        }
    }
}

/// What the clients of a load know: the amounts that were certainly taken, and those that may have been taken.
#[derive(Default)]
struct Tally {
    sure: AtomicI64,
    unsure: AtomicI64,
}

impl Tally {
    fn count(&self, outcome: Outcome, hits: i64) {
        match outcome {
            Outcome::Done => drop(self.sure.fetch_add(hits, Ordering::Relaxed)),
            Outcome::Unknown => drop(self.unsure.fetch_add(hits.abs(), Ordering::Relaxed)),
            Outcome::Not => {}
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_in_crashes_under_load() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("in use", &["a"], -1);
    limiter.post("/rules", durable("window", 1 << 40, fixed(LONG))).created();
    let (in_use, window) = (Tally::default(), Tally::default());
    for round in 0..3 {
        let (limiter, stop) = (server.limiter(), AtomicBool::new(false));
        let goal = window.sure.load(Ordering::Relaxed) + 150;
        std::thread::scope(|scope| {
            for client in 0..12 {
                let (limiter, stop, in_use, window) = (&limiter, &stop, &in_use, &window);
                scope.spawn(move || {
                    let key_values = json!({"a": 1, "client": client, "round": round});
                    let check = json!({"key_values": key_values, "hits": 2});
                    let back = json!({"key_values": key_values, "counters": -1});
                    while !stop.load(Ordering::Relaxed) {
                        let send = |path: &str, body: &Value| {
                            Outcome::of(Reply::try_to(limiter.request("POST", path).json(body)))
                        };
                        let taken = send("/check", &check);
                        window.count(taken, 2);
                        in_use.count(taken, 2);
                        match taken {
                            Outcome::Done if client % 2 == 0 => in_use.count(send("/counters", &back), -1),
                            // The server is gone.
                            Outcome::Unknown => break,
                            _ => {}
                        }
                    }
                });
            }
            let reached = eventually(|| (window.sure.load(Ordering::Relaxed) >= goal).then_some(()));
            server.kill();
            stop.store(true, Ordering::Relaxed);
            assert!(reached.is_some(), "the load is stuck");
        });
        server.start_again();
        let reply = server.limiter().look(json!({"a": 1}));
        for (name, tally) in [("window", &window), ("in use", &in_use)] {
            let used = reply.limit(name)["used"].as_i64().expect("`used`");
            let (sure, unsure) = (tally.sure.load(Ordering::Relaxed), tally.unsure.load(Ordering::Relaxed));
            let range = match name {
                "window" => sure..=sure + unsure,
                _ => sure - unsure..=sure + unsure,
            };
            assert!(range.contains(&used), "{name}: {used} is not in {range:?}, round {round}");
        }
        let sum: i64 = server.limiter().in_use().values().sum();
        assert_eq!(Some(sum), reply.limit("in use")["used"].as_i64(), "the sum of the counters");
    }
}

/// A client that got no answer repeats its request with its key, and is charged once.
#[test]
fn a_retry_with_its_key_resolves_an_unknown_outcome() {
    let mut server = Server::fresh();
    server.limiter().rule("in use", &["a"], -1);
    server.limiter().post("/rules", durable("window", 1 << 40, sliding(LONG))).created();
    let body = |n: i64| json!({"key_values": {"a": 1, "n": n}, "hits": 1});
    let asked = AtomicI64::new(0);
    let limiter = server.limiter();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (limiter, asked) = (&limiter, &asked);
            scope.spawn(move || {
                // Each number is one request. After the crash, no more answers come.
                loop {
                    let n = asked.fetch_add(1, Ordering::Relaxed);
                    let request =
                        limiter.request("POST", "/check").header("idempotency-key", format!("key {n}"));
                    match Reply::try_to(request.json(&body(n))) {
                        Ok(reply) if [200, 503].contains(&reply.status) => {}
                        Ok(reply) => panic!("{}", reply.text),
                        Err(_) => break,
                    }
                }
            });
        }
        let reached = eventually(|| (asked.load(Ordering::Relaxed) >= 200).then_some(()));
        server.kill();
        assert!(reached.is_some(), "the load is stuck");
    });
    server.start_again();
    let limiter = server.limiter();
    let count = asked.load(Ordering::Relaxed);
    for n in 0..count {
        limiter.keyed("POST", "/check", &format!("key {n}"), &body(n)).allowed();
    }
    limiter.look(json!({"a": 1})).uses("in use", count).uses("window", count);
    assert_eq!(limiter.in_use().values().copied().collect::<Vec<_>>(), vec![1; count as usize]);
}
