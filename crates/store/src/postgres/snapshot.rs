//! A read-only snapshot of the whole database.

use super::{
    connector::{CONNECT_TIMEOUT, Connector},
    pool::Queryable,
    row::{from_shard, unsigned},
    schema,
    session::{Params, Session},
    shards, table,
};
use crate::{
    AppendError, ConfirmError, Epoch, FreeSpace, Journal, JournalStats, Records, Seq, ShardId, StoreError,
    Table,
};
use bytes::Bytes;
use std::sync::Arc;
use tokio_postgres::Row;

/// All statements see the same snapshot, and the server rejects every change.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

const EPOCH: &str = "SELECT epoch FROM limina.shard WHERE id = $1";

/// Journal and table of all shards, as of one instant. Nodes continue to run meanwhile: no shard changes its owner, and
/// nothing waits. As a [`Journal`] and a [`Table`] it rejects every change.
pub struct PostgresSnapshot {
    /// A session within one transaction. If it is lost, the snapshot is gone, because another transaction would see
    /// another instant.
    session: Session,
    shards: u16,
}

impl PostgresSnapshot {
    /// Takes the snapshot.
    pub async fn take(url: &str) -> Result<PostgresSnapshot, StoreError> {
        let connector = Connector::new(url, CONNECT_TIMEOUT)?;
        let session = connector.connect().await?;
        session.execute(BEGIN).await?;
        let shards = schema::shards(session.client(), connector.location()).await?;
        Ok(PostgresSnapshot { session, shards })
    }

    /// The number of shards that the schema was created with.
    pub fn shards(&self) -> u16 {
        self.shards
    }
}

impl Queryable for PostgresSnapshot {
    async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        Ok(self.session.query(sql, params).await?)
    }
}

impl Journal for PostgresSnapshot {
    /// Returns the shard's present epoch. It does not change the owner.
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        let rows = self.query(EPOCH, &[&from_shard(shard)]).await?;
        rows.first().map(|row| Epoch(unsigned(row.get(0)))).ok_or(StoreError::NotOwned)
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        shards::tail(self, shard, epoch, after).await.map(|(_, tail)| tail)
    }

    async fn append(&self, _: ShardId, _: Epoch, _: Seq, _: Bytes) -> Result<(), AppendError> {
        Err(AppendError::NotDone(only_looked_at()))
    }

    async fn confirm(&self, _: ShardId, _: Epoch, _: Seq) -> Result<(), ConfirmError> {
        Ok(())
    }

    fn release(&self, _: ShardId, _: Seq) {}

    fn free_space(&self) -> FreeSpace {
        FreeSpace::Reserve
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
        let keys = keys.iter().map(|bytes| table::Key { shard, bytes });
        table::get_many(self, keys.collect()).await
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
    StoreError::Unavailable("the store is open for reading only".to_string())
}
