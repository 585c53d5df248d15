//! Followers of streams over real nodes and a store in memory, while shards reopen and move.

use bytes::Bytes;
use limina_engine::{
    Command, Millis, Name, Outcome, Request,
    events::{self, Mode, Reply, StreamTerms, Submit},
};
use limina_node::{
    Budget, Ended, Feed, FeedEnded, FeedRequest, FollowError, Follower, Joining, Metrics, Node, NodeOptions,
    PeerError, Peers, Service, ShardStatus, StreamUpdate, Unavailable, memory::Kind, peers::PeerFuture,
    shard_of,
};
use limina_store::{
    NodeId, ShardId, Sharding,
    memory::{self, AppendFault, Cluster, Memory, MemoryOptions},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use std::{
    collections::HashMap,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

/// Longer than anything takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const SHARDS: u16 = 4;
const SHARDING: Sharding = memory::sharding(SHARDS);

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// The terms of a stream that changes only when an event is submitted: nothing expires, and there is no periodic key frame.
fn terms() -> StreamTerms {
    let day = Millis(24 * 60 * 60 * 1_000);
    let terms = StreamTerms::new(Mode::OnlyOnce, day).and_then(|terms| terms.with_max_events(100_000));
    terms.and_then(|terms| terms.with_key_frame_every(day)).expect("valid terms")
}

async fn ask(service: &Service, namespace: &Name, command: events::Command) -> Reply {
    let command = Command::Events(command);
    let request = Request::new(namespace.clone(), command);
    match timeout(LONG, service.submit(request)).await.expect("an answer in time") {
        Ok(Outcome::Events(Ok(reply))) => reply,
        other => panic!("{other:?}"),
    }
}

async fn make(service: &Service, namespace: &Name) -> u64 {
    let command = events::Command::Put { name: name("s"), terms: terms() };
    match ask(service, namespace, command).await {
        Reply::StreamCreated(info) => info.clock,
        other => panic!("{other:?}"),
    }
}

fn submission(event: u64) -> events::Command {
    events::Command::Submit(Submit::new(name("s"), format!("e{event}").into()).expect("a valid event"))
}

/// Submits events with these numbers concurrently. Each is one change of the stream.
async fn submit(service: &Service, namespace: &Name, numbers: std::ops::Range<u64>) {
    let mut submitting = JoinSet::new();
    for number in numbers {
        let (service, namespace) = (service.clone(), namespace.clone());
        submitting.spawn(async move { ask(&service, &namespace, submission(number)).await });
        if submitting.len() > 500 {
            submitting.join_next().await.expect("one of them").expect("it was submitted");
        }
    }
    while let Some(submitted) = submitting.join_next().await {
        submitted.expect("it was submitted");
    }
}

async fn follow(service: &Service, namespace: &Name, resume_after: Option<u64>) -> Follower {
    let following = service.follow(namespace.clone(), name("s"), resume_after, None);
    timeout(LONG, following).await.expect("an answer in time").expect("a stream to follow")
}

/// The clocks that a follower receives, up to this one. Those of key frames are negative numbers.
async fn sent_until(follower: &mut Follower, clock: u64) -> Vec<i64> {
    let mut sent = Vec::new();
    while sent.last().is_none_or(|last: &i64| last.unsigned_abs() < clock) {
        let messages = timeout(LONG, follower.next()).await;
        let messages = messages.unwrap_or_else(|_| panic!("nothing came after {:?}", sent.last()));
        sent.extend(messages.expect("it goes on").iter().map(|message| match &message.update {
            StreamUpdate::Change(change) => change.clock as i64,
            StreamUpdate::KeyFrame(frame) => -(frame.clock as i64),
        }));
    }
    sent
}

fn clocks(clocks: std::ops::RangeInclusive<u64>) -> Vec<i64> {
    clocks.map(|clock| clock as i64).collect()
}

/// A node on a store of its own.
struct SingleNode {
    memory: Arc<Memory>,
    service: Service,
    registry: Registry,
    _node: Node,
}

impl SingleNode {
    async fn start() -> SingleNode {
        SingleNode::start_with(None).await
    }

    /// With a memory budget of so many bytes.
    async fn start_with(budget: Option<u64>) -> SingleNode {
        let memory = MemoryOptions { shards: 1, segment_bytes: 4 << 20, ..MemoryOptions::default() };
        let memory = Arc::new(Memory::new(&memory).expect("an empty store"));
        let mut registry = Registry::default();
        let metrics = Metrics::new();
        metrics.register(&mut registry);
        let budget = Budget::new(budget.unwrap_or(u64::MAX), &metrics);
        let service = Service::with_memory(metrics.clone(), budget);
        let (journal, table, options) = (memory.clone(), memory.clone(), NodeOptions::default());
        let sharding = memory::sharding(1);
        let node = Node::start(service.clone(), metrics, journal, table, sharding, options).await;
        let node = node.expect("it opens");
        SingleNode { memory, service, registry, _node: node }
    }

    /// The number of requests that the shard has decided.
    fn decided(&self) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("written to memory");
        let lines = text.lines().filter(|line| line.starts_with("limina_decisions_total"));
        lines.map(|line| line.rsplit(' ').next().expect("a number").parse::<u64>().expect("a number")).sum()
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_interval_of_key_frames_applies_soon() {
    let alone = SingleNode::start().await;
    let namespace = name("n");
    let clock = make(&alone.service, &namespace).await;
    let mut follower = follow(&alone.service, &namespace, None).await;
    assert_eq!(sent_until(&mut follower, clock).await, [-(clock as i64)]);
    let often = terms().with_key_frame_every(Millis(100)).expect("valid terms");
    ask(&alone.service, &namespace, events::Command::Put { name: name("s"), terms: often }).await;
    let mut comes_soon = async || {
        let sent = timeout(Duration::from_secs(11), follower.next()).await.expect("a key frame in time");
        assert!(matches!(sent.expect("it goes on")[0].update, StreamUpdate::KeyFrame(_)));
    };
    comes_soon().await;
    comes_soon().await;
}

/// Polls a future once.
async fn begin<R>(future: &mut Pin<Box<impl Future<Output = R>>>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// The first follower would start what feeds all of them, but it goes while the shard looks for the stream.
#[tokio::test(start_paused = true)]
async fn later_followers_are_fed_after_the_first_has_gone() {
    let alone = SingleNode::start().await;
    let (service, namespace) = (&alone.service, name("n"));
    let often = terms().with_key_frame_every(Millis(100)).expect("valid terms");
    ask(service, &namespace, events::Command::Put { name: name("s"), terms: often }).await;
    let follow = || Box::pin(service.follow(namespace.clone(), name("s"), None, None));
    let (mut first, mut second) = (follow(), follow());
    begin(&mut first).await;
    submit(service, &namespace, 0..1).await;
    begin(&mut second).await;
    drop(first);
    let mut second = timeout(LONG, second).await.expect("an answer in time").expect("a stream to follow");
    for _ in 0..3 {
        let sent = timeout(Duration::from_secs(11), second.next()).await.expect("a key frame in time");
        assert!(matches!(sent.expect("it goes on")[0].update, StreamUpdate::KeyFrame(_)));
    }
}

/// Followers that come at different times share a key frame while the stream does not change, so that many slow ones need the
/// memory of one.
#[tokio::test]
async fn followers_share_a_key_frame_until_the_stream_changes() {
    let alone = SingleNode::start().await;
    let (service, namespace) = (&alone.service, name("n"));
    make(service, &namespace).await;
    submit(service, &namespace, 0..100).await;
    let streams = || service.memory().used_by(Kind::Streams);
    let key_frame = async |follower: &mut Follower| {
        let messages = timeout(LONG, follower.next()).await.expect("in time").expect("it goes on");
        assert!(matches!(messages[0].update, StreamUpdate::KeyFrame(_)));
        messages[0].clone()
    };
    let mut first = follow(service, &namespace, None).await;
    let frame = key_frame(&mut first).await;
    let with_one = streams();
    assert!(with_one > 100 * 128, "a key frame counts: {with_one}");
    // A front end that still sends it has only its bytes.
    let clock = frame.clock();
    let sending = frame.keep_with(frame.encoded(|_| Bytes::from_static(b"first")).clone());
    drop(frame);
    let mut second = follow(service, &namespace, None).await;
    let frame = key_frame(&mut second).await;
    assert_eq!(frame.encoded(|_| panic!("it is encoded")).as_ptr(), sending.as_ptr());
    assert_eq!(streams(), with_one);

    submit(service, &namespace, 100..101).await;
    let mut third = follow(service, &namespace, None).await;
    let newer = key_frame(&mut third).await;
    assert_eq!(newer.clock(), clock + 1);
    assert!(streams() > with_one);

    // The encoding keeps the memory of its key frame as long as any byte of it is kept.
    let encoded = newer.encoded(|_| Bytes::from_static(b"encoded")).slice(1..);
    drop((first, second, third, frame, sending, newer));
    assert!(streams() > 100 * 128);
    drop(encoded);
    let all_returned = async {
        while streams() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, all_returned).await.expect("the ring has ended");
}

#[tokio::test]
async fn without_memory_for_its_key_frame_a_stream_is_not_followed() {
    let alone = SingleNode::start_with(Some(64 << 20)).await;
    let (service, namespace) = (&alone.service, name("n"));
    make(service, &namespace).await;
    let mut streams = service.memory().account(Kind::Streams);
    streams.set(32 << 20);
    let refused = service.follow(namespace.clone(), name("s"), None, None).await;
    assert_eq!(refused.err(), Some(FollowError::Unavailable(Unavailable::MemoryFull)));
    streams.set(0);
    follow(service, &namespace, None).await;
}

/// Several nodes in one process, and the connections between them.
struct Nodes {
    cluster: Arc<Cluster>,
    network: Arc<Network>,
}

#[derive(Default)]
struct Network {
    services: Mutex<HashMap<String, Service>>,
    /// While this is set, feeds deliver nothing.
    are_feeds_paused: watch::Sender<bool>,
}

impl Nodes {
    fn new() -> Nodes {
        let memory = MemoryOptions { shards: SHARDS, segment_bytes: 4 << 20, ..MemoryOptions::default() };
        let cluster = Cluster::new(&memory).expect("an empty store");
        Nodes { cluster, network: Arc::default() }
    }

    async fn join(&self, number: u64) -> (Service, Node) {
        let metrics = Metrics::new();
        let service = Service::new(metrics.clone());
        let address = number.to_string();
        self.network.services.lock().unwrap().insert(address.clone(), service.clone());
        let peers: Arc<dyn Peers> = self.network.clone();
        let joining = Joining { address, host: "test".into(), tenure: LONG, peers };
        let store = self.cluster.node(NodeId(number));
        let options = NodeOptions::default();
        let node = Node::join(service.clone(), metrics, store, SHARDING, joining, options).await;
        (service, node.expect("the address is free"))
    }

    /// Waits until the nodes have equal shares, and returns a namespace whose shard is in the node of `service`.
    async fn namespace_at(&self, service: &Service, nodes: u16) -> Name {
        let share = usize::from(SHARDS / nodes);
        let mine = async {
            loop {
                let cluster = service.cluster();
                let is_mine =
                    |shard: &&ShardStatus| shard.owner.as_ref() == Some(&cluster.me) && shard.is_open;
                let mine: Vec<u16> = cluster.shards.iter().filter(is_mine).map(|shard| shard.shard).collect();
                if mine.len() == share && service.is_ready() {
                    return mine[0];
                }
                tokio::task::yield_now().await;
            }
        };
        let shard = timeout(LONG, mine).await.expect("shards settle");
        let names = (0..).map(|number| format!("n{number}"));
        let found = names.into_iter().find(|text| shard_of(text, SHARDING) == ShardId(shard));
        name(&found.expect("there is one"))
    }

    fn pause_feeds(&self, are_paused: bool) {
        self.network.are_feeds_paused.send_replace(are_paused);
    }
}

impl Network {
    fn service(&self, address: &str) -> Result<Service, PeerError> {
        self.services.lock().unwrap().get(address).cloned().ok_or(PeerError::NotThere)
    }
}

impl Peers for Network {
    fn who<'a>(&'a self, address: &'a str) -> PeerFuture<'a, String> {
        Box::pin(async move { Ok(self.service(address)?.cluster().me) })
    }

    fn ask<'a>(&'a self, address: &'a str, shard: ShardId, request: &'a Request) -> PeerFuture<'a, Outcome> {
        Box::pin(async move { self.service(address)?.answer_peer(shard, request.clone()).await })
    }

    fn follow<'a>(&'a self, address: &'a str, request: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(async move {
            let feed = self.service(address)?.feed_peer(request.clone()).await?;
            let is_paused = self.are_feeds_paused.subscribe();
            Ok(Box::new(PausableFeed { feed, is_paused }) as Box<dyn Feed>)
        })
    }
}

