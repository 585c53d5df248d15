//! PostgreSQL: a rival that does the work of a family in SQL, and the store of a cluster.

use crate::{Failed, load::Contender, machine};
use limina_pg_server::PgServer;
use rustix::process::geteuid;
use std::{fs, future::Future, marker::PhantomData, os::unix::fs::PermissionsExt, path::Path, sync::Arc};
use tokio_postgres::{Client, NoTls};

/// The first three are the defaults: nothing is answered before it is on disk. The others make PostgreSQL faster: more
/// memory, fewer checkpoints, and look-ups by index from the first row on, which its statistics would suggest only later.
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

/// Starts a server with its data in this directory.
pub(crate) fn start_server(directory: &Path) -> Result<Arc<PgServer>, Failed> {
    let own = directory.join("postgres");
    fs::create_dir(&own)?;
    if geteuid().is_root() {
        // PostgreSQL does not run as root. Its own user must be able to enter the directory.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o711))?;
    }
    Ok(Arc::new(PgServer::start_in(&own, &SETTINGS)?))
}

/// Stops the server, unless somebody else uses it.
pub(crate) fn stop_server(server: Arc<PgServer>) -> Result<(), Failed> {
    let Some(server) = Arc::into_inner(server) else { return Ok(()) };
    machine::note_end(server.pid()?);
    Ok(server.stop()?)
}

/// A connection that does the work of a family with prepared statements.
pub(crate) trait Session: Sized + Send + 'static {
    /// SQL that creates what the statements need.
    const SCHEMA: &'static str;

    fn prepare(client: Client) -> impl Future<Output = Result<Self, Failed>> + Send;
}

/// A database of a server, with sessions of one family.
pub(crate) struct Database<S> {
    server: Arc<PgServer>,
    url: String,
    session: PhantomData<fn() -> S>,
}

impl<S: Session> Database<S> {
    /// Creates a database with the family's schema.
    pub(crate) async fn create(server: Arc<PgServer>) -> Result<Database<S>, Failed> {
        let url = server.url(&server.new_database()?);
        let database = Database { server, url, session: PhantomData };
        database.open().await?.batch_execute(S::SCHEMA).await?;
        Ok(database)
    }

    async fn open(&self) -> Result<Client, Failed> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

impl<S: Session> Contender for Database<S> {
    type Client = S;

    async fn connect(&self) -> Result<S, Failed> {
        S::prepare(self.open().await?).await
    }

    fn process(&self) -> Option<u32> {
        self.server.pid().ok()
    }

    /// Unknown: PostgreSQL consists of many processes that share memory.
    fn resident_bytes(&self) -> Option<u64> {
        None
    }

    async fn stop(self) -> Result<(), Failed> {
        stop_server(self.server)
    }
}
