//! Removes released appends, a few at a time, with low priority.

use super::{
    pool::Pool,
    queue::Queue,
    row::{from_shard, number},
};
use crate::{Seq, ShardId, StoreError};
use std::{collections::BTreeMap, sync::Arc};

/// The number of appends that one statement removes.
const DELETE_LIMIT: i64 = 256;

/// Never removes an append that the table does not contain, whatever the caller asks for.
const RELEASE: &str = "
    WITH removed AS (
        DELETE FROM limina.journal WHERE shard = $1 AND seq IN (
            SELECT seq FROM limina.journal
            WHERE shard = $1 AND seq > $2 AND seq <= least($3, (SELECT applied FROM limina.shard WHERE id = $1))
            ORDER BY seq LIMIT $4
        ) RETURNING seq
    )
    SELECT count(*), max(seq) FROM removed";

/// Shards to be released, each up to a seq.
pub(super) type Releases = Queue<(ShardId, Seq)>;

pub(super) async fn run(releases: Arc<Releases>, pool: Arc<Pool>) {
    // For each shard, the seq up to which all appends have been removed, so that these are not searched again.
    let mut floors: BTreeMap<ShardId, i64> = BTreeMap::new();
    while let Some((group, _turn)) = releases.group(|_| true).await {
        for (shard, upto) in group {
            let floor = floors.entry(shard).or_default();
            if let Err(error) = release(&pool, shard, upto, floor).await {
                // The next release of the shard will remove it.
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    shard = shard.0,
                    "released appends could not be removed; the next release tries again"
                );
            }
        }
    }
}

async fn release(pool: &Pool, shard: ShardId, upto: Seq, floor: &mut i64) -> Result<(), StoreError> {
    // If the database has gone back to an older state, the numbers of the lost appends are used again.
    *floor = (*floor).min(number(upto.0));
    loop {
        let rows = pool.query(RELEASE, &[&from_shard(shard), floor, &number(upto.0), &DELETE_LIMIT]).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        *floor = row.get::<_, Option<i64>>(1).unwrap_or(*floor);
        if row.get::<_, i64>(0) < DELETE_LIMIT {
            return Ok(());
        }
    }
}
