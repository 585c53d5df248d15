//! Dozens of clients use overlapping rules: no limit is ever exceeded, and no change is lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::concurrency::race;
use crate::harness::Server;
use crate::limiter::{LONG, Limiter, fixed, sliding};
use crate::load::Random;

/// The limits that the overlapping rules below set for each of their groups.
const PER_A: i64 = 12;
const PER_B: i64 = 9;
const PER_PAIR: i64 = 3;
const TOTAL: i64 = 33;
const SPECIAL: i64 = 1;

#[track_caller]
fn overlapping(limiter: &Limiter, window: Option<Value>) {
    let rule = |name: &str, group_by: &[&str], limit: i64| {
        let mut rule = json!({"name": name, "group_by": group_by, "limit": limit});
        if let Some(window) = &window {
            rule["window"] = window.clone();
        }
        limiter.post("/rules", rule).created();
    };
    rule("a", &["a"], PER_A);
    rule("b", &["b"], PER_B);
    rule("pair", &["a", "b"], PER_PAIR);
    rule("total", &[], TOTAL);
    limiter.override_of("pair", "special", json!({"a": 0, "b": 0}), SPECIAL);
}

/// In whatever order the checks are decided, no group exceeds its limit, and no check is refused that would have
/// fitted.
#[test]
fn overlapping_rules_never_exceed_any_limit() {
    let server = Server::fresh();
    for (namespace, window) in
        [("in use", None), ("fixed", Some(fixed(LONG))), ("sliding", Some(sliding(LONG)))]
    {
        let limiter = server.limiter_of(namespace);
        overlapping(&limiter, window);
        let passed: Vec<(u64, u64)> = race(24, |client| {
            let mut random = Random::new(client as u64 + 1);
            let mut passed = Vec::new();
            for _ in 0..12 {
                let (a, b) = (random.below(4), random.below(5));
                let reply = limiter.check(json!({"a": a, "b": b}));
                match reply.status {
                    200 => passed.push((a, b)),
                    _ => drop(reply.refused(429, "LimitReached")),
                }
            }
            passed
        })
        .concat();
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        for (a, b) in &passed {
            for group in [format!("a {a}"), format!("b {b}"), format!("pair {a} {b}"), "total".into()] {
                *sums.entry(group).or_default() += 1;
            }
        }
        let sum = |group: String| sums.get(&group).copied().unwrap_or(0);
        assert!(passed.len() as i64 <= TOTAL);
        for a in 0..4 {
            for b in 0..5 {
                let (pair, most) = match (a, b) {
                    (0, 0) => ("pair/special", SPECIAL),
                    _ => ("pair", PER_PAIR),
                };
                let expected = [
                    ("a", sum(format!("a {a}")), PER_A),
                    ("b", sum(format!("b {b}")), PER_B),
                    (pair, sum(format!("pair {a} {b}")), most),
                    ("total", passed.len() as i64, TOTAL),
                ];
                let mut reply = limiter.look(json!({"a": a, "b": b}));
                for (limit, used, most) in expected {
                    assert!(used <= most, "{used} of {most} in {limit} for {a}, {b}");
                    reply = reply.uses(limit, used);
                }
                // One more check passes exactly if every limit has room.
                let room = expected.iter().all(|(_, used, most)| used < most);
                let dry = json!({"key_values": {"a": a, "b": b}, "dry_run": true});
                let reply = limiter.post("/check", dry);
                assert_eq!(reply.status == 200, room, "{}", reply.text);
            }
        }
    }
}

/// The number of slots that are certainly held, which must never exceed the limit.
struct Held {
    count: AtomicI64,
    most: i64,
}

impl Held {
    fn new(most: i64) -> Held {
        Held { count: AtomicI64::new(0), most }
    }

    /// Called after the grant has arrived.
    #[track_caller]
    fn add(&self, hits: i64) {
        let now = self.count.fetch_add(hits, Ordering::SeqCst) + hits;
        assert!(now <= self.most, "{now} of {} are held", self.most);
    }

    /// Called before the slot is given back.
    fn subtract(&self, hits: i64) {
        self.count.fetch_sub(hits, Ordering::SeqCst);
    }
}

#[test]
fn concurrent_adds_and_subtracts_end_at_zero() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("a", &["a"], 3);
    limiter.rule("b", &["b"], 4);
    limiter.rule("total", &[], 7);
    let (total, by_a) = (Held::new(7), [Held::new(3), Held::new(3), Held::new(3)]);
    race(32, |client| {
        let mut random = Random::new(client as u64 + 100);
        for n in 0..15 {
            let (a, b) = (random.below(3), random.below(3));
            let (key_values, hits) = (json!({"a": a, "b": b}), random.below(2) as i64 + 1);
            let reply = match n % 2 {
                0 => limiter.counters(key_values.clone(), hits),
                _ => limiter.take(key_values.clone(), hits),
            };
            if reply.status != 200 {
                reply.refused(if n % 2 == 0 { 409 } else { 429 }, "LimitReached");
                continue;
            }
            total.add(hits);
            by_a[a as usize].add(hits);
            let reply = limiter.look(key_values.clone());
            assert!(
                reply.limit("total")["used"].as_i64().is_some_and(|used| (hits..=7).contains(&used)),
                "{}",
                reply.text
            );
            total.subtract(hits);
            by_a[a as usize].subtract(hits);
            limiter.counters(key_values, -hits).ok();
        }
    });
    for (a, b) in [(0, 0), (1, 1), (2, 2)] {
        limiter.look(json!({"a": a, "b": b})).uses("a", 0).uses("b", 0).uses("total", 0);
    }
    assert_eq!(limiter.in_use(), BTreeMap::new());
    limiter.take(json!({}), 7).allowed();
}

