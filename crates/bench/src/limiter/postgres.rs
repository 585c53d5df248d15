//! Counters in PostgreSQL. A check is one statement, which takes 1 if the ceiling allows it. Every transaction is synced.

use super::workload::{Case, Client, LIMIT, client_name};
use crate::{Failed, postgres};
use tokio_postgres::Statement;

/// Pages are half empty, so that an update finds room on its page and need not touch the index.
const TABLE: &str = "
    CREATE TABLE counters (client text PRIMARY KEY, used bigint NOT NULL, ceiling bigint NOT NULL)
    WITH (fillfactor = 50)";

const CHECK: &str =
    "UPDATE counters SET used = used + 1 WHERE client = $1 AND used + 1 <= ceiling RETURNING used";

pub(crate) struct Session {
    client: tokio_postgres::Client,
    check: Statement,
}

impl postgres::Session for Session {
    const SCHEMA: &'static str = TABLE;

    async fn prepare(client: tokio_postgres::Client) -> Result<Session, Failed> {
        Ok(Session { check: client.prepare(CHECK).await?, client })
    }
}

impl Client for Session {
    /// Creates a row for each client; there are no rules.
    async fn create(&mut self, case: Case, _: usize) -> Result<(), Failed> {
        let clients: Vec<String> = (0..case.subjects).map(client_name).collect();
        let insert = "INSERT INTO counters SELECT one, 0, $2 FROM unnest($1::text[]) AS one";
        self.client.execute(insert, &[&clients, &i64::try_from(LIMIT)?]).await?;
        self.client.batch_execute("ANALYZE counters").await?;
        Ok(())
    }

    /// Each check is one transaction.
    async fn check(&mut self, _: Case, subjects: &[usize]) -> Result<u64, Failed> {
        let mut refused = 0;
        for &subject in subjects {
            let taken = self.client.query(&self.check, &[&client_name(subject)]).await?;
            refused += u64::from(taken.is_empty());
        }
        Ok(refused)
    }
}
