//! Ownership of shards, and reading their journals. Every change of owner or epoch locks the shard's row first. So it
//! waits for a running append or part of a checkpoint, and none of the old epoch can come after it.

use super::{
    pool::{Pool, Queryable},
    row::{from_node, from_shard, number, to_shard, unsigned},
};
use crate::{Epoch, NodeId, Seq, ShardId, StoreError};
use bytes::Bytes;

/// The maximum size of the payloads that are read at a time, unless a single payload is longer.
const TAIL_BYTES: i64 = 8 << 20;

const TAKE: &str = "
    WITH mine AS (SELECT id FROM limina.shard WHERE id = $1 AND owner = $2 FOR UPDATE)
    UPDATE limina.shard
    SET epoch = greatest(epoch, $3) + 1, is_handed = false, handed_at = NULL, handed_time = NULL
    FROM mine WHERE shard.id = mine.id RETURNING epoch, seq";

/// First the rows of the owners are locked, and so are their renewals: the claim waits for a running renewal and sees
/// it, and a later renewal sees the claim.
const CLAIM: &str = "
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest($1::integer[], $2::bigint[]) AS asked (shard, epoch)
    ), owners AS MATERIALIZED (
        SELECT id, expires_at > now() AS is_live FROM limina.node
        WHERE id = ANY (ARRAY(SELECT owner FROM limina.shard JOIN asked ON shard.id = asked.shard))
        ORDER BY id FOR SHARE
    ), free AS MATERIALIZED (
        SELECT shard.id FROM limina.shard JOIN asked ON shard.id = asked.shard AND shard.epoch = asked.epoch
        WHERE shard.owner IS NULL OR shard.owner <> ALL (ARRAY(SELECT id FROM owners WHERE is_live))
        ORDER BY shard.id FOR UPDATE OF shard
    )
    UPDATE limina.shard
    SET epoch = epoch + 1, owner = $3, is_handed = false, handed_at = NULL, handed_time = NULL
    FROM free WHERE shard.id = free.id RETURNING shard.id";

const GIVE: &str = "
    WITH mine AS (SELECT id FROM limina.shard WHERE id = $1 AND epoch = $2 AND owner = $3 FOR UPDATE)
    UPDATE limina.shard
    SET epoch = epoch + 1, owner = $4, is_handed = $4::bigint IS NOT NULL,
        handed_at = CASE WHEN $4::bigint IS NOT NULL THEN clock_timestamp() END,
        handed_time = CASE WHEN $4::bigint IS NOT NULL THEN $5::bigint END
    FROM mine WHERE shard.id = mine.id RETURNING pg_notify('limina_changed', $3::bigint::text)::text";

/// The shard's epoch and last seq, with each of the next appends. The running sum of lengths decides where a part ends
/// before any payload is read.
const TAIL: &str = "
    SELECT shard.epoch, shard.seq, part.seq, part.payload
    FROM limina.shard LEFT JOIN LATERAL (
        SELECT seq, payload, sum(octet_length(payload)) OVER (ORDER BY seq) - octet_length(payload) AS before
        FROM (
            SELECT seq, payload FROM limina.journal
            WHERE shard = shard.id AND seq > $2 ORDER BY seq LIMIT 10000
        ) AS next
    ) AS part ON part.before < $3
    WHERE shard.id = $1 ORDER BY part.seq";

/// Gives this node, which must own the shard, a new epoch, higher than `above`. Only that epoch may write from now on. Also forgets that
/// the shard was handed over: if this node opens it again later, clients were interrupted. Returns also the shard's last append.
pub(super) async fn take(
    pool: &Pool,
    me: NodeId,
    shard: ShardId,
    above: Epoch,
) -> Result<(Epoch, Seq), StoreError> {
    let rows = pool.query(TAKE, &[&from_shard(shard), &from_node(me), &number(above.0)]).await?;
    let row = rows.first().ok_or(StoreError::NotOwned)?;
    Ok((Epoch(unsigned(row.get(0))), Seq(unsigned(row.get(1)))))
}

pub(super) async fn claim(
    pool: &Pool,
    me: NodeId,
    wanted: &[(ShardId, Epoch)],
) -> Result<Vec<ShardId>, StoreError> {
    let shards: Vec<i32> = wanted.iter().map(|(shard, _)| from_shard(*shard)).collect();
    let epochs: Vec<i64> = wanted.iter().map(|(_, epoch)| number(epoch.0)).collect();
    let rows = pool.query(CLAIM, &[&shards, &epochs, &from_node(me)]).await?;
    Ok(rows.iter().map(|row| to_shard(row.get(0))).collect())
}

pub(super) async fn give(
    pool: &Pool,
    me: NodeId,
    shard: ShardId,
    epoch: Epoch,
    to: Option<NodeId>,
    shard_time_ms: u64,
) -> Result<bool, StoreError> {
    let (to, time) = (to.map(from_node), number(shard_time_ms));
    let rows = pool.query(GIVE, &[&from_shard(shard), &number(epoch.0), &from_node(me), &to, &time]).await?;
    Ok(!rows.is_empty())
}

/// The shard's last append, and the appends after `after`, or the first part of them.
pub(super) async fn tail(
    pool: &impl Queryable,
    shard: ShardId,
    epoch: Epoch,
    after: Seq,
) -> Result<(Seq, Vec<(Seq, Bytes)>), StoreError> {
    let rows = pool.query(TAIL, &[&from_shard(shard), &number(after.0), &TAIL_BYTES]).await?;
    let owner = rows.first().map(|row| (Epoch(unsigned(row.get(0))), Seq(unsigned(row.get(1)))));
    let last = match owner {
        Some((current, last)) if current == epoch && last >= after => last,
        Some((current, _)) if current == epoch => return Err(StoreError::WentBack),
        _ => return Err(StoreError::NotOwned),
    };
    let mut tail: Vec<(Seq, Bytes)> = Vec::with_capacity(rows.len());
    for row in &rows {
        let Some(seq) = row.get::<_, Option<i64>>(2) else { break };
        tail.push((Seq(unsigned(seq)), row.get::<_, Vec<u8>>(3).into()));
    }
    let mut expected = after.next().0..;
    let is_gapless = tail.iter().all(|(seq, _)| expected.next() == Some(seq.0));
    match is_gapless && (!tail.is_empty() || last == after) {
        true => Ok((last, tail)),
        false => Err(StoreError::Corrupt {
            path: format!("the table limina.journal, shard {}", shard.0),
            offset: after.0,
            detail: format!("appends are missing between {} and {}", after.0, last.0),
        }),
    }
}
