//! Loading an exported store into a new one.

use crate::{Records, ShardId, Sharding, StoreError};
use std::future::Future;

/// A new store that is being loaded. Nobody can use the store before [`BulkLoader::finish`] has returned: until then it
/// is refused, or does not exist.
pub trait BulkLoader: Send {
    /// How the new store distributes namespaces over shards. The caller puts each namespace into its shard.
    fn sharding(&self) -> Sharding;

    /// Adds records to a shard's table. No key may come twice, and the records of a history must come in order.
    fn put(
        &mut self,
        shard: ShardId,
        records: Records,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes everything durable and the store usable.
    fn finish(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}
