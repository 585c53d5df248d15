//! Many clients use the same limits concurrently: the result is the same as in some sequential order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::harness::Server;
use crate::ledger::Ledger;
use crate::reply::{Reply, values_of};
use crate::shape::State;

/// Runs `count` clients that start at the same moment. Returns the result of each.
pub(crate) fn race<T: Send>(count: usize, client: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = std::sync::Barrier::new(count);
    std::thread::scope(|scope| {
        let racers: Vec<_> = (0..count)
            .map(|n| {
                let (client, start) = (&client, &start);
                scope.spawn(move || {
                    start.wait();
                    client(n)
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().expect("a client")).collect()
    })
}

fn count(replies: &[Reply], status: u16, code: &str) -> usize {
    replies.iter().filter(|reply| (reply.status, reply.code()) == (status, code)).count()
}

#[test]
fn as_many_holds_succeed_as_fit_under_a_ceiling() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_with_ceiling("tight", 1000);
    ledger.create("wide");
    let replies: Vec<Reply> = race(32, |client| {
        (0..10)
            .map(|n| ledger.hold(&format!("{client}-{n}"), &[("wide", 1), ("tight", 7)]))
            .collect::<Vec<_>>()
    })
    .into_iter()
    .flatten()
    .collect();
    // 142 × 7 = 994.
    assert_eq!((count(&replies, 200, ""), count(&replies, 409, "LimitExceeded")), (142, 178));
    ledger.values(&["tight", "wide"]).ok().value("tight", 0, 994).value("wide", 0, 142);
    ledger.hold("the rest", &[("tight", 6)]).ok();

    // Every hold saw another state, and the states follow the order of positions.
    let seen: BTreeMap<u64, i64> = replies
        .iter()
        .filter(|reply| reply.status == 200)
        .map(|reply| (reply.position(), values_of(&reply.body)[0].2))
        .collect();
    assert_eq!(seen.values().copied().collect::<Vec<_>>(), (1..=142).map(|n| n * 7).collect::<Vec<_>>());
}

#[test]
fn released_room_is_used_once() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_with_ceiling("tight", 5);
    let committed: i64 = race(16, |client| {
        let mut committed = 0;
        for n in 0..30 {
            let operation = format!("{client}-{n}");
            let held = ledger.hold(&operation, &[("tight", 1)]);
            if held.status == 409 {
                held.refused(409, "LimitExceeded");
                continue;
            }
            let total = values_of(&held.ok().body)[0].1 + 1;
            assert!(total <= 5, "{total} committed and held under a ceiling of 5");
            // A client commits its last hold, if that hold succeeds, and rolls back all others.
            if n == 29 {
                ledger.commit_all(&operation).ok();
                committed += 1;
            } else {
                ledger.rollback_all(&operation).ok();
            }
        }
        committed
    })
    .into_iter()
    .sum();
    assert!(committed <= 5);
    ledger.values(&["tight"]).ok().value("tight", committed, 0);
}

#[test]
fn concurrent_holds_of_one_operation_hold_once() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for round in 0..10 {
        let operation = format!("op-{round}");
        let replies = race(16, |_| ledger.hold(&operation, &[("a", 5)]));
        assert_eq!((count(&replies, 200, ""), count(&replies, 409, "DuplicateOperation")), (1, 15));
        ledger.values(&["a"]).ok().value("a", 0, (round + 1) * 5);
    }
    // With `skip`, all holds succeed, and all show the same values.
    let replies = race(16, |_| ledger.hold_skipping("skipping", &[("a", 5)]).ok());
    let first: Vec<&Reply> = replies.iter().filter(|reply| reply.body["skipped"] == json!([])).collect();
    assert_eq!(first.len(), 1, "one held it");
    for reply in &replies {
        reply.clone().same_view_as(first[0]);
    }
    ledger.values(&["a"]).ok().value("a", 0, 55);
}

#[test]
fn concurrent_holds_create_one_limit() {
    let server = Server::fresh();
    let ledger = server.ledger();
    for round in 0..10 {
        let replies = race(16, |_| ledger.post("/limits", json!({"name": format!("raced-{round}")})));
        assert_eq!((count(&replies, 201, ""), count(&replies, 409, "DuplicateLimitName")), (1, 15));
    }
    // Many holds create the limit at the same time. There is one limit, and it has all of them.
    race(16, |n| {
        let change = json!({"limit_name": "made", "value": 1});
        ledger
            .post(
                "/hold",
                json!({"operation_id": n.to_string(), "changes": [change], "create_missing": true}),
            )
            .ok()
    });
    ledger.values(&["made"]).ok().value("made", 0, 16);
}

