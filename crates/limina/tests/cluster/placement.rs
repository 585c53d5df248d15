//! Who owns what when nodes come and go, and that nobody notices where it is done cleanly.

use crate::cluster::{Cluster, LONG, SHORT, SOON, View, metric, settle};
use crate::harness::eventually;
use crate::traffic::steady;

/// How many shards the node had read before it got them, so that only the tails of their journals were left to read.
const PREPARED: &str = "limina_cluster_shards_prepared_total";

#[test]
fn each_node_has_its_share_and_all_agree() {
    let mut cluster = Cluster::of(3, LONG);
    let before = View::of(&cluster[0]).expect("a view").epochs;
    let fourth = cluster.join();
    cluster.settle_within(SOON, &[0, 1, 2, fourth]);
    cluster.node(1).stop();
    cluster.settle_within(SOON, &[0, 2, fourth]);
    cluster.node(1).start_again();
    cluster.settle_within(SOON, &[0, 1, 2, fourth]);
    let after = View::of(&cluster[0]).expect("a view").epochs;
    assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "{before:?} then {after:?}");
    assert_ne!(before, after, "shards moved under the same epochs");
}

#[test]
fn a_node_joins_and_no_client_notices() {
    let mut cluster = Cluster::of(3, LONG);
    let (third, rest) = cluster.apart(2);
    third.stop();
    settle(SOON, &rest);
    let (longest, ()) = steady(&rest, || {
        third.start_again();
        settle(SOON, &[rest[0], rest[1], third]);
    });
    assert!(longest < SOON, "a request took {longest:?}, as if it waited for a tenure");
    // On a machine that stands still for seconds, some shards move unprepared.
    assert!(metric(third, PREPARED) > 0.0, "no shard was read before it was handed over");
}

#[test]
fn a_clean_stop_is_noticed_by_nobody_who_asks_elsewhere() {
    let mut cluster = Cluster::of(3, LONG);
    let (first, rest) = cluster.apart(0);
    let prepared = || -> f64 { rest.iter().map(|node| metric(node, PREPARED)).sum() };
    let before = prepared();
    let (longest, ()) = steady(&rest, || {
        first.stop();
        settle(SOON, &rest);
    });
    assert!(longest < SOON, "a request took {longest:?}, as if it waited for a tenure");
    assert!(prepared() > before, "no shard was read before it was handed over");
}

/// Its old tenure still lasts when it starts again, and nobody renews it.
#[test]
fn a_node_that_starts_again_takes_its_address_over() {
    let mut cluster = Cluster::of(2, SHORT);
    cluster.node(1).kill();
    cluster.node(1).start_again();
    cluster.settle(&[0, 1]);
}

#[test]
fn the_log_tells_what_moved_and_why() {
    let mut cluster = Cluster::of(2, SHORT);
    cluster.node(1).kill();
    cluster.settle(&[0]);
    says(&cluster, 0, "taking a shard over: nobody serves it");
    cluster.node(1).start_again();
    cluster.settle(&[0, 1]);
    says(&cluster, 0, "giving a shard away");
    cluster.node(0).stop();
    cluster.settle(&[1]);
}

#[track_caller]
fn says(cluster: &Cluster, node: usize, line: &str) {
    let said = eventually(|| cluster[node].log().contains(line).then_some(()));
    assert!(said.is_some(), "{line:?} is not in:\n{}", cluster[node].log());
}
