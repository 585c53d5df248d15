//! PostgreSQL keeping counters in SQL, synced at every transaction: a check is one statement, which takes if there is room.

use super::workload::{Case, Client, LIMIT, client_name};
use crate::{Failed, load::Contender, postgres::Database};
use limina_pg_server::PgServer;
use std::sync::Arc;
use tokio_postgres::Statement;

/// There is room on the page, so that an update need not touch the index.
const TABLE: &str = "
    CREATE TABLE counters (client text PRIMARY KEY, used bigint NOT NULL, ceiling bigint NOT NULL)
    WITH (fillfactor = 50)";

const CHECK: &str =
    "UPDATE counters SET used = used + 1 WHERE client = $1 AND used + 1 <= ceiling RETURNING used";

pub(crate) struct Postgres(Database);

impl Postgres {
    pub(crate) async fn on(server: Arc<PgServer>) -> Result<Postgres, Failed> {
        Ok(Postgres(Database::make(server, TABLE).await?))
    }
}

impl Contender for Postgres {
    type Client = Session;

    async fn connect(&self) -> Result<Session, Failed> {
        let client = self.0.connect().await?;
        let check = client.prepare(CHECK).await?;
        Ok(Session { client, check })
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
    check: Statement,
}

impl Client for Session {
    /// There are no rules: each client has a row.
    async fn create(&mut self, case: Case, _: usize) -> Result<(), Failed> {
        let clients: Vec<String> = (0..case.subjects).map(client_name).collect();
        let insert = "INSERT INTO counters SELECT one, 0, $2 FROM unnest($1::text[]) AS one";
        self.client.execute(insert, &[&clients, &i64::try_from(LIMIT)?]).await?;
        self.client.batch_execute("ANALYZE counters").await?;
        Ok(())
    }

    /// One transaction each.
    async fn check(&mut self, _: Case, subjects: &[usize]) -> Result<u64, Failed> {
        let mut refused = 0;
        for &subject in subjects {
            let taken = self.client.query(&self.check, &[&client_name(subject)]).await?;
            refused += u64::from(taken.is_empty());
        }
        Ok(refused)
    }
}
