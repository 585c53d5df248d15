//! Appends to the shards of a database that no node uses.

use super::{
    connector::{CONNECT_TIMEOUT, Connector},
    errors::warning_received,
    row::from_shard,
    schema,
    session::Session,
};
use crate::{Batch, Seq, ShardId, StoreError};

const HAS_NODE: &str = "SELECT EXISTS (SELECT FROM limina.node WHERE expires_at > clock_timestamp())";

/// Nodes that start now have to wait.
const LOCK: &str = "LOCK TABLE limina.node, limina.shard, limina.journal IN EXCLUSIVE MODE";

/// The epoch grows, so that a node that was suspended, and does not know yet that its tenure has ended, cannot append any more.
const APPEND: &str = "
    WITH moved AS (
        UPDATE limina.shard SET seq = asked.seq, epoch = epoch + 1,
            owner = NULL, is_handed = false, handed_at = NULL, handed_time = NULL
        FROM unnest($1::integer[], $2::bigint[], $3::bytea[]) AS asked (shard, seq, payload)
        WHERE shard.id = asked.shard AND shard.seq = asked.seq - 1
        RETURNING shard.id, asked.seq, asked.payload
    )
    INSERT INTO limina.journal (shard, seq, payload) SELECT id, seq, payload FROM moved RETURNING shard";

/// Appends a batch to each of these shards, or to none of them. Fails if a node uses the database, or if an append does not follow the
/// last one of its shard.
pub async fn append_at_rest(url: &str, appends: Vec<(ShardId, Seq, Batch)>) -> Result<(), StoreError> {
    let connector = Connector::new(url, CONNECT_TIMEOUT)?;
    let session = connector.connect().await?;
    session.execute("BEGIN").await?;
    schema::prepare_within(session.client(), connector.location(), None).await?;
    // Checked before the lock, so that no node has to wait for nothing, and again when no node can join any more.
    check_unused(&session, connector.location()).await?;
    session.execute(LOCK).await?;
    check_unused(&session, connector.location()).await?;
    let shards: Vec<i32> = appends.iter().map(|(shard, ..)| from_shard(*shard)).collect();
    let seqs: Vec<i64> = appends.iter().map(|(_, seq, _)| seq.0.cast_signed()).collect();
    let payloads: Vec<&[u8]> = appends.iter().map(|(.., batch)| &batch.payload()[..]).collect();
    let appended = session.query(APPEND, &[&shards, &seqs, &payloads]).await?;
    if appended.len() != appends.len() {
        let words = format!("{} has changed meanwhile: try again", connector.location());
        return Err(StoreError::Unavailable(words));
    }
    let warnings = session.warnings();
    session.execute("COMMIT").await?;
    match session.warnings() == warnings {
        true => Ok(()),
        false => Err(warning_received()),
    }
}

async fn check_unused(session: &Session, location: &str) -> Result<(), StoreError> {
    let rows = session.query(HAS_NODE, &[]).await?;
    match rows.first().is_some_and(|row| row.get(0)) {
        true => Err(StoreError::Unusable(format!("{location} is in use by a node: stop it first"))),
        false => Ok(()),
    }
}
