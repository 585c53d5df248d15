//! Nodes that join others, over a store in memory whose clock is moved by hand.

use bytes::Bytes;
use limina_engine::{
    Command, KeyValues, Millis, Name, Outcome, Request,
    key_values::Value,
    limiter::{self, Change, Check, Limit, NewRule, RuleChange, Take, Window},
    locks::{self, Acquire, Lock, LockRequest, Mode},
    selection::Selection,
};
use limina_node::{
    AddressTaken, Feed, FeedRequest, Joining, Metrics, Node, NodeOptions, PeerError, Peers, Service, ShardId,
    peers::PeerFuture,
};
use limina_store::{
    Announcement, AppendError, ConfirmError, Epoch, FreeSpace, Journal, JournalStats, NodeId, Records, Seq,
    StoreError, StoredFilter, Table, Tenure, View,
    memory::{self, Cluster, MemoryNode, MemoryOptions},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

const SHARDS: u16 = 4;
const TENURE: Duration = Duration::from_secs(1);
/// Longer than anything takes, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

fn cluster() -> Arc<Cluster> {
    Cluster::new(&MemoryOptions { shards: SHARDS, ..MemoryOptions::default() }).expect("memory")
}

fn announcement(address: &str) -> Announcement {
    let (address, host) = (address.to_owned(), "machine".to_owned());
    Announcement { address, host, is_leaving: false, tenure: TENURE, certificate: None, prepared: Vec::new() }
}

async fn join<S: Journal + Table + Tenure>(store: Arc<S>, address: &str) -> Result<Node, AddressTaken> {
    join_with(store, address, StubPeers::default()).await
}

async fn join_with<S: Journal + Table + Tenure>(
    store: Arc<S>,
    address: &str,
    peers: StubPeers,
) -> Result<Node, AddressTaken> {
    join_as(store, address, TENURE, peers, Metrics::new()).await
}

async fn join_as<S: Journal + Table + Tenure>(
    store: Arc<S>,
    address: &str,
    tenure: Duration,
    peers: StubPeers,
    metrics: Metrics,
) -> Result<Node, AddressTaken> {
    let service = Service::new(metrics.clone());
    let Announcement { address, host, .. } = announcement(address);
    let joining = Joining { address, host, tenure, peers: Arc::new(peers) };
    Node::join(service, metrics, store, memory::sharding(SHARDS), joining, NodeOptions::default()).await
}

async fn eventually(mut is_met: impl FnMut() -> bool) {
    let waiting = async {
        while !is_met() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.expect("the condition is met in time");
}

/// The tenure is renewed even while a claim hangs.
#[tokio::test]
async fn a_hanging_claim_delays_no_renewal() {
    let store = Arc::new(CountingStore::new(&cluster(), Some(Hanging::Claims)));
    let _node = join(store.clone(), "here").await.expect("the address is free");
    eventually(|| store.claims.load(Ordering::SeqCst) > 0).await;
    let renewals = store.renewals.load(Ordering::SeqCst);
    eventually(|| store.renewals.load(Ordering::SeqCst) > renewals + 5).await;
    assert_eq!(store.claims.load(Ordering::SeqCst), 1, "the claim still hangs");
}

/// Work in the background has much time, since no client waits for it. A node that stops does not wait for it either.
#[tokio::test]
async fn an_unreadable_filter_delays_no_stop() {
    let store = Arc::new(CountingStore::new(&cluster(), Some(Hanging::Filters)));
    let node = join(store.clone(), "here").await.expect("the address is free");
    eventually(|| store.filters.load(Ordering::SeqCst) > 0).await;
    tokio::time::timeout(DEADLINE, node.stop()).await.expect("the node stops");
}

/// From the moment at which the session has ended, other nodes may end the tenure. So an answer that needs the tenure is confirmed, also while
/// a renewal is under way.
#[tokio::test]
async fn a_tenure_is_in_doubt_as_soon_as_its_session_has_ended() {
    let cluster = cluster();
    let store = Arc::new(CountingStore::new(&cluster, Some(Hanging::Renewals)));
    let (metrics, service) = (Metrics::new(), Service::new(Metrics::new()));
    let Announcement { address, host, .. } = announcement("here");
    let joining = Joining { address, host, tenure: DEADLINE, peers: Arc::new(StubPeers::default()) };
    let (sharding, options) = (memory::sharding(SHARDS), NodeOptions::default());
    let joining = Node::join(service.clone(), metrics, store.clone(), sharding, joining, options);
    let _node = joining.await.expect("the address is free");
    eventually(|| owns_all(&cluster, NodeId(1))).await;
    service.until_served().await;
    let window = Window::Fixed { per: Millis(3_600_000) };
    let rule = NewRule {
        name: Name::new("rate").expect("a name"),
        group_by: Vec::new(),
        selection: Selection::default(),
        limit: Limit::AtMost(1_000_000),
        window: Some(window),
        shadow: false,
        durability: None,
        description: None,
    };
    let ask = async |command| {
        let request = Request::new(Name::new("n").expect("a name"), Command::Limiter(command));
        let outcome = service.submit(request).await.expect("an answer");
        assert!(outcome.is_done(), "{outcome:?}");
    };
    ask(limiter::Command::Change(RuleChange::new(Change::CreateRule(rule)).expect("a rule"))).await;
    let check = || {
        let take = Take::new(KeyValues::new::<&str, &str>(Vec::new()).expect("none"), 1).expect("a take");
        limiter::Command::Check(Check::new(vec![take]).expect("a check"))
    };
    // A renewal that was sent after the shards were opened covers them.
    let confirms = || store.confirms.load(Ordering::SeqCst);
    let relaxed = async || {
        let before = confirms();
        ask(check()).await;
        confirms() == before
    };
    while !relaxed().await {}

    store.is_hanging.store(true, Ordering::SeqCst);
    let renewals = store.renewals.load(Ordering::SeqCst);
    eventually(|| store.renewals.load(Ordering::SeqCst) > renewals).await;
    let renewals = store.renewals.load(Ordering::SeqCst);
    cluster.disconnect(NodeId(1));
    while relaxed().await {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        assert!(!relaxed().await, "the tenure still counts");
    }
    assert_eq!(store.renewals.load(Ordering::SeqCst), renewals, "the renewal has ended");
}

/// The process stands still until long after its tenure has expired, and no other node takes its shards: they are as they were, and what is held
/// has its full ttl.
#[tokio::test(start_paused = true)]
async fn a_node_that_stood_still_keeps_the_shards_that_it_still_owns() {
    const TTL: u64 = 3_000;
    let cluster = cluster();
    let service = Service::new(Metrics::new());
    let Announcement { address, host, tenure, .. } = announcement("here");
    let joining = Joining { address, host, tenure, peers: Arc::new(StubPeers::default()) };
    let (sharding, options) = (memory::sharding(SHARDS), NodeOptions::default());
    let joining =
        Node::join(service.clone(), Metrics::new(), cluster.node(NodeId(1)), sharding, joining, options);
    let node = joining.await.expect("the address is free");
    service.until_served().await;
    let ask = async |command| {
        let request = Request::new(Name::new("n").expect("a name"), Command::Locks(command));
        match service.submit(request).await {
            Ok(Outcome::Locks(Ok(locks::Reply::Grant(grant) | locks::Reply::Granted { grant, .. }))) => {
                grant.expires_in_ms.0
            }
            other => panic!("{other:?}"),
        }
    };
    let lock_id = || Name::new("id").expect("a name");
    let locks = vec![Lock {
        key_values: KeyValues::new(vec![("lock", Value::<&str>::Integer(1))]).expect("a key"),
        mode: Mode::Shared,
    }];
    let wanted = Acquire::new(locks, Millis(TTL)).expect("a request");
    ask(locks::Command::Acquire(LockRequest { id: lock_id(), session: lock_id(), wanted })).await;
    tokio::time::advance(TENURE * 10).await;
    let left = ask(locks::Command::Get(lock_id())).await;
    assert!(left > TTL - 100, "{left} ms are left");
    node.stop().await;
}

/// All shards without an owner are claimed in one call.
#[tokio::test]
async fn shards_are_claimed_together() {
    let cluster = cluster();
    let store = Arc::new(CountingStore::new(&cluster, None));
    let node = join(store.clone(), "here").await.expect("the address is free");
    eventually(|| owns_all(&cluster, NodeId(1))).await;
    assert_eq!(store.claims.load(Ordering::SeqCst), 1);
    node.stop().await;
}

/// A process that crashed had this address. No node renews that tenure, and when it has expired the address is free.
#[tokio::test]
async fn an_address_is_free_when_its_tenure_has_expired() {
    let cluster = cluster();
    cluster.node(NodeId(1)).renew(announcement("here")).await.expect("renew");
    let joining = tokio::spawn(join(cluster.node(NodeId(2)), "here"));
    // Lets the task run until it waits, because the other node is alive.
    tokio::task::yield_now().await;
    assert!(!joining.is_finished());
    cluster.advance(TENURE);
    let node = joining.await.expect("the task ends").expect("the address is free");
    node.stop().await;
}

/// The clock stands still, so no tenure expires: the session of the owner has ended, and nobody listens at its address.
#[tokio::test]
async fn a_node_that_died_is_replaced_before_its_tenure_expires() {
    let cluster = cluster();
    let dead = cluster.node(NodeId(1));
    let view = dead.renew(announcement("there")).await.expect("renew");
    let all = view.shards.iter().map(|row| (row.shard, row.epoch)).collect();
    assert_eq!(dead.claim(all).await.expect("claim").len(), usize::from(SHARDS));
    let peers = StubPeers { is_refused: true, ..StubPeers::default() };
    let node = join_with(cluster.node(NodeId(2)), "here", peers).await.expect("the address is free");
    cluster.disconnect(NodeId(1));
    eventually(|| owns_all(&cluster, NodeId(2))).await;
    node.stop().await;
}

/// The node that gave a shard away waits until it is served there, but not for a node that has died: then it serves the shard again.
#[tokio::test(start_paused = true)]
async fn a_node_that_dies_with_a_shard_that_it_was_given_is_not_waited_for() {
    let cluster = cluster();
    let (metrics, peers) = (Metrics::new(), StubPeers { is_refused: true, ..StubPeers::default() });
    let joining = join_as(cluster.node(NodeId(1)), "here", TENURE, peers, metrics.clone());
    let node = joining.await.expect("the address is free");
    let serves_all = || metric(&metrics, "limina_shards_open") == usize::from(SHARDS);
    eventually(serves_all).await;

    let prepared = (0..SHARDS).map(ShardId).collect();
    let mortal = cluster.node(NodeId(2));
    mortal.renew(Announcement { prepared, ..announcement("there") }).await.expect("renew");
    eventually(|| (0..SHARDS).any(|shard| cluster_owner(&cluster, shard) == Some(NodeId(2)))).await;
    let died_at = Instant::now();
    cluster.disconnect(NodeId(2));
    eventually(|| owns_all(&cluster, NodeId(1)) && serves_all()).await;
    // Without an answer, a node that lives is waited for 5 s.
    let waited = died_at.elapsed();
    assert!(waited < Duration::from_secs(4), "waited for a dead node, {waited:?}");
    node.stop().await;
}

/// The process that listens at an address now knows that the one that lost its session is not there any more.
#[tokio::test]
async fn an_address_is_free_when_the_session_of_its_node_has_ended() {
    let cluster = cluster();
    cluster.node(NodeId(1)).renew(announcement("here")).await.expect("renew");
    cluster.disconnect(NodeId(1));
    let node = join(cluster.node(NodeId(2)), "here").await.expect("the address is free");
    node.stop().await;
}

/// A node that has given its shards away is a member, and knows the others, until it is stopped. The last node has nobody to
/// give its shards to.
#[tokio::test]
async fn a_node_that_leaves_is_a_member_until_it_stops() {
    let cluster = cluster();
    let peers = || StubPeers { is_served: true, ..StubPeers::default() };
    let first = join_with(cluster.node(NodeId(1)), "here", peers()).await.expect("the address is free");
    eventually(|| owns_all(&cluster, NodeId(1))).await;
    assert!(!first.leave().await, "nobody else is there");
    let second = join_with(cluster.node(NodeId(2)), "there", peers()).await.expect("the address is free");
    let is_second = |shard: &u16| cluster_owner(&cluster, *shard) == Some(NodeId(2));
    eventually(|| (0..SHARDS).filter(is_second).count() == usize::from(SHARDS) / 2).await;
    assert!(first.leave().await);
    assert!(owns_all(&cluster, NodeId(2)));
    let members = async || {
        let view = cluster.node(NodeId(2)).renew(announcement("there")).await.expect("renew");
        view.members.iter().map(|member| (member.id, member.is_leaving)).collect::<Vec<_>>()
    };
    assert_eq!(members().await, [(NodeId(1), true), (NodeId(2), false)]);
    first.stop().await;
    assert_eq!(members().await, [(NodeId(2), false)]);
    second.stop().await;
}

/// The next owner reads a shard before it gets the shard, and then only the tail of the journal.
#[tokio::test]
async fn a_shard_is_prepared_before_it_is_handed_over() {
    let cluster = cluster();
    // On a busy machine a tenure could end. Then its shards would be taken over, unprepared.
    let join = async |node: u64, address: &str, metrics: &Metrics| {
        let peers = StubPeers { is_served: true, ..StubPeers::default() };
        let joining = join_as(cluster.node(NodeId(node)), address, DEADLINE, peers, metrics.clone());
        joining.await.expect("the address is free")
    };
    let first = join(1, "here", &Metrics::new()).await;
    eventually(|| owns_all(&cluster, NodeId(1))).await;
    let metrics = Metrics::new();
    let second = join(2, "there", &metrics).await;
    let half = usize::from(SHARDS) / 2;
    eventually(|| metric(&metrics, "limina_cluster_shards_prepared_total") == half).await;
    assert!(first.leave().await);
    assert!(owns_all(&cluster, NodeId(2)));
    eventually(|| metric(&metrics, "limina_cluster_shards_prepared_total") == usize::from(SHARDS)).await;
    first.stop().await;
    second.stop().await;
}

/// The value of a metric without labels.
fn metric(metrics: &Metrics, name: &str) -> usize {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes everything");
    let value = text.lines().find_map(|line| line.strip_prefix(name)).expect("a metric of that name");
    value.trim().parse().expect("a whole number")
}

fn cluster_owner(cluster: &Cluster, shard: u16) -> Option<NodeId> {
    cluster.owner(ShardId(shard)).expect("a shard").0
}

fn owns_all(cluster: &Cluster, node: NodeId) -> bool {
    (0..SHARDS).all(|shard| cluster_owner(cluster, shard) == Some(node))
}

#[tokio::test]
async fn an_address_whose_tenure_is_renewed_belongs_to_another_node() {
    let cluster = cluster();
    let first = join(cluster.node(NodeId(1)), "here").await.expect("the address is free");
    let refused = join(cluster.node(NodeId(2)), "here").await.err().expect("another node has this address");
    let words = refused.to_string();
    for word in ["here", &NodeId(1).to_string()[..], "machine", "--advertise"] {
        assert!(words.contains(word), "{word:?} is not in {words:?}");
    }
    first.stop().await;
}

/// No other node is reached, unless the test says otherwise.
#[derive(Default)]
struct StubPeers {
    /// Every address refuses connections.
    is_refused: bool,
    /// Every node serves every shard.
    is_served: bool,
}

impl Peers for StubPeers {
    fn is_refused<'a>(&'a self, _: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(std::future::ready(self.is_refused))
    }

    fn who<'a>(&'a self, _: &'a str) -> PeerFuture<'a, String> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn ask<'a>(&'a self, _: &'a str, _: ShardId, _: &'a Request) -> PeerFuture<'a, Outcome> {
        let answer =
            if self.is_served { Ok(Outcome::Namespaces(Vec::new())) } else { Err(PeerError::NotThere) };
        Box::pin(std::future::ready(answer))
    }

    fn follow<'a>(&'a self, _: &'a str, _: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(async { Err(PeerError::NotThere) })
    }
}

