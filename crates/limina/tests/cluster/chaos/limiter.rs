//! Counters, windows and leases: usage never exceeds a limit, and at the end it is exactly what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

use super::client::Client;
use crate::limiter::{LONG, Lease, Limiter, check_limits, limits_of};

const SLOTS: i64 = 4;
const WINDOW: i64 = 60;

/// What all clients together certainly hold at this moment.
#[derive(Default)]
pub(crate) struct InUse {
    counted: AtomicI64,
    leased: AtomicI64,
}

/// All answers that one client received.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    name: String,
    counted: i64,
    checked: i64,
    leases: BTreeSet<Lease>,
}

#[track_caller]
pub(crate) fn make(client: &mut Client<'_>) {
    let window = json!({"type": "fixed", "per": LONG});
    for rule in [
        json!({"name": "counted", "group_by": ["counted"], "limit": SLOTS}),
        json!({"name": "leased", "group_by": ["leased"], "limit": SLOTS}),
        json!({"name": "checked", "group_by": ["checked"], "limit": WINDOW, "window": window, "durability": "durable"}),
    ] {
        client.retry("POST", "/limiter/rules", &rule).reply.created();
    }
}

pub(crate) fn work(mut client: Client<'_>, in_use: &InUse) -> Answers {
    let mut answers = Answers { name: client.name.clone(), ..Answers::default() };
    while client.round.go_on() {
        match client.random.below(5) {
            0 | 1 => count(&mut client, &mut answers, &in_use.counted),
            2 | 3 => lease(&mut client, &mut answers, &in_use.leased),
            _ => check_window(&mut client, &mut answers),
        }
        client.round.rest();
    }
    answers
}

/// Takes a slot, or gives back the slot that the client has.
fn count(client: &mut Client<'_>, answers: &mut Answers, surely: &AtomicI64) {
    let take = answers.counted == 0;
    let body = json!({"key_values": counter_of(&answers.name), "counters": if take { 1 } else { -1 }});
    if !take {
        surely.fetch_sub(1, Ordering::SeqCst);
    }
    let reply = client.retry("POST", "/limiter/counters", &body).reply;
    if take && reply.status == 409 {
        reply.not_counted(&["counted"]);
        return;
    }
    answers.counted += if take { 1 } else { -1 };
    within_limits(&reply.ok().body);
    if take {
        one_more(surely);
    }
}

fn lease(client: &mut Client<'_>, answers: &mut Answers, surely: &AtomicI64) {
    if let Some(lease) = answers.leases.pop_first() {
        surely.fetch_sub(1, Ordering::SeqCst);
        let ended = client.retry("DELETE", &format!("/limiter{}", lease.release_path()), &Value::Null);
        // An earlier attempt that got no answer may have ended the lease.
        let gone = ended.repeated && ended.reply.code() == "LeaseNotFound";
        assert!(gone || ended.reply.status == 204, "an acknowledged lease: {}", ended.reply.text);
        return;
    }
    let body = json!({"key_values": {"leased": 1, "by": answers.name}, "ttl": "1h"});
    let reply = client.retry("POST", "/limiter/leases", &body).reply;
    if reply.status == 429 {
        reply.denied(&["leased"]);
        return;
    }
    within_limits(&reply.clone().created().body);
    answers.leases.insert(reply.lease());
    one_more(surely);
}

fn check_window(client: &mut Client<'_>, answers: &mut Answers) {
    let body = json!({"key_values": {"checked": 1}});
    let reply = client.retry("POST", "/limiter/check", &body).reply;
    if reply.status == 429 {
        reply.denied(&["checked"]);
        return;
    }
    within_limits(&reply.allowed().body);
    answers.checked += 1;
}

fn counter_of(name: &str) -> Value {
    json!({"counted": 1, "by": name})
}

#[track_caller]
fn one_more(surely: &AtomicI64) {
    let now = surely.fetch_add(1, Ordering::SeqCst) + 1;
    assert!(now <= SLOTS, "{now} in use at once, and {SLOTS} allowed");
}

#[track_caller]
fn within_limits(body: &Value) {
    check_limits(body);
    for limit in limits_of(body) {
        assert!(limit["used"].as_i64() <= limit["limit"].as_i64(), "passed: {body}");
    }
}

/// Checks that at the end the usage is exactly what was acknowledged and not given back.
#[track_caller]
pub(crate) fn check(limiter: &Limiter, answers: &[Answers]) {
    let held: BTreeSet<&str> =
        answers.iter().flat_map(|answers| &answers.leases).map(|lease| lease.id.as_str()).collect();
    let leases = limiter.all("/leases", None, 1000);
    let found: BTreeSet<&str> = leases.iter().filter_map(|lease| lease["lease_id"].as_str()).collect();
    assert_eq!(found, held, "leases");
    assert_eq!(leases.len(), held.len(), "a lease came twice");

    let mut counted: BTreeMap<String, i64> =
        answers.iter().map(|answers| (counter_of(&answers.name).to_string(), answers.counted)).collect();
    counted.retain(|_, value| *value != 0);
    let mut found = limiter.in_use();
    found.retain(|key_values, _| key_values.contains("counted"));
    assert_eq!(found, counted, "counters");

    let checked: i64 = answers.iter().map(|answers| answers.checked).sum();
    assert_eq!(limiter.used("checked", json!({"checked": 1})), checked, "the window");
}
