//! The cases that every store that several nodes share must pass.

use super::{append, check_tail, is_fenced, overlay, payload, take};
use crate::{
    Announcement, ConfirmError, Epoch, Fingerprint, HandOver, Journal, NodeId, Seq, ShardId, ShardRow,
    StoreError, Table, Tenure, View,
};
use std::{future::Future, sync::Arc, time::Duration};

/// Creates nodes that share one new store.
pub trait Cluster: Send {
    /// The store as one node uses it.
    type Node: Journal + Table + Tenure;

    /// Adds a node.
    fn node(&mut self, id: NodeId) -> impl Future<Output = Arc<Self::Node>> + Send;

    /// Lets this time pass by the store's clock.
    fn pass(&mut self, time: Duration) -> impl Future<Output = ()> + Send;

    /// Ends the session with which this node has renewed.
    fn disconnect(&mut self, id: NodeId) -> impl Future<Output = ()> + Send;
}

pub(super) const A: NodeId = NodeId(1);
/// This id checks that all 64 bits are stored.
pub(super) const B: NodeId = NodeId(u64::MAX);
pub(super) const SHARD: ShardId = ShardId(3);
const TENURE: Duration = Duration::from_secs(5);
/// The test fails if a notification does not arrive within this time.
const DEADLINE: Duration = Duration::from_secs(60);

fn announcement(address: &str) -> Announcement {
    let (address, host) = (address.to_string(), "machine".to_string());
    Announcement { address, host, is_leaving: false, tenure: TENURE, certificate: None, prepared: Vec::new() }
}

/// Renews with an address of its own, and returns what the node sees.
pub(super) async fn view<N: Tenure>(node: &N) -> View {
    node.renew(announcement(&format!("node {}", node.me()))).await.expect("renew")
}

pub(super) fn holding(view: &View) -> ShardRow {
    *view.shards.iter().find(|holding| holding.shard == SHARD).expect("every shard is there")
}

/// Every member with its id, its address, and its state.
fn members(view: &View) -> Vec<(NodeId, &str, &str)> {
    let state = |is_live, is_leaving| match (is_live, is_leaving) {
        (true, false) => "live",
        (true, true) => "leaving",
        (false, _) => "dead",
    };
    let member = |member: &'_ crate::Member| state(member.is_live, member.is_leaving);
    view.members.iter().map(|one| (one.id, &one.address[..], member(one))).collect()
}

pub(super) async fn claim<N: Tenure>(node: &N) {
    let seen = holding(&view(node).await).epoch;
    assert!(claims(node, seen).await, "nobody else wanted it");
}

/// Whether the node gets the shard that it saw under this epoch.
async fn claims<N: Tenure>(node: &N, seen: Epoch) -> bool {
    let claimed = node.claim(vec![(SHARD, seen)]).await.expect("claim");
    assert!(claimed.iter().all(|shard| *shard == SHARD), "{claimed:?}");
    !claimed.is_empty()
}

/// Checks that nothing can be written under the epoch.
async fn check_fenced<N: Journal + Table>(node: &N, epoch: Epoch, seq: u64) {
    assert!(is_fenced(node.append(SHARD, epoch, Seq(seq), payload(SHARD, seq, 10)).await));
    assert!(matches!(node.confirm(SHARD, epoch, Seq(0)).await, Err(ConfirmError::Fenced)));
    assert!(node.tail(SHARD, epoch, Seq(0)).await.is_err());
    let written = node.checkpoint(SHARD, epoch, Seq(seq - 1), overlay("late=1")).await;
    assert!(matches!(written, Err(StoreError::NotOwned)), "{written:?}");
    let found = node.get_many(SHARD, vec!["late".into()]).await.expect("get_many");
    assert_eq!(found, [None]);
}

