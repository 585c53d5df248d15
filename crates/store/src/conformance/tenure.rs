//! What every store that several nodes share must do.

use super::{append, check_tail, is_fenced, overlay, payload, take};
use crate::{
    Announcement, ConfirmError, Epoch, Holding, Journal, NodeId, Seq, ShardId, StoreError, Table, Tenure,
    View,
};
use std::{future::Future, sync::Arc, time::Duration};

/// Makes nodes over one store, which is new.
pub trait Cluster: Send {
    /// The store as one node uses it.
    type Node: Journal + Table + Tenure;

    /// Another node.
    fn node(&mut self, id: NodeId) -> impl Future<Output = Arc<Self::Node>> + Send;

    /// Lets time go by for the store.
    fn pass(&mut self, time: Duration) -> impl Future<Output = ()> + Send;
}

const A: NodeId = NodeId(1);
/// Ids use all bits.
const B: NodeId = NodeId(u64::MAX);
const SHARD: ShardId = ShardId(3);
const TENURE: Duration = Duration::from_secs(5);
/// A notification that does not come within this time will not come.
const DEADLINE: Duration = Duration::from_secs(60);

fn announcement(address: &str) -> Announcement {
    Announcement { address: address.to_string(), is_leaving: false, tenure: TENURE }
}

/// What the node sees when it renews, under an address of its own.
async fn view<N: Tenure>(node: &N) -> View {
    node.renew(announcement(&format!("node {}", node.me()))).await.expect("renew")
}

fn holding(view: &View) -> Holding {
    *view.shards.iter().find(|holding| holding.shard == SHARD).expect("every shard is there")
}

/// Every member as its id, its address, and what it is besides.
fn members(view: &View) -> Vec<(NodeId, &str, &str)> {
    let state = |is_live, is_leaving| match (is_live, is_leaving) {
        (true, false) => "live",
        (true, true) => "leaving",
        (false, _) => "dead",
    };
    let member = |member: &'_ crate::Member| state(member.is_live, member.is_leaving);
    view.members.iter().map(|one| (one.id, &one.address[..], member(one))).collect()
}

async fn claim<N: Tenure>(node: &N) {
    let seen = holding(&view(node).await).epoch;
    assert!(node.claim(SHARD, seen).await.expect("claim"), "nobody else wanted it");
}

/// Nothing that is written under the epoch succeeds.
async fn check_fenced<N: Journal + Table>(node: &N, epoch: Epoch, seq: u64) {
    assert!(is_fenced(node.append(SHARD, epoch, Seq(seq), payload(SHARD, seq, 10)).await));
    assert!(matches!(node.confirm(SHARD, epoch).await, Err(ConfirmError::Fenced)));
    assert!(node.tail(SHARD, epoch, Seq(0)).await.is_err());
    let written = node.checkpoint(SHARD, epoch, Seq(seq - 1), overlay("late=1")).await;
    assert!(matches!(written, Err(StoreError::NotOwned)), "{written:?}");
    let found = node.get_many(SHARD, vec!["late".into()]).await.expect("get_many");
    assert_eq!(found, [None]);
}

/// A node appears when it first renews, and every shard is nobody's at first.
pub async fn nodes_see_each_other(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    assert_eq!((a.me(), b.me()), (A, B));
    let seen = a.renew(announcement("one")).await.expect("renew");
    assert_eq!(members(&seen), [(A, "one", "live")]);
    assert!(seen.shards.len() > usize::from(SHARD.0));
    for (number, holding) in seen.shards.iter().enumerate() {
        assert_eq!((usize::from(holding.shard.0), holding.owner), (number, None));
        assert!(!holding.is_handed);
    }
    let leaving = Announcement { is_leaving: true, ..announcement("two") };
    let seen = b.renew(leaving).await.expect("renew");
    assert_eq!(members(&seen), [(A, "one", "live"), (B, "two", "leaving")]);
    let seen = a.renew(announcement("elsewhere")).await.expect("renew");
    assert_eq!(members(&seen), [(A, "elsewhere", "live"), (B, "two", "leaving")]);
}

/// Of two that claim what they saw, one wins, and the other owns nothing.
pub async fn one_claim_wins(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    for round in 1..=10 {
        let (seen, same) = (holding(&view(&*a).await), holding(&view(&*b).await));
        assert_eq!(seen.epoch, same.epoch);
        let (first, second) = tokio::join!(a.claim(SHARD, seen.epoch), b.claim(SHARD, seen.epoch));
        let (first, second) = (first.expect("claim"), second.expect("claim"));
        assert!(first != second, "round {round}: {first} and {second}");
        let (winner, loser) = if first { (&a, &b) } else { (&b, &a) };
        let now = holding(&view(&**loser).await);
        assert_eq!((now.owner, now.is_handed), (Some(winner.me()), false));
        assert!(now.epoch > seen.epoch);
        assert!(matches!(loser.take(SHARD).await, Err(StoreError::NotOwned)));
        let epoch = take(&**winner, SHARD).await;
        assert!(epoch > now.epoch);
        append(&**winner, SHARD, epoch, round, 10).await;
    }
}

