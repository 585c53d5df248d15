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
    /// Where other nodes reach it. It stays the same for as long as the node runs.
    pub address: String,
    /// The name of the machine, for operators; empty if it is not known.
    pub host: String,
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
    /// The machine it runs on, as it said itself.
    pub host: String,
    /// How long ago it first renewed, by the store's clock.
    pub age: Duration,
    /// Its tenure has not run out.
    pub is_live: bool,
    /// How long its tenure still lasts without another renewal; zero where it has run out.
    pub expires_in: Duration,
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
    /// Set if the last owner gave it to this one and had answered everything before.
    pub handed: Option<Handed>,
}

/// What the last owner of a shard left for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    /// The shard's time when it was given, in milliseconds. The store only keeps it.
    pub shard_time_ms: u64,
    /// How long ago that was, by the store's clock, when it was looked at.
    pub ago: Duration,
}

/// Everything at one instant: members by id, and every shard by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Every node that was alive not long ago, or owns a shard.
    pub members: Vec<Member>,
    /// Every shard.
    pub shards: Vec<Holding>,
}

impl View {
    /// The live node other than `me` that has this address, if there is one. While there is, `me` is not renewed.
    pub fn occupant(&self, address: &str, me: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.is_live && member.id != me && member.address == address)
    }
}

/// The part of a shared store that knows the nodes. It speaks for one of them, and [`Journal::take`](crate::Journal::take)
/// of the same store succeeds only for shards that this node owns here, and says [`StoreError::NotOwned`] otherwise.
pub trait Tenure: Send + Sync + 'static {
    /// The node it speaks for.
    fn me(&self) -> NodeId;

    /// Makes this node known or renews its tenure, and tells who owns what at an instant after that. A live node keeps its
    /// address for itself: while another one has it, nothing is renewed, and [`View::occupant`] tells which. The address of a
    /// node whose tenure has run out is free.
    fn renew(&self, announcement: Announcement) -> impl Future<Output = Result<View, StoreError>> + Send;

    /// Makes this node the owner of all these shards whose owner is not alive at this instant, and that nobody took, gave or
    /// opened since they had the epoch that is named with them; returns which these are. A renewal and a claim exclude each
    /// other: either the claim sees that the owner is alive, or the owner's renewal shows that it lost the shard.
    fn claim(
        &self,
        wanted: Vec<(ShardId, Epoch)>,
    ) -> impl Future<Output = Result<Vec<ShardId>, StoreError>> + Send;

    /// Gives a shard that this node owns under `epoch` to another one, or to nobody; says whether it was still ours. From
    /// then on nothing that this node does under that epoch succeeds. `shard_time_ms` is for the next owner, see [`Handed`].
    fn give(
        &self,
        shard: ShardId,
        epoch: Epoch,
        to: Option<NodeId>,
        shard_time_ms: u64,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// This node is no more. What it still owns is nobody's.
    fn leave(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns when other nodes came, left, or gave shards since the last call, as far as can be told; at the latest when
    /// somebody could not be told. Who renews now and then anyway misses nothing.
    fn changed(&self) -> impl Future<Output = ()> + Send;

    /// Whether the store can do everything that it may be asked for, as far as is known now: write, read, and change owners.
    /// Costs next to nothing.
    fn is_able(&self) -> bool;
}
