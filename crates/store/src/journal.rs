//! The journal: the part of a store that answers wait for.

use crate::{Epoch, Seq, ShardId, StoreError};
use bytes::Bytes;
use std::future::Future;

/// The longest payload of one append, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 512 << 20;

/// Durable, ordered appends. Each shard has its own sequence.
pub trait Journal: Send + Sync + 'static {
    /// Takes ownership of the shard under a new epoch. From now on only this epoch may append or confirm.
    fn take(&self, shard: ShardId) -> impl Future<Output = Result<Epoch, StoreError>> + Send;

    /// Returns the appends after `after`, in order and without gaps. Each call returns at most a few megabytes, or a
    /// single longer append; an empty list means that there are no more. Fails with [`StoreError::NotOwned`] if `epoch` is not
    /// the shard's present one, and with another error if the journal has released some of these appends. On a store that several
    /// nodes share, a node may also read the journal of a shard that another node owns.
    fn tail(
        &self,
        shard: ShardId,
        epoch: Epoch,
        after: Seq,
    ) -> impl Future<Output = Result<Vec<(Seq, Bytes)>, StoreError>> + Send;

    /// Appends one batch, which is durable when this returns. `seq` must be the shard's last seq plus one. Dropping the
    /// future does not cancel the append.
    fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), AppendError>> + Send;

    /// Cancels an append of this shard that still waits in a queue of the store. Returns true if it was cancelled: then
    /// it did not happen and will not happen. Stores without such a queue return false.
    fn withdraw(&self, _shard: ShardId) -> bool {
        false
    }

    /// Proves that at some moment after this call began, `epoch` still owned the shard, and the journal had all appends up to `seq`. A
    /// store that only one process uses cannot lose appends while it is open, and need not compare `seq`.
    fn confirm(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
    ) -> impl Future<Output = Result<(), ConfirmError>> + Send;

    /// The appends of the shard that this node has seen in the journal, and that the journal did not have any more when this node took
    /// the shard: the store has gone back to an older state. `None` again after the next append.
    fn lost(&self, _shard: ShardId) -> Option<LostAppends> {
        None
    }

    /// The table durably contains the shard up to `upto`, so the journal may drop these appends.
    fn release(&self, shard: ShardId, upto: Seq);

    /// Whether clients' writes may be accepted, as far as is known now. Cheap: it reads a flag.
    fn free_space(&self) -> FreeSpace;

    /// The journal's size and work, for metrics and to decide which shard to checkpoint.
    fn stats(&self) -> JournalStats;
}

/// The journal's present size, and its work since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Segments that may contain appends that are not released.
    pub segments: u64,
    /// Bytes that these segments take on disk.
    pub live_bytes: u64,
    /// Files that are ready to become segments.
    pub spares: u64,
    /// Frames written since opening.
    pub frames: u64,
    /// Appends made durable since opening.
    pub appends: u64,
    /// Syncs of files since opening.
    pub syncs: u64,
    /// The shards that prevent the oldest segment from being released, each with its first unreleased seq.
    pub pinning: Vec<(ShardId, Seq)>,
    /// The store's server was replaced by one with another database, which is not used.
    pub is_other_database: bool,
}

/// Consecutive appends of a shard that were durable, and that the store has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostAppends {
    /// The first lost append.
    pub first: Seq,
    /// The last append that this node knows to be lost. There may have been later ones.
    pub last: Seq,
}

/// How much storage is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeSpace {
    /// All writes may be accepted.
    Ample,
    /// Only the reserve is left. It is for the shards' own work, such as timers and checkpoints; clients' writes are
    /// answered with `StorageFull`.
    Reserve,
}

/// Why an append did not become durable, or may not have become durable.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// A newer epoch owns the shard. The append did not happen.
    #[error("a newer owner has taken the shard")]
    Fenced,
    /// The storage is full. The append did not happen.
    #[error("the storage is full")]
    Full,
    /// The append did not happen, for this reason.
    #[error("the append did not happen")]
    NotDone(#[source] StoreError),
    /// The append may or may not have happened. To find out, call [`Journal::take`], then [`Journal::tail`].
    #[error("the outcome of the append is not known")]
    Unknown(#[source] StoreError),
}

impl AppendError {
    /// A copy of the error, for each append of the same frame.
    pub(crate) fn again(&self) -> AppendError {
        match self {
            AppendError::Fenced => AppendError::Fenced,
            AppendError::Full => AppendError::Full,
            AppendError::NotDone(error) => AppendError::NotDone(error.again()),
            AppendError::Unknown(error) => AppendError::Unknown(error.again()),
        }
    }
}

/// Why ownership of a shard could not be confirmed.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmError {
    /// A newer epoch owns the shard, or the store has gone back to an older state.
    #[error("another owner has taken the shard, or the store has gone back to an older state")]
    Fenced,
    /// The store could not be asked, so the owner is not known.
    #[error("ownership could not be confirmed")]
    Failed(#[source] StoreError),
}
