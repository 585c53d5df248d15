//! Windows that do not end during the test: what they count, and when they say it will pass.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::harness::Server;
use crate::limiter::{LONG, Limiter, bucket, fixed, sliding};
use crate::reply::Reply;

/// For the rounding of both sides' clocks.
const SLACK: f64 = 15.0;

/// A reply, and the milliseconds since `origin` between which the server must have decided it.
struct Timed {
    reply: Reply,
    from: f64,
    to: f64,
}

fn timed(origin: Instant, ask: impl FnOnce() -> Reply) -> Timed {
    let from = origin.elapsed().as_secs_f64() * 1000.0;
    let reply = ask();
    Timed { reply, from, to: origin.elapsed().as_secs_f64() * 1000.0 }
}

/// `refused` says that it would pass `after` milliseconds behind the instant of `since`.
#[track_caller]
fn passes_after(refused: &Timed, since: &Timed, after: f64) {
    let said = refused.reply.retry_after_ms().expect("known") as f64;
    let (least, most) = (since.from + after - refused.to, since.to + after - refused.from);
    assert!(
        (least - SLACK..=most + SLACK).contains(&said),
        "{said} is not between {least} and {most}: {}",
        refused.reply.text
    );
}

fn epoch_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

#[test]
fn a_fixed_window_is_aligned_to_the_epoch() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for (name, per, ms) in [("h", "1h", 3_600_000), ("d", "24h", 86_400_000), ("odd", "7h", 25_200_000)] {
        limiter.window(name, &[name], 5, fixed(per));
        let from = epoch_ms();
        let reply = limiter.check(json!({name: 1})).allowed();
        let to = epoch_ms();
        let reset = reply.limit(name)["reset_ms"].as_u64().expect("`reset_ms`");
        assert!(reset <= ms, "{}", reply.text);
        // Some multiple of `per` lies where the window is said to end.
        let (from, to) = (from + reset - SLACK as u64, to + reset + SLACK as u64);
        assert!(to / ms > (from - 1) / ms, "ends between {from} and {to}, not at a multiple of {ms}");
    }
}

#[test]
fn a_fixed_window_passes_again_when_it_ends() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("w", &["a"], 3, fixed(LONG));
    limiter.take(json!({"a": 1}), 2).allowed().uses("w", 2);
    let refused = limiter.take(json!({"a": 1}), 2).denied(&["w"]).uses("w", 2);
    assert_eq!(refused.retry_after_ms(), refused.limit("w")["reset_ms"].as_u64(), "{}", refused.text);
    let refused = limiter.take(json!({"a": 1}), 4).denied(&["w"]);
    assert_eq!(refused.retry_after_ms(), None, "4 of 3 never pass: {}", refused.text);
    limiter.check(json!({"a": 1})).allowed().uses("w", 3);
}

#[test]
fn a_sliding_window_passes_again_when_enough_has_left() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let (origin, hour) = (Instant::now(), 3_600_000.0);
    limiter.window("w", &["a"], 6, sliding("1h"));
    let take = |hits: i64| timed(origin, || limiter.take(json!({"a": 1}), hits));
    let takes = [take(1), take(2), take(3)];
    takes.iter().for_each(|take| assert_eq!(take.reply.status, 200, "{}", take.reply.text));
    // How many hits must wait for which of the takes to leave.
    for (hits, leaving) in [(1, 0), (2, 1), (3, 1), (4, 2), (6, 2)] {
        let refused = take(hits);
        refused.reply.clone().denied(&["w"]).uses("w", 6);
        passes_after(&refused, &takes[leaving], hour);
    }
    let never = limiter.take(json!({"a": 1}), 7).denied(&["w"]);
    assert_eq!(never.retry_after_ms(), None, "{}", never.text);
}

