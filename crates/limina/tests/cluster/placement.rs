//! Which node owns which shard when nodes join and leave, and that clients notice no clean move.

use crate::cluster::{Cluster, LONG, SHORT, SOON, View, metric, settle};
use crate::harness::eventually;
use crate::traffic::steady;

/// The number of shards that the node had read before it owned them, so that only the ends of their journals were left
/// to read.
const PREPARED: &str = "limina_cluster_shards_prepared_total";

#[test]
fn nodes_get_equal_shares_and_agree() {
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
fn clients_do_not_notice_a_join() {
    let mut cluster = Cluster::of(3, LONG);
    let (third, rest) = cluster.apart(2);
    third.stop();
    settle(SOON, &rest);
    let (longest, ()) = steady(&rest, || {
        third.start_again();
        settle(SOON, &[rest[0], rest[1], third]);
    });
    assert!(longest < SOON, "a request took {longest:?}, as if it waited for a tenure");
    // On a machine that stalls for seconds, some shards move unprepared.
    assert!(metric(third, PREPARED) > 0.0, "no shard was read before it was handed over");
}

#[test]
fn clients_of_other_nodes_do_not_notice_a_clean_stop() {
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

/// The node's old tenure has not expired when the node starts again, and no process renews it.
#[test]
fn a_restarted_node_takes_over_its_address() {
    let mut cluster = Cluster::of(2, SHORT);
    cluster.node(1).kill();
    cluster.node(1).start_again();
    cluster.settle(&[0, 1]);
}

#[test]
fn the_log_explains_moves_of_shards() {
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
