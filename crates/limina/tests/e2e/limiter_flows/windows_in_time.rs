//! Windows that pass: every answer of a stream of checks is held against the instants between which it was decided.
//!
//! Nothing here depends on the machine's speed: a slow one gives fewer answers, and each is judged by its own interval.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::harness::Server;
use crate::limiter::{Limiter, bucket, fixed, sliding};

/// In milliseconds, for the rounding of both sides' clocks.
const SLACK: f64 = 5.0;

/// One check: decided at some instant from `from` to `to`, in milliseconds of one clock; and since the epoch.
struct Answer {
    from: f64,
    to: f64,
    since_epoch: (f64, f64),
    passed: bool,
    retry_after: f64,
}

/// Checks one after another, of `hits` each, for `time`.
fn stream(limiter: &Limiter, hits: i64, time: Duration) -> Vec<Answer> {
    let origin = Instant::now();
    let now = || origin.elapsed().as_secs_f64() * 1000.0;
    let mut answers = Vec::new();
    while origin.elapsed() < time {
        let (from, epoch_from) = (now(), epoch_ms());
        let reply = limiter.take(json!({"a": 1}), hits);
        let (to, epoch_to) = (now(), epoch_ms());
        let passed = reply.status == 200;
        let retry_after = match passed {
            true => 0.0,
            false => reply.denied(&["w"]).retry_after_ms().expect("a window knows when") as f64,
        };
        answers.push(Answer { from, to, since_epoch: (epoch_from, epoch_to), passed, retry_after });
    }
    answers
}

fn epoch_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() * 1000.0
}

/// No check passed before a refusal said that it would, and none was refused after.
#[track_caller]
fn retry_after_is_right(answers: &[Answer]) {
    for (n, refusal) in answers.iter().enumerate().filter(|(_, answer)| !answer.passed) {
        for later in &answers[n + 1..] {
            if later.passed {
                let earliest = refusal.from + refusal.retry_after - SLACK;
                assert!(later.to >= earliest, "passed at {} and not at {earliest}", later.to);
                break;
            }
            let latest = refusal.to + refusal.retry_after + SLACK;
            assert!(later.from <= latest, "refused at {} though {latest} was promised", later.from);
        }
    }
}

/// Of all that passed, never more than `most(span)` hits within any span, in milliseconds.
#[track_caller]
fn never_more(answers: &[Answer], hits: i64, most: impl Fn(f64) -> f64) {
    let passed: Vec<&Answer> = answers.iter().filter(|answer| answer.passed).collect();
    for (n, first) in passed.iter().enumerate() {
        for (m, last) in passed[n..].iter().enumerate() {
            // They happened within at most this time.
            let span = last.to - first.from + SLACK;
            let count = ((m + 1) as i64 * hits) as f64;
            assert!(count <= most(span), "{count} hits within {span} ms");
        }
    }
}

/// The rule `w` alone in a namespace of its own.
fn limiter_with(server: &Server, namespace: &str, limit: i64, window: Value) -> Limiter {
    let limiter = server.limiter_of(namespace);
    limiter.window("w", &["a"], limit, window);
    limiter
}

#[test]
fn a_fixed_window_in_time() {
    let server = Server::fresh();
    for (hits, limit) in [(1, 7), (3, 7)] {
        let limiter = limiter_with(&server, &format!("{hits} of {limit}"), limit, fixed("250ms"));
        let answers = stream(&limiter, hits, Duration::from_millis(1200));
        retry_after_is_right(&answers);
        // Those that surely fell into the same window.
        let mut counts = std::collections::BTreeMap::new();
        for answer in answers.iter().filter(|answer| answer.passed) {
            let window = |at: f64| (at / 250.0).floor() as i64;
            let (from, to) = answer.since_epoch;
            let (first, last) = (window(from - 2.0 * SLACK), window(to + 2.0 * SLACK));
            if first == last {
                *counts.entry(first).or_insert(0) += hits;
            }
        }
        assert!(counts.values().all(|&count| count <= limit), "{counts:?}");
        assert!(answers.iter().any(|answer| answer.passed));
    }
}

