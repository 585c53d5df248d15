//! A node dies: nothing that was acknowledged is lost, and the other nodes continue to serve.

use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::json;

use crate::cluster::{Cluster, LONG, SHORT, SOON, retry};
use crate::compare::timeless;
use crate::events;
use crate::harness::{Server, eventually};
use crate::ledger::encode;
use crate::limiter::{self, fixed};
use crate::load::{self, Operation, Progress};
use crate::locks::exclusive;

/// All clients together get this many answers before the disturbance.
const SOME: usize = 100;

/// Runs clients through these nodes, disturbs the cluster while they work, and returns what each client was answered.
#[track_caller]
pub(crate) fn at_work(
    nodes: &[&Server],
    namespace: &str,
    name: &str,
    happens: impl FnOnce(),
) -> Vec<Operation> {
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for (n, node) in nodes.iter().enumerate() {
            let (ledger, name, progress) = (node.ledger_of(namespace), format!("{name}-{n}"), &progress);
            clients.push(scope.spawn(move || load::client(&ledger, &name, n as u64 + 1, progress)));
        }
        let busy = eventually(|| (progress.done.load(Ordering::Relaxed) >= SOME).then_some(()));
        happens();
        progress.stop.store(true, Ordering::Relaxed);
        let operations = clients.into_iter().flat_map(|client| client.join().expect("a client")).collect();
        assert!(busy.is_some(), "the clients hung: {operations:?}");
        operations
    })
}

#[test]
fn acknowledged_writes_survive_the_death_of_the_owner() {
    let mut cluster = Cluster::of(3, SHORT);
    let namespace = cluster.namespace_of(1);
    load::make_limits(&cluster[0].ledger_of(&namespace));
    let (owner, rest) = cluster.apart(1);
    let clients = [rest[0], rest[1], rest[0], rest[1]];
    let mut operations = at_work(&clients, &namespace, "before", || owner.kill());

    let ledger = rest[0].ledger_of(&namespace);
    retry(|| ledger.request("GET", "/limits")).ok();
    operations.extend(at_work(&clients, &namespace, "after", || {}));
    load::verify(&ledger, &mut operations);

    owner.start_again();
    cluster.settle(&[0, 1, 2]);
    load::verify(&cluster[1].ledger_of(&namespace), &mut operations);
}

/// The database notices at once that the owner's connections are gone, so no client waits for the long tenure. For the
/// same reason a process that is killed and started again gets its address back at once.
#[test]
fn a_node_that_dies_is_replaced_before_its_tenure_expires() {
    let mut cluster = Cluster::of(3, LONG);
    let namespace = cluster.namespace_of(1);
    load::make_limits(&cluster[0].ledger_of(&namespace));
    let (owner, rest) = cluster.apart(1);
    owner.kill();
    let start = Instant::now();
    retry(|| rest[0].ledger_of(&namespace).request("GET", "/limits")).ok();
    let interruption = start.elapsed();
    println!("interrupted for {interruption:?} by a death");
    assert!(interruption < SOON, "{interruption:?}, as if it waited for a tenure");
    owner.start_again();
    cluster.settle_within(SOON, &[0, 1, 2]);
    cluster.node(1).kill();
    cluster.node(1).start_again();
    cluster.settle_within(SOON, &[0, 1, 2]);
}

/// Each family shows the same state before and after the death, through any node.
#[test]
fn all_families_survive_a_death() {
    let mut cluster = Cluster::of(3, SHORT);
    let namespace = cluster.namespace_of(0);
    let paths = fill(&cluster[1], &namespace);
    let (owner, rest) = cluster.apart(0);
    let ask = |node: &Server, path: &str| {
        timeless(retry(|| node.http().get(node.url(&format!("/v1/ns/{namespace}{path}")))).ok())
    };
    let before: Vec<_> = paths.iter().map(|path| ask(rest[0], path)).collect();
    owner.kill();
    for node in rest {
        let after: Vec<_> = paths.iter().map(|path| ask(node, path)).collect();
        assert_eq!(after, before);
    }
}

/// Creates something in every family, and returns the paths that show it.
#[track_caller]
fn fill(node: &Server, namespace: &str) -> Vec<String> {
    let ledger = node.ledger_of(namespace);
    ledger.create("a");
    ledger.hold("held", &[("a", 1)]).ok();
    ledger.hold("done", &[("a", 2)]).ok();
    ledger.commit_all("done").ok();
    let limiter = node.limiter_of(namespace);
    limiter.rule("uses", &["k"], 9);
    limiter.window("durable", &["w"], 9, fixed(limiter::LONG));
    limiter.patch("/rules/durable", json!({"durability": "durable"})).ok();
    limiter.take(json!({"k": 1, "w": 1}), 3).allowed();
    limiter.override_of("uses", "more", json!({"k": 2}), 20);
    let lease = limiter.lease(json!({"k": 1}), 2, "1h").created().lease();
    let grant = node.locks_of(namespace).grant(exclusive(json!({"k": 1})));
    let events = node.events_of(namespace);
    events.strictly_once("s", events::LONG);
    events.accept("s", "one");
    events.accept("s", "two");
    events.submit("s", "two").conflict(true);
    let lease = format!("/limiter/leases/{}", encode(&lease.id));
    let lock = format!("/locks/{}", encode(&grant.lock_id));
    let fixed = [
        "/ledger/limits/a",
        "/ledger/limits/a/entries",
        "/ledger/operations/held",
        "/ledger/operations/done",
        "/limiter/rules",
        "/limiter/rules/uses/overrides",
        "/events/s",
        "/events/s/incubating",
    ];
    fixed.into_iter().map(str::to_owned).chain([lease, lock]).collect()
}