/// A node appears at its first renewal, and no shard has an owner at first.
pub async fn nodes_see_each_other(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    assert_eq!((a.me(), b.me()), (A, B));
    let seen = a.renew(announcement("one")).await.expect("renew");
    assert_eq!(members(&seen), [(A, "one", "live")]);
    assert!(seen.shards.len() > usize::from(SHARD.0));
    for (number, holding) in seen.shards.iter().enumerate() {
        assert_eq!((usize::from(holding.shard.0), holding.owner), (number, None));
        assert_eq!(holding.handed, None);
    }
    let certificate = Some(Fingerprint([0xfe; 32]));
    let prepared = vec![ShardId(1), ShardId(5)];
    let leaving =
        Announcement { is_leaving: true, certificate, prepared: prepared.clone(), ..announcement("two") };
    let seen = b.renew(leaving).await.expect("renew");
    assert_eq!(members(&seen), [(A, "one", "live"), (B, "two", "leaving")]);
    let seen = a.renew(announcement("one")).await.expect("renew");
    assert_eq!(members(&seen), [(A, "one", "live"), (B, "two", "leaving")]);
    assert_eq!(
        seen.members.iter().map(|member| &member.prepared[..]).collect::<Vec<_>>(),
        [&[], &prepared[..]]
    );
    let a = &seen.members[0];
    assert_eq!(a.host, "machine");
    assert_eq!(seen.members.iter().map(|member| member.certificate).collect::<Vec<_>>(), [None, certificate]);
    assert!(a.expires_in > Duration::ZERO && a.expires_in <= TENURE, "{:?}", a.expires_in);
}

/// If two nodes claim the same shard, one wins, and the other owns nothing.
pub async fn one_claim_wins(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    for round in 1..=10 {
        let (seen, same) = (holding(&view(&*a).await), holding(&view(&*b).await));
        assert_eq!(seen.epoch, same.epoch);
        let (first, second) = tokio::join!(claims(&*a, seen.epoch), claims(&*b, seen.epoch));
        assert!(first != second, "round {round}: {first} and {second}");
        let (winner, loser) = if first { (&a, &b) } else { (&b, &a) };
        let now = holding(&view(&**loser).await);
        assert_eq!((now.owner, now.handed), (Some(winner.me()), None));
        assert!(now.epoch > seen.epoch);
        assert!(matches!(loser.take(SHARD).await, Err(StoreError::NotOwned)));
        let epoch = take(&**winner, SHARD).await;
        assert!(epoch > now.epoch);
        append(&**winner, SHARD, epoch, round, 10).await;
        assert!(winner.give(SHARD, epoch, None, 0).await.expect("give"));
    }
}

/// A claim fails if the shard was taken, handed over or opened since the claiming node saw it.
pub async fn stale_claims_fail(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    let at_first = holding(&view(&*b).await).epoch;
    claim(&*a).await;
    cluster.pass(TENURE).await;
    assert!(!claims(&*b, at_first).await);
    let claimed = holding(&view(&*b).await).epoch;
    let epoch = take(&*a, SHARD).await;
    assert!(!claims(&*b, claimed).await);
    append(&*a, SHARD, epoch, 1, 10).await;
    assert!(claims(&*b, epoch).await, "an append changes no epoch");
    check_fenced(&*a, epoch, 2).await;
    assert!(matches!(a.take(SHARD).await, Err(StoreError::NotOwned)));
}

/// An owner that looked dead and has renewed since keeps its shard, under the same epoch.
pub async fn a_living_owner_keeps_its_shards(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    claim(&*a).await;
    let epoch = take(&*a, SHARD).await;
    cluster.pass(TENURE).await;
    let seen = view(&*b).await;
    assert_eq!(members(&seen)[0].2, "dead");
    assert_eq!(holding(&seen).epoch, epoch);
    view(&*a).await;
    assert!(!claims(&*b, epoch).await, "its owner is alive");
    assert!(!claims(&*a, epoch).await, "nobody claims what it owns itself");
    append(&*a, SHARD, epoch, 1, 10).await;
    a.confirm(SHARD, epoch, Seq(0)).await.expect("confirm");
    cluster.pass(TENURE).await;
    assert!(claims(&*b, epoch).await, "its owner is dead again");
    check_fenced(&*a, epoch, 2).await;
}

