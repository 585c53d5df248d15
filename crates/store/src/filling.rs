//! Filling a new store with what another one held.

use crate::{Records, ShardId, StoreError};
use std::future::Future;

/// A new store that is being filled. Until [`Filling::finish`] has returned nobody can use it: it is refused, or is not
/// there at all.
pub trait Filling: Send {
    /// How many shards it has.
    fn shards(&self) -> u16;

    /// Adds records to a shard's table. No key comes twice, and histories come in their order.
    fn put(
        &mut self,
        shard: ShardId,
        records: Records,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// That was all: the store is durable and can be used.
    fn finish(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}
