//! The ledger in PostgreSQL. `postgres.sql` defines the functions. Every transaction is synced.

use super::workload::{CEILING, Client, Operation};
use crate::{Failed, postgres};
use limina_engine::Name;
use tokio_postgres::{Row, Statement, error::SqlState};

pub(crate) struct Session {
    client: tokio_postgres::Client,
    hold: Statement,
    commit: Statement,
    hold_many: Statement,
    commit_many: Statement,
}

impl postgres::Session for Session {
    const SCHEMA: &'static str = include_str!("postgres.sql");

    async fn prepare(client: tokio_postgres::Client) -> Result<Session, Failed> {
        Ok(Session {
            hold: client.prepare("SELECT * FROM hold($1, $2, 1)").await?,
            commit: client.prepare("SELECT * FROM commit_hold($1)").await?,
            hold_many: client.prepare("SELECT * FROM hold_many($1, $2, 1)").await?,
            commit_many: client.prepare("SELECT * FROM commit_many($1)").await?,
            client,
        })
    }
}

impl Client for Session {
    async fn create(&mut self, limits: &[Name]) -> Result<(), Failed> {
        let names: Vec<&str> = limits.iter().map(Name::as_str).collect();
        let insert = "INSERT INTO limits (name, ceiling) SELECT one, $2 FROM unnest($1::text[]) AS one";
        self.client.execute(insert, &[&names, &CEILING]).await?;
        self.client.batch_execute("ANALYZE limits").await?;
        Ok(())
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        if let [operation] = operations {
            let names: Vec<&str> = operation.limits.iter().map(Name::as_str).collect();
            return refused(1, self.client.query(&self.hold, &[&operation.id, &names]).await);
        }
        let pairs =
            operations.iter().flat_map(|one| one.limits.iter().map(|limit| (&one.id, limit.as_str())));
        let (ids, names): (Vec<&String>, Vec<&str>) = pairs.unzip();
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

/// How many of `count` operations were refused: all of them or none.
fn refused(count: usize, result: Result<Vec<Row>, tokio_postgres::Error>) -> Result<u64, Failed> {
    match result {
        Ok(rows) if !rows.is_empty() => Ok(0),
        Ok(_) => Err("PostgreSQL answered without values".into()),
        Err(error) if error.code() == Some(&SqlState::RAISE_EXCEPTION) => Ok(count as u64),
        Err(error) => Err(error.into()),
    }
}
