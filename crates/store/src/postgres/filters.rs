//! Filters of keys, stored beside the records.

use super::{
    pool::Pool,
    row::{from_node, from_shard, number, unsigned},
};
use crate::{Epoch, FilterPart, NodeId, Seq, ShardId, StoreError, StoredFilter};
use bytes::Bytes;

const BEGIN: &str = "SELECT applied FROM limina.shard WHERE id = $1 AND epoch = $2";

/// Like a part of a checkpoint, it names the seq that the table contains. So a statement that was delayed, and arrives after a later
/// checkpoint, changes nothing.
const STORE: &str = "
    WITH mine AS (
        SELECT id FROM limina.shard
        WHERE id = $1 AND epoch = $2 AND applied = $3 AND seq >= $4 AND owner = $8 FOR KEY SHARE
    ), removed AS (
        DELETE FROM limina.filter USING mine WHERE filter.shard = mine.id AND filter.part >= $5
    ), stored AS (
        INSERT INTO limina.filter (shard, part, upto, bits)
        SELECT mine.id, new.part, $4, new.bits FROM mine, unnest($6::integer[], $7::bytea[]) AS new (part, bits)
        ON CONFLICT (shard, part) DO UPDATE SET upto = excluded.upto, bits = excluded.bits
    )
    SELECT id FROM mine";

const LOAD: &str = "SELECT part, upto, bits FROM limina.filter WHERE shard = $1 ORDER BY part";

pub(super) async fn store(
    pool: &Pool,
    me: NodeId,
    shard: ShardId,
    epoch: Epoch,
    upto: Seq,
    changed: Vec<FilterPart>,
    parts: usize,
) -> Result<(), StoreError> {
    let (shard, epoch) = (from_shard(shard), number(epoch.0));
    let begun = pool.query(BEGIN, &[&shard, &epoch]).await?;
    let applied: i64 = begun.first().ok_or(StoreError::NotOwned)?.get(0);
    let numbers: Vec<i32> = changed.iter().map(|part| part.number as i32).collect();
    let bits: Vec<&[u8]> = changed.iter().map(|part| &part.bytes[..]).collect();
    let (upto, parts) = (number(upto.0), parts as i32);
    let stored = pool
        .query(STORE, &[&shard, &epoch, &applied, &upto, &parts, &numbers, &bits, &from_node(me)])
        .await?;
    stored.first().map(|_| ()).ok_or(StoreError::NotOwned)
}

/// `None` if there is no filter, or if a part of it is missing.
pub(super) async fn load(pool: &Pool, shard: ShardId) -> Result<Option<StoredFilter>, StoreError> {
    let rows = pool.query(LOAD, &[&from_shard(shard)]).await?;
    let is_whole = rows.iter().zip(0..).all(|(row, part)| row.get::<_, i32>(0) == part);
    let Some(last) = rows.last().filter(|_| is_whole) else { return Ok(None) };
    let upto = Seq(unsigned(last.get(1)));
    let parts = rows.iter().map(|row| Bytes::from(row.get::<_, Vec<u8>>(2))).collect();
    Ok(Some(StoredFilter { upto, parts }))
}
