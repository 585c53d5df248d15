//! The part of a store that answers wait for.

use crate::{Epoch, Seq, ShardId, StoreError};
use bytes::Bytes;
use std::future::Future;

/// The longest payload of one append.
pub const MAX_PAYLOAD_BYTES: usize = 512 << 20;

/// Durable, ordered appends, a sequence for each shard.
pub trait Journal: Send + Sync + 'static {
    /// Takes the shard over: from now on only the returned epoch may append or confirm.
    fn take(&self, shard: ShardId) -> impl Future<Output = Result<Epoch, StoreError>> + Send;

    /// What was appended after `after`, in order and without gaps; a part of it (some megabytes) at a time, and
    /// nothing when there is no more.
    fn tail(
        &self,
        shard: ShardId,
        epoch: Epoch,
        after: Seq,
    ) -> impl Future<Output = Result<Vec<(Seq, Bytes)>, StoreError>> + Send;

    /// Appends one batch; durable when it returns. `seq` must follow the shard's last one. An append that was begun
    /// goes on even if the returned future is dropped.
    fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), AppendError>> + Send;

    /// Takes back an append of this shard that was begun and not sent yet, if the store keeps such ones waiting. Says whether
    /// it did: then the append surely did not happen, and will not.
    fn withdraw(&self, _shard: ShardId) -> bool {
        false
    }

    /// Returns when it is sure that `epoch` still owned the shard at a moment after the call began.
    fn confirm(&self, shard: ShardId, epoch: Epoch) -> impl Future<Output = Result<(), ConfirmError>> + Send;

    /// The table holds everything of the shard up to `upto` durably: the journal need not keep it.
    fn release(&self, shard: ShardId, upto: Seq);

    /// Whether there is room for more, as far as is known now. Costs next to nothing.
    fn room(&self) -> Room;

    /// What the journal holds and has done, for operators and for whoever decides what to checkpoint.
    fn stats(&self) -> JournalStats;
}

/// What the journal holds and has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Segments that hold, or may hold, something unreleased.
    pub segments: u64,
    /// How many bytes these take on disk.
    pub live_bytes: u64,
    /// Files kept for reuse.
    pub spares: u64,
    /// Frames written since opening.
    pub frames: u64,
    /// Appends made durable since opening.
    pub appends: u64,
    /// Syncs of files since opening.
    pub syncs: u64,
    /// The shards that keep the oldest segment from being released, and the first seq of each that does.
    pub pinning: Vec<(ShardId, Seq)>,
}

/// How much more may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Write on.
    Plenty,
    /// Only what must be done (timers, checkpoints); clients are told that the storage is full.
    Reserve,
}

/// Why an append did not become durable, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// A newer epoch owns the shard. It surely did not happen.
    #[error("a newer owner has taken the shard")]
    Fenced,
    /// There is no room. It surely did not happen.
    #[error("the storage is full")]
    Full,
    /// It surely did not happen, for this reason.
    #[error("the append was not begun")]
    NotDone(#[source] StoreError),
    /// It may or may not have happened. [`Journal::take`], then [`Journal::tail`], tell.
    #[error("the outcome of the append is not known")]
    Unknown(#[source] StoreError),
}

impl AppendError {
    /// The same once more, for everyone whose append went the same way.
    pub(crate) fn again(&self) -> AppendError {
        match self {
            AppendError::Fenced => AppendError::Fenced,
            AppendError::Full => AppendError::Full,
            AppendError::NotDone(error) => AppendError::NotDone(error.again()),
            AppendError::Unknown(error) => AppendError::Unknown(error.again()),
        }
    }
}

/// Why ownership could not be confirmed.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmError {
    /// A newer epoch owns the shard.
    #[error("a newer owner has taken the shard")]
    Fenced,
    /// It could not be found out.
    #[error("ownership could not be confirmed")]
    Failed(#[source] StoreError),
}
