//! Who owns which shard, where several nodes share a store.
//!
//! Every node knows of the others through the store alone. A node is alive while its tenure, which it renews, has not run
//! out by the store's own clock. All of this decides who *should* own a shard; that nobody else can write to it is the
//! matter of the epoch in [`Journal`](crate::Journal).

use crate::{Epoch, ShardId, StoreError};
use std::{fmt, future::Future, time::Duration};

/// One process, from its start to its end, by a number drawn at random. A process that starts again is another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a node says of itself whenever it renews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Where other nodes reach it. A node that says the address of another one has taken its place: the other's tenure
    /// ends at once.
    pub address: String,
    /// It is about to stop, and wants no more shards.
    pub is_leaving: bool,
    /// For how long it is alive from now on without renewing again.
    pub tenure: Duration,
}

/// A node as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub id: NodeId,
    /// Where it is reached.
    pub address: String,
    /// Its tenure has not run out.
    pub is_live: bool,
    /// It is about to stop.
    pub is_leaving: bool,
}

/// A shard as the store knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Which.
    pub shard: ShardId,
    /// Grows with every taking over, giving, and opening.
    pub epoch: Epoch,
    /// Whose it is: of a node that may be dead, or of nobody.
    pub owner: Option<NodeId>,
    /// Its last owner gave it to this one and had answered everything before.
    pub is_handed: bool,
}

/// Everything at one instant: members by id, and every shard by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Every node that was alive not long ago.
    pub members: Vec<Member>,
    /// Every shard.
    pub shards: Vec<Holding>,
}

/// The part of a shared store that knows the nodes. It speaks for one of them, and [`Journal::take`](crate::Journal::take)
/// of the same store succeeds only for shards that this node owns here, and says [`StoreError::NotOwned`] otherwise.
pub trait Tenure: Send + Sync + 'static {
    /// The node it speaks for.
    fn me(&self) -> NodeId;

    /// Makes this node known or renews its tenure, and tells who owns what at that instant.
    fn renew(&self, announcement: Announcement) -> impl Future<Output = Result<View, StoreError>> + Send;

    /// Makes this node the shard's owner if nobody took, gave or opened it since it had the epoch `seen`; says whether.
    fn claim(&self, shard: ShardId, seen: Epoch) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Gives a shard that this node owns under `epoch` to another one, or to nobody; says whether it was still ours. From
    /// then on nothing that this node does under that epoch succeeds.
    fn give(
        &self,
        shard: ShardId,
        epoch: Epoch,
        to: Option<NodeId>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// This node is no more. What it still owns is nobody's.
    fn leave(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns when other nodes came, left, or gave shards since the last call, as far as can be told; at the latest when
    /// somebody could not be told. Who renews now and then anyway misses nothing.
    fn changed(&self) -> impl Future<Output = ()> + Send;
}
