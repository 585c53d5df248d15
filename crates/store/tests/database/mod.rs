//! Databases for tests: one server for each test program, a new database for each test.

use limina_pg_server::PgServer;
use limina_store::{
    Announcement, NodeId, StoreError, Tenure,
    postgres::{Postgres, PostgresOptions},
};
use std::{sync::LazyLock, time::Duration};
use tokio_postgres::{Client, NoTls, types::ToSql};

static SERVER: LazyLock<PgServer> = LazyLock::new(|| PgServer::start().expect("PostgreSQL starts"));

/// The URL of a new, empty database.
pub(crate) fn new_database() -> String {
    SERVER.url(&SERVER.new_database().expect("a database"))
}

/// The number of shards of the tests' stores.
pub(crate) const SHARDS: u16 = 8;

/// Only a halted server takes longer than this to answer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn connect(url: &str, node: u64) -> Result<Postgres, StoreError> {
    connect_with(url, node, PATIENCE).await
}

pub(crate) async fn connect_with(url: &str, node: u64, patience: Duration) -> Result<Postgres, StoreError> {
    let options = PostgresOptions { node: NodeId(node), shards: Some(SHARDS), patience };
    Postgres::connect(url, options).await
}

/// Connects as a node that registers itself and takes every shard. The previous node is dead.
pub(crate) async fn connect_as_owner(url: &str, node: u64) -> Result<Postgres, StoreError> {
    own(connect(url, node).await?, url).await
}

/// Makes a node the owner of every shard.
pub(crate) async fn own(store: Postgres, url: &str) -> Result<Postgres, StoreError> {
    // Overrides the configuration of the database.
    let end = client(url).await;
    for statement in ["SET default_transaction_read_only = off", "UPDATE limina.node SET expires_at = now()"]
    {
        end.batch_execute(statement).await.expect(statement);
    }
    let (address, host) = (format!("node-{}", store.me()), String::new());
    let tenure = Duration::from_secs(60);
    let announcement =
        Announcement { address, host, is_leaving: false, tenure, certificate: None, prepared: Vec::new() };
    let view = store.renew(announcement).await?;
    let wanted = view.shards.iter().map(|holding| (holding.shard, holding.epoch)).collect();
    let claimed = store.claim(wanted).await?;
    assert_eq!(claimed.len(), view.shards.len(), "somebody else took some of {view:?}");
    Ok(store)
}

/// A connection for the test itself.
pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    client
}

pub(crate) async fn execute(url: &str, sql: &str, params: &[&(dyn ToSql + Sync)]) {
    client(url).await.execute(sql, params).await.expect("the statement is done");
}
