//! Shards over a store in memory that fails on demand: what clients are answered, and what the store is asked.
//!
//! Where a test needs time, it uses tokio's paused clock: time passes only while every task waits.

mod faults;
mod interruption;
mod loading;
mod overload;
mod panics;
mod store;

use limina_engine::{
    Command, Millis, Name, Outcome, Request,
    events::{self, Mode, Reply, StreamInfo, StreamTerms, Submit},
};
use limina_node::{Metrics, Node, NodeOptions, Service, Unavailable, shard_of};
use limina_store::{
    ShardId, Sharding,
    memory::{self, Memory, MemoryOptions},
};
use std::sync::Arc;
use store::FaultyStore;

const SHARDS: u16 = 2;
const SHARDING: Sharding = memory::sharding(SHARDS);
/// The name of the stream in every namespace of these tests.
const STREAM: &str = "s";

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// A namespace of this shard.
fn namespace_in(shard: ShardId) -> Name {
    namespaces_in(shard).next().expect("every shard has names")
}

fn namespaces_in(shard: ShardId) -> impl Iterator<Item = Name> {
    let names = (0..).map(|number| format!("n{number}"));
    names.filter(move |text| shard_of(text, SHARDING) == shard).map(|text| name(&text))
}

fn memory() -> Arc<FaultyStore<Memory>> {
    let options = MemoryOptions { shards: SHARDS, ..MemoryOptions::default() };
    Arc::new(FaultyStore::new(Arc::new(Memory::new(&options).expect("an empty store"))))
}

async fn start(store: &Arc<FaultyStore<Memory>>, options: NodeOptions) -> (Service, Node) {
    let metrics = Metrics::new();
    let service = Service::new(metrics.clone());
    let node = Node::start(service.clone(), metrics, store.clone(), store.clone(), SHARDING, options).await;
    (service, node.expect("every shard opens"))
}

/// Events incubate for a minute. There is no key frame in between.
fn terms() -> StreamTerms {
    let terms = StreamTerms::new(Mode::OnlyOnce, Millis(60_000)).expect("valid terms");
    let terms = terms.with_max_events(1_000).expect("valid terms");
    terms.with_key_frame_every(Millis(24 * 60 * 60 * 1_000)).expect("valid terms")
}

async fn ask(service: &Service, namespace: &Name, command: events::Command) -> Result<Reply, Unavailable> {
    let command = Command::Events(command);
    let request = Request::new(namespace.clone(), command);
    match service.submit(request).await? {
        Outcome::Events(Ok(reply)) => Ok(reply),
        other => panic!("{other:?}"),
    }
}

/// Submits an event, and creates the stream with the first one.
async fn submit(service: &Service, namespace: &Name, event: &str) -> Result<Reply, Unavailable> {
    let submit = Submit::new(name(STREAM), event.into()).expect("a valid event").with_make(Some(terms()));
    ask(service, namespace, events::Command::Submit(submit)).await
}

async fn info(service: &Service, namespace: &Name) -> Result<StreamInfo, Unavailable> {
    match ask(service, namespace, events::Command::Get(name(STREAM))).await? {
        Reply::Stream(info) => Ok(info),
        other => panic!("{other:?}"),
    }
}
