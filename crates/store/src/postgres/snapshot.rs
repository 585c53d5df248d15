//! Everything that the database holds at one instant, for reading only.

use super::{
    connection::{CONNECTING, Connector, Params, Session},
    pool::Ask,
    row::{from_shard, unsigned},
    schema, shards, table,
};
use crate::{
    AppendError, ConfirmError, Epoch, Journal, JournalStats, Records, Room, Seq, ShardId, StoreError, Table,
};
use bytes::Bytes;
use std::sync::Arc;
use tokio_postgres::Row;

/// One snapshot for all statements, and the server refuses whatever would change something.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

const EPOCH: &str = "SELECT epoch FROM limina.shard WHERE id = $1";

/// Journal and table of all shards as they were when it was taken. Nodes go on meanwhile: nothing is taken over, and
/// nothing waits. As a [`Journal`] and a [`Table`] it refuses every change.
pub struct PostgresSnapshot {
    /// Within one transaction. It does not come back if it is lost: another would see another instant.
    session: Session,
    shards: u16,
}

impl PostgresSnapshot {
    /// Takes it.
    pub async fn take(url: &str) -> Result<PostgresSnapshot, StoreError> {
        let connector = Connector::new(url, CONNECTING)?;
        let session = connector.connect().await?;
        session.execute(BEGIN).await?;
        let shards = schema::shards(session.client(), connector.place()).await?;
        Ok(PostgresSnapshot { session, shards })
    }

    /// How many shards the schema was made with.
    pub fn shards(&self) -> u16 {
        self.shards
    }
}

impl Ask for PostgresSnapshot {
    async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        Ok(self.session.query(sql, params).await?)
    }
}

impl Journal for PostgresSnapshot {
    /// Whose it is; it stays so.
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        let rows = self.query(EPOCH, &[&from_shard(shard)]).await?;
        rows.first().map(|row| Epoch(unsigned(row.get(0)))).ok_or(StoreError::NotOwned)
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        shards::tail(self, shard, epoch, after).await
    }

    async fn append(&self, _: ShardId, _: Epoch, _: Seq, _: Bytes) -> Result<(), AppendError> {
        Err(AppendError::NotDone(only_looked_at()))
    }

    async fn confirm(&self, _: ShardId, _: Epoch) -> Result<(), ConfirmError> {
        Ok(())
    }

    fn release(&self, _: ShardId, _: Seq) {}

    fn room(&self) -> Room {
        Room::Reserve
    }

    fn stats(&self) -> JournalStats {
        JournalStats::default()
    }
}

impl Table for PostgresSnapshot {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        table::applied(self, shard).await
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        table::get_many(self, shard, &keys).await
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        table::scan(self, shard, &from, &to, limit).await
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        table::last_at_or_before(self, shard, &ranges).await
    }

    async fn checkpoint(&self, _: ShardId, _: Epoch, _: Seq, _: Arc<Records>) -> Result<(), StoreError> {
        Err(only_looked_at())
    }
}

fn only_looked_at() -> StoreError {
    StoreError::Unavailable("it is only looked at".to_string())
}