struct PausableFeed {
    feed: Box<dyn Feed>,
    is_paused: watch::Receiver<bool>,
}

impl Feed for PausableFeed {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<StreamUpdate>, FeedEnded>> + Send + '_>> {
        Box::pin(async {
            let updates = self.feed.next().await;
            let _sender_is_gone = self.is_paused.wait_for(|is_paused| !is_paused).await;
            updates
        })
    }
}

/// An append became durable, but the shard did not learn of it, and the effects were lost with its memory.
#[tokio::test]
async fn a_shard_that_reopens_sends_followers_the_changes_that_they_missed() {
    let node = SingleNode::start().await;
    let namespace = name("n");
    let first = make(&node.service, &namespace).await;
    let mut follower = follow(&node.service, &namespace, None).await;
    assert_eq!(sent_until(&mut follower, first).await, [-(first as i64)]);
    node.memory.fail_append(AppendFault::UnknownButHappened);
    let request = Request::new(namespace.clone(), Command::Events(submission(1)));
    node.service.submit(request).await.expect_err("its outcome is not known");
    assert_eq!(sent_until(&mut follower, first + 1).await, clocks(first + 1..=first + 1));
}

#[tokio::test]
async fn a_shard_that_returns_sends_followers_the_changes_that_they_missed() {
    let nodes = Nodes::new();
    let (here, _node) = nodes.join(1).await;
    nodes.namespace_at(&here, 1).await;
    let (there, other_node) = nodes.join(2).await;
    let namespace = nodes.namespace_at(&there, 2).await;
    let first = make(&here, &namespace).await;
    let mut follower = follow(&here, &namespace, None).await;
    assert_eq!(sent_until(&mut follower, first).await, [-(first as i64)]);
    nodes.pause_feeds(true);
    submit(&there, &namespace, 0..3).await;
    timeout(LONG, other_node.stop()).await.expect("it stops");
    assert_eq!(sent_until(&mut follower, first + 3).await, clocks(first + 1..=first + 3));
}

