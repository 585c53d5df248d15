//! Look-ups of records.
//!
//! The size of an index entry is limited. So a row is keyed by the first bytes of its record's key, the *head*, and by
//! a digest of the following bytes, the *rest*. The order of `(head, rest)` is the order of keys, because a head that
//! is followed by a rest always has its full length. Nearly all keys consist of a head only.

use super::{
    pool::Queryable,
    row::{from_shard, unsigned},
};
use crate::{Seq, ShardId, StoreError};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio_postgres::{Row, types::ToSql};

const HEAD_BYTES: usize = 1024;

const APPLIED: &str = "SELECT applied FROM limina.shard WHERE id = $1";

const GET: &str = "
    SELECT asked.place, record.value
    FROM unnest($1::integer[], $2::bytea[], $3::bytea[]) WITH ORDINALITY AS asked (shard, head, digest, place)
    JOIN limina.record
        ON record.shard = asked.shard AND record.head = asked.head AND record.digest = asked.digest";

const SCAN: &str = "
    SELECT head, rest, value FROM limina.record
    WHERE shard = $1 AND head >= $2 AND head <= $4 AND (head, rest) >= ($2, $3) AND (head, rest) < ($4, $5)
    ORDER BY head, rest LIMIT $6";

const SCAN_KEYS: &str = "
    SELECT head, rest FROM limina.record
    WHERE shard = $1 AND head >= $2 AND head <= $4 AND (head, rest) >= ($2, $3) AND (head, rest) < ($4, $5)
    ORDER BY head, rest LIMIT $6";

/// First finds the last head by the index, then the last rest with that head.
const LAST: &str = "
    SELECT asked.place, found.head, found.rest, found.value
    FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[]) WITH ORDINALITY
        AS asked (from_head, from_rest, at_head, at_rest, place)
    CROSS JOIN LATERAL (
        SELECT head FROM limina.record
        WHERE shard = $1 AND head >= from_head AND head <= at_head
            AND (head, rest) >= (from_head, from_rest) AND (head, rest) <= (at_head, at_rest)
        ORDER BY head DESC, digest DESC LIMIT 1
    ) AS last
    CROSS JOIN LATERAL (
        SELECT head, rest, value FROM limina.record
        WHERE shard = $1 AND head = last.head
            AND (head, rest) >= (from_head, from_rest) AND (head, rest) <= (at_head, at_rest)
        ORDER BY rest DESC LIMIT 1
    ) AS found";

/// Splits a key into head and rest.
pub(super) fn split(key: &[u8]) -> (&[u8], &[u8]) {
    key.split_at(key.len().min(HEAD_BYTES))
}

/// The value that represents the rest in the index.
pub(super) fn digest(rest: &[u8]) -> Vec<u8> {
    if rest.is_empty() { Vec::new() } else { Sha256::digest(rest).to_vec() }
}

pub(super) async fn applied(pool: &impl Queryable, shard: ShardId) -> Result<Seq, StoreError> {
    let rows = pool.query(APPLIED, &[&from_shard(shard)]).await?;
    Ok(rows.first().map_or(Seq::ZERO, |row| Seq(unsigned(row.get(0)))))
}

/// A key of a shard.
pub(super) struct Key<'a> {
    pub(super) shard: ShardId,
    pub(super) bytes: &'a [u8],
}

/// The values under these keys, in their order.
pub(super) async fn get_many(
    pool: &impl Queryable,
    keys: Vec<Key<'_>>,
) -> Result<Vec<Option<Bytes>>, StoreError> {
    let shards: Vec<i32> = keys.iter().map(|key| from_shard(key.shard)).collect();
    let heads: Vec<&[u8]> = keys.iter().map(|key| split(key.bytes).0).collect();
    let digests: Vec<Vec<u8>> = keys.iter().map(|key| digest(split(key.bytes).1)).collect();
    let mut values = vec![None; keys.len()];
    for row in pool.query(GET, &[&shards, &heads, &digests]).await? {
        values[index(&row)] = Some(row.get::<_, Vec<u8>>(1).into());
    }
    Ok(values)
}

pub(super) async fn scan(
    pool: &impl Queryable,
    shard: ShardId,
    from: &[u8],
    to: &[u8],
    limit: usize,
) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let ((from_head, from_rest), (to_head, to_rest)) = (split(from), split(to));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows =
        pool.query(SCAN, &[&from_shard(shard), &from_head, &from_rest, &to_head, &to_rest, &limit]).await?;
    Ok(rows.iter().map(|row| record(row, 0)).collect())
}

pub(super) async fn scan_keys(
    pool: &impl Queryable,
    shard: ShardId,
    from: &[u8],
    to: &[u8],
    limit: usize,
) -> Result<Vec<Bytes>, StoreError> {
    let ((from_head, from_rest), (to_head, to_rest)) = (split(from), split(to));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let params: [&(dyn ToSql + Sync); 6] =
        [&from_shard(shard), &from_head, &from_rest, &to_head, &to_rest, &limit];
    Ok(pool.query(SCAN_KEYS, &params).await?.iter().map(|row| key(row, 0)).collect())
}

pub(super) async fn last_at_or_before(
    pool: &impl Queryable,
    shard: ShardId,
    ranges: &[(Bytes, Bytes)],
) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
    let (from_heads, from_rests): (Vec<&[u8]>, Vec<&[u8]>) =
        ranges.iter().map(|(from, _)| split(from)).unzip();
    let (at_heads, at_rests): (Vec<&[u8]>, Vec<&[u8]>) = ranges.iter().map(|(_, at)| split(at)).unzip();
    let mut found = vec![None; ranges.len()];
    let rows =
        pool.query(LAST, &[&from_shard(shard), &from_heads, &from_rests, &at_heads, &at_rests]).await?;
    for row in rows {
        found[index(&row)] = Some(record(&row, 1));
    }
    Ok(found)
}

/// The index of the look-up that a row answers.
fn index(row: &Row) -> usize {
    row.get::<_, i64>(0) as usize - 1
}

/// Key and value, from three columns.
fn record(row: &Row, first: usize) -> (Bytes, Bytes) {
    (key(row, first), row.get::<_, Vec<u8>>(first + 2).into())
}

/// A key, from two columns.
fn key(row: &Row, first: usize) -> Bytes {
    let mut key: Vec<u8> = row.get(first);
    key.extend_from_slice(row.get(first + 1));
    key.into()
}
