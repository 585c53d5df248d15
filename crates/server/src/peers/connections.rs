//! Connections to other nodes: opened on demand, shared by all calls.

use super::{Identity, calls::Connection, identity::Greeting};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use limina_node::Budget;
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};

/// The timeout of a connection attempt, before TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of the TLS handshake, in which the other node's certificate may have to be looked for in the database.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// All connections of one kind, by address. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connections {
    identity: Arc<Identity>,
    memory: Budget,
    lines: Arc<Mutex<HashMap<Box<str>, Line>>>,
}

/// A connection that is open or being opened. All calls that need it wait for the same attempt.
type Line = Shared<BoxFuture<'static, Option<Connection>>>;

#[derive(Debug, thiserror::Error)]
enum NotConnected {
    #[error("the connection attempt timed out")]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error("its certificate is not one of a node that the database lists")]
    Stranger,
    #[error("it is of version {0}")]
    Version(u8),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

impl Connections {
    /// `memory` counts long answers.
    pub(super) fn new(identity: Arc<Identity>, memory: Budget) -> Connections {
        Connections { identity, memory, lines: Arc::default() }
    }

    /// Returns the connection to that address, opening it if needed; `None` if the node cannot be reached.
    pub(super) async fn get(&self, address: &str) -> Option<Connection> {
        let line = {
            let mut lines = self.lock();
            match lines.get(address).filter(|line| is_usable(line)) {
                Some(line) => line.clone(),
                None => {
                    let line = self.clone().begin(address.into());
                    lines.insert(address.into(), line.clone());
                    line
                }
            }
        };
        line.await
    }

    /// Removes a connection that has ended, if it still is the one to that address.
    fn forget(&self, address: &str, connection: &Connection) {
        let mut lines = self.lock();
        let held = lines.get(address).and_then(|line| line.peek()?.as_ref());
        if held.is_some_and(|held| held.is_same(connection)) {
            lines.remove(address);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to open a connection, in a task that goes on even if no call waits for it any more.
    fn begin(self, address: Box<str>) -> Line {
        let connecting = tokio::spawn(async move {
            match self.connect(&address).await {
                Ok(connection) => Some(connection),
                Err(error @ NotConnected::Version(_)) => {
                    tracing::warn!(%address, %error, "another node is not used");
                    None
                }
                Err(error) => {
                    tracing::debug!(%address, %error, "another node was not reached");
                    None
                }
            }
        });
        connecting.map(|joined| joined.ok().flatten()).boxed().shared()
    }

    async fn connect(&self, address: &str) -> Result<Connection, NotConnected> {
        let socket = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
        // Without this, small requests wait for the acknowledgement of earlier ones. A failure only makes them slower.
        let _slower = socket.set_nodelay(true);
        let stream = match timeout(HANDSHAKE_TIMEOUT, self.identity.connect(socket)).await?? {
            Greeting::Welcome(stream) => stream,
            Greeting::Stranger => return Err(NotConnected::Stranger),
            Greeting::Version(version) => return Err(NotConnected::Version(version)),
        };
        let (connection, runner) = Connection::new(stream, self.memory.clone());
        let (connections, address, opened) = (self.clone(), address.to_owned(), connection.clone());
        tokio::spawn(async move {
            if let Err(error) = runner.run().await {
                tracing::debug!(address, %error, "the connection to another node ended");
            }
            connections.forget(&address, &opened);
        });
        Ok(connection)
    }
}

/// Whether new calls can use the connection, or wait for it.
fn is_usable(line: &Line) -> bool {
    match line.peek() {
        None => true,
        Some(None) => false,
        Some(Some(connection)) => !connection.is_closed(),
    }
}
