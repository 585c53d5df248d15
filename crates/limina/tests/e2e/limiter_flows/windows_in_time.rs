//! Windows with the real clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::harness::{Server, eventually};
use crate::limiter::{bucket, fixed, sliding};

/// The error that rounding causes on both sides.
const SLACK: u64 = 15;

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
        // The window ends at a multiple of `per`.
        let (from, to) = (from + reset - SLACK, to + reset + SLACK);
        assert!(to / ms > (from - 1) / ms, "ends between {from} and {to}, not at a multiple of {ms}");
    }
}

/// After the time that the refusal states, the same check passes.
#[test]
fn waiting_for_retry_after_is_enough() {
    let server = Server::fresh();
    let kinds = [("fixed", fixed("300ms")), ("sliding", sliding("300ms")), ("bucket", bucket("300ms", 3))];
    for (kind, window) in kinds {
        let limiter = server.limiter_of(kind);
        limiter.window("w", &["a"], 3, window);
        for hits in [3, 1, 2] {
            let refused =
                eventually(|| Some(limiter.take(json!({"a": 1}), hits)).filter(|reply| reply.status == 429));
            let after = refused.expect("a refusal").retry_after_ms().expect("known");
            assert!(after <= 300, "{kind}: {after} of 300");
            // The client waits as long as the refusal says, which is its part of the contract.
            std::thread::sleep(Duration::from_millis(after + 1));
            let reply = limiter.take(json!({"a": 1}), hits);
            assert_eq!(reply.status, 200, "{kind}, {hits} hits, {after} ms later: {}", reply.text);
        }
    }
}
