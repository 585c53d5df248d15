//! A shard that takes long to load. The runtime of these tests has one worker, which loading must not block.

use super::{SHARDING, SHARDS, info, memory, namespace_in, panics::join, start, store::FaultyStore, submit};
use limina_node::{Metrics, Node, NodeOptions, Service, Unavailable};
use limina_store::{
    NodeId, ShardId,
    memory::{AppendFault, Cluster, MemoryOptions},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use std::sync::Arc;

const SLOW: ShardId = ShardId(0);
const OTHER: ShardId = ShardId(1);

#[tokio::test]
async fn a_shard_that_opens_again_does_not_delay_another() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    let (slow, other) = (namespace_in(SLOW), namespace_in(OTHER));
    submit(&service, &slow, "stored").await.expect("the shard serves");

    let loading = store.hold_loading_of(SLOW);
    store.inner().fail_append(AppendFault::NotDone);
    assert_eq!(submit(&service, &slow, "lost").await.unwrap_err(), Unavailable::ShardUnavailable);
    loading.begun().await;
    submit(&service, &other, "served meanwhile").await.expect("the other shard serves");
    let open: Vec<bool> = service.cluster().shards.iter().map(|shard| shard.is_open).collect();
    assert_eq!(open, [false, true]);

    loading.go_on();
    assert_eq!(info(&service, &slow).await.expect("the shard serves again").incubating, 1);
    node.stop().await;
}

#[tokio::test]
async fn a_shard_that_is_taken_over_does_not_delay_another() {
    let options = MemoryOptions { shards: SHARDS, ..MemoryOptions::default() };
    let cluster = Cluster::new(&options).expect("an empty store");
    let store = Arc::new(FaultyStore::new(cluster.node(NodeId(1))));
    let loading = store.hold_loading_of(SLOW);
    let (service, node) = join(store.clone(), "first").await;
    loading.begun().await;
    submit(&service, &namespace_in(OTHER), "served meanwhile").await.expect("the other shard serves");

    loading.go_on();
    submit(&service, &namespace_in(SLOW), "served").await.expect("the shard serves");
    node.stop().await;
}

/// As soon as the shards are shown as open, the gauges have what is in them: a scrape right after `/readyz` must not see zeros.
#[tokio::test]
async fn gauges_have_their_values_before_the_tasks_of_the_shards_run() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    for shard in [SLOW, OTHER] {
        submit(&service, &namespace_in(shard), "stored").await.expect("the shard serves");
    }
    node.stop().await;

    let (metrics, mut registry) = (Metrics::new(), Registry::default());
    metrics.register(&mut registry);
    let service = Service::new(metrics.clone());
    let node =
        Node::start(service.clone(), metrics, store.clone(), store.clone(), SHARDING, NodeOptions::default());
    let node = node.await.expect("every shard opens");
    assert!(service.cluster().shards.iter().all(|shard| shard.is_open));
    // The runtime has one thread, so no task has run since.
    let mut text = String::new();
    encode(&mut text, &registry).expect("written to memory");
    assert!(text.contains("limina_namespaces 2\n"), "{text}");
    assert!(text.contains("limina_event_streams 2\n"), "{text}");
    node.stop().await;
}
