//! What names a shard, its owner and its appends.

/// One of the shards of a data directory or cluster. Their number is fixed when the store is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// Identifies one ownership of a shard. It grows whenever the shard is claimed, handed over or opened. Appends and
/// confirms under an older epoch are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The number of an append within its shard. The first is 1, and there are no gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The seq before the first append.
    pub const ZERO: Seq = Seq(0);

    /// The seq of the next append.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}
