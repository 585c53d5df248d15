//! Nodes that join others, over a store in memory whose clock is moved by hand.

use bytes::Bytes;
use limina_engine::{Outcome, Request};
use limina_node::{
    AddressTaken, Feed, Joining, Metrics, Node, NodeOptions, PeerError, Peers, Service, ShardId, Wanted,
    peers::Asked,
};
use limina_store::{
    Announcement, AppendError, ConfirmError, Epoch, Journal, JournalStats, NodeId, Records, Room, Seq,
    StoreError, Table, Tenure, View,
    memory::{Cluster, MemoryNode, MemoryOptions},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const SHARDS: u16 = 4;
const TENURE: Duration = Duration::from_secs(1);
/// What does not come to be in this time never does.
const DEADLINE: Duration = Duration::from_secs(60);

fn cluster() -> Arc<Cluster> {
    Cluster::new(&MemoryOptions { shards: SHARDS, ..MemoryOptions::default() }).expect("memory")
}

fn announcement(address: &str) -> Announcement {
    let (address, host) = (address.to_owned(), "machine".to_owned());
    Announcement { address, host, is_leaving: false, tenure: TENURE }
}

async fn join<S: Journal + Table + Tenure>(store: Arc<S>, address: &str) -> Result<Node, AddressTaken> {
    let metrics = Metrics::new();
    let service = Service::new(metrics.clone());
    let Announcement { address, host, tenure, .. } = announcement(address);
    let joining = Joining { address, host, tenure, peers: Arc::new(Nobody) };
    Node::join(service, metrics, store, SHARDS, joining, NodeOptions::default()).await
}

async fn eventually(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.expect("it never came to be so");
}

/// However long it takes to claim shards, the tenure is renewed.
#[tokio::test]
async fn a_claim_that_hangs_holds_up_no_renewal() {
    let store = Arc::new(Watched::new(&cluster(), true));
    let _node = join(store.clone(), "here").await.expect("nobody has its address");
    eventually(|| store.claims.load(Ordering::SeqCst) > 0).await;
    let renewals = store.renewals.load(Ordering::SeqCst);
    eventually(|| store.renewals.load(Ordering::SeqCst) > renewals + 5).await;
    assert_eq!(store.claims.load(Ordering::SeqCst), 1, "it still hangs");
}

/// All shards that nobody serves are claimed in one call.
#[tokio::test]
async fn shards_are_claimed_together() {
    let cluster = cluster();
    let store = Arc::new(Watched::new(&cluster, false));
    let node = join(store.clone(), "here").await.expect("nobody has its address");
    let owns_all =
        || (0..SHARDS).all(|shard| cluster.owner(ShardId(shard)).expect("a shard").0 == Some(NodeId(1)));
    eventually(owns_all).await;
    assert_eq!(store.claims.load(Ordering::SeqCst), 1);
    node.stop().await;
}

/// It was this process's own address, before it crashed: nobody renews it, and it is free when the tenure has run out.
#[tokio::test]
async fn an_address_is_taken_over_when_its_tenure_has_run_out() {
    let cluster = cluster();
    cluster.node(NodeId(1)).renew(announcement("here")).await.expect("renew");
    let joining = tokio::spawn(join(cluster.node(NodeId(2)), "here"));
    // It runs until it waits: the other one is alive.
    tokio::task::yield_now().await;
    assert!(!joining.is_finished());
    cluster.advance(TENURE);
    let node = joining.await.expect("the task ends").expect("the address is free");
    node.stop().await;
}

#[tokio::test]
async fn an_address_that_is_renewed_is_another_nodes() {
    let cluster = cluster();
    let first = join(cluster.node(NodeId(1)), "here").await.expect("nobody has its address");
    let refused = join(cluster.node(NodeId(2)), "here").await.err().expect("another node has its address");
    let words = refused.to_string();
    for word in ["here", &NodeId(1).to_string()[..], "machine", "--advertise"] {
        assert!(words.contains(word), "{word:?} is not in {words:?}");
    }
    first.stop().await;
}

/// No other node is reached.
struct Nobody;

impl Peers for Nobody {
    fn who<'a>(&'a self, _: &'a str) -> Asked<'a, String> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn ask<'a>(&'a self, _: &'a str, _: ShardId, _: &'a Request) -> Asked<'a, Outcome> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn follow<'a>(&'a self, _: &'a str, _: &'a Wanted) -> Asked<'a, Box<dyn Feed>> {
        Box::pin(async { Err(PeerError::NotThere) })
    }
}

/// A store that counts, and whose claims may hang.
struct Watched {
    node: Arc<MemoryNode>,
    renewals: AtomicUsize,
    claims: AtomicUsize,
    do_claims_hang: bool,
}

impl Watched {
    fn new(cluster: &Arc<Cluster>, do_claims_hang: bool) -> Watched {
        let (renewals, claims) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Watched { node: cluster.node(NodeId(1)), renewals, claims, do_claims_hang }
    }
}

impl Tenure for Watched {
    fn me(&self) -> NodeId {
        self.node.me()
    }

    async fn renew(&self, announcement: Announcement) -> Result<View, StoreError> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        self.node.renew(announcement).await
    }

    async fn claim(&self, wanted: Vec<(ShardId, Epoch)>) -> Result<Vec<ShardId>, StoreError> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        match self.do_claims_hang {
            true => std::future::pending().await,
            false => self.node.claim(wanted).await,
        }
    }

    async fn give(
        &self,
        shard: ShardId,
        epoch: Epoch,
        to: Option<NodeId>,
        shard_time_ms: u64,
    ) -> Result<bool, StoreError> {
        self.node.give(shard, epoch, to, shard_time_ms).await
    }

    async fn leave(&self) -> Result<(), StoreError> {
        self.node.leave().await
    }

    async fn changed(&self) {
        self.node.changed().await;
    }

    fn is_able(&self) -> bool {
        true
    }
}

impl Journal for Watched {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        self.node.take(shard).await
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        self.node.tail(shard, epoch, after).await
    }

    async fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> Result<(), AppendError> {
        self.node.append(shard, epoch, seq, payload).await
    }

    async fn confirm(&self, shard: ShardId, epoch: Epoch) -> Result<(), ConfirmError> {
        self.node.confirm(shard, epoch).await
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.node.release(shard, upto);
    }

    fn room(&self) -> Room {
        self.node.room()
    }

    fn stats(&self) -> JournalStats {
        self.node.stats()
    }
}

impl Table for Watched {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        self.node.applied(shard).await
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.node.get_many(shard, keys).await
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.node.scan(shard, from, to, limit).await
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        self.node.last_at_or_before(shard, ranges).await
    }

    async fn checkpoint(
        &self,
        shard: ShardId,
        epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        self.node.checkpoint(shard, epoch, upto, records).await
    }
}
