//! PostgreSQL doing the same in SQL, synced at every transaction; `postgres.sql` is what it does.

use super::workload::{CEILING, Client, Operation, limit_name};
use crate::{Failed, load::Contender, postgres::Database};
use limina_pg_server::PgServer;
use std::{ops::Range, sync::Arc};
use tokio_postgres::{Row, Statement, error::SqlState};

pub(crate) struct Postgres(Database);

impl Postgres {
    pub(crate) async fn on(server: Arc<PgServer>) -> Result<Postgres, Failed> {
        Ok(Postgres(Database::make(server, include_str!("postgres.sql")).await?))
    }
}

impl Contender for Postgres {
    type Client = Session;

    async fn connect(&self) -> Result<Session, Failed> {
        let client = self.0.connect().await?;
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
        self.0.process()
    }

    async fn stop(self) -> Result<(), Failed> {
        self.0.stop()
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
