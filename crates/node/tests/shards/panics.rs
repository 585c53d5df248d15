//! A shard whose task panics: it stays closed, the rest goes on, and the node's owner learns of it.

use super::{
    SHARDING, SHARDS, STREAM, info, memory, name, namespace_in, start,
    store::{FaultyStore, PANIC},
    submit,
};
use limina_engine::{Outcome, Request};
use limina_node::{
    Ended, Feed, FeedRequest, Joining, Metrics, Node, NodeFailure, NodeOptions, PeerError, Peers, Service,
    Unavailable, peers::PeerFuture,
};
use limina_store::{
    NodeId, ShardId,
    memory::{Cluster, MemoryNode, MemoryOptions},
};
use std::{sync::Arc, time::Duration};

const BAD: ShardId = ShardId(0);
const GOOD: ShardId = ShardId(1);
/// Longer than anything takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn failure() -> NodeFailure {
    NodeFailure::Shard { shard: BAD.0, panic: PANIC.to_owned() }
}

#[tokio::test]
async fn a_shard_that_panics_stays_closed_and_the_others_go_on() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    let (bad, good) = (namespace_in(BAD), namespace_in(GOOD));
    submit(&service, &bad, "stored").await.expect("the shard serves");
    let clock = info(&service, &bad).await.expect("the shard serves").clock;
    let mut follower =
        service.follow(bad.clone(), name(STREAM), Some(clock), None).await.expect("there is a stream");

    store.panic_in_appends_of(BAD);
    let lost = submit(&service, &bad, "lost").await;
    assert_eq!(lost.unwrap_err(), Unavailable::OutcomeUnknown, "the append may have been done");
    assert_eq!(node.failed().await, failure());
    assert_eq!(submit(&service, &bad, "later").await.unwrap_err(), Unavailable::ShardUnavailable);
    assert_eq!(info(&service, &bad).await.unwrap_err(), Unavailable::ShardUnavailable);
    assert_eq!(follower.next().await.unwrap_err(), Ended::Unavailable(Unavailable::ShardUnavailable));
    assert!(!service.is_ready());
    let open: Vec<bool> = service.cluster().shards.iter().map(|shard| shard.is_open).collect();
    assert_eq!(open, [false, true]);
    submit(&service, &good, "served").await.expect("the other shard serves");

    // The shard does not open again when the fault is gone. Only a new node loads what is stored.
    store.stop_panicking();
    assert_eq!(info(&service, &bad).await.unwrap_err(), Unavailable::ShardUnavailable);
    node.stop().await;
    let (service, node) = start(&store, NodeOptions::default()).await;
    assert_eq!(info(&service, &bad).await.expect("the shard serves").clock, clock);
    assert_eq!(info(&service, &good).await.expect("the shard serves").incubating, 1);
    node.stop().await;
}

/// The failed node keeps its other shards until it is stopped. Then another node takes over all of them.
#[tokio::test]
async fn when_a_failed_node_leaves_another_one_serves_the_shard() {
    let options = MemoryOptions { shards: SHARDS, ..MemoryOptions::default() };
    let cluster = Cluster::new(&options).expect("an empty store");
    let store = Arc::new(FaultyStore::new(cluster.node(NodeId(1))));
    let (service, node) = join(store.clone(), "first").await;
    service.until_served().await;
    let (bad, good) = (namespace_in(BAD), namespace_in(GOOD));
    submit(&service, &bad, "stored").await.expect("the shard serves");

    store.panic_in_appends_of(BAD);
    assert_eq!(submit(&service, &bad, "lost").await.unwrap_err(), Unavailable::OutcomeUnknown);
    assert_eq!(node.failed().await, failure());
    assert_eq!(info(&service, &bad).await.unwrap_err(), Unavailable::ShardUnavailable);
    submit(&service, &good, "served").await.expect("the other shard serves");
    assert!(!service.is_ready());

    tokio::time::timeout(LONG, node.stop()).await.expect("the failed shard does not hold up the stop");
    let (service, node) = join(Arc::new(FaultyStore::new(cluster.node(NodeId(2)))), "second").await;
    service.until_served().await;
    assert_eq!(info(&service, &bad).await.expect("the shard serves").incubating, 1);
    assert_eq!(info(&service, &good).await.expect("the shard serves").incubating, 1);
    node.stop().await;
}

pub(crate) async fn join(store: Arc<FaultyStore<MemoryNode>>, address: &str) -> (Service, Node) {
    let metrics = Metrics::new();
    let service = Service::new(metrics.clone());
    let (address, host) = (address.to_owned(), "machine".to_owned());
    let joining = Joining { address, host, tenure: LONG, peers: Arc::new(NoPeers) };
    let node = Node::join(service.clone(), metrics, store, SHARDING, joining, NodeOptions::default()).await;
    (service, node.expect("the address is free"))
}

/// No other node is reached.
struct NoPeers;

impl Peers for NoPeers {
    fn who<'a>(&'a self, _: &'a str) -> PeerFuture<'a, String> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn ask<'a>(&'a self, _: &'a str, _: ShardId, _: &'a Request) -> PeerFuture<'a, Outcome> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn follow<'a>(&'a self, _: &'a str, _: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(async { Err(PeerError::NotThere) })
    }
}
