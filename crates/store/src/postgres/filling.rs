//! A new schema that is being filled: in one transaction, so that all of it is there or nothing.

use super::{
    connection::{CONNECTING, Connector, Session, warned},
    row::from_shard,
    schema,
    table::{digest, split},
};
use crate::{Filling, Records, ShardId, StoreError};
use std::pin::pin;
use tokio_postgres::{binary_copy::BinaryCopyInWriter, types::Type};

/// Whether there is data, and whether there is a node.
const STATE: &str = "
    SELECT EXISTS (SELECT FROM limina.record) OR EXISTS (SELECT FROM limina.journal)
            OR EXISTS (SELECT FROM limina.shard WHERE seq > 0),
        EXISTS (SELECT FROM limina.node WHERE expires_at > clock_timestamp())";

/// Nodes that know the schema already wait.
const LOCK: &str = "LOCK TABLE limina.node, limina.shard, limina.journal, limina.record IN EXCLUSIVE MODE";

const COPY: &str = "COPY limina.record (shard, head, digest, rest, value) FROM STDIN BINARY";
const COLUMNS: [Type; 5] = [Type::INT4, Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::BYTEA];

/// A database that nobody sees change before all is there.
pub struct PostgresFilling {
    /// Within the transaction. Where it ends early, nothing has happened.
    session: Session,
    shards: u16,
}

impl PostgresFilling {
    /// Makes the schema, or takes one that is empty and that no node uses.
    pub async fn begin(url: &str, shards: Option<u16>) -> Result<PostgresFilling, StoreError> {
        let connector = Connector::new(url, CONNECTING)?;
        let session = connector.connect().await?;
        session.execute("BEGIN").await?;
        let meta = schema::prepare_within(session.client(), connector.place(), shards).await?;
        // Before anybody has to wait, and again when nobody can come any more.
        check_empty(&session, connector.place()).await?;
        session.execute(LOCK).await?;
        check_empty(&session, connector.place()).await?;
        Ok(PostgresFilling { session, shards: meta.shards })
    }
}

async fn check_empty(session: &Session, place: &str) -> Result<(), StoreError> {
    let rows = session.query(STATE, &[]).await?;
    match rows.first().map(|row| (row.get(0), row.get(1))) {
        Some((true, _)) => {
            Err(StoreError::Unusable(format!("{place} is not empty: it holds data of limina")))
        }
        Some((false, true)) => {
            Err(StoreError::Unusable(format!("{place} is in use by a node: stop it first")))
        }
        _ => Ok(()),
    }
}

impl Filling for PostgresFilling {
    fn shards(&self) -> u16 {
        self.shards
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
            false => Err(warned()),
        }
    }
}
