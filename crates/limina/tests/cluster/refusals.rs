//! `/v1/refusals/stream` of any node shows the refusals of all nodes, each of them once.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cluster::{Cluster, LONG};
use crate::sse::Sse;

#[test]
fn every_node_shows_the_refusals_of_all_nodes() {
    let cluster = Cluster::of(3, LONG);
    let namespace = cluster.namespace_of(1);
    cluster[0].ledger_of(&namespace).create_with_ceiling("full", 0);
    let refuse = |node: usize, operation: &str| {
        cluster[node].ledger_of(&namespace).hold(operation, &[("full", 1)]).refused(409, "LimitExceeded");
    };
    // The owner of the namespace is node 1. A refusal is recorded at the node that its client asked.
    (0..3).for_each(|node| refuse(node, &format!("before-{node}")));
    let path = format!("/v1/ns/{namespace}/refusals/stream");
    let mut listeners =
        [Sse::open(&cluster[0], &path, None), Sse::open(&cluster[1], "/v1/refusals/stream", None)];
    let expect = |listeners: &mut [Sse], word: &str| {
        let expected: BTreeSet<String> = (0..3).map(|node| format!("{word}-{node}")).collect();
        for listener in listeners {
            let operation = |_| {
                let sent = listener.next().expect("the stream goes on");
                let refused: Value = serde_json::from_str(&sent.data).expect("JSON");
                refused["operation_id"].as_str().expect("an operation").to_owned()
            };
            assert_eq!((0..3).map(operation).collect::<BTreeSet<_>>(), expected);
        }
    };
    expect(&mut listeners, "before");
    (0..3).for_each(|node| refuse(node, &format!("after-{node}")));
    expect(&mut listeners, "after");
}
