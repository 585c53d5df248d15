//! Durations: a text with a unit, or milliseconds.

use serde_json::{Value, json};

use crate::harness::{Server, eventually};
use crate::ledger::{hold, with};
use crate::shape::State::{Held, RolledBack};

#[test]
fn durations_are_read() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for duration in [
        json!("10s"),
        json!("1m30s"),
        json!("24h"),
        json!("30d"),
        json!("1d12h"),
        json!("90000ms"),
        json!("600000ms"),
        json!(600_000),
    ] {
        let request = with(hold(&duration.to_string(), &[("a", 1)]), json!({"expires_after": duration}));
        let reply = ledger.post("/hold", request);
        assert_eq!(reply.status, 200, "{duration} → {}", reply.text);
    }
}

#[test]
fn what_is_no_duration_is_refused() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let bad: Vec<Value> = vec![
        json!(""),
        json!(" "),
        json!("10"),
        json!("s"),
        json!("ms"),
        json!("10x"),
        json!("10 parsecs"),
        json!("ten seconds"),
        json!("-10s"),
        json!("10s-5s"),
        json!("10s5"),
        json!("10ss"),
        json!("0x10s"),
        json!("1e3s"),
        json!("99999999999999999999999999d"),
        json!("18446744073709551615d"),
        json!(-1),
        json!(-1.5),
        json!(1e300),
        json!(true),
        json!(["10s"]),
        json!({"s": 10}),
    ];
    for duration in bad {
        let request = with(hold("op", &[("a", 1)]), json!({"expires_after": duration}));
        let reply = ledger.post("/hold", request);
        assert_eq!(reply.status, 400, "{duration} → {}", reply.text);
        reply.invalid("expires_after");
    }
    ledger.values(&["a"]).ok().value("a", 0, 0);
}

/// The unit counts: of these, all but the last are over within the test.
#[test]
fn units_mean_what_they_say() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let short = [json!("250ms"), json!(250), json!("1s"), json!("1s250ms")];
    for duration in &short {
        let request = with(hold(&duration.to_string(), &[("a", 1)]), json!({"expires_after": duration}));
        ledger.post("/hold", request).ok();
    }
    let long = [json!("250m"), json!("250s"), json!(250_000), json!("1h"), json!("1d")];
    for duration in &long {
        let request = with(hold(&duration.to_string(), &[("a", 100)]), json!({"expires_after": duration}));
        ledger.post("/hold", request).ok();
    }
    for duration in &short {
        let over = eventually(|| (ledger.states(&duration.to_string())[0].1 == RolledBack).then_some(()));
        assert!(over.is_some(), "{duration} is not over");
    }
    for duration in &long {
        assert_eq!(ledger.states(&duration.to_string())[0].1, Held, "{duration}");
    }
}
