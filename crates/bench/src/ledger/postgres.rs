//! PostgreSQL doing the same in SQL, synced at every transaction; `postgres.sql` is what it does.

use super::workload::{CEILING, Client, Operation, limit_name};
use crate::{Failed, load::Contender};
use limina_pg_server::PgServer;
use rustix::process::geteuid;
use std::{fs, ops::Range, os::unix::fs::PermissionsExt, path::Path};
use tokio_postgres::{NoTls, Row, Statement, error::SqlState};

pub(crate) struct Postgres {
    server: PgServer,
}

/// The first three are the defaults: nothing is answered before it is on disk. The others help it: more memory, fewer
/// checkpoints, and look-ups by index from the first row on, which its statistics would suggest only later.
const SETTINGS: [&str; 11] = [
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "max_connections=1000",
    "shared_buffers=512MB",
    "max_wal_size=8GB",
    "checkpoint_timeout=15min",
    "autovacuum_naptime=5s",
    "enable_seqscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
];

impl Postgres {
    pub(crate) async fn start(directory: &Path) -> Result<Postgres, Failed> {
        let own = directory.join("postgres");
        fs::create_dir(&own)?;
        if geteuid().is_root() {
            // The server runs as somebody else, who must be able to pass.
            fs::set_permissions(directory, fs::Permissions::from_mode(0o711))?;
        }
        let postgres = Postgres { server: PgServer::start_in(&own, &SETTINGS)? };
        postgres.client().await?.batch_execute(include_str!("postgres.sql")).await?;
        Ok(postgres)
    }

    async fn client(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.server.url("postgres"), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

impl Contender for Postgres {
    type Client = Session;

    async fn connect(&self) -> Result<Session, Failed> {
        let client = self.client().await?;
        let (hold, commit) = (
            client.prepare("SELECT * FROM hold($1, $2, 1)").await?,
            client.prepare("SELECT * FROM commit_hold($1)").await?,
        );
        let (hold_many, commit_many) = (
            client.prepare("SELECT * FROM hold_many($1, $2, 1)").await?,
            client.prepare("SELECT * FROM commit_many($1)").await?,
        );
        Ok(Session { client, hold, commit, hold_many, commit_many })
    }

    fn process(&self) -> Option<u32> {
        self.server.pid().ok()
    }

    async fn stop(self) -> Result<(), Failed> {
        Ok(self.server.stop()?)
    }
}

pub(crate) struct Session {
    client: tokio_postgres::Client,
    hold: Statement,
    commit: Statement,
    hold_many: Statement,
    commit_many: Statement,
}

impl Client for Session {
    async fn create(&mut self, limits: Range<usize>) -> Result<(), Failed> {
        let names: Vec<String> = limits.map(limit_name).collect();
        let insert = "INSERT INTO limits (name, ceiling) SELECT one, $2 FROM unnest($1::text[]) AS one";
        self.client.execute(insert, &[&names, &CEILING]).await?;
        self.client.batch_execute("ANALYZE limits").await?;
        Ok(())
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        if let [operation] = operations {
            let names: Vec<String> = operation.limits.iter().copied().map(limit_name).collect();
            return refused(1, self.client.query(&self.hold, &[&operation.id, &names]).await);
        }
        let pairs =
            operations.iter().flat_map(|one| one.limits.iter().map(|&limit| (&one.id, limit_name(limit))));
        let (ids, names): (Vec<&String>, Vec<String>) = pairs.unzip();
        refused(operations.len(), self.client.query(&self.hold_many, &[&ids, &names]).await)
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        if let [operation] = operations {
            return refused(1, self.client.query(&self.commit, &[&operation.id]).await);
        }
        let ids: Vec<&String> = operations.iter().map(|operation| &operation.id).collect();
        refused(operations.len(), self.client.query(&self.commit_many, &[&ids]).await)
    }
}

/// How many of `count` were refused, which is all or none.
fn refused(count: usize, result: Result<Vec<Row>, tokio_postgres::Error>) -> Result<u64, Failed> {
    match result {
        Ok(rows) if !rows.is_empty() => Ok(0),
        Ok(_) => Err("PostgreSQL answered without values".into()),
        Err(error) if error.code() == Some(&SqlState::RAISE_EXCEPTION) => Ok(count as u64),
        Err(error) => Err(error.into()),
    }
}