#[test]
fn a_sliding_window_in_time() {
    let server = Server::fresh();
    // Exact with few entries; in slots with many.
    for (namespace, hits, limit, per, late) in
        [("few", 1, 10, 300.0, 0.0), ("several", 4, 10, 300.0, 0.0), ("crowd", 1, 150, 640.0, 10.0)]
    {
        let window = sliding(&format!("{per}ms"));
        let limiter = limiter_with(&server, namespace, limit, window);
        let answers = stream(&limiter, hits, Duration::from_millis(1500));
        never_more(&answers, hits, |span| if span < per { limit as f64 } else { f64::INFINITY });
        if late == 0.0 {
            retry_after_is_right(&answers);
        }
        // A refusal must have been due: enough of what passed may still have counted then.
        for refusal in answers.iter().filter(|answer| !answer.passed) {
            let counts = |answer: &&Answer| {
                answer.passed && answer.to > refusal.from - per - late - SLACK && answer.from < refusal.to
            };
            let counted = answers.iter().filter(counts).count() as i64 * hits;
            assert!(counted + hits > limit, "refused at {} with {counted} of {limit} used", refusal.from);
        }
    }
}

#[test]
fn a_bucket_in_time() {
    let server = Server::fresh();
    for (hits, limit, burst) in [(1, 30, 5), (3, 30, 5), (1, 4, 4)] {
        let limiter = limiter_with(&server, &format!("{hits} {limit}"), limit, bucket("500ms", burst));
        let answers = stream(&limiter, hits, Duration::from_millis(1200));
        let rate = limit as f64 / 500.0;
        never_more(&answers, hits, |span| burst as f64 + span * rate);
        retry_after_is_right(&answers);
    }
}

/// After the time that the refusal named, the same check passes.
#[test]
fn waiting_as_told_is_enough() {
    let server = Server::fresh();
    let kinds = [("fixed", fixed("300ms")), ("sliding", sliding("300ms")), ("bucket", bucket("300ms", 3))];
    for (kind, window) in kinds {
        let limiter = limiter_with(&server, kind, 3, window);
        for hits in [3, 1, 2] {
            let refused = crate::harness::eventually(|| {
                Some(limiter.take(json!({"a": 1}), hits)).filter(|reply| reply.status == 429)
            });
            let after = refused.expect("a refusal").retry_after_ms().expect("known");
            assert!(after <= 300, "{kind}: {after} of 300");
            std::thread::sleep(Duration::from_millis(after + 1));
            let reply = limiter.take(json!({"a": 1}), hits);
            assert_eq!(reply.status, 200, "{kind}, {hits} hits, {after} ms later: {}", reply.text);
        }
    }
}

/// Groups that are over leave no trace: the next window starts empty.
#[test]
fn a_window_that_is_over_is_empty() {
    let server = Server::fresh();
    for (kind, window) in
        [("fixed", fixed("100ms")), ("sliding", sliding("100ms")), ("bucket", bucket("100ms", 9))]
    {
        let limiter = limiter_with(&server, kind, 9, window);
        limiter.take(json!({"a": 1}), 9).allowed();
        let empty = crate::harness::eventually(|| (limiter.used("w", json!({"a": 1})) == 0).then_some(()));
        assert!(empty.is_some(), "{kind} never was empty again");
        limiter.take(json!({"a": 1}), 9).allowed();
    }
}

/// A client that asks all the time waits no longer than one that asks once.
#[test]
fn a_refusal_does_not_postpone_the_next_pass() {
    let server = Server::fresh();
    for (kind, window) in
        [("fixed", fixed("400ms")), ("sliding", sliding("400ms")), ("bucket", bucket("400ms", 2))]
    {
        let limiter = limiter_with(&server, kind, 2, window);
        limiter.take(json!({"a": 1}), 2).allowed();
        let taken = Instant::now();
        // Asked as often as can be; each refusal is free.
        let passed = crate::harness::eventually(|| {
            let asked = taken.elapsed();
            let passes = limiter.take(json!({"a": 1}), 2).status == 200;
            assert!(passes || asked <= Duration::from_millis(410), "{kind} still refuses after {asked:?}");
            passes.then_some(())
        });
        passed.expect("it passes again");
    }
}