/// Whoever saw the shard before it was taken, given or opened claims nothing.
pub async fn stale_claims_fail(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    let at_first = holding(&view(&*b).await).epoch;
    claim(&*a).await;
    assert!(!b.claim(SHARD, at_first).await.expect("claim"));
    let claimed = holding(&view(&*b).await).epoch;
    let epoch = take(&*a, SHARD).await;
    assert!(!b.claim(SHARD, claimed).await.expect("claim"));
    append(&*a, SHARD, epoch, 1, 10).await;
    assert!(b.claim(SHARD, epoch).await.expect("claim"), "an append changes no epoch");
    check_fenced(&*a, epoch, 2).await;
    assert!(matches!(a.take(SHARD).await, Err(StoreError::NotOwned)));
}

/// A shard that is given is the other's, with all that is in it, and the giver's epoch is over.
pub async fn giving_hands_over(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    view(&*b).await;
    claim(&*a).await;
    let epoch = take(&*a, SHARD).await;
    append(&*a, SHARD, epoch, 1, 10).await;
    assert!(!b.give(SHARD, epoch, Some(B)).await.expect("give"), "only the owner gives");
    assert!(!a.give(SHARD, Epoch(epoch.0 - 1), Some(B)).await.expect("give"), "and only under its epoch");
    assert!(a.confirm(SHARD, epoch).await.is_ok());

    assert!(a.give(SHARD, epoch, Some(B)).await.expect("give"));
    check_fenced(&*a, epoch, 2).await;
    assert!(!a.give(SHARD, epoch, None).await.expect("give"));
    let given = holding(&view(&*b).await);
    assert_eq!((given.owner, given.is_handed), (Some(B), true));
    let epoch = take(&*b, SHARD).await;
    check_tail(&*b, SHARD, epoch, 0, 1, 10).await;
    append(&*b, SHARD, epoch, 2, 10).await;

    assert!(b.give(SHARD, epoch, None).await.expect("give"));
    check_fenced(&*b, epoch, 3).await;
    let free = holding(&view(&*a).await);
    assert_eq!((free.owner, free.is_handed), (None, false));
    assert!(matches!(b.take(SHARD).await, Err(StoreError::NotOwned)));
}

/// A node that does not renew is dead when its tenure has run out, is forgotten later, and owns its shards until somebody
/// claims them.
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
    assert_eq!(members(&seen), [(B, &other[..], "live")]);
    assert_eq!(holding(&seen).owner, Some(A));
    append(&*a, SHARD, epoch, 1, 10).await;
    claim(&*b).await;
    check_fenced(&*a, epoch, 2).await;
}

/// A node that says another one's address has taken its place.
pub async fn an_address_is_one_nodes(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    a.renew(announcement("here")).await.expect("renew");
    let seen = b.renew(announcement("here")).await.expect("renew");
    assert_eq!(members(&seen), [(A, "here", "dead"), (B, "here", "live")]);
    let seen = b.renew(announcement("there")).await.expect("renew");
    assert_eq!(members(&seen), [(A, "here", "dead"), (B, "there", "live")]);
}

/// A node that left is not there, and what it owned is nobody's and under no epoch of its.
pub async fn leaving_frees(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    claim(&*a).await;
    let epoch = take(&*a, SHARD).await;
    append(&*a, SHARD, epoch, 1, 10).await;
    a.leave().await.expect("leave");
    let seen = view(&*b).await;
    assert_eq!(seen.members.iter().map(|member| member.id).collect::<Vec<_>>(), [B]);
    assert_eq!((holding(&seen).owner, holding(&seen).is_handed), (None, false));
    check_fenced(&*a, epoch, 2).await;
    claim(&*b).await;
    let epoch = take(&*b, SHARD).await;
    check_tail(&*b, SHARD, epoch, 0, 1, 10).await;
}

/// Who waits for a change hears that a node came, that a shard was given, and that a node left.
pub async fn changes_are_told(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    let until = async |is_so: &dyn Fn(&View) -> bool| {
        while !is_so(&view(&*b).await) {
            tokio::time::timeout(DEADLINE, b.changed()).await.expect("nobody was told");
        }
    };
    let is_there = |view: &View| view.members.iter().any(|member| member.id == A);
    tokio::join!(until(&is_there), view(&*a));
    claim(&*a).await;
    let epoch = holding(&view(&*a).await).epoch;
    let is_ours = |view: &View| holding(view).owner == Some(B);
    let (_, given) = tokio::join!(until(&is_ours), a.give(SHARD, epoch, Some(B)));
    assert!(given.expect("give"));
    let is_gone = |view: &View| !is_there(view);
    let (_, left) = tokio::join!(until(&is_gone), a.leave());
    left.expect("leave");
}
