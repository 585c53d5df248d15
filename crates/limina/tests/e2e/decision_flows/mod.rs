//! Decisions over HTTP, and what needs a real process: crashes, hang-ups, crowds, the real clock. The semantics are tested by
//! the scripts in `crates/engine/tests/testdata/decisions`.

mod calls;
mod crashes;
mod crowds;
mod waits;

use crate::decisions::Decisions;
use crate::harness::Server;
use crate::limiter::{LONG, fixed};
use serde_json::{Value, json};

/// The limits of these tests, as an API gateway would have them: tokens of a tenant in a window, slots of a tenant, and
/// a budget.
#[track_caller]
fn gateway(server: &Server, tokens: i64, slots: i64, budget: i64) -> Decisions {
    let rule = |name: &str, limit: i64, window: Value| {
        let rule =
            json!({"name": name, "group_by": ["tenant"], "selection": {"meter": name}, "limit": limit});
        server.limiter().post("/rules", crate::ledger::with(rule, window)).created();
    };
    rule("tokens", tokens, json!({"window": fixed(LONG)}));
    rule("slots", slots, json!({}));
    server.ledger().create_with_ceiling("budget", budget);
    server.decisions()
}

/// An estimate of tokens and money, and a slot.
fn call(id: &str, tokens: u64, money: i64) -> Value {
    json!({
        "operation_id": id,
        "ttl": "1h",
        "checks": [
            {"name": "tokens", "key_values": {"tenant": "acme", "meter": "tokens"}, "hits": tokens, "estimate": true},
            {"key_values": {"tenant": "acme", "meter": "slots"}},
        ],
        "holds": [{"limit_name": "budget", "value": money}],
    })
}

/// The amounts that the call really used.
fn actual(tokens: u64, money: i64) -> Value {
    json!({"checks": [{"name": "tokens", "hits": tokens}], "holds": [{"limit_name": "budget", "value": money}]})
}

/// The tokens in the window, the slots in use, and what is committed and held of the budget.
#[track_caller]
fn used(server: &Server) -> (i64, i64, i64, i64) {
    let meter = |meter: &str| server.limiter().used(meter, json!({"tenant": "acme", "meter": meter}));
    let budget = server.ledger().limit("budget").ok().body;
    let value = |field: &str| budget[field].as_i64().expect("a value");
    (meter("tokens"), meter("slots"), value("commit_value"), value("hold_value"))
}
