//! Databases for tests: one server for each test program, a new database for each test.

use limina_pg_server::PgServer;
use limina_store::{
    Announcement, NodeId, StoreError, Tenure,
    postgres::{Postgres, PostgresOptions},
};
use std::{sync::LazyLock, time::Duration};
use tokio_postgres::{Client, NoTls, types::ToSql};

static SERVER: LazyLock<PgServer> = LazyLock::new(|| PgServer::start().expect("PostgreSQL starts"));

/// Where a new, empty database is.
pub(crate) fn new_database() -> String {
    SERVER.url(&SERVER.new_database().expect("a database"))
}

/// How many shards the stores of tests have.
pub(crate) const SHARDS: u16 = 8;

pub(crate) async fn connect(url: &str, node: u64) -> Result<Postgres, StoreError> {
    Postgres::connect(url, PostgresOptions { node: NodeId(node), shards: Some(SHARDS) }).await
}

/// Connects as a node that makes itself known and takes every shard for itself.
pub(crate) async fn connect_as_owner(url: &str, node: u64) -> Result<Postgres, StoreError> {
    let store = connect(url, node).await?;
    let announcement =
        Announcement { address: format!("node-{node}"), is_leaving: false, tenure: Duration::from_secs(60) };
    for holding in store.renew(announcement).await?.shards {
        assert!(store.claim(holding.shard, holding.epoch).await?, "somebody else took {holding:?}");
    }
    Ok(store)
}

/// A connection of the test's own.
pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    client
}

pub(crate) async fn execute(url: &str, sql: &str, params: &[&(dyn ToSql + Sync)]) {
    client(url).await.execute(sql, params).await.expect("the statement is done");
}