#[tokio::test]
async fn a_clock_ahead_of_this_node_is_not_mistaken_for_one_ahead_of_the_stream() {
    let nodes = Nodes::new();
    let (here, _node) = nodes.join(1).await;
    nodes.namespace_at(&here, 1).await;
    let (there, _other_node) = nodes.join(2).await;
    let namespace = nodes.namespace_at(&there, 2).await;
    let first = make(&here, &namespace).await;
    let mut old = follow(&here, &namespace, None).await;
    assert_eq!(sent_until(&mut old, first).await, [-(first as i64)]);
    nodes.pause_feeds(true);
    submit(&there, &namespace, 0..5).await;
    // The client has received three changes from the owner, and returns to a node that has received none.
    let mut resumed = follow(&here, &namespace, Some(first + 3)).await;
    let mut new = follow(&here, &namespace, None).await;
    assert_eq!(sent_until(&mut new, first + 5).await, [-(first as i64 + 5)]);
    nodes.pause_feeds(false);
    assert_eq!(sent_until(&mut resumed, first + 5).await, clocks(first + 4..=first + 5));
    assert_eq!(sent_until(&mut old, first + 5).await, clocks(first + 1..=first + 5));
    // The stream has not reached this clock.
    let mut ahead = follow(&here, &namespace, Some(first + 6)).await;
    assert_eq!(sent_until(&mut ahead, first + 5).await, [-(first as i64 + 5)]);
}

