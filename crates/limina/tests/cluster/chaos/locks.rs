//! Locks: there are never two holders at once, tokens only grow, and at the end exactly the acknowledged grants are
//! held.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::Client;
use crate::ledger::encode;
use crate::locks::{Grant, Locks, exclusive, release_path};

const KEYS: u64 = 3;

const TTL: Duration = Duration::from_secs(2);

/// A grant lives for at least this long after its request was sent. Shard time may be slewed by 5 %.
const SURE: Duration = Duration::from_millis(1_800);

/// A grant of a contended lock: when the client learned of the grant, and the earliest time at which it may have ended.
#[derive(Debug, Clone)]
struct Held {
    key: u64,
    token: u64,
    asked: Instant,
    from: Instant,
    until: Instant,
}

/// What one client was granted.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    held: Vec<Held>,
    /// Locks that no other client requests, and that are never released.
    kept: BTreeSet<String>,
}

pub(crate) fn work(mut client: Client<'_>) -> Grants {
    let mut told = Grants::default();
    while client.round.go_on() {
        match client.random.below(5) {
            0 => {
                let n = told.kept.len();
                let request = exclusive(json!({"of": client.name, "n": n}));
                let grant = client.retry("POST", "/locks", &request).reply.granted();
                assert!(told.kept.insert(grant.lock_id), "a grant was told twice");
            }
            _ => told.held.extend(hold(&mut client)),
        }
        client.round.rest();
    }
    told
}

/// Waits for a lock, extends it with heartbeats, and usually releases it.
fn hold(client: &mut Client<'_>) -> Option<Held> {
    let key = client.random.below(KEYS);
    let body = json!({"key_values": {"wanted": key}, "ttl_ms": TTL.as_millis() as u64, "wait": "500ms"});
    let asked = Instant::now();
    let reply = client.once("POST", "/locks", &body)?;
    if reply.status == 409 {
        assert!(["LockHeld", "LockWaitTimeout"].contains(&reply.code()), "{}", reply.text);
        return None;
    }
    let grant = reply.granted();
    let mut held = Held { key, token: grant.token, asked, from: Instant::now(), until: asked + SURE };
    for _ in 0..client.random.below(4) {
        client.round.rest();
        heartbeat(client, &grant, &mut held);
    }
    if client.random.below(8) != 0 {
        release(client, &grant, &mut held);
    }
    Some(held)
}

fn heartbeat(client: &mut Client<'_>, grant: &Grant, held: &mut Held) {
    let path = format!("/locks/{}/heartbeat", encode(&grant.lock_id));
    let sent = Instant::now();
    let Some(reply) = client.once("POST", &path, &json!({"session_id": grant.session_id})) else { return };
    if reply.status == 404 {
        assert!(Instant::now() > held.until, "an acknowledged lock is gone: {held:?}: {}", reply.text);
        return;
    }
    reply.ok();
    held.until = sent + SURE;
}

fn release(client: &mut Client<'_>, grant: &Grant, held: &mut Held) {
    let lasted = held.until;
    held.until = held.until.min(Instant::now());
    let path = format!("/locks{}", release_path(&grant.lock_id, &grant.session_id));
    let Some(reply) = client.once("DELETE", &path, &Value::Null) else { return };
    let in_time = Instant::now() < lasted;
    assert!(reply.status == 204 || !in_time, "an acknowledged lock is gone: {held:?}: {}", reply.text);
}

#[track_caller]
pub(crate) fn check(locks: &Locks, told: &[Grants]) {
    let mut held: Vec<&Held> = told.iter().flat_map(|told| &told.held).collect();
    held.sort_by_key(|held| held.token);
    in_order(&held);
    for key in 0..KEYS {
        one_at_a_time(held.iter().copied().filter(|held| held.key == key));
    }
    let kept: BTreeSet<String> = told.iter().flat_map(|told| told.kept.iter().cloned()).collect();
    let found: BTreeSet<String> = locks
        .query(&json!({"where": {"of": {"exists": true}}}), 1000)
        .iter()
        .map(|item| item["lock_id"].as_str().expect("`lock_id`").to_owned())
        .collect();
    assert_eq!(found, kept, "locks that were kept");
}

/// Checks, for any two grants, that the request of the one with the smaller token was not sent after the other grant
/// was known.
#[track_caller]
fn in_order(held: &[&Held]) {
    let Some(mut latest) = held.first() else { panic!("no lock was ever granted") };
    for next in &held[1..] {
        assert!(latest.token < next.token, "a token twice: {latest:?} and {next:?}");
        assert!(latest.asked < next.from, "a token went back: {latest:?} and {next:?}");
        if next.asked > latest.asked {
            latest = next;
        }
    }
}

/// Checks that no client was granted the lock while an earlier grant certainly lived.
#[track_caller]
fn one_at_a_time<'a>(mut held: impl Iterator<Item = &'a Held>) {
    let Some(mut longest) = held.next() else { return };
    for next in held {
        assert!(longest.until <= next.from, "two holders at once: {longest:?} and {next:?}");
        if next.until > longest.until {
            longest = next;
        }
    }
}
