//! Checkpoints: writes the records of a shard in short transactions.
//!
//! Each transaction locks the shard's row, so that no node takes the shard before it is committed; appends continue
//! meanwhile. Each also names the seq that the table contained before. So a transaction that was delayed, and arrives
//! after a later checkpoint, changes nothing. And each one requires that the journal has got as far as the checkpoint: if the database has
//! gone back to an older state, records of appends that it has lost must not get into the table.

use super::{
    pool::Pool,
    row::{from_node, from_shard, number},
    table::{digest, split},
};
use crate::{Epoch, NodeId, RecordRef, Records, Seq, ShardId, StoreError};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The maximum number of records of one transaction, and of bytes, unless a single record is longer.
const CHUNK_RECORDS: usize = 2000;
const CHUNK_BYTES: usize = 4 << 20;

const BEGIN: &str = "SELECT applied, seq FROM limina.shard WHERE id = $1 AND epoch = $2 AND owner = $3";

const CHUNK: &str = "
    WITH mine AS (
        SELECT id FROM limina.shard
        WHERE id = $1 AND epoch = $2 AND applied = $3 AND seq >= $10 AND owner = $11 FOR KEY SHARE
    ), removed AS (
        DELETE FROM limina.record USING mine, unnest($4::bytea[], $5::bytea[]) AS gone (head, digest)
        WHERE record.shard = mine.id AND record.head = gone.head AND record.digest = gone.digest
    ), stored AS (
        INSERT INTO limina.record (shard, head, digest, rest, value)
        SELECT mine.id, new.*
        FROM mine, unnest($6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[]) AS new (head, digest, rest, value)
        ON CONFLICT (shard, head, digest) DO UPDATE SET value = excluded.value
    )
    SELECT id FROM mine";

/// It waits for a delayed transaction of the same checkpoint that still runs.
const END: &str = "
    WITH mine AS (
        SELECT id FROM limina.shard
        WHERE id = $1 AND epoch = $2 AND applied = $3 AND seq >= $4 AND owner = $5 FOR UPDATE
    )
    UPDATE limina.shard SET applied = $4 FROM mine WHERE shard.id = mine.id RETURNING shard.id";

/// Some of the records, as columns.
#[derive(Default)]
struct Chunk {
    gone: Keys,
    stored: Keys,
    values: Vec<Vec<u8>>,
    bytes: usize,
}

#[derive(Default)]
struct Keys {
    heads: Vec<Vec<u8>>,
    digests: Vec<Vec<u8>>,
    rests: Vec<Vec<u8>>,
}

/// See [`Table::checkpoint`](crate::Table::checkpoint).
pub(super) async fn checkpoint(
    pool: &Pool,
    me: NodeId,
    shard: ShardId,
    epoch: Epoch,
    upto: Seq,
    records: Arc<Records>,
) -> Result<(), StoreError> {
    let (me, shard, epoch, upto) = (from_node(me), from_shard(shard), number(epoch.0), number(upto.0));
    let begun = pool.query(BEGIN, &[&shard, &epoch, &me]).await?;
    let begun = begun.first().ok_or(StoreError::NotOwned)?;
    let (applied, seq): (i64, i64) = (begun.get(0), begun.get(1));
    if seq < upto {
        return Err(StoreError::WentBack);
    }
    if applied >= upto {
        // An earlier attempt has completed the checkpoint, and only its answer was lost. Chunks that were written again now would name
        // the same seq as the chunks of the next checkpoint, so a late one could overwrite a newer record.
        return Ok(());
    }
    // Sorting takes time and must not block a thread of the runtime.
    let (sender, mut chunks) = mpsc::channel(1);
    let cutting = tokio::task::spawn_blocking(move || cut(&records, &sender));
    while let Some(Chunk { gone, stored, values, .. }) = chunks.recv().await {
        let written = pool
            .query(
                CHUNK,
                &[
                    &shard,
                    &epoch,
                    &applied,
                    &gone.heads,
                    &gone.digests,
                    &stored.heads,
                    &stored.digests,
                    &stored.rests,
                    &values,
                    &upto,
                    &me,
                ],
            )
            .await?;
        written.first().ok_or(StoreError::NotOwned)?;
    }
    let cut = cutting.await;
    cut.map_err(|_| StoreError::Unavailable("the records could not be sorted".to_string()))?;
    let ended = pool.query(END, &[&shard, &epoch, &applied, &upto, &me]).await?;
    ended.first().map(|_| ()).ok_or(StoreError::NotOwned)
}

/// Sends the records in order, a chunk at a time, while the receiver exists.
fn cut(records: &Records, chunks: &mpsc::Sender<Chunk>) {
    let mut chunk = Chunk::default();
    for image in records.sorted() {
        chunk.add(image);
        if chunk.is_full() && chunks.blocking_send(std::mem::take(&mut chunk)).is_err() {
            return;
        }
    }
    if chunk.len() > 0 {
        // If the receiver is gone, the chunk is not needed.
        let _ = chunks.blocking_send(chunk);
    }
}

impl Chunk {
    fn add(&mut self, image: RecordRef<'_>) {
        self.bytes += image.key.len() + image.value.map_or(0, <[u8]>::len);
        match image.value {
            Some(value) => {
                self.stored.add(image.key);
                self.values.push(value.to_vec());
            }
            None => self.gone.add(image.key),
        }
    }

    fn len(&self) -> usize {
        self.gone.heads.len() + self.stored.heads.len()
    }

    fn is_full(&self) -> bool {
        self.len() >= CHUNK_RECORDS || self.bytes >= CHUNK_BYTES
    }
}

impl Keys {
    fn add(&mut self, key: &[u8]) {
        let (head, rest) = split(key);
        self.heads.push(head.to_vec());
        self.digests.push(digest(rest));
        self.rests.push(rest.to_vec());
    }
}
