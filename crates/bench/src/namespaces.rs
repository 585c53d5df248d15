//! Limina over HTTP with clients that use many namespaces, and so many shards, in turn.

use crate::{
    Failed,
    http::{Connection, Http},
    load::Contender,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// As many as there are clients of single requests.
pub(crate) const NAMESPACES: usize = 64;

pub(crate) struct ManyNamespaces {
    server: Http,
    clients: AtomicUsize,
}

impl ManyNamespaces {
    pub(crate) fn new(server: Http) -> ManyNamespaces {
        ManyNamespaces { server, clients: AtomicUsize::new(0) }
    }
}

impl Contender for ManyNamespaces {
    type Client = InTurn;

    /// Each client begins with another namespace.
    async fn connect(&self) -> Result<InTurn, Failed> {
        let connection = self.server.connect().await?;
        Ok(InTurn { connection, namespace: self.clients.fetch_add(1, Relaxed) })
    }

    fn process(&self) -> Option<u32> {
        self.server.process()
    }

    async fn stop(self) -> Result<(), Failed> {
        self.server.stop().await
    }
}

/// A connection that uses the namespaces in turn.
pub(crate) struct InTurn {
    connection: Connection,
    namespace: usize,
}

impl InTurn {
    /// The connection, in the next namespace.
    pub(crate) fn next(&mut self) -> &mut Connection {
        self.namespace += 1;
        self.connection.enter(&format!("n{}", self.namespace % NAMESPACES));
        &mut self.connection
    }

    /// The connection, in the namespace of the last request.
    pub(crate) fn same(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
