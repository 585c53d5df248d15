//! Counters, windows and leases: never more than a limit allows, and in the end exactly what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

use super::client::Client;
use crate::limiter::{LONG, Lease, Limiter, check_limits, limits_of};

const SLOTS: i64 = 4;
const WINDOW: i64 = 60;

/// What all clients together surely have at this moment.
#[derive(Default)]
pub(crate) struct InUse {
    counted: AtomicI64,
    leased: AtomicI64,
}

/// What one client was told in all.
#[derive(Debug, Default)]
pub(crate) struct Told {
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
        client.insist("POST", "/limiter/rules", &rule).reply.created();
    }
}

pub(crate) fn work(mut client: Client<'_>, in_use: &InUse) -> Told {
    let mut told = Told { name: client.name.clone(), ..Told::default() };
    while client.front.go_on() {
        match client.random.below(5) {
            0 | 1 => count(&mut client, &mut told, &in_use.counted),
            2 | 3 => lease(&mut client, &mut told, &in_use.leased),
            _ => check_window(&mut client, &mut told),
        }
        client.front.rest();
    }
    told
}

/// Takes a slot, or gives back the one that it has.
fn count(client: &mut Client<'_>, told: &mut Told, surely: &AtomicI64) {
    let take = told.counted == 0;
    let body = json!({"key_values": counter_of(&told.name), "counters": if take { 1 } else { -1 }});
    if !take {
        surely.fetch_sub(1, Ordering::SeqCst);
    }
    let reply = client.insist("POST", "/limiter/counters", &body).reply;
    if take && reply.status == 409 {
        reply.not_counted(&["counted"]);
        return;
    }
    told.counted += if take { 1 } else { -1 };
    within_limits(&reply.ok().body);
    if take {
        one_more(surely);
    }
}

fn lease(client: &mut Client<'_>, told: &mut Told, surely: &AtomicI64) {
    if let Some(lease) = told.leases.pop_first() {
        surely.fetch_sub(1, Ordering::SeqCst);
        let ended = client.insist("DELETE", &format!("/limiter{}", lease.release_path()), &Value::Null);
        // An attempt that got no answer may have ended it.
        let gone = ended.repeated && ended.reply.code() == "LeaseNotFound";
        assert!(gone || ended.reply.status == 204, "an acknowledged lease: {}", ended.reply.text);
        return;
    }
    let body = json!({"key_values": {"leased": 1, "by": told.name}, "ttl": "1h"});
    let reply = client.insist("POST", "/limiter/leases", &body).reply;
    if reply.status == 429 {
        reply.denied(&["leased"]);
        return;
    }
    within_limits(&reply.clone().created().body);
    told.leases.insert(reply.lease());
    one_more(surely);
}

fn check_window(client: &mut Client<'_>, told: &mut Told) {
    let body = json!({"key_values": {"checked": 1}});
    let reply = client.insist("POST", "/limiter/check", &body).reply;
    if reply.status == 429 {
        reply.denied(&["checked"]);
        return;
    }
    within_limits(&reply.allowed().body);
    told.checked += 1;
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

/// In the end, what is in use is what was acknowledged and not given back.
#[track_caller]
pub(crate) fn check(limiter: &Limiter, told: &[Told]) {
    let held: BTreeSet<&str> =
        told.iter().flat_map(|told| &told.leases).map(|lease| lease.id.as_str()).collect();
    let leases = limiter.all("/leases", None, 1000);
    let found: BTreeSet<&str> = leases.iter().filter_map(|lease| lease["lease_id"].as_str()).collect();
    assert_eq!(found, held, "leases");
    assert_eq!(leases.len(), held.len(), "a lease came twice");

    let mut counted: BTreeMap<String, i64> =
        told.iter().map(|told| (counter_of(&told.name).to_string(), told.counted)).collect();
    counted.retain(|_, value| *value != 0);
    let mut found = limiter.in_use();
    found.retain(|key_values, _| key_values.contains("counted"));
    assert_eq!(found, counted, "counters");

    let checked: i64 = told.iter().map(|told| told.checked).sum();
    assert_eq!(limiter.used("checked", json!({"checked": 1})), checked, "the window");
}
