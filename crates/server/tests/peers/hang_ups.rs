//! A client that hangs up while it waits for a lock leaves the queue, also that of another node.

use super::*;
use limina_engine::locks;
use limina_node::{Node as RunningNode, NodeOptions, Service};
use limina_store::memory::{self, Memory, MemoryOptions};
use reqwest::Client;
use serde_json::{Value as Json, json};

/// A node without shards: it has another one do everything.
struct Front {
    peers: PeerClient,
    owner: String,
}

impl Backend for Front {
    fn submit(&self, request: Request) -> Pending<'_, Outcome> {
        Box::pin(async move {
            let answer = self.peers.ask(&self.owner, ShardId(0), &request).await;
            answer.map_err(|_| Unavailable::ShardUnavailable)
        })
    }

    fn check_load(&self, _: &Name, _: usize, _: bool) -> Result<(), Unavailable> {
        Ok(())
    }

    fn namespaces(&self, _: Page<Name>) -> Pending<'_, Vec<NamespaceInfo>> {
        Box::pin(async { Err(Unavailable::ShardUnavailable) })
    }

    fn audit(&self, _: Page<AuditCursor>) -> Pending<'_, Listed<AuditRecord, AuditCursor>> {
        Box::pin(async { Ok(Listed { items: Vec::new(), next: None }) })
    }

    fn follow(&self, _: Name, _: Name, _: Option<u64>, _: Option<events::StreamTerms>) -> Following<'_> {
        Box::pin(async { Err(FollowError::StreamNotFound) })
    }

    fn answer_peer(&self, _: ShardId, _: Request) -> PeerFuture<'_, Outcome> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn feed_peer(&self, _: FeedRequest) -> PeerFuture<'_, Box<dyn Feed>> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn listen_to_refusals(
        &self,
        namespace: Option<Name>,
    ) -> Result<limina_node::RefusalListener, limina_node::memory::MemoryFull> {
        limina_node::Service::new(limina_node::Metrics::new()).listen_to_refusals(namespace)
    }

    fn refusals_for_peer(
        &self,
        _: limina_node::RefusalsRequest,
    ) -> PeerFuture<'_, limina_node::RefusalsPage> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn cluster(&self) -> Cluster {
        Cluster::default()
    }

    fn shard_of(&self, _: &Name) -> Option<ShardId> {
        None
    }

    fn shared_secret(&self) -> Option<[u8; 16]> {
        None
    }
}

/// The node that owns everything.
async fn owner() -> (RunningNode, Service, Server) {
    let metrics = limina_node::Metrics::new();
    let service = Service::new(metrics.clone());
    let store = Arc::new(Memory::new(&MemoryOptions { shards: 1, ..MemoryOptions::default() }).unwrap());
    let options = NodeOptions::default();
    let node =
        RunningNode::start(service.clone(), metrics, store.clone(), store, memory::sharding(1), options)
            .await;
    let node = node.unwrap();
    let server = Server::start(Arc::new(service.clone()), Budget::unlimited()).await;
    (node, service, server)
}

/// How many wait for a lock, asked until it is so many.
async fn until_waiting(service: &Service, lock_id: &Name, waiting: usize) {
    let command = Command::Locks(locks::Command::Get(lock_id.clone()));
    let request = Request::new(name("default"), command);
    loop {
        match service.submit(request.clone()).await {
            Ok(Outcome::Locks(Ok(locks::Reply::Grant(grant)))) if grant.waiting == waiting => return,
            Ok(Outcome::Locks(Ok(_))) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn whoever_hangs_up_leaves_the_queue_of_the_owner() {
    let (node, service, owner) = owner().await;
    let front = Front { peers: owner.client(), owner: owner.address.clone() };
    let front = Server::start(Arc::new(front), Budget::unlimited()).await;
    let url = format!("http://{}/v1/locks", front.public);
    let acquire = |wait: &str| {
        let body = json!({"key_values": {"order": 1}, "ttl": "1m", "wait": wait});
        Client::new().post(&url).header("content-type", "application/json").body(body.to_string()).send()
    };
    let held: Json = soon(acquire("0s")).await.unwrap().json().await.unwrap();
    let lock_id = name(held["lock_id"].as_str().unwrap());
    let leaves = tokio::spawn(acquire("5m"));
    soon(until_waiting(&service, &lock_id, 1)).await;
    let stays = tokio::spawn(acquire("5m"));
    soon(until_waiting(&service, &lock_id, 2)).await;
    leaves.abort();
    soon(until_waiting(&service, &lock_id, 1)).await;

    let session = held["session_id"].as_str().unwrap();
    let release = Client::new().delete(format!("{url}/{lock_id}?session_id={session}"));
    assert_eq!(soon(release.send()).await.unwrap().status(), 204);
    let granted: Json = soon(stays).await.unwrap().unwrap().json().await.unwrap();
    until_waiting(&service, &name(granted["lock_id"].as_str().unwrap()), 0).await;
    node.stop().await;
}