#[test]
fn commit_and_rollback_race_and_one_wins() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    let mut committed = 0;
    for round in 0..20 {
        let operation = format!("op-{round}");
        ledger.hold(&operation, &[("a", 1), ("b", -1)]).ok();
        let replies = race(8, |n| match n % 2 {
            0 => ledger.commit_all(&operation),
            _ => ledger.rollback_all(&operation),
        });
        let winners: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 200).collect();
        assert_eq!((winners.len(), count(&replies, 404, "OperationNotFound")), (4, 4), "one side, repeated");
        for winner in &winners {
            (*winner).clone().same_view_as(winners[0]);
        }
        let states: BTreeSet<State> = ledger.states(&operation).into_iter().map(|(_, state)| state).collect();
        committed += i64::from(states.contains(&State::Committed));
        assert_eq!(states.len(), 1, "{states:?}");
    }
    ledger.values(&["a", "b"]).ok().value("a", committed, 0).value("b", -committed, 0);
}

#[test]
fn limits_held_crosswise_never_deadlock() {
    let server = Server::fresh();
    let ledger = server.ledger();
    let names: Vec<String> = (0..6).map(|n| format!("limit-{n}")).collect();
    for name in &names {
        ledger.create(name);
    }
    race(16, |client| {
        let mut order: Vec<&str> = names.iter().map(String::as_str).collect();
        order.rotate_left(client % 6);
        if client % 2 == 1 {
            order.reverse();
        }
        for n in 0..25 {
            let operation = format!("{client}-{n}");
            let changes: Vec<(&str, i64)> = order.iter().map(|name| (*name, 1)).collect();
            let held = ledger.hold(&operation, &changes).ok();
            one_state_of_all(&held);
            match n % 2 {
                0 => one_state_of_all(&ledger.commit_all(&operation).ok()),
                _ => one_state_of_all(&ledger.rollback_all(&operation).ok()),
            }
        }
    });
    // 16 clients committed 13 each.
    for name in &names {
        ledger.values(&[name]).ok().value(name, 208, 0);
    }
}

/// All six limits always change together, so every answer shows the same value for all of them.
#[track_caller]
fn one_state_of_all(reply: &Reply) {
    let states: BTreeSet<(i64, i64)> =
        values_of(&reply.body).into_iter().map(|(_, commit, hold)| (commit, hold)).collect();
    assert_eq!(states.len(), 1, "torn: {}", reply.text);
}

#[test]
fn readers_see_whole_operations_in_order() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["from", "to"]);
    race(8, |client| match client {
        0..4 => {
            for n in 0..40 {
                let operation = format!("{client}-{n}");
                ledger.hold(&operation, &[("from", -1), ("to", 1)]).ok();
                ledger.commit_all(&operation).ok();
            }
        }
        _ => read_along(&ledger),
    });
    ledger.values(&["from", "to"]).ok().value("from", -160, 0).value("to", 160, 0);
}

/// An amount that leaves one limit is in the other one at every moment, and no reader sees an older state than before.
fn read_along(ledger: &Ledger) {
    let mut last = 0;
    for _ in 0..80 {
        let now = ledger.values(&["from", "to"]).ok();
        let values = values_of(&now.body);
        assert_eq!((values[0].1 + values[1].1, values[0].2 + values[1].2), (0, 0), "torn: {}", now.text);
        assert!(now.position() >= last, "went back from {last}: {}", now.text);
        last = now.position();
    }
}

/// A namespace is deleted while clients use it: each request is executed before or after the deletion, and nothing
/// remains.
#[test]
fn a_namespace_is_deleted_under_load() {
    let server = Server::fresh();
    let (ledger, http, namespace) = (server.ledger_of("brief"), server.http(), server.url("/v1/ns/brief"));
    race(8, |client| {
        let mut last = 0;
        for n in 0..40 {
            if client == 0 {
                if n % 4 == 0 {
                    let reply = Reply::to(http.delete(&namespace));
                    assert!([200, 204, 404].contains(&reply.status), "{} {}", reply.status, reply.text);
                }
                continue;
            }
            let change = json!({"limit_name": "a", "value": 1});
            let operation = format!("{client}-{n}");
            let request = json!({"operation_id": operation, "changes": [change], "create_missing": true});
            let held = ledger.post("/hold", request).ok();
            assert!(held.position() > last, "went back from {last}: {}", held.text);
            last = held.position();
            let done = ledger.commit_all(&operation);
            if done.status != 200 {
                done.refused(404, "OperationNotFound");
            }
        }
    });
    let change = json!({"limit_name": "a", "value": 1});
    ledger.post("/hold", json!({"operation_id": "last", "changes": [change], "create_missing": true})).ok();
    let now = ledger.values(&["a"]).ok();
    let (_, commit, hold) = values_of(&now.body).remove(0);
    assert_eq!(crate::shape::sum(&ledger.entries("a")), (commit, hold));
}