/// The tenure of a node can be ended early only after its session has ended. Then its shards are free. A node that lives and
/// renews has a session again, and sees that it has lost its shards.
pub async fn a_tenure_ends_early_with_its_session(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    claim(&*a).await;
    let epoch = take(&*a, SHARD).await;
    let is_connected = |view: &View| view.members[0].is_connected;
    assert!(is_connected(&view(&*b).await));
    assert!(!b.end_tenure(A).await.expect("end_tenure"), "its session lasts");

    // A node that renews over another session is not disturbed.
    cluster.disconnect(A).await;
    tokio::time::timeout(DEADLINE, a.disconnected()).await.expect("it was not told");
    let until_seen = async || {
        while is_connected(&view(&*b).await) {
            tokio::time::timeout(DEADLINE, b.changed()).await.expect("nobody was told");
        }
    };
    until_seen().await;
    view(&*a).await;
    assert!(is_connected(&view(&*b).await));
    assert!(!b.end_tenure(A).await.expect("end_tenure"), "it has renewed");
    append(&*a, SHARD, epoch, 1, 10).await;

    cluster.disconnect(A).await;
    until_seen().await;
    assert!(!claims(&*b, epoch).await, "its tenure lasts");
    assert!(!b.end_tenure(B).await.expect("end_tenure"), "it is connected itself");
    assert!(b.end_tenure(A).await.expect("end_tenure"));
    assert!(!b.end_tenure(A).await.expect("end_tenure"), "once");
    let seen = view(&*b).await;
    assert_eq!((members(&seen)[0].2, is_connected(&seen)), ("dead", true));
    assert!(claims(&*b, epoch).await);
    check_fenced(&*a, epoch, 2).await;
    let seen = view(&*a).await;
    assert_eq!((members(&seen)[0].2, holding(&seen).owner), ("live", Some(B)));
}

/// If many shards are claimed together, each is decided separately.
pub async fn many_are_claimed_at_once(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    let shards = view(&*b).await.shards;
    claim(&*a).await;
    let stale = ShardId(0);
    let wanted = |view: &View| -> Vec<(ShardId, Epoch)> {
        view.shards.iter().map(|holding| (holding.shard, holding.epoch)).collect()
    };
    let mut all = wanted(&view(&*b).await);
    all.iter_mut().filter(|(shard, _)| *shard == stale).for_each(|(_, epoch)| epoch.0 += 1);
    let mut claimed = b.claim(all).await.expect("claim");
    claimed.sort_unstable();
    let expected = shards.iter().map(|holding| holding.shard).filter(|id| ![SHARD, stale].contains(id));
    assert!(claimed.iter().copied().eq(expected), "{claimed:?}");
    for holding in view(&*a).await.shards {
        let owner = if holding.shard == SHARD { Some(A) } else { Some(B) };
        assert_eq!(holding.owner, owner.filter(|_| holding.shard != stale), "{holding:?}");
    }
    assert_eq!(b.claim(Vec::new()).await.expect("claim"), []);
}

/// A shard that is handed over belongs to the other node with all its records, and the previous epoch is fenced.
pub async fn giving_hands_over(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    view(&*b).await;
    claim(&*a).await;
    let epoch = take(&*a, SHARD).await;
    append(&*a, SHARD, epoch, 1, 10).await;
    assert!(!b.give(SHARD, epoch, Some(B), 0).await.expect("give"), "only the owner gives");
    assert!(!a.give(SHARD, Epoch(epoch.0 - 1), Some(B), 0).await.expect("give"), "and only under its epoch");
    assert!(a.confirm(SHARD, epoch, Seq(0)).await.is_ok());

    assert!(a.give(SHARD, epoch, Some(B), 1_700_000_000_123).await.expect("give"));
    check_fenced(&*a, epoch, 2).await;
    assert!(!a.give(SHARD, epoch, None, 0).await.expect("give"));
    let given = holding(&view(&*b).await);
    assert_eq!(given.owner, Some(B));
    let handed = |view: &View| holding(view).handed.expect("it was given");
    let HandOver { shard_time_ms, ago } = handed(&view(&*b).await);
    assert_eq!(shard_time_ms, 1_700_000_000_123, "it is kept as it was left");
    cluster.pass(Duration::from_secs(2)).await;
    let later = handed(&view(&*b).await);
    assert_eq!(later.shard_time_ms, shard_time_ms);
    assert!(later.ago >= ago + Duration::from_secs(2), "{:?} and {ago:?}", later.ago);
    let epoch = take(&*b, SHARD).await;
    assert_eq!(holding(&view(&*b).await).handed, None, "it counts for one opening");
    check_tail(&*b, SHARD, epoch, 0, 1, 10).await;
    append(&*b, SHARD, epoch, 2, 10).await;

    assert!(b.give(SHARD, epoch, None, 0).await.expect("give"));
    check_fenced(&*b, epoch, 3).await;
    let free = holding(&view(&*a).await);
    assert_eq!((free.owner, free.handed), (None, None));
    assert!(matches!(b.take(SHARD).await, Err(StoreError::NotOwned)));
}

