//! Loads an import into a new schema, in one transaction: either all of it is stored, or nothing.

use super::{
    connector::{CONNECT_TIMEOUT, Connector},
    errors::warning_received,
    row::from_shard,
    schema,
    session::Session,
    table::{digest, split},
};
use crate::{BulkLoader, Records, ShardId, Sharding, StoreError};
use std::pin::pin;
use tokio_postgres::{binary_copy::BinaryCopyInWriter, types::Type};

/// Whether there is data, and whether there is a node.
const STATE: &str = "
    SELECT EXISTS (SELECT FROM limina.record) OR EXISTS (SELECT FROM limina.journal)
            OR EXISTS (SELECT FROM limina.shard WHERE seq > 0),
        EXISTS (SELECT FROM limina.node WHERE expires_at > clock_timestamp())";

/// Nodes that use the schema already have to wait.
const LOCK: &str =
    "LOCK TABLE limina.node, limina.shard, limina.journal, limina.record, limina.filter IN EXCLUSIVE MODE";

/// What earlier nodes have left behind. Their filters do not know the keys of the import, and a node that was suspended, and does not
/// know yet that its tenure has ended, must not write over it.
const FORGET: &str = "
    DELETE FROM limina.filter;
    UPDATE limina.shard SET epoch = epoch + 1, owner = NULL, is_handed = false, handed_at = NULL, handed_time = NULL";

const COPY: &str = "COPY limina.record (shard, head, digest, rest, value) FROM STDIN BINARY";
const COLUMNS: [Type; 5] = [Type::INT4, Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::BYTEA];

/// A database that is being loaded. Nobody sees a change before the import is finished.
pub struct PostgresLoader {
    /// A session within the transaction. If it ends early, nothing is changed.
    session: Session,
    sharding: Sharding,
}

impl PostgresLoader {
    /// Creates the schema, or uses one that is empty and that no node uses.
    pub async fn begin(url: &str, shards: Option<u16>) -> Result<PostgresLoader, StoreError> {
        let connector = Connector::new(url, CONNECT_TIMEOUT)?;
        let session = connector.connect().await?;
        session.execute("BEGIN").await?;
        let sharding = schema::prepare_within(session.client(), connector.location(), shards).await?;
        // Checked before the lock, so that no node has to wait for nothing, and again when no node can join any more.
        check_empty(&session, connector.location()).await?;
        session.execute(LOCK).await?;
        check_empty(&session, connector.location()).await?;
        session.execute(FORGET).await?;
        Ok(PostgresLoader { session, sharding })
    }
}

async fn check_empty(session: &Session, location: &str) -> Result<(), StoreError> {
    let rows = session.query(STATE, &[]).await?;
    match rows.first().map(|row| (row.get(0), row.get(1))) {
        Some((true, _)) => {
            Err(StoreError::Unusable(format!("{location} is not empty: it holds data of limina")))
        }
        Some((false, true)) => {
            Err(StoreError::Unusable(format!("{location} is in use by a node: stop it first")))
        }
        _ => Ok(()),
    }
}

impl BulkLoader for PostgresLoader {
    fn sharding(&self) -> Sharding {
        self.sharding
    }

    async fn put(&mut self, shard: ShardId, records: Records) -> Result<(), StoreError> {
        let shard = from_shard(shard);
        let rows = self.session.client().copy_in(COPY).await?;
        let mut rows = pin!(BinaryCopyInWriter::new(rows, &COLUMNS));
        for (key, value) in records.sorted().filter_map(|record| Some((record.key, record.value?))) {
            let (head, rest) = split(key);
            rows.as_mut().write(&[&shard, &head, &digest(rest), &rest, &value]).await?;
        }
        rows.finish().await?;
        Ok(())
    }

    async fn finish(self) -> Result<(), StoreError> {
        let warnings = self.session.warnings();
        self.session.execute("COMMIT").await?;
        match self.session.warnings() == warnings {
            true => Ok(()),
            false => Err(warning_received()),
        }
    }
}
