//! Which node owns which shard, if several nodes share a store.
//!
//! A node knows of the other nodes only through the store. A node counts as alive until its tenure expires by the
//! store's own clock, and it renews its tenure regularly. This decides which node *should* own a shard. It does not
//! keep other nodes from writing: the epoch in [`Journal`](crate::Journal) does.

use crate::{Epoch, ShardId, StoreError};
use std::{fmt, future::Future, time::Duration};

/// Identifies one process, from its start to its end, by a random number. A process that is restarted is another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The SHA-256 of a certificate. It stands for the certificate: no other one with the same fingerprint can be made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// What a node tells the store with each renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The address at which other nodes reach this one. It must not change while the node runs.
    pub address: String,
    /// The name of the machine, for operators. Empty if it is not known.
    pub host: String,
    /// True if the node is about to stop and should get no more shards.
    pub is_leaving: bool,
    /// How long the node counts as alive from now on if it does not renew again.
    pub tenure: Duration,
    /// The certificate that the node shows to other nodes. None if they cannot reach it.
    pub certificate: Option<Fingerprint>,
    /// The shards of other nodes that this node has read, so that it can serve them soon after it gets them. In ascending order.
    pub prepared: Vec<ShardId>,
}

/// A node as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub id: NodeId,
    /// The address at which other nodes reach it.
    pub address: String,
    /// The machine that it runs on, as the node reported it.
    pub host: String,
    /// Time since its first renewal, by the store's clock.
    pub age: Duration,
    /// Whether its tenure has not expired yet.
    pub is_live: bool,
    /// False if the node's session with the store has ended since its last renewal: its process has died, or it has lost its
    /// connection and will renew over another one. True if the store cannot tell, or if the tenure has expired.
    pub is_connected: bool,
    /// Time until its tenure expires, if it does not renew again. Zero if it has expired.
    pub expires_in: Duration,
    /// Whether it is about to stop.
    pub is_leaving: bool,
    /// The certificate that it shows to other nodes, as it announced it. None if they cannot reach it.
    pub certificate: Option<Fingerprint>,
    /// The shards that it has prepared, as it announced them.
    pub prepared: Vec<ShardId>,
}

/// The store's row of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardRow {
    /// The shard.
    pub shard: ShardId,
    /// Grows whenever the shard is claimed, handed over or opened.
    pub epoch: Epoch,
    /// The node that owns the shard, which may be dead. `None` if no node does.
    pub owner: Option<NodeId>,
    /// Set if the previous owner handed the shard over after it had answered everything, and the present owner has not taken it yet.
    pub handed: Option<HandOver>,
}

/// What the previous owner of a shard leaves for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOver {
    /// Shard time at the hand-over, in milliseconds. The store does not interpret it.
    pub shard_time_ms: u64,
    /// Time since the hand-over, by the store's clock, as of this view.
    pub ago: Duration,
}

/// All nodes and shards as of one instant: members sorted by id, shards by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// All nodes that were alive recently or own a shard.
    pub members: Vec<Member>,
    /// All shards of the store.
    pub shards: Vec<ShardRow>,
    /// The shards of which the store has less than this node has seen before: the store has gone back to an older state.
    pub went_back: Vec<ShardId>,
}

impl View {
    /// The live node other than `me` that uses this address, if there is one. While there is, `me` cannot renew.
    pub fn occupant(&self, address: &str, me: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.is_live && member.id != me && member.address == address)
    }
}

/// The part of a shared store that knows the nodes, as one of these nodes uses it. On such a store
/// [`Journal::take`](crate::Journal::take) succeeds only for shards that this node owns, and otherwise returns
/// [`StoreError::NotOwned`].
pub trait Tenure: Send + Sync + 'static {
    /// The node that uses this store.
    fn me(&self) -> NodeId;

    /// Registers this node or renews its tenure, and returns all nodes and owners as of an instant after that. Two live
    /// nodes cannot have the same address: while another live node has it, this call renews nothing, and
    /// [`View::occupant`] names that node. If the tenure of that node has expired, its address is free.
    fn renew(&self, announcement: Announcement) -> impl Future<Output = Result<View, StoreError>> + Send;

    /// Ends the tenure of another node at once, if that node's session with the store has ended since its last renewal.
    /// Returns whether this call ended it. The caller must know that the node's process has ended: a node that lives and has
    /// only lost its connection still gives relaxed answers. Excludes a renewal of that node, like [`Tenure::claim`].
    fn end_tenure(&self, node: NodeId) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Claims shards whose owners are dead, and returns the shards that this node now owns. A shard is claimed only if
    /// its owner's tenure has expired at this instant, and if its epoch is still the one given here. A renewal and a
    /// claim exclude each other: either the claim sees that the owner is alive, or the owner's renewal shows that it
    /// lost the shard.
    fn claim(
        &self,
        wanted: Vec<(ShardId, Epoch)>,
    ) -> impl Future<Output = Result<Vec<ShardId>, StoreError>> + Send;

    /// Hands a shard that this node owns under `epoch` over to another node, or to none. Returns false if this node did
    /// not own it under that epoch any more. From then on everything that this node does under that epoch fails.
    /// `shard_time_ms` is for the next owner, see [`HandOver`].
    fn give(
        &self,
        shard: ShardId,
        epoch: Epoch,
        to: Option<NodeId>,
        shard_time_ms: u64,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Removes this node from the store. Shards that it still owns have no owner then.
    fn leave(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns when this node's own session has ended since the last call. From then until the next renewal, other nodes see
    /// this one as not connected, and may end its tenure.
    fn disconnected(&self) -> impl Future<Output = ()> + Send;

    /// Returns when another node joined, left, lost its session, prepared a shard or handed one over since the last call. It may also return
    /// without such a change, for example after a lost connection. It can miss changes, so callers must also renew regularly.
    fn changed(&self) -> impl Future<Output = ()> + Send;

    /// Whether the store can do everything: write, read, and change owners. Cheap: it reads what is known now.
    fn is_available(&self) -> bool;
}