/// A node that does not renew is dead when its tenure has expired. It owns its shards until another node claims them,
/// and is removed when it owns nothing any more.
pub async fn tenure_runs_out(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    claim(&*a).await;
    let epoch = take(&*a, SHARD).await;
    let (name, other) = (format!("node {A}"), format!("node {B}"));
    cluster.pass(TENURE / 2).await;
    assert_eq!(members(&view(&*b).await), [(A, &name[..], "live"), (B, &other, "live")]);
    cluster.pass(TENURE / 2 + Duration::from_millis(1)).await;
    assert_eq!(members(&view(&*b).await), [(A, &name[..], "dead"), (B, &other, "live")]);
    view(&*a).await;
    assert_eq!(members(&view(&*b).await), [(A, &name[..], "live"), (B, &other, "live")]);
    cluster.pass(TENURE + Duration::from_secs(61)).await;
    let seen = view(&*b).await;
    assert_eq!(members(&seen), [(A, &name[..], "dead"), (B, &other, "live")]);
    assert_eq!(holding(&seen).owner, Some(A));
    append(&*a, SHARD, epoch, 1, 10).await;
    claim(&*b).await;
    check_fenced(&*a, epoch, 2).await;
    view(&*b).await;
    assert_eq!(members(&view(&*b).await), [(B, &other[..], "live")]);
}

/// A live node keeps its address: another node with the same address is not renewed, and ends nobody's tenure. Once the
/// tenure has expired, another node may take over the address, and then the first node is not renewed any more.
pub async fn an_address_is_one_nodes(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    a.renew(announcement("here")).await.expect("renew");
    cluster.pass(TENURE / 2).await;
    let seen = b.renew(announcement("here")).await.expect("renew");
    assert_eq!(members(&seen), [(A, "here", "live")]);
    assert_eq!(seen.occupant("here", B).map(|member| member.id), Some(A));
    let seen = a.renew(announcement("here")).await.expect("renew");
    assert_eq!((members(&seen), seen.occupant("here", A)), (vec![(A, "here", "live")], None));
    cluster.pass(TENURE / 2).await;
    b.renew(announcement("here")).await.expect("renew");
    cluster.pass(TENURE / 2).await;
    let seen = b.renew(announcement("here")).await.expect("renew");
    assert_eq!(members(&seen), [(B, "here", "live")]);
    let seen = a.renew(announcement("here")).await.expect("renew");
    assert_eq!(members(&seen), [(B, "here", "live")]);
    let occupant = seen.occupant("here", A).expect("the other has it");
    assert_eq!((occupant.id, &occupant.host[..]), (B, "machine"));
}

/// A node that left is removed. Its shards have no owner, and its epochs are fenced.
pub async fn leaving_frees(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    claim(&*a).await;
    let epoch = take(&*a, SHARD).await;
    append(&*a, SHARD, epoch, 1, 10).await;
    a.leave().await.expect("leave");
    let seen = view(&*b).await;
    assert_eq!(seen.members.iter().map(|member| member.id).collect::<Vec<_>>(), [B]);
    assert_eq!((holding(&seen).owner, holding(&seen).handed), (None, None));
    check_fenced(&*a, epoch, 2).await;
    claim(&*b).await;
    let epoch = take(&*b, SHARD).await;
    check_tail(&*b, SHARD, epoch, 0, 1, 10).await;
}

/// A node that waits for changes is notified when a node joins, has prepared a shard, hands one over, or leaves.
pub async fn nodes_are_notified_of_changes(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    let until = async |is_so: &dyn Fn(&View) -> bool| {
        while !is_so(&view(&*b).await) {
            tokio::time::timeout(DEADLINE, b.changed()).await.expect("nobody was told");
        }
    };
    let is_there = |view: &View| view.members.iter().any(|member| member.id == A);
    tokio::join!(until(&is_there), view(&*a));
    let is_prepared = |view: &View| view.members.iter().any(|member| member.prepared == [SHARD]);
    let prepared = Announcement { prepared: vec![SHARD], ..announcement(&format!("node {A}")) };
    let (_, renewed) = tokio::join!(until(&is_prepared), a.renew(prepared));
    renewed.expect("renew");
    claim(&*a).await;
    let epoch = holding(&view(&*a).await).epoch;
    let is_ours = |view: &View| holding(view).owner == Some(B);
    let (_, given) = tokio::join!(until(&is_ours), a.give(SHARD, epoch, Some(B), 0));
    assert!(given.expect("give"));
    let is_gone = |view: &View| !is_there(view);
    let (_, left) = tokio::join!(until(&is_gone), a.leave());
    left.expect("leave");
}