/// A store that counts calls, some of which may hang.
struct CountingStore {
    node: Arc<MemoryNode>,
    renewals: AtomicUsize,
    claims: AtomicUsize,
    filters: AtomicUsize,
    confirms: AtomicUsize,
    hanging: Option<Hanging>,
    /// Whether renewals hang by now.
    is_hanging: AtomicBool,
}

#[derive(PartialEq, Eq)]
enum Hanging {
    Claims,
    Filters,
    Renewals,
}

impl CountingStore {
    fn new(cluster: &Arc<Cluster>, hanging: Option<Hanging>) -> CountingStore {
        let [renewals, claims, filters, confirms] = [(); 4].map(|()| AtomicUsize::new(0));
        let (node, is_hanging) = (cluster.node(NodeId(1)), AtomicBool::new(false));
        CountingStore { node, renewals, claims, filters, confirms, hanging, is_hanging }
    }
}

impl Tenure for CountingStore {
    fn me(&self) -> NodeId {
        self.node.me()
    }

    async fn renew(&self, announcement: Announcement) -> Result<View, StoreError> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        if self.hanging == Some(Hanging::Renewals) && self.is_hanging.load(Ordering::SeqCst) {
            std::future::pending().await
        }
        self.node.renew(announcement).await
    }

    async fn end_tenure(&self, node: NodeId) -> Result<bool, StoreError> {
        self.node.end_tenure(node).await
    }

    async fn claim(&self, wanted: Vec<(ShardId, Epoch)>) -> Result<Vec<ShardId>, StoreError> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        match self.hanging {
            Some(Hanging::Claims) => std::future::pending().await,
            _ => self.node.claim(wanted).await,
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

    async fn disconnected(&self) {
        self.node.disconnected().await;
    }

    async fn changed(&self) {
        self.node.changed().await;
    }

    fn is_available(&self) -> bool {
        true
    }
}

impl Journal for CountingStore {
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

    async fn confirm(&self, shard: ShardId, epoch: Epoch, seq: Seq) -> Result<(), ConfirmError> {
        self.confirms.fetch_add(1, Ordering::SeqCst);
        self.node.confirm(shard, epoch, seq).await
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.node.release(shard, upto);
    }

    fn free_space(&self) -> FreeSpace {
        self.node.free_space()
    }

    fn stats(&self) -> JournalStats {
        self.node.stats()
    }
}

impl Table for CountingStore {
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

    fn has_filters(&self) -> bool {
        self.hanging == Some(Hanging::Filters)
    }

    async fn load_filter(&self, _: ShardId) -> Result<Option<StoredFilter>, StoreError> {
        self.filters.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}
