//! Many clients on one budget, one window and a few slots.

use super::{call, gateway, used};
use crate::concurrency::race;
use crate::harness::{Server, eventually};
use crate::ledger::with;
use crate::load::Random;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};

/// 200 clients reserve an estimate and settle what they really used, which is often more or less. The real amounts are
/// booked. Never more than five slots are in use. No window and no ceiling is exceeded, except by what clients record.
#[test]
fn actual_amounts_are_booked_under_load() {
    const SLOTS: i64 = 5;
    const TOKENS: i64 = 15_000;
    const BUDGET: i64 = 1_700;
    let server = Server::fresh();
    let decisions = gateway(&server, TOKENS, SLOTS, BUDGET);
    let inside = AtomicI64::new(0);
    let taken = race(200, |client| {
        let mut random = Random::new(client as u64 + 1);
        let request = with(call(&format!("c-{client}"), 100, 10), json!({"wait": "5m"}));
        let made = loop {
            let made = decisions.decide(&request);
            if made.status == 200 {
                break made;
            }
            // Requests do not wait for a window or a ceiling. A client that only lacked a slot tries again.
            let status = if made.body["limits"] == json!([]) { 409 } else { 429 };
            let made = made.refused(status, "Refused");
            let limits = made.body["limits"].as_array().expect("limits");
            if limits.iter().any(|limit| limit["rule"] == "tokens") || made.body["holds"] != json!([]) {
                return None;
            }
        };
        assert!(inside.fetch_add(1, Ordering::SeqCst) < SLOTS, "more are inside than there are slots");
        assert!(made.body["limits"][0]["used"].as_i64().unwrap() <= TOKENS, "{}", made.text);
        assert!(made.body["values"][0]["total_value"].as_i64().unwrap() <= BUDGET, "{}", made.text);
        let (tokens, money) = (random.below(160), random.below(16) as i64);
        let amounts = with(super::actual(tokens, money), json!({"record": money > 10}));
        inside.fetch_sub(1, Ordering::SeqCst);
        decisions.commit(&format!("c-{client}"), &amounts).ok();
        Some((tokens as i64, money))
    });
    let taken: Vec<(i64, i64)> = taken.into_iter().flatten().collect();
    let (tokens, money) = taken.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(used(&server), (tokens, 0, money, 0), "of {} clients", taken.len());
    // Most clients got in, and the window or the budget refused some: otherwise this tests nothing.
    assert!((100..200).contains(&taken.len()), "{} clients got in", taken.len());
    assert_eq!(decisions.open(""), [""; 0]);
}

/// Decisions that no client ends expire, and leave nothing behind.
#[test]
fn ten_thousand_expired_decisions_leave_nothing() {
    const BATCH: usize = 2_500;
    let server = Server::fresh();
    let decisions = gateway(&server, 1_000_000_000, 1_000_000, 1_000_000);
    for batch in 0..4 {
        let forgotten = |n: usize| {
            let more = json!({"ttl": format!("{}ms", 100 + n / 10), "locks": [{"key_values": {"batch": batch, "n": n}}]});
            with(call(&format!("{batch}-{n}"), 7, 3), more)
        };
        let made = decisions.batch("/batch", (0..BATCH).map(forgotten).collect());
        let refused: Vec<&Value> = made.iter().filter(|result| result["status"] != 200).collect();
        assert_eq!(refused, [&Value::Null; 0]);
    }
    let gone = eventually(|| decisions.open("").is_empty().then_some(()));
    assert!(gone.is_some(), "decisions stay open: {:?}", decisions.open(""));
    assert_eq!(used(&server), (0, 0, 0, 0));
    assert_eq!(server.locks().all(10), [Value::Null; 0]);
    assert_eq!(server.limiter().all("/leases", None, 10), [Value::Null; 0]);
    decisions.get("0-0").ok().has("state", "expired");
    decisions.rollback("3-7").ok().has("state", "expired");
    let metrics = server.get("/metrics").ok().text;
    assert!(metrics.contains("\nlimina_decisions_open 0\n"), "open decisions in the metrics");
    assert!(metrics.contains("\nlimina_decisions_expired_total 10000\n"), "expired decisions in the metrics");
}
