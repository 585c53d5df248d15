//! The schema of the database, and its migrations.

use super::session::Session;
use crate::{
    Sharding, ShardingKey, StoreError,
    sharding::{HASH_WITHOUT_KEY, agree_on_shards, too_old},
};
use tokio_postgres::GenericClient;

/// Each entry migrates the schema from one version to the next. The first one creates [`FIRST_VERSION`]. Entries are only
/// ever added.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/3.sql")];
/// The oldest version that can be migrated. Nodes of older versions authenticate by a secret in the database, and do not
/// understand nodes of this one.
const FIRST_VERSION: usize = 3;
/// The version of this program.
const VERSION: usize = FIRST_VERSION + MIGRATIONS.len() - 1;
/// The advisory lock under which the schema is read and migrated: "limina" in ASCII.
const LOCK: i64 = 0x6c69_6d69_6e61;

/// Creates the schema, or migrates it to the version of this program. Returns how it was created. If several nodes start at the same time, one does
/// it, and the others wait.
pub(super) async fn prepare(
    mut session: Session,
    location: &str,
    asked: Option<u16>,
) -> Result<Sharding, StoreError> {
    let transaction = session.transaction().await?;
    let sharding = prepare_within(&transaction, location, asked).await?;
    transaction.commit().await?;
    Ok(sharding)
}

/// The same within a transaction of the caller. Until it ends, no node can begin to use the database.
pub(super) async fn prepare_within(
    transaction: &(impl GenericClient + Sync),
    location: &str,
    asked: Option<u16>,
) -> Result<Sharding, StoreError> {
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let known = version(transaction, location).await?;
    if known.is_none() {
        transaction.batch_execute("CREATE SCHEMA IF NOT EXISTS limina").await?;
    }
    let done = known.map_or(0, |version| version - FIRST_VERSION + 1);
    for migration in &MIGRATIONS[done..] {
        transaction.batch_execute(migration).await?;
    }
    if known.is_none() {
        create(transaction, agree_on_shards(location, None, asked)?).await?;
    }
    let row = "UPDATE limina.meta SET version = $1 RETURNING shards, sharding_key";
    let row = transaction.query_one(row, &[&(VERSION as i32)]).await?;
    let known = u16::try_from(row.get::<_, i32>(0)).ok();
    let shards = agree_on_shards(location, known, asked)?;
    let key = <[u8; ShardingKey::BYTES]>::try_from(row.get::<_, &[u8]>(1));
    let key = key.map_err(|_| StoreError::Unusable(format!("the sharding key in {location} is damaged")))?;
    Ok(Sharding { shards, key: ShardingKey::new(key) })
}

/// The number of shards, for a caller that only reads and must not migrate.
pub(super) async fn shards(
    transaction: &(impl GenericClient + Sync),
    location: &str,
) -> Result<u16, StoreError> {
    match version(transaction, location).await? {
        None => Err(StoreError::Unusable(format!("{location} holds no data of limina"))),
        Some(version) if version < VERSION => Err(StoreError::Unusable(format!(
            "the schema limina in {location} has version {version}; a node of this program brings it up to date"
        ))),
        Some(_) => {
            let row = transaction.query_one("SELECT shards FROM limina.meta", &[]).await?;
            agree_on_shards(location, u16::try_from(row.get::<_, i32>(0)).ok(), None)
        }
    }
}

/// The version of the existing schema, which this program can use or migrate. `None` if there is no schema.
async fn version(
    transaction: &(impl GenericClient + Sync),
    location: &str,
) -> Result<Option<usize>, StoreError> {
    let tables = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('limina')";
    let tables = transaction.query(tables, &[]).await?;
    if tables.is_empty() {
        return Ok(None);
    }
    let columns = "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'limina'
                   AND table_name = 'meta' AND column_name IN ('version', 'shards')";
    if transaction.query_one(columns, &[]).await?.get::<_, i64>(0) != 2 {
        return Err(StoreError::Unusable(format!(
            "the schema limina in {location} was not made by this program, which needs that name for itself"
        )));
    }
    let version: i32 = transaction.query_one("SELECT version FROM limina.meta", &[]).await?.get(0);
    let place = format!("the schema limina in {location} has version {version}");
    match usize::try_from(version) {
        Ok(version @ FIRST_VERSION..=VERSION) => Ok(Some(version)),
        Ok(2) => Err(too_old(&place, "whose nodes shared a secret and had no certificates")),
        Ok(..FIRST_VERSION) => Err(too_old(&place, HASH_WITHOUT_KEY)),
        _ => Err(StoreError::Unusable(format!("{place}, and this program knows up to {VERSION}"))),
    }
}

async fn create(transaction: &(impl GenericClient + Sync), shards: u16) -> Result<(), StoreError> {
    let (shards, key) = (i32::from(shards), ShardingKey::draw()?);
    let meta = "INSERT INTO limina.meta (version, shards, sharding_key) VALUES ($1, $2, $3)";
    transaction.execute(meta, &[&(VERSION as i32), &shards, &&key.bytes()[..]]).await?;
    let rows = "INSERT INTO limina.shard (id) SELECT generate_series(0, $1 - 1)";
    transaction.execute(rows, &[&shards]).await?;
    Ok(())
}
