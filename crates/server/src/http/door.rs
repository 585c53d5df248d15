//! Who comes in at a listener: clients, with TLS or without, or other nodes.

use super::{
    App,
    handshakes::{HandshakeError, Handshakes, TLS_CONNECTION},
    memory::CONNECTION,
    socket::Socket,
    transport::Transport,
};
use crate::{Tls, peers::Identity};
use limina_node::{
    Budget,
    memory::{Kind, MemoryFull, Priority, Reservation},
};
use std::{net::SocketAddr, sync::Arc};
use tokio_rustls::server::TlsStream;

/// Who comes in at a listener. Cheap to clone.
#[derive(Clone)]
pub(super) enum Door {
    /// Every client.
    Plain,
    /// Clients over TLS.
    Tls(Tls),
    /// Nodes of the same cluster.
    Peers(Arc<Identity>),
}

impl Door {
    /// The memory of a connection. Clients get a part of the budget. Nodes are always reached, because the clients of other nodes
    /// must be able to release what they hold; nodes are few.
    pub(super) fn reserve(&self, memory: &Budget) -> Result<Reservation, MemoryFull> {
        let reserve = |bytes| memory.reserve(Kind::Connections, bytes, Priority::Reachable);
        match self {
            Door::Plain => reserve(CONNECTION),
            Door::Tls(_) => reserve(CONNECTION + TLS_CONNECTION),
            Door::Peers(_) => Ok(memory.reserve_anyway(Kind::Connections, CONNECTION + TLS_CONNECTION)),
        }
    }

    /// Lets a connection in, after the TLS handshake if there is one. None if it is refused.
    pub(super) async fn open(
        self,
        socket: Socket,
        address: SocketAddr,
        handshakes: Arc<Handshakes>,
        app: &App,
    ) -> Option<Transport> {
        let stopping = app.stopping().subscribe();
        let opened = match &self {
            Door::Plain => return Some(Transport::Plain(socket)),
            Door::Tls(tls) => handshakes.run(socket, tls.config(), stopping, async |stream| Ok(stream)).await,
            Door::Peers(identity) => {
                let admit = async |stream: TlsStream<Socket>| {
                    identity.welcome(stream).await?.ok_or(HandshakeError::Stranger)
                };
                handshakes.run(socket, identity.server_config(), stopping, admit).await
            }
        };
        match opened {
            Ok(stream) => Some(Transport::Tls(Box::new(stream))),
            Err(error) => {
                let listener = self.word();
                if let Some(reason) = error.reason() {
                    app.0.metrics.handshake_failed(listener, reason);
                }
                tracing::debug!(listener, %address, %error, "a TLS handshake led to no connection");
                None
            }
        }
    }

    /// The value of the label `listener`.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Door::Plain | Door::Tls(_) => "clients",
            Door::Peers(_) => "peers",
        }
    }
}
