//! PostgreSQL, which families ask to do their work in SQL, and which nodes share as their store.

use crate::Failed;
use limina_pg_server::PgServer;
use rustix::process::geteuid;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};
use tokio_postgres::{Client, NoTls};

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

/// Starts a server of our own in a directory.
pub(crate) fn start_server(directory: &Path) -> Result<Arc<PgServer>, Failed> {
    let own = directory.join("postgres");
    fs::create_dir(&own)?;
    if geteuid().is_root() {
        // The server runs as somebody else, who must be able to pass.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o711))?;
    }
    Ok(Arc::new(PgServer::start_in(&own, &SETTINGS)?))
}

/// A database of a server.
pub(crate) struct Database {
    server: Arc<PgServer>,
    url: String,
}

impl Database {
    /// A new one, in which this was executed.
    pub(crate) async fn make(server: Arc<PgServer>, tables: &str) -> Result<Database, Failed> {
        let url = server.url(&server.new_database()?);
        let database = Database { server, url };
        database.connect().await?.batch_execute(tables).await?;
        Ok(database)
    }

    pub(crate) async fn connect(&self) -> Result<Client, Failed> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// The server's process.
    pub(crate) fn process(&self) -> Option<u32> {
        self.server.pid().ok()
    }

    /// Ends the server, if nobody else uses it.
    pub(crate) fn stop(self) -> Result<(), Failed> {
        Ok(Arc::into_inner(self.server).map_or(Ok(()), PgServer::stop)?)
    }
}