#[tokio::test]
async fn a_new_follower_gets_a_current_key_frame_and_nothing_of_the_past() {
    let node = SingleNode::start().await;
    let namespace = name("n");
    let first = make(&node.service, &namespace).await;
    let _other = follow(&node.service, &namespace, None).await;
    submit(&node.service, &namespace, 0..20).await;
    let mut follower = follow(&node.service, &namespace, None).await;
    assert_eq!(sent_until(&mut follower, first + 20).await, [-(first as i64 + 20)]);
}

#[tokio::test]
async fn a_follower_that_is_behind_gets_the_changes_that_are_kept() {
    let node = SingleNode::start().await;
    let namespace = name("n");
    let first = make(&node.service, &namespace).await;
    let mut slow = follow(&node.service, &namespace, None).await;
    let mut other = follow(&node.service, &namespace, None).await;
    assert_eq!(sent_until(&mut slow, first).await, [-(first as i64)]);
    submit(&node.service, &namespace, 0..3_000).await;
    sent_until(&mut other, first + 3_000).await;
    // The shard opens again, so that the ring of this node starts again.
    node.memory.fail_append(AppendFault::UnknownButHappened);
    let request = Request::new(namespace.clone(), Command::Events(submission(3_000)));
    node.service.submit(request).await.expect_err("its outcome is not known");
    submit(&node.service, &namespace, 3_001..3_010).await;
    let mut new = follow(&node.service, &namespace, None).await;
    sent_until(&mut new, first + 3_010).await;
    assert_eq!(sent_until(&mut slow, first + 3_010).await, clocks(first + 1..=first + 3_010));
}

