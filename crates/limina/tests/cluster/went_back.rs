//! The database goes back to an older state while nodes run, as after the promotion of a standby that lacked appends,
//! or after a restored dump.

use serde_json::json;

use crate::cluster::{Cluster, SHORT, metric};
use crate::events::LONG as DAY;
use crate::harness::eventually;
use crate::locks::exclusive;
use crate::setup::execute;
use crate::sse::Sse;
use crate::stomp::Follower;

/// The tables with everything that nodes have written.
const TABLES: [&str; 5] = ["node", "shard", "journal", "record", "filter"];

const STREAM: &str = "s";

fn reach((sse, follower): &mut (Sse, Follower), clock: u64) {
    while follower.clock < clock {
        follower.fold(sse.push());
    }
}

/// The nodes serve the state of the database, at once and without a restart, and no fencing token is given out twice.
#[test]
fn nodes_serve_the_older_state_and_repeat_no_token() {
    let mut cluster = Cluster::of(2, SHORT);
    let store = cluster.store().to_owned();
    let namespaces = [cluster.namespace_of(0), cluster.namespace_of(1)];
    for (node, namespace) in namespaces.iter().enumerate() {
        let ledger = cluster[node].ledger_of(namespace);
        ledger.create("a");
        ledger.hold("early", &[("a", 1)]).ok();
    }
    let events = cluster[0].events_of(&namespaces[1]);
    events.only_once(STREAM, DAY);
    events.accept(STREAM, "early");
    let path = format!("/v1/ns/{}/events/{STREAM}/stream", namespaces[1]);
    let mut followers = [0, 1].map(|node| (Sse::open(&cluster[node], &path, None), Follower::default()));
    let copies = TABLES.map(|table| format!("CREATE TABLE saved.{table} AS TABLE limina.{table};"));
    execute(&store, &format!("CREATE SCHEMA saved; {}", copies.concat()));
    let lost = namespaces.each_ref().map(|namespace| {
        cluster[0].ledger_of(namespace).hold("late", &[("a", 2)]).ok();
        cluster[1].locks_of(namespace).grant(exclusive(json!({"k": 1})))
    });
    let clock = events.accept(STREAM, "late").clock;
    followers.iter_mut().for_each(|follower| reach(follower, clock));
    let copies = TABLES
        .map(|table| format!("DELETE FROM limina.{table}; INSERT INTO limina.{table} TABLE saved.{table};"));
    let lock = "LOCK TABLE limina.node, limina.shard, limina.journal, limina.record, limina.filter";
    execute(&store, &format!("BEGIN; {lock}; {} COMMIT", copies.concat()));

    // The nodes notice although no client sends a request.
    let restores = |node: usize| metric(&cluster[node], "limina_database_restores_total");
    let noticed = eventually(|| (restores(0) >= 1.0 && restores(1) >= 1.0).then_some(()));
    assert!(noticed.is_some(), "{} and {}", restores(0), restores(1));
    for node in 0..2 {
        let appends = metric(&cluster[node], "limina_database_lost_appends_total");
        let positions = metric(&cluster[node], "limina_database_lost_positions_total");
        assert!(appends >= 2.0 && positions >= 2.0, "{appends} and {positions}");
        let log = cluster[node].log();
        let lines =
            log.lines().filter(|line| line.contains("the database has gone back to an older state")).count();
        assert_eq!(lines as f64, restores(node), "{log}");
    }
    cluster.settle(&[0, 1]);
    for (namespace, lost) in namespaces.iter().zip(&lost) {
        for node in 0..2 {
            cluster[node].ledger_of(namespace).values(&["a"]).ok().value("a", 0, 1);
        }
        let again = cluster[0].locks_of(namespace).grant(exclusive(json!({"k": 1})));
        assert!(again.token > lost.token + (1 << 39), "{} after {}", again.token, lost.token);
        cluster[1].ledger_of(namespace).hold("late", &[("a", 4)]).ok();
    }
    // Each follower gets one key frame, which does not contain the lost event.
    let clock = events.accept(STREAM, "later").clock;
    for follower in &mut followers {
        reach(follower, clock);
        let (_, Follower { incubating, jumps, .. }) = follower;
        assert_eq!(
            (incubating.keys().map(String::as_str).collect::<Vec<_>>(), *jumps),
            (vec!["early", "later"], 1)
        );
    }
    drop(followers);
    for node in 0..2 {
        cluster.node(node).crash_and_restart();
    }
    cluster.settle(&[0, 1]);
    for namespace in &namespaces {
        cluster[0].ledger_of(namespace).values(&["a"]).ok().value("a", 0, 5);
    }
}
