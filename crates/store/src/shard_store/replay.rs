//! Reads batches from the journal.

use crate::{Batch, Seq, ShardId, StoreError};
use bytes::Bytes;

/// The batch of an append.
pub(super) fn decode(shard: ShardId, seq: Seq, payload: Bytes) -> Result<Batch, StoreError> {
    Batch::decode(payload).map_err(|malformed| StoreError::Corrupt {
        path: format!("the journal of shard {}, append {}", shard.0, seq.0),
        offset: malformed.offset as u64,
        detail: malformed.problem.to_string(),
    })
}