#[tokio::test]
async fn a_follower_whose_changes_are_gone_gets_a_key_frame() {
    let node = SingleNode::start().await;
    let namespace = name("n");
    let first = make(&node.service, &namespace).await;
    let mut slow = follow(&node.service, &namespace, Some(first)).await;
    submit(&node.service, &namespace, 0..events::KEPT_CHANGES + 100).await;
    let last = first + events::KEPT_CHANGES + 100;
    assert_eq!(sent_until(&mut slow, last).await, [-(last as i64)]);
    let mut oldest = follow(&node.service, &namespace, Some(first + 100)).await;
    assert_eq!(sent_until(&mut oldest, last).await, clocks(first + 101..=last));
}

/// A front end polls its follower for 15 s, sends a keep-alive to its client, and polls again.
#[tokio::test(start_paused = true)]
async fn a_follower_whose_shard_stays_away_ends_however_often_it_is_asked() {
    let node = SingleNode::start().await;
    let namespace = name("n");
    let first = make(&node.service, &namespace).await;
    submit(&node.service, &namespace, 0..3).await;
    let mut follower = follow(&node.service, &namespace, Some(first)).await;
    node.memory.kill();
    let request = Request::new(namespace, Command::Events(submission(3)));
    node.service.submit(request).await.expect_err("there is no journal");
    let begin = Instant::now();
    let mut ended = None;
    while ended.is_none() && begin.elapsed() < LONG {
        ended = timeout(Duration::from_secs(15), follower.next()).await.ok();
    }
    let ended = ended.expect("an end in time").map(|_| "an update");
    assert_eq!(ended, Err(Ended::Unavailable(Unavailable::ShardUnavailable)));
    assert!(begin.elapsed() > Duration::from_secs(30), "the shard may come back");
}

/// After a restart, all followers return at the same time.
#[tokio::test]
async fn many_followers_cost_the_shard_about_as_much_as_one() {
    let node = SingleNode::start().await;
    let namespace = name("n");
    let first = make(&node.service, &namespace).await;
    submit(&node.service, &namespace, 0..3_000).await;
    let last = first + 3_000;
    let before = node.decided();
    let mut following = JoinSet::new();
    for number in 0..100 {
        let (service, namespace) = (node.service.clone(), namespace.clone());
        following.spawn(async move {
            let resume_after = (number % 2 == 0).then_some(first + number);
            let mut follower = follow(&service, &namespace, resume_after).await;
            (resume_after, sent_until(&mut follower, last).await)
        });
    }
    while let Some(followed) = following.join_next().await {
        match followed.expect("it followed") {
            (Some(after), sent) => assert_eq!(sent, clocks(after + 1..=last)),
            (None, sent) => assert_eq!(sent, [-(last as i64)]),
        }
    }
    let asked = node.decided() - before;
    assert!(asked < 100, "100 followers have asked the shard {asked} times");
}
