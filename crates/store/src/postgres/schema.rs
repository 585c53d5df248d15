//! The schema of the database, and its migrations.

use super::connector::Connector;
use crate::{StoreError, agree_on_shards};
use std::sync::Arc;
use tokio_postgres::GenericClient;

/// Each entry migrates the schema from one version to the next. Entries are only ever added.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/1.sql")];
/// The advisory lock under which the schema is read and migrated: "limina" in ASCII.
const LOCK: i64 = 0x6c69_6d69_6e61;
const SECRET_BYTES: usize = 32;

/// The settings with which the schema was created.
pub(super) struct Meta {
    pub(super) shards: u16,
    /// Known only to the nodes of this database.
    pub(super) secret: String,
}

/// Creates the schema, or migrates it to the version of this program. If several nodes start at the same time, one does
/// it, and the others wait.
pub(super) async fn prepare(connector: &Arc<Connector>, asked: Option<u16>) -> Result<Meta, StoreError> {
    let mut session = connector.connect().await?;
    let transaction = session.transaction().await?;
    let meta = prepare_within(&transaction, connector.location(), asked).await?;
    transaction.commit().await?;
    Ok(meta)
}

/// The same within a transaction of the caller. Until it ends, no node can begin to use the database.
pub(super) async fn prepare_within(
    transaction: &(impl GenericClient + Sync),
    location: &str,
    asked: Option<u16>,
) -> Result<Meta, StoreError> {
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let known = version(transaction, location).await?;
    if known == 0 {
        transaction.batch_execute("CREATE SCHEMA IF NOT EXISTS limina").await?;
    }
    for migration in &MIGRATIONS[known..] {
        transaction.batch_execute(migration).await?;
    }
    if known == 0 {
        create(transaction, agree_on_shards(location, None, asked)?).await?;
    }
    let version = MIGRATIONS.len() as i32;
    let row = "UPDATE limina.meta SET version = $1 RETURNING shards, secret";
    let row = transaction.query_one(row, &[&version]).await?;
    let known = u16::try_from(row.get::<_, i32>(0)).ok();
    let shards = agree_on_shards(location, known, asked)?;
    Ok(Meta { shards, secret: row.get(1) })
}

/// The number of shards, for a caller that only reads and must not migrate.
pub(super) async fn shards(
    transaction: &(impl GenericClient + Sync),
    location: &str,
) -> Result<u16, StoreError> {
    match version(transaction, location).await? {
        0 => Err(StoreError::Unusable(format!("{location} holds no data of limina"))),
        version if version < MIGRATIONS.len() => Err(StoreError::Unusable(format!(
            "the schema limina in {location} has version {version}; a node of this program brings it up to date"
        ))),
        _ => {
            let row = transaction.query_one("SELECT shards FROM limina.meta", &[]).await?;
            agree_on_shards(location, u16::try_from(row.get::<_, i32>(0)).ok(), None)
        }
    }
}

/// The version of the existing schema; 0 if there is none.
async fn version(transaction: &(impl GenericClient + Sync), location: &str) -> Result<usize, StoreError> {
    let tables = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('limina')";
    let tables = transaction.query(tables, &[]).await?;
    if tables.is_empty() {
        return Ok(0);
    }
    let columns = "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'limina'
                   AND table_name = 'meta' AND column_name IN ('version', 'shards', 'secret')";
    if transaction.query_one(columns, &[]).await?.get::<_, i64>(0) != 3 {
        return Err(StoreError::Unusable(format!(
            "the schema limina in {location} was not made by this program, which needs that name for itself"
        )));
    }
    let version: i32 = transaction.query_one("SELECT version FROM limina.meta", &[]).await?.get(0);
    match usize::try_from(version).ok().filter(|version| *version <= MIGRATIONS.len()) {
        Some(version) => Ok(version),
        None => Err(StoreError::Unusable(format!(
            "the schema limina in {location} has version {version}, and this program knows up to {}",
            MIGRATIONS.len()
        ))),
    }
}

async fn create(transaction: &(impl GenericClient + Sync), shards: u16) -> Result<(), StoreError> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(|error| {
        StoreError::Unavailable(format!("the system returned no random numbers: {error}"))
    })?;
    let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let shards = i32::from(shards);
    let meta = "INSERT INTO limina.meta (version, shards, secret) VALUES (0, $1, $2)";
    transaction.execute(meta, &[&shards, &secret]).await?;
    let rows = "INSERT INTO limina.shard (id) SELECT generate_series(0, $1 - 1)";
    transaction.execute(rows, &[&shards]).await?;
    Ok(())
}