/// More than 64 entries: a refusal lasts at most `per`/64 too long, and never too short.
#[test]
fn a_crowded_sliding_window_is_nearly_exact() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let (origin, per) = (Instant::now(), 3_600_000.0);
    limiter.window("w", &[], 200, sliding("1h"));
    let first = timed(origin, || limiter.check(json!({})));
    for used in 2..=200 {
        limiter.check(json!({})).allowed().uses("w", used);
    }
    let refused = timed(origin, || limiter.check(json!({})));
    refused.reply.clone().denied(&["w"]).uses("w", 200);
    let said = refused.reply.retry_after_ms().expect("known") as f64;
    assert!(said >= per - (refused.to - first.from) - SLACK, "too early: {said}");
    assert!(said <= per - (refused.from - first.to) + per / 64.0 + SLACK, "too late: {said}");
}

#[test]
fn a_bucket_refills_evenly() {
    let server = Server::fresh();
    let limiter = server.limiter();
    let (origin, token) = (Instant::now(), 360_000.0);
    limiter.window("w", &["a"], 10, bucket("1h", 4));
    let take = |hits: i64| timed(origin, || limiter.take(json!({"a": 1}), hits));
    let all = take(4);
    let limit = all.reply.clone().allowed().uses("w", 4);
    assert_eq!((&limit.limit("w")["limit"], &limit.limit("w")["remaining"]), (&json!(4), &json!(0)));
    for hits in 1..=4 {
        let refused = take(hits);
        refused.reply.clone().denied(&["w"]).uses("w", 4);
        passes_after(&refused, &all, token * hits as f64);
    }
    let never = limiter.take(json!({"a": 1}), 5).denied(&["w"]);
    assert_eq!(never.retry_after_ms(), None, "more than the burst never passes: {}", never.text);
    limiter.take(json!({"a": 2}), 3).allowed().uses("w", 3);
    limiter.take(json!({"a": 2}), 2).denied(&["w"]).uses("w", 3);
    limiter.check(json!({"a": 2})).allowed().uses("w", 4);
}

#[test]
fn a_bucket_larger_than_its_limit_starts_full() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.window("w", &[], 1, bucket(LONG, 50));
    limiter.take(json!({}), 50).allowed().uses("w", 50);
    limiter.check(json!({})).denied(&["w"]);
    limiter.window("even", &["b"], 3, json!({"type": "bucket", "per": LONG}));
    limiter.delete("/rules/w").is(204);
    limiter.take(json!({"b": 1}), 3).allowed();
    limiter.check(json!({"b": 1})).denied(&["even"]);
}

#[track_caller]
fn reset_is_within(limiter: &Limiter, rule: &str, per: u64) {
    for _ in 0..3 {
        let reply = limiter.check(json!({"a": 1})).allowed();
        let reset = reply.limit(rule)["reset_ms"].as_u64().unwrap_or_else(|| panic!("{}", reply.text));
        assert!((1..=per).contains(&reset), "{}", reply.text);
    }
}

#[test]
fn reset_is_within_the_window() {
    let server = Server::fresh();
    let kinds: [(&str, Value); 3] = [
        ("fixed", fixed(LONG)),
        ("sliding", sliding(LONG)),
        ("bucket", json!({"type": "bucket", "per": LONG})),
    ];
    for (kind, window) in kinds {
        let limiter = server.limiter_of(kind);
        limiter.window(kind, &["a"], 5, window);
        reset_is_within(&limiter, kind, 360 * 86_400_000);
    }
}

#[test]
fn a_window_is_from_a_millisecond_to_366_days() {
    let server = Server::fresh();
    let limiter = server.limiter();
    for (n, per) in [json!("1ms"), json!(1), json!("366d"), json!(31_622_400_000_u64)].into_iter().enumerate()
    {
        for kind in ["fixed", "sliding", "bucket"] {
            let rule = json!({"name": format!("{kind} {n}"), "group_by": [], "limit": 1_000_000,
                "window": {"type": kind, "per": per}});
            limiter.post("/rules", rule).created();
        }
    }
    limiter.check(json!({})).allowed();
    // In a namespace of its own: the rules above apply to everything.
    let limiter = server.limiter_of("huge");
    limiter.window("huge", &["h"], (1 << 53) - 1, bucket("366d", (1 << 53) - 1));
    limiter.take(json!({"h": 1}), (1 << 53) - 1).allowed();
    // So large a bucket has refilled some tokens by now, or not.
    let reply = limiter.check(json!({"h": 1}));
    assert!([200, 429].contains(&reply.status), "{}", reply.text);
}
