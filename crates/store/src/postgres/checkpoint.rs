//! Checkpoints: writes the records of a shard in short transactions.
//!
//! Each transaction locks the shard's row, so that no node takes the shard before it is committed; appends continue
//! meanwhile. Each also names the seq that the table contained before. So a transaction that was delayed, and arrives
//! after a later checkpoint, changes nothing.

use super::{
    pool::Pool,
    row::{from_shard, number},
    table::{digest, split},
};
use crate::{Epoch, RecordRef, Records, Seq, ShardId, StoreError};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The maximum number of records of one transaction, and of bytes, unless a single record is longer.
const CHUNK_RECORDS: usize = 2000;
const CHUNK_BYTES: usize = 4 << 20;

const BEGIN: &str = "SELECT applied FROM limina.shard WHERE id = $1 AND epoch = $2";

const CHUNK: &str = "
    WITH mine AS (
        SELECT id FROM limina.shard WHERE id = $1 AND epoch = $2 AND applied = $3 FOR KEY SHARE
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
    WITH mine AS (SELECT id FROM limina.shard WHERE id = $1 AND epoch = $2 AND applied = $3 FOR UPDATE)
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
    shard: ShardId,
    epoch: Epoch,
    upto: Seq,
    records: Arc<Records>,
) -> Result<(), StoreError> {
    let (shard, epoch) = (from_shard(shard), number(epoch.0));
    let begun = pool.query(BEGIN, &[&shard, &epoch]).await?;
    let applied: i64 = begun.first().ok_or(StoreError::NotOwned)?.get(0);
    if applied >= number(upto.0) {
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
                ],
            )
            .await?;
        written.first().ok_or(StoreError::NotOwned)?;
    }
    let cut = cutting.await;
    cut.map_err(|_| StoreError::Unavailable("the records could not be sorted".to_string()))?;
    let ended = pool.query(END, &[&shard, &epoch, &applied, &number(upto.0)]).await?;
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