#[test]
fn concurrent_leases_end_at_zero() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("mutex", &["lock"], 1);
    limiter.rule("total", &[], 2);
    let locks = [Held::new(1), Held::new(1), Held::new(1)];
    let highest = [AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0)];
    let tokens: Vec<u64> = race(24, |client| {
        let mut tokens = Vec::new();
        for n in 0..15 {
            let lock = (client + n) % 3;
            let lease = limiter.lease(json!({"lock": lock}), 1, "1h");
            if lease.status != 201 {
                lease.refused(429, "LimitReached");
                continue;
            }
            locks[lock].add(1);
            let token = lease.number("fencing_token");
            // Each holder of a lock has a higher token than all earlier holders.
            let before = highest[lock].swap(token as i64, Ordering::SeqCst);
            assert!(before < token as i64, "{token} after {before}");
            tokens.push(token);
            // Another client's decrement does not change the lease's part of the counter.
            limiter.counters(json!({"lock": lock}), -1).ok();
            locks[lock].subtract(1);
            limiter.release(&lease.lease()).is(204);
        }
        tokens
    })
    .concat();
    let mut distinct = tokens.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), tokens.len(), "a token was given twice");
    assert!(!tokens.is_empty());
    assert_eq!(limiter.all("/leases", None, 10).len(), 0);
    limiter.look(json!({"lock": 0})).uses("mutex", 0).uses("total", 0);
    assert_eq!(limiter.in_use(), BTreeMap::new());
}

#[test]
fn a_changed_limit_applies_at_once_under_load() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &[], 1_000_000);
    limiter.window("w", &[], 1_000_000, fixed(LONG));
    for rule in ["r", "w"] {
        let (stop, asked) = (AtomicBool::new(false), AtomicI64::new(0));
        let (changed, passes) = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..12)
                .map(|_| {
                    scope.spawn(|| {
                        let mut last = None;
                        while !stop.load(Ordering::Relaxed) {
                            let sent = Instant::now();
                            if limiter.check(json!({})).status == 200 {
                                last = Some(sent);
                            }
                            asked.fetch_add(1, Ordering::Relaxed);
                        }
                        last
                    })
                })
                .collect();
            let answered = |count: i64| {
                crate::harness::eventually(|| (asked.load(Ordering::Relaxed) >= count).then_some(()))
                    .is_some()
            };
            let before = answered(50);
            limiter.set_limit(rule, 0);
            let changed = Instant::now();
            let after = answered(asked.load(Ordering::Relaxed) + 50);
            stop.store(true, Ordering::Relaxed);
            assert!(before && after, "the clients are stuck");
            (
                changed,
                clients.into_iter().filter_map(|client| client.join().expect("a client")).collect::<Vec<_>>(),
            )
        });
        assert!(!passes.is_empty());
        assert!(passes.iter().all(|sent| *sent <= changed), "passed after {rule} was shut");
        limiter.set_limit(rule, 1_000_000);
    }
}

/// Rules are created and deleted under load: each check sees the rules from before or after a change, and the counts
/// are exact.
#[test]
fn rules_are_created_and_deleted_under_load() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("stays", &["a"], -1);
    let passed: i64 = race(12, |client| {
        let mut passed = 0;
        for n in 0..25 {
            if client < 2 {
                let name = format!("brief {client}");
                limiter.rule(&name, &["a"], 40);
                limiter.override_of(&name, "o", json!({"a": 1, "client": n}), 1);
                limiter.delete(&format!("/rules/brief%20{client}")).is(204);
            } else {
                let reply = limiter.check(json!({"a": 1, "client": client}));
                if reply.status == 200 {
                    let reply = reply.allowed();
                    passed += 1;
                    // Every rule shows the same number for what is in use.
                    for limit in crate::limiter::limits_of(&reply.body)
                        .iter()
                        .filter(|limit| limit["override"].is_null())
                    {
                        assert_eq!(limit["used"], reply.limit("stays")["used"], "{}", reply.text);
                    }
                } else {
                    reply.refused(429, "LimitReached");
                }
            }
        }
        passed
    })
    .into_iter()
    .sum();
    limiter.look(json!({"a": 1})).applied(&["stays"]).uses("stays", passed);
    assert_eq!(limiter.in_use().values().sum::<i64>(), passed);
}

#[test]
fn one_of_many_concurrent_requests_creates_a_rule() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for round in 0..5 {
        let rule = format!("raced {round}");
        let statuses = race(12, |n| {
            let reply = limiter.post("/rules", json!({"name": rule, "group_by": ["a"], "limit": n}));
            if reply.status != 201 {
                reply.clone().refused(409, "RuleAlreadyExists");
            }
            reply.status
        });
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1);
        let statuses = race(12, |n| {
            let reply = limiter.override_as(&rule, &format!("o{n}"), json!({"a": 1}), n as i64);
            if reply.status != 201 {
                reply.clone().refused(409, "OverrideAlreadyExists");
            }
            reply.status
        });
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1);
    }
}
